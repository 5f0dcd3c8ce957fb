"""protect="sensitive_features": what fits keep, what they measure, and what they refuse."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import (
    DemographicParity,
    FalseNegativeRate,
    PartialDemographicParity,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    PrivacyWarning,
    SmallGroupWarning,
)
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.models import Posteriors, SingleFit
from fairconstrained.solvers import DPFERMI, SGDA, AugmentedLagrangian, ReleasedMoments
from tests.helpers.fits import measured
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import SECRET_GROUPS
from tests.helpers.releases import answered_by, without_noise

DATA = make_biased_classification(20_000, 6, bias=0.6, random_state=0)
X, Y = DATA.data, DATA.target
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b").astype(object)
SECRET = RateConstrainedClassifier(**SECRET_GROUPS)
FEW = slice(0, 1000)
rng = np.random.default_rng(0)
PARTLY = np.where(rng.random(len(Y)) < 0.2, None, GROUPS)
WEIGHT = rng.exponential(size=len(Y))
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind.__module__}.{kind.__name__}")
    for kind in (ConstraintNotSatisfiedWarning, PrivacyWarning, SmallGroupWarning)
]


def fitted(clf, groups=GROUPS, rows=FEW, weight=None):
    """On some of the rows."""
    weight = None if weight is None else weight[rows]
    return clf.fit(X[rows], Y[rows], sensitive_features=groups[rows], sample_weight=weight)


MEASURED = {
    "losses": ("loss_parity", {}, {}),
    "an unknown group": ("demographic_parity", {}, {"groups": PARTLY}),
    "weights": ("equal_opportunity", {}, {"weight": WEIGHT}),
    "a network": (
        "equalized_odds",
        {"model": (3,), "solver": ReleasedMoments(n_rounds=1, inner=SGDA(n_steps=30))},
        {},
    ),
}


@pytest.mark.parametrize("case", slow_where(MEASURED, "a network"))
def test_with_little_noise_what_is_measured_is_exact(case):
    """Predicted labels by group are the last release: the estimated groups have the same sums."""
    name, params, given = MEASURED[case]
    clf = fitted(clone(SECRET).set_params(constraint=name, epsilon=1e4, **params), **given)
    groups, weight = given.get("groups", GROUPS), given.get("weight")
    known = np.flatnonzero([own is not None for own in groups[FEW]])
    options = {} if weight is None else {"sample_weight": weight[known]}
    exact = measured(clf, name, (X[known], Y[known], groups[known]), **options)
    assert clf.violation_ == pytest.approx(exact, abs=2e-3)
    assert clf.excess_error_ < 0.01


def exact_gap(clf, groups=GROUPS):
    return demographic_parity_difference(Y, clf.predict(X), sensitive_features=groups)


@pytest.mark.slow
def test_slacks_hold_near_the_fit_without_privacy():
    """With the error of that fit, and an estimate of the gap whose error is told."""
    free = fitted(RateConstrainedClassifier(), rows=slice(None))
    off = []
    for seed in range(8):
        clf = fitted(clone(SECRET).set_params(random_state=seed), rows=slice(None))
        assert exact_gap(clf) <= 0.05 + 0.01
        assert clf.score(X, Y) == pytest.approx(free.score(X, Y), abs=0.003)
        off.append((clf.violation_ - exact_gap(clf)) / clf.excess_error_)
    assert 0.2 < np.std(off) < 0.8  # the error is two standard deviations


def test_equal_weights_are_no_weights():
    """They are relative: equal ones change no bit, no promise."""
    plain, weighted = (fitted(clone(SECRET), weight=w) for w in (None, np.full(len(Y), 3.0)))
    np.testing.assert_array_equal(weighted.coef_, plain.coef_)
    assert weighted.privacy_ == plain.privacy_


def test_the_price_grows_with_neither_rows_nor_constraints():
    plans = [
        clone(SECRET).set_params(constraint=constraint).planned_privacy(n)
        for n in (1000, 10**6)
        for constraint in ("demographic_parity", ["equalized_odds", "loss_parity"])
    ]
    assert all(plan == plans[0] for plan in plans)
    assert plans[0].unit == "sensitive_features"
    assert 0.98 < plans[0].epsilon <= 1.0


@pytest.mark.parametrize("clf", [SECRET, DPFermiClassifier(random_state=0)], ids=["rates", "ERMI"])
def test_one_known_group_and_missing_ones_are_no_secret_to_compare(clf):
    """Who is unknown stays one: what is released says it with noise."""
    with pytest.warns(UserWarning, match="contains only the group .* where it is known"):
        clf = fitted(clone(clf), np.where(PARTLY == "a", "a", None))
    assert 0.9 < clf.privacy_.epsilon <= 1.0
    assert np.isnan(clf.violation_)


def test_declared_groups_may_not_be_missing_if_that_raises():
    """Whether any is missing is then taken for public; the message does not count them."""
    whole, partly = (pd.Series(pd.Categorical(own, ["a", "b", "c"])) for own in (GROUPS, PARTLY))
    clf = clone(SECRET).set_params(missing_sensitive="raise")
    assert fitted(clf, whole).groups_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="missing for some rows") as caught:
        fitted(clf, partly)
    assert not hasattr(caught.value, "privacy")


REFUSED = {
    "a group model that learns": (
        {"model": Posteriors(LogisticRegression(), DecisionTreeClassifier())},
        "reads the groups exactly",
    ),
    "a single plain model": (
        {"model": SingleFit(DecisionTreeClassifier())},
        "must be 'linear', a network or a frozen classifier",
    ),
    "a range": ({"feature_range": (-1, 1)}, "feature_range must be None .* features are public"),
    "steps for a penalty": ({"solver": DPFERMI()}, "DPFERMI"),
    "a solver of exact rows": ({"solver": AugmentedLagrangian()}, "AugmentedLagrangian"),
    "thresholds of their own": (
        {"constraint": PartialDemographicParity(interval=(0.1, 0.5))},
        "must be linear in sums over groups",
    ),
    "a margin": ({"margin": 1.0}, "margin must be 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_read_groups_exactly_is_refused_before_any_release(case, monkeypatch):
    params, message = REFUSED[case]
    made = answered_by(monkeypatch, without_noise)
    with pytest.raises(ValueError, match=message):
        fitted(clone(SECRET).set_params(**params))
    assert made == []


def test_a_model_of_features_and_labels_learns_and_one_of_the_groups_must_be_frozen():
    """With the group model that is given; groups_ has its names."""
    groups = DATA.sensitive_features
    own = LogisticRegression().fit(X[1000:2000], groups[1000:2000])
    model = Posteriors(DecisionTreeClassifier(max_depth=3), FrozenEstimator(own))
    clf = fitted(clone(SECRET).set_params(model=model), groups, rows=slice(2000, None))
    assert exact_gap(clf, groups) < 0.08
    assert clf.coef_.shape == (1, 5)  # log odds, P(y), P(group), and two products


@pytest.mark.parametrize(
    "constraint",
    [DemographicParity(ratio=0.8), FalseNegativeRate(max=0.3, per_group=True)],
    ids=lambda c: c.name,
)
def test_ratios_and_caps_are_kept_by_their_estimates(constraint):
    clf = fitted(clone(SECRET).set_params(constraint=constraint), rows=slice(0, 8000))
    assert clf.excess_ <= clf.excess_error_ < 0.1

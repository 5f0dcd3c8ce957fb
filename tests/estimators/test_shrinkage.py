"""Fits under shrunken rates: what is bounded, what is measured, and how rows may be given."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalseNegativeRate,
)
from fairconstrained.groups import RecordedGroups
from fairconstrained.metrics import (
    equalized_odds_difference,
    group_report,
)
from fairconstrained.models import Posteriors
from tests.helpers.fits import same_model

BAYES = {"shrinkage": "empirical_bayes"}
SHARE = np.array([0.5, 0.2, 0.15, 0.08, 0.04, 0.03])


def drawn(seed=0, n=900):
    """Six groups of very different sizes and, in one column, means that differ a little."""
    rng = np.random.default_rng(seed)
    group = rng.choice(6, size=n, p=SHARE)
    X = rng.normal(size=(n, 3)) + 0.3 * (group[:, None] == [1, 2, 3])
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0] - X[:, 1]))).astype(int)
    return np.hstack((X, np.eye(6)[group])), y, group


X, Y, GROUP = drawn()
TREE = DecisionTreeClassifier(max_depth=4, random_state=0)


def fitted(notion=None, rows=X, groups=GROUP, weight=None, y=Y, **params):
    notion = notion or DemographicParity(0.05, **BAYES)
    params = {"min_group_size": 1, "random_state": 0} | params
    clf = RateConstrainedClassifier(notion, **params)
    return clf.fit(rows, y, sensitive_features=groups, sample_weight=weight)


def test_the_slack_bounds_shrunken_rates_and_attributes_measure_labels():
    clf = fitted(EqualizedOdds(0.05, **BAYES))
    assert clf.shrunken_violation_ <= 0.051
    assert clf.shrunken_violations_ == {
        clf.constraints_[0].split(" of ")[0]: pytest.approx(0.05, abs=0.06)
    }
    expected = equalized_odds_difference(Y, clf.predict(X), sensitive_features=GROUP)
    assert clf.violation_ == pytest.approx(expected, abs=1e-9)
    assert clf.feasible_ == (expected <= 0.051)
    assert clf.excess_ == pytest.approx(expected - 0.05, abs=1e-9)
    assert list(clf.groups_) == list(range(6))
    assert len(clf.multipliers_) == len(clf.constraints_)


def test_with_three_groups_it_is_the_ordinary_fit():
    few = np.minimum(GROUP, 2)
    own = fitted(groups=few)
    same_model(own, fitted(DemographicParity(0.05), groups=few))
    assert own.shrunken_violation_ == pytest.approx(own.violation_, abs=1e-9)
    assert own.feasible_


def test_a_slack_that_never_binds_gives_the_model_without_constraints():
    same_model(fitted(DemographicParity(1.0, **BAYES)), fitted(DemographicParity(1.0)))


@pytest.mark.slow
def test_rows_in_blocks_and_weights_give_the_same_model():
    free = DemographicParity(1.0, **BAYES)
    whole, loose = fitted(), fitted(free)
    blocks = Blocks(lambda: (X[i : i + 200] for i in range(0, len(X), 200)))
    of_blocks = fitted(free, rows=blocks)
    same_model(of_blocks, loose)
    assert of_blocks.violation_ == pytest.approx(loose.violation_, abs=1e-9)
    assert of_blocks.shrunken_violation_ == pytest.approx(loose.shrunken_violation_, abs=1e-9)
    assert fitted(rows=blocks).shrunken_violation_ <= 0.051
    twice = np.repeat(np.arange(len(X)), np.where(GROUP == 3, 2, 1))
    assert fitted(weight=np.full(len(X), 3.0)).coef_ == pytest.approx(whole.coef_, rel=1e-4)
    # A row of weight two is less certain than two rows, so only the measured rates agree.
    one = fitted(free, weight=np.where(GROUP == 3, 2.0, 1.0))
    other = fitted(free, rows=X[twice], groups=GROUP[twice], y=Y[twice])
    assert one.violation_ == pytest.approx(other.violation_, abs=1e-9)
    assert one.shrunken_violation_ < other.shrunken_violation_


def test_any_classifier():
    clf = fitted(EqualOpportunity(0.1, **BAYES), model=Posteriors(TREE, cv=2))
    assert clf.shrunken_violation_ <= 0.101
    assert np.isfinite(clf.violation_)


@pytest.mark.parametrize(
    "notion",
    [
        DemographicParity(ratio=0.8, **BAYES),
        [DemographicParity(0.05, reference="rest", **BAYES), FalseNegativeRate(0.5)],
    ],
)
def test_with_other_options_and_in_lists(notion):
    clf = fitted(notion)
    shrunken = clf.shrunken_violations_["demographic_parity"]
    assert shrunken <= (0.2 if "ratio" in repr(notion) else 0.051)
    if isinstance(notion, list):
        caps = (
            clf.violations_["false_negative_rate"],
            clf.shrunken_violations_["false_negative_rate"],
        )
        assert caps[0] == pytest.approx(caps[1])
        assert caps[0] <= 0.501


def test_what_does_not_fit_is_refused_before_any_work():
    with pytest.raises(ValueError, match="epsilon must be None with shrinkage"):
        fitted(epsilon=1.0)
    with pytest.raises(ValueError, match="shrinkage must be"):
        fitted(DemographicParity(shrinkage="ridge"))
    recorded = RecordedGroups(GROUP, 0.02 + 0.88 * np.eye(6))
    with pytest.raises(ValueError, match="shrinkage takes groups or GroupProbabilities"):
        fitted(groups=recorded)
    with pytest.raises(ValueError, match="attributes or shrinkage"):
        DPFermiClassifier(DemographicParity(**BAYES)).fit(X, Y, sensitive_features=GROUP)


def test_reports_have_them_beside_the_measured_ones():
    predicted = fitted().predict(X)
    plain = group_report(Y, predicted, sensitive_features=GROUP)
    report = group_report(Y, predicted, sensitive_features=GROUP, **BAYES)
    assert report[plain.columns].equals(plain)
    for name in ("selection_rate", "error"):
        rate, low, high = (report[f"{name}_shrunken{end}"] for end in ("", "_low", "_high"))
        assert ((low <= rate) & (rate <= high)).all()
        lengths = (high - low) / (report[f"{name}_high"] - report[f"{name}_low"])
        assert (lengths[["4", "5"]] < 0.95).all()  # a small and a large group
        assert np.ptp(rate[:6]) < np.ptp(report[name][:6])
    assert report.loc["overall", "error_shrunken"] == report.loc["overall", "error"]
    with pytest.raises(ValueError, match="shrinkage must be"):
        group_report(Y, predicted, sensitive_features=GROUP, shrinkage="ridge")

"""Secret groups: what fits keep and measure, and that nothing tells whether a group occurs."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.model_selection import SensitiveColumnsClassifier
from fairconstrained.models import Posteriors
from fairconstrained.solvers import SGDA, NoisyTables, ReleasedMoments
from tests.helpers.fits import measured
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import LARGE, PRIVATE, SECRET_GROUPS, words_of

X, Y = LARGE.data, LARGE.target
GROUPS = np.where(LARGE.sensitive_features == 0, "a", "b").astype(object)
SECRET = RateConstrainedClassifier(**SECRET_GROUPS)
FEW = slice(0, 1000)
rng = np.random.default_rng(0)
PARTLY = np.where(rng.random(len(Y)) < 0.2, None, GROUPS)
WEIGHT = rng.exponential(size=len(Y))
KINDS = ("ConstraintNotSatisfied", "Privacy", "SmallGroup")
pytestmark = pytest.mark.filterwarnings(
    *(f"ignore::fairconstrained.exceptions.{kind}Warning" for kind in KINDS),
    "ignore:.*for all rows that are compared",
)


def fitted(clf, groups=GROUPS, rows=FEW, weight=None):
    weight = None if weight is None else weight[rows]
    return clf.fit(X[rows], Y[rows], sensitive_features=groups[rows], sample_weight=weight)


ONE_ROUND = ReleasedMoments(n_rounds=1, inner=SGDA(n_steps=30))
MEASURED = {
    "losses": ("loss_parity", {}, {}),
    "an unknown group": ("demographic_parity", {}, {"groups": PARTLY}),
    "weights": ("equal_opportunity", {}, {"weight": WEIGHT}),
    "a network": ("equalized_odds", {"model": (3,), "solver": ONE_ROUND}, {}),
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
    more = clone(SECRET).set_params(constraint=["equalized_odds", "loss_parity"])
    plan = SECRET.planned_privacy(1000)
    assert plan == SECRET.planned_privacy(10**6) == more.planned_privacy(10**6)
    assert plan.unit == "sensitive_features"
    assert 0.98 < plan.epsilon <= 1.0


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


def test_a_model_of_features_and_labels_learns_and_one_of_the_groups_must_be_frozen():
    groups = LARGE.sensitive_features
    own = LogisticRegression().fit(X[1000:2000], groups[1000:2000])
    model = Posteriors(DecisionTreeClassifier(max_depth=3), FrozenEstimator(own))
    clf = fitted(clone(SECRET).set_params(model=model), groups, rows=slice(2000, None))
    assert exact_gap(clf, groups) < 0.08
    assert clf.coef_.shape == (1, 5)  # log odds, P(y), P(group), and two products


def test_ratios_and_caps_are_kept_by_their_estimates():
    for constraint in (DemographicParity(ratio=0.8), FalseNegativeRate(max=0.3, per_group=True)):
        clf = fitted(clone(SECRET).set_params(constraint=constraint), rows=slice(0, 8000))
        assert clf.excess_ <= clf.excess_error_ < 0.1


ROWS, LABELS, SEX = X[:2000], Y[:2000], GROUPS[:2000]
RECORDS = "penalty, records"


@pytest.mark.parametrize("name", ["rates", "penalty, groups", RECORDS, "ranking"])
def test_a_declared_group_is_listed_whether_or_not_it_occurs(name):
    """One row decides whether "c" occurs: what is told of the groups is the same."""
    with_c = np.where(np.arange(2000) == 7, "c", SEX)
    outcomes = []
    for groups in (SEX, with_c):
        declared = pd.Categorical(groups, categories=["b", "a", "c"])
        clf = clone(PRIVATE[name])
        fitted = clf.fit(ROWS, LABELS, sensitive_features=pd.Series(declared))
        outcomes.append((fitted.groups_.tolist(), fitted.constraints_, fitted.privacy_))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == ["a", "b", "c"]


def test_columns_declare_their_values_which_are_crossed():
    declared = pd.Categorical(SEX, categories=["b", "a", "c"])
    for columns, names in (
        ({"one": declared}, ["a", "b", "c"]),
        (pd.DataFrame({"one": declared, "two": declared}), [(i, j) for i in "abc" for j in "abc"]),
        (pl.DataFrame({"one": pl.Series(SEX, dtype=pl.Enum(["b", "a", "c"]))}), ["a", "b", "c"]),
    ):
        clf = clone(PRIVATE["rates"]).fit(ROWS, LABELS, sensitive_features=columns)
        assert clf.groups_.tolist() == names
    days = pd.DatetimeIndex(np.arange(3).astype("M8[D]").astype("M8[ns]"))
    y = pd.Categorical.from_codes(np.arange(len(ROWS)) % 2, days)
    clf = clone(PRIVATE["rates"]).fit(ROWS, y, sensitive_features=columns)
    assert clf.classes_.tolist() == days.to_pydatetime().tolist()


@pytest.mark.parametrize("table", [dict, pd.DataFrame])
def test_columns_of_which_some_declare_nothing_are_refused(table):
    groups = table({"one": pd.Categorical(SEX, categories=["b", "a", "c"]), "two": SEX})
    with pytest.raises(ValueError, match=r"must be categoricals, or none.*column 1 is not"):
        clone(PRIVATE["rates"]).fit(ROWS, LABELS, sensitive_features=groups)


def test_whoever_takes_groups_from_columns_tells_no_class_that_occurs():
    table = pd.DataFrame(ROWS).assign(group=SEX == "a")
    alone = SensitiveColumnsClassifier(PRIVATE["rates"], -1)
    nested = make_pipeline(SensitiveColumnsClassifier(make_pipeline(PRIVATE["rates"]), -1))
    for clf, occurring in itertools.product((alone, nested), (2, 3)):
        y = pd.Series(pd.Categorical(np.arange(2000) % occurring, categories=range(3)))
        assert clone(clf).fit(table.to_numpy(float), y).classes_.tolist() == [0, 1, 2]


def test_no_warning_tells_how_many_of_the_declared_classes_occur():
    """scikit-learn counts the labels that occur where they are many."""
    clf = DPFermiClassifier(protect="record", solver=NoisyTables(n_steps=1), min_group_size=0)
    warned = []
    for occurring in (2, 24):
        y = pd.Series(pd.Categorical(np.arange(40) % occurring, categories=range(24)))
        warned += words_of(partial(clf.fit, ROWS[:40], y, sensitive_features=SEX[:40]))
    assert "unique classes" not in " ".join(warned)


@pytest.mark.parametrize("name", ["rates", RECORDS])
def test_a_declared_class_need_not_occur(name):
    declared = pd.Series(pd.Categorical(LABELS, categories=[0, 1, 2]))
    for rows in (slice(None), LABELS == 0):  # one class alone is no error, which would tell
        clf = clone(PRIVATE[name]).fit(ROWS[rows], declared[rows], sensitive_features=SEX[rows])
        assert clf.classes_.tolist() == [0, 1, 2]
        assert clf.predict_proba(ROWS[:5]).shape == (5, 3)


@pytest.mark.parametrize("occurring", [2, 30])
def test_how_many_of_the_declared_groups_occur_decides_no_error_and_no_warning(occurring):
    """Thirty groups in 140 rows are refused by their number, whether two of them occur or all."""
    groups = pd.Series(pd.Categorical(np.arange(2000) % occurring, categories=range(30)))
    with pytest.raises(ValueError, match=r"has 30 groups in 140 samples"):
        clone(PRIVATE["ranking"]).fit(ROWS[:140], LABELS[:140], sensitive_features=groups[:140])
    fit = partial(clone(PRIVATE["rates"]).fit, ROWS, LABELS, sensitive_features=groups)
    assert "has 30 different numbers" in " ".join(words_of(fit))


@pytest.mark.parametrize("occurring", [2, 3])
@pytest.mark.parametrize(
    ("of", "categories", "message"),
    [
        ("groups", [1, 2, "x"], "categories of sensitive_features must be of one type"),
        ("groups", [True, False, "unknown"], "categories of sensitive_features must be of one"),
        ("labels", [0.0, 1.0, 1.5], "must be classes"),
        ("labels", ["a", "b", 7], "must be of one type"),
    ],
)
def test_categories_of_different_types_are_refused_by_all(of, categories, message, occurring):
    """1 and 2 alone are numbers, and texts beside "x": the row with "x" would decide."""
    declared = pd.Series(pd.Categorical.from_codes(np.arange(2000) % occurring, categories))
    y, groups = (declared, SEX) if of == "labels" else (LABELS, declared)
    with pytest.raises(ValueError, match=message):
        clone(PRIVATE["rates"]).fit(ROWS, y, sensitive_features=groups)

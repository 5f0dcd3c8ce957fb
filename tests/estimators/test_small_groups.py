"""Who is compared: small groups are left out by name, strata and attributes each have their gap."""

import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning

import fairconstrained as fc
from fairconstrained import metrics, model_selection
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import DemographicParity, EqualizedOdds, LossParity, Space
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import InputWarning, SmallGroupWarning
from fairconstrained.inputs.samples import check_samples
from tests.helpers.fits import FORGIVEN, table
from tests.helpers.notions import random_rows, soft_values
from tests.helpers.private_fits import words_of

DATA = make_biased_classification(1500, random_state=0)
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b").astype(object)
MISTYPED = GROUPS.copy()
MISTYPED[3] = "Typo"


def fitted(groups, estimator=fc.RateConstrainedClassifier, **params):
    return estimator(**params).fit(DATA.data, DATA.target, sensitive_features=groups)


def test_a_mistyped_group_costs_nothing_but_a_warning():
    """Accuracy within .002 of the fit without the row; compared with the others it costs .2."""
    keep = np.arange(1500) != 3
    X, y = DATA.data, DATA.target
    without = fc.RateConstrainedClassifier().fit(X[keep], y[keep], sensitive_features=GROUPS[keep])
    with pytest.warns(SmallGroupWarning, match=r"leaves out group Typo \(1 row, fewer than 20\)"):
        clf = fitted(MISTYPED)
    compared = fitted(MISTYPED, min_group_size=1)
    assert clf.score(X, y) == pytest.approx(without.score(X, y), abs=0.002)
    assert compared.score(X, y) < clf.score(X, y) - 0.1
    assert clf.feasible_
    assert len(clf.multipliers_) == len(without.multipliers_)
    assert list(clf.groups_) == ["Typo", "a", "b"]  # it is left out of the constraint only


@pytest.mark.parametrize("estimator", [fc.PartialParityClassifier, fc.AUCFairClassifier])
def test_every_estimator_leaves_it_out(estimator):
    with pytest.warns(SmallGroupWarning, match="Typo"):
        clf = fitted(MISTYPED, estimator, slack=0.1)
    assert not any("Typo" in words for words in clf.constraints_)


def test_an_integer_says_how_many_rows():
    clf = fitted(MISTYPED, min_group_size=1, slack=0.5)
    assert sum("Typo" in words for words in clf.constraints_) == 4  # both ways, against a and b
    with pytest.warns(SmallGroupWarning, match=r"fewer than 2\) \(min_group_size=2\)"):
        fitted(MISTYPED, min_group_size=2)


def test_rows_of_unknown_group_are_no_group():
    """With 400 of them the twelve rows of "few" are compared as without: three are enough."""
    few = np.where(np.arange(1500) < 12, "few", "many").astype(object)
    few[1100:] = None
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        clf = fitted(few, max_iter=3)
    assert clf.left_out_ == []
    assert clf.violation_ >= 0


def test_many_groups_of_which_some_are_missing_are_fitted():
    many = np.array([f"g{i:02d}" for i in np.arange(1500) % 25], dtype=object)
    many[::7] = None
    assert len(fitted(many, slack=0.5, max_iter=2).groups_) == 25


@pytest.mark.parametrize("reference", ["pairwise", "rest", "overall"])
def test_parallel_attributes_leave_out_whom_each_alone_leaves_out(reference):
    race = np.where(np.arange(1500) < 6, "x", np.where(np.arange(1500) % 3, "y", "z"))
    both = DemographicParity(reference=reference, attributes="parallel")
    with pytest.warns(SmallGroupWarning, match=r"leaves out group x \(6 rows, fewer than 20\)"):
        parallel = fitted({"sex": GROUPS, "race": race}, constraint=both)
    with pytest.warns(SmallGroupWarning, match=r"leaves out group x"):
        single = fitted(race, constraint=DemographicParity(reference=reference))
    assert parallel.left_out_ == single.left_out_ == ["group x (6 rows, fewer than 20)"]
    assert not any("group x against" in words for words in parallel.constraints_)


@pytest.mark.parametrize(
    "form", [np.asarray, lambda rows: Blocks(lambda: [rows[:700], rows[700:]])]
)
def test_a_group_whose_rows_weigh_nothing_is_left_out_by_name(form):
    """As in audits; side by side it is one group, which has no row in any combination."""
    race = np.where(np.arange(1500) < 40, "x", np.where(np.arange(1500) % 3, "y", "z"))
    inputs = {"sensitive_features": {"sex": GROUPS, "race": race}, "sample_weight": race != "x"}
    each = {
        "crossed": ["group a & x (0 rows)", "group b & x (0 rows)"],
        "parallel": ["group x (0 rows)"],
    }
    for attributes, names in each.items():
        clf = fc.RateConstrainedClassifier(DemographicParity(0.5, attributes=attributes))
        with pytest.warns(SmallGroupWarning, match="leaves out group"):
            clf.fit(form(DATA.data), DATA.target, **inputs)
        assert clf.left_out_ == names


def test_a_column_with_one_value_is_left_out_by_name():
    people = {"sex": GROUPS, "home": np.full(1500, "here")}
    with pytest.warns(SmallGroupWarning, match="leaves out group here"):
        clf = fitted(people, constraint=DemographicParity(attributes="parallel"))
    assert clf.left_out_ == ["group here (1500 rows, nothing to compare it with)"]
    assert clf.feasible_


NOBODY = {
    "one group": ("demographic_parity", np.full(1500, "f"), None, "contains only the group f"),
    "no label in common": (
        *("equal_opportunity", np.where(DATA.target == 1, "f", "m"), None),
        r"group f, label 1 \(.* rows, nothing to compare it with\); group m, label 1 \(0 rows\)",
    ),
    "strata that are the groups": ("demographic_parity", GROUPS, GROUPS, "nothing left to compare"),
    "strata of one group": (
        *(DemographicParity(ratio=0.8), GROUPS, np.where(GROUPS == "a", "s", DATA.target)),
        "nothing left to compare",
    ),
}


@pytest.mark.parametrize("case", NOBODY)
def test_where_nothing_is_compared_no_fit_is_feasible(case):
    """Neither alone nor with a cap that is kept: what was asked of the groups is not."""
    constraint, groups, strata, words = NOBODY[case]
    floor = fc.constraints.FalseNegativeRate(max=1.0)
    for asked in (constraint, [constraint, floor]):
        clf = fc.RateConstrainedClassifier(asked, max_iter=2)
        rows = {"sensitive_features": groups, "control_features": strata}
        said = " ".join(words_of(partial(clf.fit, DATA.data, DATA.target, **rows)))
        assert re.search(words, said)
        assert "feasible_ is False" in said
        assert not clf.feasible_
        assert np.isnan(next(iter(clf.violations_.values())))
    assert list(clf.violations_)[1:] == ["false_negative_rate"]
    assert clf.violation_ <= 1
    assert fc.RateConstrainedClassifier(floor).fit(DATA.data, DATA.target).feasible_


def test_an_attribute_that_no_row_has_is_left_out_by_name():
    """Side by side; crossed nothing is left, which a fit says, too."""
    people = pd.DataFrame({"group": GROUPS, "empty": None})
    apart = DemographicParity(0.5, attributes="parallel")
    clf = fc.RateConstrainedClassifier([DemographicParity(0.5), apart], max_iter=2)
    words = words_of(partial(clf.fit, DATA.data, DATA.target, sensitive_features=people))
    assert "lacks a value in every row" in " ".join(words)
    assert clf.left_out_ == ["all groups by empty (0 rows)"]
    assert not clf.feasible_
    crossed, parallel = clf.violations_.items()
    assert (crossed[0], np.isnan(crossed[1])) == ("demographic_parity_0", True)
    assert parallel == ("demographic_parity_1", clf.violation_)
    rows = {"y_true": DATA.target, "y_pred": DATA.target, "sensitive_features": people}
    with pytest.warns(SmallGroupWarning, match=r"leaves out all groups by empty \(0 rows\)"):
        assert metrics.demographic_parity_difference(**rows, attributes="parallel") > 0


def test_a_stratum_without_a_name_is_called_so():
    clf = fc.RateConstrainedClassifier(DemographicParity(0.1, attributes="parallel"), max_iter=2)
    people = pd.DataFrame({"group": GROUPS, "half": np.arange(len(GROUPS)) % 2})
    with pytest.warns(SmallGroupWarning, match="group group=a & stratum=a "):
        clf.fit(DATA.data, DATA.target, sensitive_features=people, control_features=GROUPS)


def test_a_ratio_of_rates_that_are_all_zero_is_not_kept():
    """Nobody is granted anything by the best constant, which has no ratio: everybody is instead."""
    X = np.zeros((1500, 1))
    clf = fc.RateConstrainedClassifier(DemographicParity(ratio=0.8))
    with pytest.warns(ConvergenceWarning, match="gives all rows equal scores"):
        clf.fit(X, np.arange(1500) % 10 == 0, sensitive_features=GROUPS)
    assert clf.feasible_
    assert clf.violation_ == 0
    assert clf.predict(X).all()


def test_integers_that_may_be_a_measurement_are_named():
    ages = np.random.default_rng(0).integers(20, 80, size=1500)
    with pytest.warns(SmallGroupWarning, match=r"60 different numbers.*pandas\.qcut"):
        fitted(ages, slack=0.5)


def by_group(seed, n_rows, n_groups):
    rng = np.random.default_rng(seed)
    group, X = rng.choice(n_groups, size=n_rows), rng.normal(size=(n_rows, 3))
    slopes = rng.normal(size=3) + 0.5 * rng.normal(size=(n_groups, 3))
    chance = rng.uniform(size=n_rows)
    log_odds = 2 * (X * slopes[group]).sum(axis=1) + rng.normal(size=n_groups)[group]
    y = (chance < 1 / (1 + np.exp(-log_odds))).astype(int)
    return np.hstack((X, np.eye(n_groups)[group])), y, group


@pytest.mark.slow
def test_a_result_hardly_better_than_a_constant_names_a_slack_that_is_enough():
    X, y, group = by_group(0, 500, 4)
    model = fc.RateConstrainedClassifier("equalized_odds", slack=0.01, min_group_size=1)
    with pytest.warns(ConvergenceWarning, match="equal scores have") as caught:
        error = 1 - model.fit(X, y, sensitive_features=group).score(X, y)
    assert error > min(y.mean(), 1 - y.mean()) - 0.01
    told = re.search(r"with slack=([\d.]+) the error is ([\d.]+)\)", str(caught[-1].message))
    slack, promised = map(float, told.groups())
    model.set_params(slack=slack)
    words = words_of(partial(model.fit, X, y, sensitive_features=group))
    assert 1 - model.score(X, y) == pytest.approx(promised, abs=1e-4)
    assert "equal scores" not in " ".join(words)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "constraint"), [(1, "equalized_odds"), (2, "demographic_parity")])
def test_the_error_does_not_rise_with_the_slack(seed, constraint):
    """Up to .003 on training rows; seeds 0 to 5 do. Between slacks it can (seed 2, .04 to .05)."""
    n_groups = int(np.random.default_rng(seed).integers(2, 11))
    X, y, group = by_group(seed, 2000, n_groups)
    errors = []
    for slack in (0.01, 0.02, 0.05, 0.1, 0.2):
        model = fc.RateConstrainedClassifier(constraint, slack=slack, min_group_size=1)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            errors.append(1 - model.fit(X, y, sensitive_features=group).score(X, y))
    assert (np.diff(errors) <= 0.003).all()
    assert errors[-1] < errors[0]


ESTIMATORS = [getattr(fc, name) for name in sorted(fc.__all__) if name.endswith("Classifier")]
X, Y, GROUP = table()
FRAME = pd.DataFrame(X)
ORDER = np.random.default_rng(0).permutation(len(Y))
INPUTS = {"y": Y, "sensitive_features": GROUP, "sample_weight": np.ones(len(Y))}


def given(clf, changed, *, X=FRAME, method="fit"):
    inputs = {**INPUTS, **changed}
    return getattr(clf, method)(X, inputs.pop("y"), **inputs)


OF_STRATA = fc.RateConstrainedClassifier, "control_features"
OF_EACH = [*zip(ESTIMATORS, [*INPUTS, *INPUTS], strict=False), OF_STRATA]


@pytest.mark.parametrize(("kind", "name"), OF_EACH)
def test_samples_in_another_order_than_those_of_X_are_refused(kind, name):
    """Pandas would align them, scikit-learn would not: either would be a guess."""
    clf, moved = kind(), pd.Series(INPUTS.get(name, GROUP)).iloc[ORDER]
    with pytest.raises(ValueError, match=f"{name} has the samples of X in another order"):
        given(clf, {name: moved})
    assert not hasattr(clf, "n_features_in_")


def test_without_an_index_of_X_the_others_are_compared():
    y, groups = pd.Series(Y), pd.Series(GROUP).iloc[ORDER]
    with pytest.raises(ValueError, match="sensitive_features has the samples of y in another"):
        given(fc.RateConstrainedClassifier(), {"y": y, "sensitive_features": groups}, X=X)
    with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
        given(fc.RateConstrainedClassifier(), {"sensitive_features": {"sex": groups}})


def test_equal_orders_say_nothing_and_shared_labels_at_other_positions_are_a_warning():
    """Rows of a split have their labels out of order, alike in all inputs or reset in one."""
    rows = ORDER[:300]
    columns = {name: pd.Series(column).iloc[rows] for name, column in INPUTS.items()}
    split = given(fc.RateConstrainedClassifier(), columns, X=FRAME.iloc[rows])
    columns["sensitive_features"] = columns["sensitive_features"].reset_index(drop=True)
    ways_out = r"give sensitive_features.loc\[X.index\]; .* after reset_index .*to_numpy\(\)"
    with pytest.warns(InputWarning, match=ways_out):
        reset = given(fc.RateConstrainedClassifier(), columns, X=FRAME.iloc[rows])
    np.testing.assert_array_equal(split.coef_, reset.coef_)


LEVELS = pd.MultiIndex.from_tuples([(0, "a"), (1, "b"), (2, "c")])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pd.RangeIndex(200), pd.RangeIndex(100, 300)),
        (pd.Index([0, 1, 2]), pd.Index(["2", "0", "1"])),
        (pd.Index(["a", "b", "b", "c"]), pd.Index(["a", "a", "b", "d"])),
        (LEVELS[:2], LEVELS[1:]),
    ],
)
def test_indices_that_share_labels_at_other_positions(first, second):
    inputs = {"y": pd.Series(0, first), "s": pd.Series(0, second)}
    with pytest.warns(InputWarning, match=r"s and y are matched by position, .* s.loc\[y.index\]"):
        check_samples(**inputs)
    check_samples(y=inputs["y"], s=inputs["s"].to_numpy())
    check_samples(y=inputs["y"], s=pd.Series(0, first.astype(object)))


def test_equal_labels_in_one_order_and_others_are_no_warning():
    for second in (pd.RangeIndex(3, 6), pd.Index(["0", "1", "2"]), [0.0, 1.0, 2.0]):
        check_samples(y=pd.Series(0, range(3)), s=pd.Series(0, second))


def test_prediction_and_streams_and_splits_look_too():
    clf = given(fc.PartialParityClassifier(group_features=True), {})
    moved = {"sensitive_features": pd.Series(GROUP).iloc[ORDER]}
    certified = model_selection.CertifiedClassifier(fc.RateConstrainedClassifier())
    search = model_selection.PrivateGridSearch(fc.RateConstrainedClassifier(epsilon=1.0), {})
    for refused in (
        lambda: clf.predict(FRAME, **moved),
        lambda: given(fc.AUCFairClassifier(), moved, method="partial_fit"),
        lambda: certified.fit(FRAME, Y, **moved),
        lambda: search.fit(FRAME, Y, **moved),
        lambda: next(model_selection.StratifiedSensitiveKFold().split(FRAME, Y, **moved)),
    ):
        with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
            refused()


@pytest.mark.parametrize(("kind", "name"), list(zip(ESTIMATORS, ["X", *INPUTS, "X"], strict=True)))
def test_masks_are_refused(kind, name):
    """Numpy's functions differ in whether they see a mask; ours read the data below it."""
    values = {"X": X, **INPUTS}[name]
    masked = np.ma.masked_array(values, mask=np.arange(values.size).reshape(values.shape) % 7 == 0)
    with pytest.raises(ValueError, match=f"{name} has masked values"):
        given(kind(), {name: masked}) if name != "X" else given(kind(), {}, X=masked)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_too_many_positional_arguments_are_answered_in_the_users_words(kind):
    expected = rf"{kind.__name__}\.fit takes X, y by position; got 3 .*sensitive_features=groups"
    with pytest.raises(TypeError, match=expected):
        kind().fit(X, Y, GROUP)
    with pytest.raises(TypeError, match=r"AUCFairClassifier\.partial_fit takes X, y, classes by"):
        fc.AUCFairClassifier().partial_fit(X, Y, [0, 1], GROUP)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_handful_of_samples_can_be_fitted(kind):
    with warnings.catch_warnings(action="ignore"):  # a group left out, a slack exceeded by one
        clf = kind(random_state=0).fit(X[:4], [0, 1, 0, 1], sensitive_features=[0, 0, 1, 1])
    assert np.isfinite(clf.coef_).all()


CELLS = [("f", "old"), ("f", "young"), ("m", "old"), ("m", "young"), ("x", "old")]
SPACE = Space([0, 1], CELLS, n_control=1)


def people(n=1200):
    X, y, group = table(n=n)
    rng = np.random.default_rng(0)
    age = np.array(["old", "young"])[(rng.random(n) < np.where(group == 0, 0.7, 0.3)).astype(int)]
    return X, y, np.array(["m", "f"])[group], age


@pytest.mark.parametrize(
    ("kind", "reference"),
    [(DemographicParity, "pairwise"), (EqualizedOdds, "rest"), (LossParity, "overall")],
)
def test_within_strata_the_values_are_those_of_each_stratum_alone(kind, reference):
    rows = random_rows(0, 2, 5, n=200)
    found = soft_values(kind(0.1, reference=reference).bind(SPACE), rows)
    expected = []
    for groups in ([0, 2, 4], [1, 3]):
        own = rows.take(torch.isin(rows.group, torch.tensor(groups)).nonzero()[:, 0])
        own = own._replace(group=torch.searchsorted(torch.tensor(groups), own.group))
        names = [SPACE.groups[g] for g in groups]
        alone = kind(0.1, reference=reference).bind(Space([0, 1], names))
        expected += soft_values(alone, own).tolist()
    np.testing.assert_allclose(sorted(found.tolist()), sorted(expected))


@pytest.mark.parametrize("kind", [EqualizedOdds, LossParity])
def test_parallel_attributes_have_the_values_of_each_column_alone(kind):
    space = Space([0, 1], [("f", "x"), ("f", "y"), ("m", "x"), ("m", "y"), ("m", "z")])
    rows = random_rows(1, 2, 5, n=200)
    found = soft_values(kind([0.1, 0.2], attributes="parallel").bind(space), rows)
    expected = []
    for column, slack in enumerate((0.1, 0.2)):
        names, codes = np.unique([label[column] for label in space.groups], return_inverse=True)
        own = rows._replace(group=torch.as_tensor(codes)[rows.group])
        expected += soft_values(kind(slack).bind(Space([0, 1], names.tolist())), own).tolist()
    np.testing.assert_allclose(sorted(found.tolist()), sorted(expected))


TREES = {"model": HistGradientBoostingClassifier(max_iter=10, random_state=0), "random_state": 0}
WITHIN = {
    "demographic_parity_difference": fc.RateConstrainedClassifier(slack=0.03),
    "equalized_odds_difference": fc.RateConstrainedClassifier("equalized_odds", slack=0.03),
    "loss_gap": fc.LossParityClassifier(slack=0.02),
    "demographic_parity_difference, trees": fc.RateConstrainedClassifier(slack=0.05, **TREES),
}


@pytest.mark.parametrize("name", WITHIN)
def test_the_slack_bounds_the_worst_stratum(name):
    metric = getattr(fc.metrics, name.partition(",")[0])
    method = "predict_proba" if name == "loss_gap" else "predict"
    X, y, sex, age = people()
    given = {"sensitive_features": sex, "control_features": age}
    clf = clone(WITHIN[name]).fit(X, y, **given)
    assert clf.feasible_
    assert clf.violation_ <= clf.slack + FORGIVEN
    found = metric(y, getattr(clf, method)(X), **given)
    assert clf.training_violation_ == pytest.approx(found, abs=1e-9)
    assert [tuple(group) for group in clf.groups_] == CELLS[:4]
    other = clone(clf).fit(X, y, sensitive_features=sex)
    assert metric(y, getattr(other, method)(X), **given) > clf.slack + 0.01


@pytest.mark.filterwarnings("ignore")
def test_private_fits_release_counts_of_strata_as_of_groups():
    """Declared categories are the domain of both: whatever occurs, the cells are the same."""
    X, y, sex, age = people()
    sex = pd.Series(pd.Categorical(sex, ["f", "m", "x"]))
    age = pd.Series(pd.Categorical(age, ["old", "young"]))
    clf = fc.RateConstrainedClassifier(slack=0.05, epsilon=5.0, random_state=0)
    clf.fit(X, y, sensitive_features=sex, control_features=age)
    assert len(clf.groups_) == 6
    assert clf.privacy_.epsilon <= 5.0
    assert all("x" not in words for words in clf.constraints_)

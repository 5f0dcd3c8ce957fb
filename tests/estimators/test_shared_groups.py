"""Groups that are known in part, with a probability, or recorded with errors."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    metrics,
    report,
)
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import AUCParity, DemographicParity, FalseNegativeRate
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.groups import EstimatedGroups, GroupProbabilities, RecordedGroups
from fairconstrained.model_selection import CertifiedClassifier, StratifiedSensitiveKFold
from fairconstrained.models import estimate_group_probabilities
from fairconstrained.monitoring import FairnessMonitor
from fairconstrained.solvers import SGDA, LevelSet, NoisyTables
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import words_of

DATA = make_biased_classification(700, random_state=0)
X, Y = DATA.data, DATA.target
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b").astype(object)
IS_B = (GROUPS == "b").astype(float)
CERTAIN = GroupProbabilities(pd.DataFrame({"b": IS_B, "a": 1.0 - IS_B}))
B = LogisticRegression().fit(np.column_stack((X, Y)), IS_B)
P = B.predict_proba(np.column_stack((X, Y)))
PROBABLE = GroupProbabilities(pd.DataFrame(P, columns=["a", "b"]))
CONFUSION = np.array([[0.9, 0.1], [0.2, 0.8]])
WRONG = np.random.default_rng(0).random(700) < np.where(IS_B, 0.2, 0.1)
RECORDED = RecordedGroups(np.where((GROUPS == "b") ^ WRONG, "b", "a"), CONFUSION)
HIDDEN = np.random.default_rng(0).random(700) < 0.5
PARTLY = np.where(HIDDEN, None, GROUPS)
SCORES = {"method": "decision_function"}
PARITY = metrics.demographic_parity_difference
CASES = {
    "rates": (RateConstrainedClassifier(slack=0.02), PARITY, {}),
    "odds and a cap": (
        RateConstrainedClassifier(["equalized_odds", FalseNegativeRate(max=0.3)], slack=0.05),
        metrics.equalized_odds_difference,
        {},
    ),
    "mini-batches": (
        RateConstrainedClassifier(solver=SGDA(), slack=0.05, max_iter=100, random_state=0),
        PARITY,
        {},
    ),
    "margin": (RateConstrainedClassifier(slack=0.08, margin=1.0), PARITY, {}),
    "losses": (LossParityClassifier(slack=0.01), metrics.loss_gap, {"method": "predict_proba"}),
    "ERMI": (DPFermiClassifier(epsilon=None, penalty=5.0), PARITY, {}),
    "AUCs": (AUCFairClassifier(), metrics.group_auc_gap, SCORES),
    "AUCs of moments": (
        AUCFairClassifier(AUCParity("inter_group", surrogate="quadratic")),
        metrics.inter_group_auc_gap,
        SCORES,
    ),
    "ranks": (
        PartialParityClassifier(interval=(0.0, 0.5)),
        metrics.partial_statistical_parity,
        {**SCORES, "interval": (0.0, 0.5)},
    ),
}
SLOW = ("mini-batches", "margin", "ERMI", "AUCs", "AUCs of moments", "ranks")


def fitted(clf, groups, rows=X):
    with warnings.catch_warnings(action="ignore"):
        return clf.fit(rows, Y, sensitive_features=groups)


def measured(metric, clf, groups, method="predict", **options):
    with warnings.catch_warnings(action="ignore", category=MissingSensitiveFeaturesWarning):
        return metric(Y, getattr(clf, method)(X), sensitive_features=groups, **options)


@pytest.mark.parametrize("case", slow_where(CASES, *SLOW))
def test_certain_probabilities_are_groups(case):
    clf, metric, options = CASES[case]
    shared, plain = fitted(clone(clf), CERTAIN), fitted(clone(clf), GROUPS)
    assert list(shared.groups_) == ["a", "b"]
    if case not in ("mini-batches", "margin"):  # drawn otherwise
        np.testing.assert_allclose(shared.coef_, plain.coef_, atol=2e-4)
    of_both = [measured(metric, shared, groups, **options) for groups in (CERTAIN, GROUPS)]
    assert of_both[0] == pytest.approx(of_both[1], abs=1e-12)


@pytest.mark.parametrize("known", ["by shares", "in part"])
@pytest.mark.parametrize("case", slow_where(CASES, *SLOW))
def test_what_is_constrained_is_what_metrics_measure(case, known):
    clf, metric, options = CASES[case]
    groups = PROBABLE if case in ("odds and a cap", "AUCs", "ranks") else RECORDED
    groups = groups if known == "by shares" else PARTLY
    clf = fitted(clone(clf), groups)
    violation = clf.violations_.get("equalized_odds", clf.violation_)
    assert violation == pytest.approx(measured(metric, clf, groups, **options), abs=1e-9)
    assert list(clf.groups_) == ["a", "b"]
    assert clf.feasible_


def test_any_classifier():
    """Its predictions on training rows are not those out of fold, of which `violation_` speaks."""
    gaps = []
    for slack in (1.0, 0.05):
        model = HistGradientBoostingClassifier(max_iter=5, random_state=0)
        clf = RateConstrainedClassifier(model=model, slack=slack, random_state=0)
        assert fitted(clf, PROBABLE).feasible_
        gaps.append(measured(PARITY, clf, GROUPS))
    assert gaps[1] < gaps[0] - 0.1


def test_rates_of_true_groups_follow_from_recorded_ones():
    """Exactly, where records err exactly as often as declared: one of ten a, one of five b."""
    y_pred = np.repeat([0, 1, 0, 1], [70, 30, 60, 140])
    true = np.repeat(["a", "a", "b", "b"], [70, 30, 60, 140])
    recorded = true.copy()
    for start, n, wrong in ((0, 7, "b"), (70, 3, "b"), (100, 12, "a"), (160, 28, "a")):
        recorded[start : start + n] = wrong
    table = pd.DataFrame(CONFUSION, ["a", "b"], ["a", "b"])
    for confusion in (CONFUSION, table, table.loc[["b", "a"], ["b", "a"]]):
        groups = RecordedGroups(recorded, confusion)
        gap = PARITY(y_pred, y_pred, sensitive_features=groups)
        assert gap == pytest.approx(0.4, abs=1e-12)
    assert PARITY(y_pred, y_pred, sensitive_features=recorded) < 0.3


def test_reports_and_intervals():
    y_pred = (X[:, 0] > 0).astype(int)
    table = metrics.group_report(Y, y_pred, sensitive_features=PROBABLE)
    assert table["samples"].to_numpy() == pytest.approx([*P.sum(axis=0), 700])
    rates = P.T @ y_pred / P.sum(axis=0)
    assert table["selection_rate"].to_numpy()[:2] == pytest.approx(rates)
    interval = partial(metrics.confidence_interval, PARITY, Y, y_pred, random_state=0)
    certain, plain = (interval(sensitive_features=groups) for groups in (CERTAIN, GROUPS))
    assert certain == pytest.approx(plain, abs=0.01)


def hidden_half(seed):
    hidden = np.random.default_rng(seed).random(700) < np.where(Y == 1, 0.7, 0.3)
    return pd.Series(np.where(hidden, None, GROUPS)), hidden


def test_estimated_probabilities():
    partly, hidden = hidden_half(1)
    found = estimate_group_probabilities(LogisticRegression(), X, partly, y=Y, random_state=0)
    assert found.labels.tolist() == ["a", "b"]
    shares, p = found.encoded().codes, found.probabilities.encoded().codes
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(p[~hidden, 1], IS_B[~hidden])
    np.testing.assert_array_equal(p[hidden], shares[hidden])
    for label in (0, 1):  # calibrated on average, and far from the frequency of the group
        rows = hidden & (label == Y)
        assert p[rows, 1].mean() == pytest.approx(IS_B[rows].mean(), abs=0.05)
        assert np.abs(p[rows, 1] - IS_B[rows]).mean() < 0.3
    of_zeros = np.where(Y == 1, None, GROUPS)
    with pytest.raises(ValueError, match="no known group among the rows of label 1"):
        estimate_group_probabilities(LogisticRegression(), X, of_zeros, y=Y)
    part = found[np.arange(5)].probabilities
    assert (part.labels.tolist(), part.index.tolist()) == (["a", "b"], list(range(5)))


def test_known_groups_correct_wrong_probabilities():
    """On average over what is hidden the gap is the true one, of probabilities alone it is not."""
    wrong = pd.DataFrame(P[:, ::-1], columns=["a", "b"])
    gaps = []
    for seed in range(200):
        groups = EstimatedGroups(hidden_half(seed)[0], wrong, y=Y)
        shares = groups.encoded().codes, groups.probabilities.encoded().codes
        gaps.append([np.subtract(*(own.T @ Y / own.sum(axis=0))) for own in shares])
    true = Y[GROUPS == "a"].mean() - Y[GROUPS == "b"].mean()
    corrected, alone = np.mean(gaps, axis=0)
    assert corrected == pytest.approx(true, abs=4 * np.std(gaps, axis=0)[0] / np.sqrt(200))
    assert abs(alone - true) > 0.1


def test_intervals_include_the_uncertainty_of_membership():
    y_pred = (X[:, 0] + X[:, 4] > 0).astype(int)
    partly, _ = hidden_half(0)
    blurred = X + np.random.default_rng(0).normal(scale=2.0, size=X.shape)
    found = estimate_group_probabilities(LogisticRegression(), blurred, partly, y=Y, random_state=0)
    interval = partial(metrics.confidence_interval, PARITY, Y, y_pred, random_state=0)
    with pytest.warns(MissingSensitiveFeaturesWarning):
        of_known = interval(sensitive_features=partly)
    columns = found, found.probabilities, GROUPS
    estimated, alone, of_all = (interval(sensitive_features=groups) for groups in columns)
    lengths = [np.ptp(ends) for ends in (of_all, estimated, of_known)]
    assert lengths == sorted(lengths)
    assert np.ptp(alone) < 0.9 * np.ptp(estimated)


@pytest.mark.parametrize(
    ("table", "y", "message"),
    [
        (pd.DataFrame(P, columns=["a", "c"]), Y, r"lack \['b'\]"),
        (pd.DataFrame(P, columns=["a", "b"]), Y[:5], "y has 5 rows"),
        (pd.DataFrame(P[:5], columns=["a", "b"]), Y, "table has 5 rows"),
    ],
)
def test_wrong_estimates_are_refused(table, y, message):
    with pytest.raises(ValueError, match=message):
        EstimatedGroups(hidden_half(0)[0], table, y=y)


@pytest.mark.slow
def test_searches_slice_them_like_arrays():
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(RateConstrainedClassifier(), {"slack": [0.05, 0.2]}, cv=2)
        search.fit(X, Y, sensitive_features=PROBABLE)
    assert set(search.cv_results_["mean_test_score"]) & {np.nan} == set()
    part = PROBABLE[np.array([3, 1])]
    assert (len(part), part.index.tolist()) == (2, [3, 1])
    folds = [
        np.concatenate([test for _, test in StratifiedSensitiveKFold(2).split(X, Y, groups)])
        for groups in (PROBABLE, np.where(P[:, 1] > P[:, 0], "b", "a"))
    ]
    np.testing.assert_array_equal(*folds)


SHARES = {"sensitive_features": PROBABLE}
BOUND = {"constraint": "demographic_parity", "slack": 0.1}


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("must be columns", lambda: report(y_true=Y, y_pred=Y, **SHARES, pos_label=1)),
        ("certify takes groups", lambda: metrics.certify(y_true=Y, y_pred=Y, **SHARES, **BOUND)),
        (
            "CertifiedClassifier takes groups, .* got shares",
            lambda: CertifiedClassifier(RateConstrainedClassifier()).fit(X, Y, **SHARES),
        ),
        ("partial_fit takes groups", lambda: AUCFairClassifier().partial_fit(X, Y, **SHARES)),
        ("Monitor takes groups", lambda: FairnessMonitor(**BOUND).update(y_pred=Y, **SHARES)),
        (
            "estimate_group_probabilities takes groups",
            lambda: estimate_group_probabilities(LogisticRegression(), X, PROBABLE),
        ),
    ],
)
def test_where_shares_are_refused(message, refused):
    with pytest.raises(ValueError, match=message):
        refused()


def test_wrong_tables_are_refused_by_row():
    for table, message in (
        ([[0.5, 0.5], [0.5, 0.4]], r"rows that sum to one; got \[0.5, 0.4\] in row 1"),
        ([[1.5, -0.5]], r"got \[1.5, -0.5\] in row 0"),
        ([[np.nan, 1.0]], r"in row 0"),
        ([0.5, 0.5], "a column for each group"),
        ({"a": [0.5], "b": [0.5]}, "takes a table of numbers"),
        (pd.DataFrame([[0.5, 0.5]], columns=["a", "a"]), "columns of one name"),
    ):
        with pytest.raises(ValueError, match=message):
            GroupProbabilities(table)
    for confusion, message in (
        (np.full((2, 2), 0.5), "must have an inverse"),
        (np.ones((2, 2)), "rows of probabilities that sum to one"),
        (np.eye(3), "a row for each true group"),
    ):
        with pytest.raises(ValueError, match=message):
            RecordedGroups(GROUPS, confusion)
    with pytest.raises(ValueError, match="the recorded group of every sample"):
        RecordedGroups(["a", None], np.eye(1))
    with pytest.raises(ValueError, match="sensitive_features has 700 rows, but X has 699"):
        RateConstrainedClassifier().fit(X[1:], Y[1:], sensitive_features=PROBABLE)


def test_caps_on_all_rows_count_rows_of_unknown_group():
    constraints = ["demographic_parity", FalseNegativeRate(max=0.2)]
    clf = fitted(RateConstrainedClassifier(constraints, slack=0.05), PARTLY)
    cap = metrics.false_negative_rate(Y, clf.predict(X))
    assert clf.violations_["false_negative_rate"] == pytest.approx(cap, abs=1e-12)
    gap = measured(PARITY, clf, PARTLY)
    assert clf.violations_["demographic_parity"] == pytest.approx(gap, abs=1e-12)


def test_a_warning_counts_them_or_an_error_does():
    message = f"sensitive_features is missing for {HIDDEN.sum()} of 700 rows"
    with pytest.warns(MissingSensitiveFeaturesWarning, match=message):
        RateConstrainedClassifier().fit(X, Y, sensitive_features=PARTLY)
    with pytest.raises(ValueError, match=message):
        RateConstrainedClassifier(missing_sensitive="raise").fit(X, Y, sensitive_features=PARTLY)
    with pytest.warns(MissingSensitiveFeaturesWarning, match="is missing in every row"):
        RateConstrainedClassifier().fit(X, Y, sensitive_features=[None] * len(Y))
    cap = RateConstrainedClassifier("false_negative_rate", missing_sensitive="raise", slack=0.5)
    cap.fit(X, Y, sensitive_features=PARTLY)  # of all rows, it needs no groups


@pytest.mark.slow
@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_parallel_attributes_are_compared_by_the_rows_that_have_them(data):
    """A row that lacks one attribute counts by its others, in fits as in metrics."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9999), label="seed"))
    n, n_columns = 200, data.draw(st.integers(2, 3), label="columns")
    values = rng.integers([3, 2, 2][:n_columns], size=(n, n_columns))
    lacking = data.draw(st.sampled_from(["at random", "all but one", "at most one"]), label="lack")
    hidden = rng.random((n, n_columns)) < np.where(Y[:n] == 1, 0.2, 0.5)[:, None]
    one = rng.integers(n_columns, size=(n, 1)) == np.arange(n_columns)
    hidden = {"at random": hidden, "all but one": ~one, "at most one": hidden & one}[lacking]
    people = pd.DataFrame(np.where(hidden, None, values.astype(str)), columns=[*"abc"[:n_columns]])
    own = {"sensitive_features": people, "sample_weight": rng.integers(1, 4, size=n)}
    if data.draw(st.booleans(), label="strata"):
        age = np.where(X[:n, 1] > 0, "o", "y")
        own["control_features"] = np.where(rng.random(n) < 0.1, None, age)
    with warnings.catch_warnings(action="ignore"):
        notion = DemographicParity(0.05, reference="overall", attributes="parallel")
        clf = RateConstrainedClassifier(notion, min_group_size=1, max_iter=10)
        rows = Y[:n], clf.fit(X[:n], Y[:n], **own).predict(X[:n])
        options = {"method": "to_overall", "attributes": "parallel"}
        gap = PARITY(*rows, **options, **own)
    if np.isnan(gap):  # a cell without rows, which the fit names
        assert clf.left_out_
    else:
        assert clf.violation_ == pytest.approx(gap, abs=1e-9)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.MissingSensitiveFeaturesWarning")
def test_an_attribute_compares_rows_that_lack_another():
    """Their values are named, their rows counted, and blocks read them as rows in memory."""
    people = pd.DataFrame({"sex": GROUPS, "age": np.where(X[:, 1] > 0, "old", "young")})
    people.loc[people["sex"] == "a", "age"] = None
    people.loc[:4, "sex"] = "c"
    people.loc[:4, "age"] = None
    clf = RateConstrainedClassifier(DemographicParity(0.03, attributes="parallel"))
    with pytest.warns(SmallGroupWarning, match=r"group c \(5 rows, fewer than 34\)"):
        clf.fit(X, Y, sensitive_features=people)
    read = RateConstrainedClassifier(DemographicParity(0.03, attributes="parallel"))
    blocks = Blocks(lambda: iter(np.array_split(X, [7, 300])))
    with pytest.warns(SmallGroupWarning, match="group c"):
        read.fit(blocks, Y, sensitive_features=people)
    np.testing.assert_allclose(read.coef_, clf.coef_, atol=1e-8)
    y_pred, known = clf.predict(X), people["sex"] != "c"
    gaps = [
        PARITY(Y[rows], y_pred[rows], sensitive_features=people[name][rows])
        for name, rows in (("sex", known), ("age", known | True))
    ]
    assert clf.violation_ == pytest.approx(max(gaps), abs=1e-9)
    assert list(clf.groups_) == [("b", "old"), ("b", "young")]
    notion = DemographicParity(0.5, attributes="parallel")
    with pytest.warns(SmallGroupWarning, match=r"group sex=c \(0 rows"):
        proof = metrics.certify(clf, X[5:], Y[5:], sensitive_features=people[5:], constraint=notion)
    assert proof.left_out == ["group sex=c (0 rows)"]
    other = people.assign(sex=pd.Series(GROUPS).map({"a": 1, "b": 2}))
    with pytest.raises(ValueError, match="values of another kind than before: 2 after 'b'"):
        clf.set_params(warm_start=True).fit(X, Y, sensitive_features=other)


def test_where_every_group_is_needed():
    with pytest.raises(ValueError, match=r"must have the group of every row with group_features"):
        fitted(PartialParityClassifier(group_features=True), PARTLY)
    stream = AUCFairClassifier(AUCParity(surrogate="quadratic"), solver=LevelSet())
    with pytest.raises(ValueError, match=r"must have the group of every row in partial_fit"):
        stream.partial_fit(X, Y, sensitive_features=PARTLY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateConstrainedClassifier(epsilon=2.0, slack=1.0, random_state=0, max_iter=3),
        lambda: DPFermiClassifier(solver=NoisyTables(n_steps=5), random_state=0),
    ],
)
def test_private_fits_say_nothing_about_who_lacks_a_group(make):
    """Of a declared domain not even whether there are any: messages and shapes are the same."""
    told = []
    for groups in (GROUPS, PARTLY):
        declared = pd.Series(pd.Categorical(groups, ["a", "b"]))
        with warnings.catch_warnings(record=True, action="always") as caught:
            clf = make().fit(X, Y, sensitive_features=declared)
        told.append([str(w.message) for w in caught if w.category is not SmallGroupWarning])
        assert list(clf.groups_) == ["a", "b"]
    assert told[0] == told[1]
    words = " ".join(words_of(partial(make().fit, X, Y, sensitive_features=PARTLY)))
    assert "is missing for some rows: " in words
    assert not any(str(count) in words for count in (HIDDEN.sum(), (~HIDDEN).sum()))


def test_known_rows_stand_for_all_of_their_label():
    """Where of every row three or two copies exist, of one label or the other, and one is known."""
    copies = np.where(Y == 1, 3, 2)
    row = np.repeat(np.arange(len(Y)), copies)
    first = np.r_[True, row[1:] != row[:-1]]
    groups = np.where(first, GROUPS[row], None)
    y_pred = (X[row, 0] > 0).astype(int)
    with pytest.warns(MissingSensitiveFeaturesWarning, match="the other rows of a label stand for"):
        gap = PARITY(Y[row], y_pred, sensitive_features=groups)
    true = PARITY(Y[row], y_pred, sensitive_features=GROUPS[row])
    assert gap == pytest.approx(true, abs=1e-12)
    with warnings.catch_warnings(action="ignore", category=MissingSensitiveFeaturesWarning):
        clf = RateConstrainedClassifier(slack=0.02).fit(X[row], Y[row], sensitive_features=groups)
    full = RateConstrainedClassifier(slack=0.02).fit(X[row], Y[row], sensitive_features=GROUPS[row])
    np.testing.assert_allclose(clf.coef_, full.coef_, atol=1e-6)


def test_strata_are_compared_by_the_same_rows():
    """Also where the stratum is missing: a fit and the metric know the group of the same rows."""
    age = np.where(np.arange(len(Y)) % 5 == 0, None, np.where(X[:, 1] > 0, "old", "young"))
    given = {"sensitive_features": PARTLY, "control_features": age}
    either = "sensitive_features or control_features"
    words = f"{either} is missing for {(HIDDEN | pd.isna(age)).sum()} of 700 rows"
    with pytest.warns(MissingSensitiveFeaturesWarning, match=words):
        clf = RateConstrainedClassifier(slack=0.02).fit(X, Y, **given)
    with pytest.warns(MissingSensitiveFeaturesWarning, match=words):
        gap = PARITY(Y, clf.predict(X), **given)
    assert clf.violation_ == pytest.approx(gap, abs=1e-12)

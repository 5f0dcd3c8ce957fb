"""Rows that belong to groups by shares: by probabilities, and where records have errors."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    report,
)
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import (
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
from fairconstrained.groups import EstimatedGroups, GroupProbabilities, RecordedGroups
from fairconstrained.metrics import (
    certify,
    confidence_interval,
    demographic_parity_difference,
    equalized_odds_difference,
    group_auc_gap,
    group_report,
    inter_group_auc_gap,
    loss_gap,
    partial_statistical_parity,
)
from fairconstrained.model_selection import StratifiedSensitiveKFold
from fairconstrained.models import estimate_group_probabilities
from fairconstrained.monitoring import FairnessMonitor
from fairconstrained.solvers import SGDA, LevelSet
from tests.helpers.marks import slow_where

DATA = make_biased_classification(700, random_state=0)
X, Y = DATA.data, DATA.target
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b")
IS_B = (GROUPS == "b").astype(float)
CERTAIN = GroupProbabilities(pd.DataFrame({"b": IS_B, "a": 1.0 - IS_B}))
B = LogisticRegression().fit(np.column_stack((X, Y)), IS_B)
P = B.predict_proba(np.column_stack((X, Y)))
PROBABLE = GroupProbabilities(pd.DataFrame(P, columns=["a", "b"]))
CONFUSION = np.array([[0.9, 0.1], [0.2, 0.8]])
WRONG = np.random.default_rng(0).random(700) < np.where(IS_B, 0.2, 0.1)
RECORDED = RecordedGroups(np.where((GROUPS == "b") ^ WRONG, "b", "a"), CONFUSION)
SCORES = {"method": "decision_function"}

CASES = {
    "rates": (lambda: RateConstrainedClassifier(slack=0.02), demographic_parity_difference, {}),
    "odds and a cap": (
        lambda: RateConstrainedClassifier([EqualizedOdds(0.05), FalseNegativeRate(max=0.3)]),
        equalized_odds_difference,
        {},
    ),
    "mini-batches": (
        lambda: RateConstrainedClassifier(solver=SGDA(), slack=0.05, max_iter=100, random_state=0),
        demographic_parity_difference,
        {},
    ),
    "margin": (
        lambda: RateConstrainedClassifier(slack=0.08, margin=1.0),
        demographic_parity_difference,
        {},
    ),
    "losses": (lambda: LossParityClassifier(slack=0.01), loss_gap, {"method": "predict_proba"}),
    "ERMI": (
        lambda: DPFermiClassifier(epsilon=None, penalty=5.0),
        demographic_parity_difference,
        {},
    ),
    "AUCs": (AUCFairClassifier, group_auc_gap, SCORES),
    "AUCs of moments": (
        lambda: AUCFairClassifier(AUCParity("inter_group", surrogate="quadratic")),
        inter_group_auc_gap,
        SCORES,
    ),
    "ranks": (
        lambda: PartialParityClassifier(interval=(0.0, 0.5)),
        partial_statistical_parity,
        {**SCORES, "interval": (0.0, 0.5)},
    ),
}
SLOW = ("mini-batches", "margin", "ERMI", "AUCs", "AUCs of moments", "ranks")


def fitted(clf, groups, rows=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(rows, Y, sensitive_features=groups)


def measured(metric, clf, groups, method="predict", **options):
    return metric(Y, getattr(clf, method)(X), sensitive_features=groups, **options)


@pytest.mark.parametrize("case", slow_where(CASES, *SLOW))
def test_certain_probabilities_are_groups(case):
    make, metric, options = CASES[case]
    shared, plain = fitted(make(), CERTAIN), fitted(make(), GROUPS)
    assert list(shared.groups_) == ["a", "b"]
    if case not in ("mini-batches", "margin"):  # drawn otherwise
        np.testing.assert_allclose(shared.coef_, plain.coef_, atol=2e-4)
    of_both = [measured(metric, shared, groups, **options) for groups in (CERTAIN, GROUPS)]
    assert of_both[0] == pytest.approx(of_both[1], abs=1e-12)


@pytest.mark.parametrize("case", slow_where(CASES, *SLOW))
def test_what_is_constrained_is_what_metrics_measure(case):
    make, metric, options = CASES[case]
    groups = PROBABLE if case in ("odds and a cap", "AUCs", "ranks") else RECORDED
    clf = fitted(make(), groups)
    own = clf.violations_.get("equalized_odds", clf.violation_)
    assert own == pytest.approx(measured(metric, clf, groups, **options), abs=1e-9)
    assert clf.feasible_


@pytest.mark.slow
def test_blocks_have_the_model_of_rows_in_memory():
    read = Blocks(lambda: iter(np.array_split(X, [5, 600])))
    for groups, margin in ((PROBABLE, 0.0), (RECORDED, 0.0), (RECORDED, 0.5)):
        whole = fitted(RateConstrainedClassifier(slack=0.02, margin=margin), groups)
        blocks = fitted(RateConstrainedClassifier(slack=0.02, margin=margin), groups, read)
        np.testing.assert_allclose(blocks.coef_, whole.coef_, atol=1e-8)


def test_any_classifier():
    """Its predictions on training rows are not those out of fold, of which `violation_` speaks."""
    gaps = []
    for slack in (1.0, 0.05):
        model = HistGradientBoostingClassifier(max_iter=5, random_state=0)
        clf = RateConstrainedClassifier(model=model, slack=slack, random_state=0)
        assert fitted(clf, PROBABLE).feasible_
        gaps.append(measured(demographic_parity_difference, clf, GROUPS))
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
        gap = demographic_parity_difference(y_pred, y_pred, sensitive_features=groups)
        assert gap == pytest.approx(0.4, abs=1e-12)
    assert demographic_parity_difference(y_pred, y_pred, sensitive_features=recorded) < 0.3


def test_reports_and_intervals():
    y_pred = (X[:, 0] > 0).astype(int)
    report = group_report(Y, y_pred, sensitive_features=PROBABLE)
    assert report["samples"].to_numpy() == pytest.approx([*P.sum(axis=0), 700])
    rates = P.T @ y_pred / P.sum(axis=0)
    assert report["selection_rate"].to_numpy()[:2] == pytest.approx(rates)
    certain, plain = (
        confidence_interval(
            demographic_parity_difference, Y, y_pred, sensitive_features=groups, random_state=0
        )
        for groups in (CERTAIN, GROUPS)
    )
    assert certain == pytest.approx(plain, abs=0.01)


def hidden_half(seed):
    """Groups of which those of positives are hidden more often."""
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
    given = [demographic_parity_difference, Y, y_pred]
    with pytest.warns(MissingSensitiveFeaturesWarning):
        of_known = confidence_interval(*given, sensitive_features=partly, random_state=0)
    estimated, alone, of_all = (
        confidence_interval(*given, sensitive_features=groups, random_state=0)
        for groups in (found, found.probabilities, GROUPS)
    )
    lengths = [np.ptp(ends) for ends in (of_all, estimated, of_known)]
    assert lengths == sorted(lengths)
    assert np.ptp(alone) < 0.9 * np.ptp(estimated)


@pytest.mark.parametrize(
    ("table", "y", "message"),
    [
        (pd.DataFrame(P, columns=["a", "c"]), Y, r"lack \['b'\]"),
        (pd.DataFrame(P, columns=["a", "b"]), Y[:5], "y has 5 rows"),
        (pd.DataFrame(P[:5], columns=["a", "b"]), Y, "has 700 rows"),
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
QUADRATIC = AUCParity(surrogate="quadratic")
PARALLEL = DemographicParity(attributes="parallel")
BOUND = {"constraint": "demographic_parity", "slack": 0.1}


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        (
            "must hold one group per row.*with epsilon",
            lambda: RateConstrainedClassifier(epsilon=1.0).fit(X, Y, **SHARES),
        ),
        (
            "must hold one group per row.*with epsilon",
            lambda: DPFermiClassifier().fit(X, Y, **SHARES),
        ),
        (
            "the group of every row",
            lambda: PartialParityClassifier(group_features=True).fit(X, Y, **SHARES),
        ),
        (
            "PartialParityClassifier takes groups or",
            lambda: PartialParityClassifier().fit(X, Y, sensitive_features=RECORDED),
        ),
        ("LevelSet", lambda: AUCFairClassifier(QUADRATIC, solver=LevelSet()).fit(X, Y, **SHARES)),
        (
            "must be columns of groups",
            lambda: RateConstrainedClassifier().fit(X, Y, **SHARES, control_features=GROUPS),
        ),
        (
            "must be columns of groups",
            lambda: RateConstrainedClassifier(PARALLEL).fit(X, Y, **SHARES),
        ),
        ("must be columns", lambda: report(y_true=Y, y_pred=Y, **SHARES, pos_label=1)),
        ("certify takes groups", lambda: certify(y_true=Y, y_pred=Y, **SHARES, **BOUND)),
        ("partial_fit takes groups", lambda: AUCFairClassifier().partial_fit(X, Y, **SHARES)),
        (
            "FairnessMonitor takes groups",
            lambda: FairnessMonitor(**BOUND).update(y_pred=Y, **SHARES),
        ),
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
    with pytest.raises(ValueError, match="sensitive_features has 700 rows, but X and y have"):
        RateConstrainedClassifier().fit(X[1:], Y[1:], sensitive_features=PROBABLE)

"""AUCFairClassifier: true gaps within slack, networks, the paper's solvers, margins."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch import nn

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity, SoftBins
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exact_auc import COMPARISONS, auc_differences, auc_standard_errors, win_table
from fairconstrained.metrics import group_auc_gap
from fairconstrained.models import Posteriors
from fairconstrained.models.cross_fitting import log_odds_scale
from fairconstrained.solvers import QCQP, SGDA, LevelSet, ProximalLevelSet
from tests.helpers.auc_fits import METRIC_OF, auc, fitted, measured, table
from tests.helpers.fits import FORGIVEN

SHORT = SGDA(n_steps=150, batch_size=128)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 8])
def test_the_metric_of_a_feasible_fit_is_within_the_slack_to_the_last_digit(seed):
    """Of two groups of 50 rows the gap can be the slack exactly: .05000000000000004 is not."""
    data = make_biased_classification(100, 6, random_state=seed)
    groups = data.sensitive_features
    clf = AUCFairClassifier(slack=0.05, min_group_size=0, random_state=0)
    scores = clf.fit(data.data, data.target, sensitive_features=groups).decision_function(data.data)
    gap = group_auc_gap(data.target, scores, sensitive_features=groups)
    assert clf.feasible_
    assert clf.violation_ == pytest.approx(gap, abs=1e-14)
    assert max(clf.violation_, gap) <= 0.05


@pytest.mark.parametrize(
    ("constraint", "objective", "n_groups"),
    list(zip(METRIC_OF, ["log", "auc"] * 3, [2, 3, 3] * 2, strict=True)),
)
def test_true_gaps_end_within_slack(constraint, objective, n_groups):
    data = table(n_groups)
    free = fitted(constraint, data, objective=objective, slack=1.0)
    gap = measured(free, data)
    assert free.violation_ == pytest.approx(gap, abs=1e-12)
    assert gap > 0.02  # there is something to do
    slack = 0.5 * gap
    clf = fitted(constraint, data, objective=objective, slack=slack)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= slack + FORGIVEN
    assert clf.feasible_
    assert clf.violations_ == {constraint: clf.violation_}
    assert 0.7 < auc(clf, data) <= auc(free, data) + 0.01
    assert clf.history_["error"][-1] == pytest.approx(1 - auc(clf, data), abs=1e-12)


@pytest.mark.parametrize(
    ("surrogate", "objective"),
    [(SoftBins(24), "auc"), ("binormal", "log"), ("quadratic", "auc")],
    ids=str,
)
def test_every_surrogate_is_corrected_to_the_true_gap(surrogate, objective):
    data = table()
    clf = fitted("group_auc", data, surrogate=surrogate, objective=objective, slack=0.03)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= 0.03 + FORGIVEN
    assert auc(clf, data) > 0.75


def test_without_a_binding_constraint_the_pairwise_loss_is_one_linear_system():
    """The minimiser of the mean of (1 - (z - z'))^2 / 2 over pairs is linear discriminants'."""
    X, y, _ = data = table()
    clf = fitted(data=data, surrogate="binormal", slack=np.inf, alpha=0.0)
    negative, positive = X[y == 0], X[y == 1]
    step = positive.mean(axis=0) - negative.mean(axis=0)
    spread = np.cov(positive.T, ddof=0) + np.cov(negative.T, ddof=0)
    direction = np.linalg.solve(spread, step)
    ratio = clf.coef_[0] / direction
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


class Network(nn.Module):
    """A user's module with scores of shape (n,)."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))

    def forward(self, X):
        return self.layers(X)[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "model", "surrogate"),
    [("log", (8,), "binormal"), ("auc", (8,), "soft_bins"), ("auc", Network, "binormal")],
)
def test_networks_keep_true_gaps(objective, model, surrogate):
    data = table()
    params = {"objective": objective, "surrogate": surrogate, "solver": SHORT, "random_state": 0}
    clf = fitted(data=data, model=model, slack=0.1, **params)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-9)
    assert clf.violation_ <= 0.1 + FORGIVEN
    assert auc(clf, data) > 0.75
    again = fitted(data=data, model=model, slack=0.1, **params)
    np.testing.assert_array_equal(again.decision_function(data[0]), clf.decision_function(data[0]))


@pytest.mark.slow
def test_the_papers_solvers_run_inside_the_estimator():
    data = table()
    params = {"objective": "auc", "surrogate": "quadratic", "slack": 0.9}
    exact = fitted(data=data, solver=QCQP(), **params)
    level_set = LevelSet(n_steps=300, step_size=0.1, max_levels=6)
    stochastic = fitted(data=data, solver=level_set, random_state=0, **params)
    assert exact.converged_
    assert auc(stochastic, data) == pytest.approx(auc(exact, data), abs=0.05)
    log = fitted(data=data, solver=level_set, random_state=0, surrogate="quadratic", slack=0.9)
    assert auc(log, data) == pytest.approx(auc(exact, data), abs=0.05)
    proximal = ProximalLevelSet(level_set=LevelSet(n_steps=100, max_levels=2), n_rounds=2)
    network = fitted(data=data, solver=proximal, model=(10,), random_state=0, **params)
    assert network.n_iter_ >= 2


@pytest.mark.slow
def test_the_papers_surrogate_does_not_keep_the_true_gap_and_equal_scores_are_said():
    """The slack bounds the surrogate; its solution misses the true gap, which zero weights keep."""
    data = table()
    params = {"objective": "auc", "solver": QCQP(), "slack": 0.01}
    notion = AUCParity("inter_group", surrogate="quadratic")
    X, y, group = data
    with pytest.warns(ConvergenceWarning, match="gives all rows equal scores") as caught:
        clf = AUCFairClassifier(notion, **params).fit(X, y, sensitive_features=group)
    assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match="gives all rows equal scores") as caught:
        AUCFairClassifier(notion, **params).partial_fit(X, y, sensitive_features=group)
    assert caught[0].filename == __file__
    assert clf.feasible_
    assert np.ptp(clf.decision_function(X)) == 0
    assert clf.history_["soft_violation"][-2] <= 0.01 + 1e-4
    assert clf.history_["violation"][-2] > 0.01 + FORGIVEN


def test_features_that_say_nothing():
    X, y, group = table()
    clf = fitted(data=(np.ones_like(X), y, group))
    assert clf.violation_ == pytest.approx(0.0, abs=1e-12)
    assert np.ptp(clf.decision_function(X * 0 + 1)) == 0
    np.testing.assert_allclose(clf.predict_proba(np.ones_like(X))[:, 1], y.mean(), atol=1e-3)


N_CELLS = 4


def scored(n, seed=0, decimals=1):
    """Scores with ties, cells in which they differ, and weights."""
    rng = np.random.default_rng(seed)
    cell = np.append(np.arange(N_CELLS), rng.integers(N_CELLS, size=n - N_CELLS))
    scores = np.round(rng.normal(size=n) + 0.5 * cell, decimals)
    return scores, cell, rng.uniform(0.5, 1.5, size=n)


def sets_of(notion):
    comparisons = COMPARISONS[notion](2)
    return comparisons.reshape(len(comparisons), 4, N_CELLS)


def gaps(scores, cell, weight, comparisons):
    counts = np.bincount(cell, weights=weight, minlength=N_CELLS)
    return auc_differences(win_table(scores, cell, weight, N_CELLS), counts, comparisons)


@pytest.mark.parametrize("notion", COMPARISONS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_deviations_are_the_length_of_the_gradient_in_the_weights(notion, seed):
    """The delta method: sum of (w_i dD / dw_i)^2, by differences of exact gaps."""
    scores, cell, weight = scored(25, seed)
    comparisons = sets_of(notion)
    gradient = []
    for step in 1e-6 * np.eye(len(scores)):
        difference = gaps(scores, cell, weight + step, comparisons) - gaps(
            scores, cell, weight - step, comparisons
        )
        gradient.append(difference / 2e-6)
    expected = np.sqrt(((weight[:, None] * np.array(gradient)) ** 2).sum(axis=0))
    ours = auc_standard_errors(scores, cell, weight, comparisons)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-8)
    assert (ours > 0).all()


@pytest.mark.parametrize(
    ("constraint", "objective"), [("inter_group", "auc"), ("group_auc", "log")]
)
@pytest.mark.slow
def test_the_slack_is_narrowed_by_the_standard_error_of_the_fit(constraint, objective):
    data = X, y, group = table(n=600)
    plain = fitted(constraint, data, objective=objective, slack=0.1)
    n_cells_scores = plain.decision_function(X), y * 2 + group, np.ones(len(y))
    (deviation,) = auc_standard_errors(*n_cells_scores, sets_of(constraint))
    assert 0.01 < deviation < 0.06
    clf = fitted(constraint, data, objective=objective, slack=0.1, margin=1.0)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= 0.1 - 0.98 * deviation + 0.0011  # measured after some rounds
    assert clf.violation_ >= 0.1 - deviation - 0.01
    assert auc(clf, data) <= auc(plain, data)
    assert clf.feasible_
    assert len(clf.history_["violation"]) == clf.n_iter_
    assert (np.diff(clf.history_["time"]) >= 0).all()


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=20)
def test_calibration_is_logistic_regression_on_the_score(seed, scale):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(2, size=200))
    scores = scale * (rng.normal(size=202) + y - 7.0)
    weight = rng.exponential(size=202) + 0.1
    slope, offset = log_odds_scale(*map(torch.as_tensor, (scores, y, weight)))
    mean = np.average(scores, weights=weight)
    unit = np.sqrt(np.average((scores - mean) ** 2, weights=weight))
    z = ((scores - mean) / unit)[:, None]
    lr = LogisticRegression(C=1e4 / weight.sum(), tol=1e-12, solver="newton-cholesky")
    lr.fit(z, y, weight)
    assert slope.item() * unit == pytest.approx(max(lr.coef_[0, 0], 1e-6), rel=1e-5, abs=2e-6)
    if lr.coef_[0, 0] > 0:
        assert offset.item() + slope.item() * mean == pytest.approx(lr.intercept_[0], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "objective"), [("linear", "auc"), ((4,), "log")])
def test_probabilities_are_calibrated_over_everybody(model, objective):
    """In the mean they are the share of positives; labels are where they exceed one half."""
    X, y, _ = data = table(n=1000)
    solver = None if model == "linear" else SGDA(n_steps=300, batch_size=256)
    clf = fitted(data=data, objective=objective, model=model, solver=solver, random_state=0)
    proba = clf.predict_proba(X)[:, 1]
    assert proba.mean() == pytest.approx(y.mean(), abs=0.04)
    assert ((proba > 0.5) == clf.predict(X)).all()
    assert ((clf.decision_function(X) > 0) == clf.predict(X)).all()
    high = proba > 0.7
    assert y[high].mean() == pytest.approx(proba[high].mean(), abs=0.08)


@pytest.mark.filterwarnings("ignore:By the released norms most rows")
def test_a_private_ranking_takes_frozen_classifiers():
    """Their posteriors are its columns, and the user gives no range of these."""
    public, data = (make_biased_classification(600, random_state=seed) for seed in (0, 1))
    frozen = [
        FrozenEstimator(LogisticRegression().fit(public.data, target))
        for target in (public.target, public.sensitive_features)
    ]
    clf = AUCFairClassifier(epsilon=2.0, model=Posteriors(*frozen), random_state=0)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.privacy_.epsilon <= 2.0
    assert clf.decision_function(data.data).std() > 0

"""AUCFairClassifier(margin=...): standard errors of AUC gaps, and slacks narrowed by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained.exact_auc import COMPARISONS, auc_differences, auc_standard_errors, win_table
from tests.helpers.auc_fits import auc, fitted, measured, table

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

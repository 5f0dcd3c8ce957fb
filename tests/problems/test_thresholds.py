"""Thresholds by group: the best that whole rows allow, and no head is clearly worse."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import roc_curve

from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Linear

SLACKS = [0.01, 0.05, 0.2]


class Head(Linear):
    log_odds = 0


def table(seed, n_groups, n_rows):
    rng = np.random.default_rng(seed)
    few = np.repeat(np.arange(n_groups), 8)
    share = rng.dirichlet(np.ones(n_groups))
    group = np.concatenate((few, rng.choice(n_groups, size=n_rows - len(few), p=share)))
    slope = rng.uniform(0.5, 3.0, size=n_groups)[group]
    log_odds = rng.normal(size=n_groups)[group] + slope * rng.normal(size=n_rows)
    return log_odds, (rng.uniform(size=n_rows) < expit(log_odds)).astype(int), group


def columns(log_odds, group, constraint):
    p, known = expit(log_odds)[:, None], np.eye(group.max() + 1)[group]
    parts = known if constraint == "demographic_parity" else np.hstack((known * (1 - p), known * p))
    parts /= parts.mean(axis=0)
    return np.hstack((log_odds[:, None], p, parts, parts * log_odds[:, None], parts * p))


def fitted(constraint, slack, X, y, group, **options):
    options = {"max_iter": 2, "min_group_size": 1, "model": Head(), **options}
    model = RateConstrainedClassifier(constraint, slack=slack, **options)
    with warnings.catch_warnings(action="ignore"):
        return model.fit(X, y, sensitive_features=group)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(2, 10), st.sampled_from([1000, 3000]))
def test_more_slack_costs_less_than_a_standard_error(constraint, seed, n_groups, n_rows):
    log_odds, y, group = table(seed, n_groups, n_rows)
    X, least = columns(log_odds, group, constraint), 0.5  # a constant has at most that
    for slack in SLACKS:
        model = fitted(constraint, slack, X, y, group)
        error = np.mean(model.predict(X) != y)
        assert model.feasible_
        assert error <= least + max(0.003, np.sqrt(least * (1 - least) / n_rows))
        least = min(least, error)


def test_the_head_is_within_a_row_of_random_thresholds_of_large_groups():
    """Two crossing ROC curves under odds: random predictions reach any point below both."""
    rng = np.random.default_rng(0)
    group, y = np.repeat([0, 1], 2000), np.tile([0, 1], 2000)
    shift = np.where(group == 0, 1.0, 2.0)
    log_odds = (y - 0.5) * shift + rng.normal(size=4000) * np.where(group == 0, 0.5, 1.5)
    curves = [roc_curve(y[group == g], log_odds[group == g]) for g in (0, 1)]
    grid = np.linspace(0, 1, 2001)
    both = np.minimum(*(np.interp(grid, fpr, tpr) for fpr, tpr, _ in curves))
    model = fitted("equalized_odds", 0.0, columns(log_odds, group, "equalized_odds"), y, group)
    error = np.mean(model.predict(columns(log_odds, group, "equalized_odds")) != y)
    assert model.feasible_
    assert model.violation_ <= 1e-3
    assert error <= 0.5 * (grid + 1 - both).min() + 0.5 / np.sqrt(4000)  # a standard error


def test_log_odds_that_differ_by_rounding_are_one():
    """Leaves of trees have few, which products with other columns spread by their last digits."""
    rng = np.random.default_rng(0)
    group, log_odds = rng.integers(3, size=400), rng.integers(-2, 3, size=400) / 2
    y = (rng.random(400) < expit(log_odds)).astype(int)
    spread = log_odds * (1.0 + rng.integers(-1, 2, size=400) * 2e-16)
    X = columns(spread, group, "equalized_odds")
    for slack in SLACKS:
        assert fitted("equalized_odds", slack, X, y, group).violation_ <= slack

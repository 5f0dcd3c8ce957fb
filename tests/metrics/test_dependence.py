"""Dependence of predictions on groups: identities of the gaps, and scipy's distance of scores."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from fairconstrained import metrics
from fairconstrained.metrics import wasserstein_distance_between_groups

seeds = st.integers(0, 10_000)


@settings(max_examples=20)
@given(seeds, st.integers(2, 4))
def test_identities(seed, n_groups):
    """Independence is demographic parity; exchanging labels and predictions exchanges the others.

    The true labels as predictions are sufficient and separate.
    """
    rng = np.random.default_rng(seed)
    every = np.indices((2, 2, n_groups)).reshape(3, -1)  # each combination has a row
    y_true, y_pred, group = np.hstack((every, rng.integers([[2], [2], [n_groups]], size=(3, 150))))
    weight = rng.integers(1, 4, size=len(group))
    args = {"sensitive_features": group, "sample_weight": weight}
    parity = metrics.demographic_parity_difference(y_true, y_pred, **args)
    assert metrics.independence_gap(y_true, y_pred, **args) == parity
    exchanged = metrics.sufficiency_gap(y_pred, y_true, **args)
    assert metrics.separation_gap(y_true, y_pred, **args) == pytest.approx(exchanged, abs=1e-12)
    for gap in (metrics.separation_gap, metrics.sufficiency_gap):
        assert gap(y_true, y_true, **args) == 0


def scored(seed, n_groups=2, n=60, ties=False):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) + np.arange(n) % n_groups
    group, weight = np.arange(n) % n_groups, rng.integers(1, 4, size=n)
    return np.round(scores, 0 if ties else 9), group, weight


@settings(max_examples=25)
@given(seeds, st.integers(2, 4), st.booleans(), st.booleans())
def test_order_one_is_scipys_distance_of_the_farthest_two_groups(seed, n_groups, ties, weighted):
    scores, group, weight = scored(seed, n_groups, ties=ties)
    weight = weight if weighted else None
    each = np.ones(len(group)) if weight is None else weight
    expected = max(
        wasserstein_distance(*(v[group == k] for v in (scores, each) for k in pair))
        for pair in combinations(range(n_groups), 2)
    )
    found = wasserstein_distance_between_groups(
        group, scores, sensitive_features=group, sample_weight=weight
    )
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_shift_is_the_distance_of_every_order_and_order_two_is_at_least_order_one():
    scores = np.random.default_rng(0).normal(size=50)
    both, group = np.concatenate((scores, scores + 0.3)), np.repeat(["a", "b"], 50)
    other = np.concatenate((scores, 2 * scores))
    for order in (1, 2):
        args = {"sensitive_features": group, "order": order}
        assert wasserstein_distance_between_groups(both > 0, both, **args) == pytest.approx(0.3)
    first, second = (
        wasserstein_distance_between_groups(other > 0, other, sensitive_features=group, order=order)
        for order in (1, 2)
    )
    assert first < second
    gaps = np.abs(np.sort(other[:50]) - np.sort(other[50:]))  # of equally many, in their order
    assert second == pytest.approx(np.sqrt(np.mean(gaps**2)))


def test_columns_of_probabilities():
    """Two columns say what the second says; of more, the class with the largest distance."""
    rng = np.random.default_rng(0)
    p, group = rng.uniform(size=60), np.arange(60) % 2
    args = {"sensitive_features": group}
    one = wasserstein_distance_between_groups(group, p, **args)
    assert wasserstein_distance_between_groups(group, np.column_stack((1 - p, p)), **args) == one
    three = rng.dirichlet(np.ones(3), size=60)
    expected = max(wasserstein_distance_between_groups(group, c, **args) for c in three.T)
    assert wasserstein_distance_between_groups(group, three, **args) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_score": [0.1, 0.2]}, "y_score has 2 rows, but y_true has 3"),
        ({"y_score": [0.1, np.nan, 0.2]}, "y_score"),
        ({"y_score": np.zeros((3, 2, 1))}, "y_score|dim"),
        ({"order": 0.5}, "order must be a finite number >= 1; got 0.5"),
        ({"order": np.inf}, "order must be"),
        ({"order": "2"}, "order must be"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    kwargs = {"y_true": [0, 1, 0], "y_score": [0.1, 0.9, 0.5], "sensitive_features": list("aab")}
    with pytest.raises(ValueError, match=message):
        wasserstein_distance_between_groups(**{**kwargs, **change})

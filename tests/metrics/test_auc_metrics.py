"""Metrics of scores: AUC gaps against counts of pairs, and the dependence of scores on groups."""

import functools
import itertools
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from fairconstrained import metrics
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import wasserstein_distance_between_groups


def brute(z, w, first, second):
    """Every pair, one by one."""
    won = total = 0.0
    for i, j in itertools.product(np.flatnonzero(first), np.flatnonzero(second)):
        won += w[i] * w[j] * (1.0 if z[i] > z[j] else 0.5 if z[i] == z[j] else 0.0)
        total += w[i] * w[j]
    return won / total


# By the AUC between two sets of rows, the positives, the rows of a group, and all groups.
DEFINITIONS = {
    metrics.group_auc_gap: lambda auc, pos, of, groups: max(
        abs(auc(of(g), of(h)) - 0.5) for g, h in itertools.permutations(groups, 2)
    ),
    metrics.inter_group_auc_gap: lambda auc, pos, of, groups: max(
        abs(auc(of(g) & pos, of(h) & ~pos) - auc(of(h) & pos, of(g) & ~pos))
        for g, h in itertools.permutations(groups, 2)
    ),
    metrics.intra_group_auc_gap: lambda auc, pos, of, groups: np.ptp(
        [auc(of(g) & pos, of(g) & ~pos) for g in groups]
    ),
    metrics.positive_equality_gap: lambda auc, pos, of, groups: max(
        abs(auc(of(g) & pos, pos) - 0.5) for g in groups
    ),
    metrics.negative_equality_gap: lambda auc, pos, of, groups: max(
        abs(auc(of(g) & ~pos, ~pos) - 0.5) for g in groups
    ),
    metrics.bpsn_bnsp_gap: lambda auc, pos, of, groups: max(
        abs(auc(pos, of(g) & ~pos) - auc(of(g) & pos, ~pos)) for g in groups
    ),
}
every_metric = pytest.mark.parametrize("metric", DEFINITIONS, ids=lambda m: m.__name__)


def rows(seed, n_groups, n_levels, n=30):
    """Rows of every cell; few levels make many ties."""
    rng = np.random.default_rng(seed)
    y, group = np.indices((2, n_groups)).reshape(2, -1)
    y = np.append(y, rng.integers(2, size=n))
    group = np.append(group, rng.integers(n_groups, size=n))
    z = rng.integers(n_levels, size=len(y)) / 3.0
    return y, z, group, rng.integers(1, 4, size=len(y)).astype(float)


@every_metric
@given(seed=st.integers(0, 10**6), n_groups=st.integers(2, 4), n_levels=st.sampled_from([1, 3, 99]))
@settings(max_examples=10)
def test_gaps_are_those_of_the_pairs(metric, seed, n_groups, n_levels):
    y, z, group, w = rows(seed, n_groups, n_levels)
    auc = functools.partial(brute, z, w)
    expected = DEFINITIONS[metric](auc, y == 1, lambda g: group == g, range(n_groups))
    gap = metric(y, z, sensitive_features=group, sample_weight=w)
    assert gap == pytest.approx(expected, abs=1e-12)
    same = metric(np.array(["no", "yes"])[y], np.exp(z), sensitive_features=group, sample_weight=w)
    assert same == pytest.approx(gap, abs=1e-12)


@given(st.integers(0, 10**6), st.sampled_from([2, 5, 1000]))
@settings(max_examples=25)
def test_auc_between_counts_pairs(seed, n_levels):
    _, z, _, w = rows(seed, 2, n_levels)
    first, second = np.random.default_rng(seed + 1).random((2, len(z))) < 0.5
    first[0] = second[1] = True
    auc = metrics.auc_between(z, first, second, sample_weight=w)
    assert auc == pytest.approx(brute(z, w, first, second), abs=1e-12)
    turned = metrics.auc_between(z, second, first, sample_weight=w)
    assert auc + turned == pytest.approx(1.0, abs=1e-12)
    assert metrics.auc_between(z, first, first) == 0.5


@every_metric
def test_the_positive_label_can_be_named(metric):
    y, z, group, _ = rows(2, 2, 9)
    gap = metric(y, z, sensitive_features=group, pos_label=0)
    assert gap == pytest.approx(metric(1 - y, z, sensitive_features=group), abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "label", "needs"),
    [
        (metrics.group_auc_gap, 1, False),
        (metrics.inter_group_auc_gap, 1, True),
        (metrics.inter_group_auc_gap, 0, True),
        (metrics.positive_equality_gap, 1, True),
        (metrics.positive_equality_gap, 0, False),
        (metrics.negative_equality_gap, 0, True),
        (metrics.bpsn_bnsp_gap, 0, True),
    ],
)
def test_only_cells_that_are_needed_make_it_nan(metric, label, needs):
    y, z, group, _ = rows(0, 2, 7)
    keep = ~((group == 1) & (y == label))
    data = (y[keep], z[keep])
    if not needs:
        assert metric(*data, sensitive_features=group[keep]) >= 0
        return
    kind = ["negative", "positive"][label]
    with pytest.warns(SmallGroupWarning, match=f"group 1 has no {kind} rows"):
        assert np.isnan(metric(*data, sensitive_features=group[keep]))


def test_an_empty_set_is_named():
    with pytest.warns(SmallGroupWarning, match="second set has no rows"):
        assert np.isnan(metrics.auc_between([1.0, 2.0], [True, True], [False, False]))


def test_masks_are_boolean():
    with pytest.raises(ValueError, match="second must be a boolean mask of shape"):
        metrics.auc_between([1, 2], [True, False], [0, 1])


seeds = st.integers(0, 10_000)


@settings(max_examples=20)
@given(seeds, st.integers(2, 4))
def test_identities(seed, n_groups):
    """Independence is demographic parity; labels and predictions exchange the other two."""
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
    given = {"sensitive_features": group, "sample_weight": weight}
    found = wasserstein_distance_between_groups(group, scores, **given)
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


GAP, DISTANCE = metrics.group_auc_gap, wasserstein_distance_between_groups


@pytest.mark.parametrize(
    ("metric", "change", "message"),
    [
        (GAP, {"y_true": [0, 1, 2]}, "y_true must have two labels"),
        (GAP, {"y_score": [[1, 2, 3], [2, 3, 4], [3, 4, 5]]}, "y_score must have shape"),
        *((each, {"y_score": [1, 2]}, "y_score has 2 rows, but") for each in (GAP, DISTANCE)),
        *((each, {"y_score": [1, np.nan, 2]}, "y_score contains NaN") for each in (GAP, DISTANCE)),
        (DISTANCE, {"y_score": np.zeros((3, 2, 1))}, "y_score|dim"),
        (DISTANCE, {"order": 0.5}, "order must be a finite number >= 1; got 0.5"),
        (DISTANCE, {"order": np.inf}, "order must be"),
        (DISTANCE, {"order": "2"}, "order must be"),
    ],
)
def test_bad_input_is_refused_by_name(metric, change, message):
    kwargs = {"y_true": [0, 1, 0], "y_score": [0.1, 0.9, 0.5], "sensitive_features": list("aab")}
    with pytest.raises(ValueError, match=message):
        metric(**{**kwargs, **change})

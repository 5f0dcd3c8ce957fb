"""AUC gaps against brute-force counts of pairs: weights, ties, many groups, missing cells."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained import metrics
from fairconstrained.exceptions import SmallGroupWarning


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1, 2], [1, 2, 3]), "y_true must have two labels"),
        (([0, 1, 1], [[1, 2, 3], [2, 3, 4], [3, 4, 5]]), "y_score must have shape"),
        (([0, 1, 1], [1, 2]), "y_score has 2 rows, but y_true has 3"),
        (([0, 1, 1], [1, 2, np.nan]), "y_score contains NaN"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        metrics.group_auc_gap(*arguments, sensitive_features=[0, 1, 1])


def test_masks_are_boolean():
    with pytest.raises(ValueError, match="second must be a boolean mask of shape"):
        metrics.auc_between([1, 2], [True, False], [0, 1])

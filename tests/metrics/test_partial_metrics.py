"""Partial notions of fairness against definitions written out on samples, in numpy only.

The oracle has no formula for ties: it copies every row often enough for the ends of the interval to
fall between copies, sorts, and cuts the interval out.
"""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained import metrics
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.percentiles import read_intervals

COPIES = 20  # ends of intervals are multiples of 1 / 20


def cut_out(scores, weight, union):
    """The part of a group's weighted scores whose ranks lie in the union of intervals."""
    order = np.argsort(-scores, kind="stable")
    copies = np.repeat(scores[order], COPIES * weight[order])
    ends = np.round(np.atleast_2d(union) * len(copies)).astype(int)
    pieces = [copies[a:b] for a, b in ends]
    return np.concatenate(pieces)


def of_pairs(compare, scores, group, weight, interval):
    unions = interval if isinstance(interval, dict) else dict.fromkeys(set(group), interval)
    parts = [cut_out(scores[group == g], weight[group == g], unions[g]) for g in sorted(set(group))]
    return max(compare(a, b) for a in parts for b in parts)


def distance(a, b):
    thresholds = np.concatenate(([-np.inf], a, b))
    return max(abs(np.mean(a > t) - np.mean(b > t)) for t in thresholds)


ORACLES = {
    "partial_statistical_parity": distance,
    "partial_demographic_parity": lambda a, b: abs(np.mean(a > 0) - np.mean(b > 0)),
    "partial_group_auc": lambda a, b: np.mean(np.heaviside(a[:, None] - b, 0.5)) - 0.5,
}
ends = st.lists(st.integers(0, COPIES), min_size=2, max_size=4, unique=True)


@st.composite
def cases(draw):
    n_groups = draw(st.integers(2, 4))
    n = draw(st.integers(n_groups, 25))
    integers = st.integers(-3, 3)
    scores = np.array(draw(st.lists(integers, min_size=n, max_size=n)), dtype=float)
    group = np.array([*range(n_groups), *draw(st.lists(st.integers(0, n_groups - 1), max_size=n))])
    group = np.resize(group, n)
    weight = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))

    def union():
        cuts = sorted(draw(ends))
        return [(a / COPIES, b / COPIES) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]

    interval = {g: union() for g in range(n_groups)} if draw(st.booleans()) else union()
    return scores, group, weight, interval


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
@settings(max_examples=50)
@given(case=cases())
def test_equals_the_definition_on_copies_of_the_rows(name, case):
    """Ties, weights, unions, intervals per group, several groups: all by sorting copies."""
    scores, group, weight, interval = case
    given = {"sensitive_features": group, "interval": interval, "sample_weight": weight}
    value = getattr(metrics, name)(None, scores, **given)
    expected = of_pairs(ORACLES[name], scores, group, weight, interval)
    assert value == pytest.approx(expected, abs=1e-9)


def untied(seed, sizes=(40, 60, 20)):
    """Distinct scores; 0.05 of a group is a whole number of rows."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=len(group)) + 0.5 * group, group


@pytest.mark.parametrize("interval", [(0.0, 0.25), (0.1, 0.6), (0.75, 1.0), (0.0, 1.0)])
def test_definition_4_2_to_the_letter(interval):
    """Max over theta and pairs of |P(z > theta | rank of z in I)|, each probability counted."""
    scores, group = untied(1)
    parts = []
    for g in set(group):
        own = scores[group == g]
        rank = np.array([np.mean(own > z) for z in own])
        parts.append(own[(rank >= interval[0]) & (rank < interval[1])])
    expected = max(distance(a, b) for a in parts for b in parts)
    given = {"sensitive_features": group, "interval": interval}
    value = metrics.partial_statistical_parity(None, scores, **given)
    assert value == pytest.approx(expected, abs=1e-12)
    assert value > 0.1


@pytest.mark.parametrize("interval", [(0.0, 0.25), (0.1, 0.6), (0.75, 1.0), [(0, 0.1), (0.5, 0.6)]])
def test_ccdf_gap_is_the_gap_of_ranks_where_one_is_inside(interval):
    """Without ties: every threshold, every pair, written out."""
    scores, group = untied(1)
    gaps = [0.0]
    for theta in (-np.inf, *scores):
        ranks = [np.mean(scores[group == g] > theta) for g in sorted(set(group))]
        inside = [any(a <= r < b for a, b in np.atleast_2d(interval)) for r in ranks]
        gaps += [
            abs(r - s)
            for r, r_in in zip(ranks, inside, strict=True)
            for s, s_in in zip(ranks, inside, strict=True)
            if r_in or s_in
        ]
    value = metrics.ccdf_gap(None, scores, sensitive_features=group, interval=interval)
    assert value == pytest.approx(max(gaps), abs=1e-12)
    assert value > 0.1


@pytest.mark.parametrize("name", ["partial_equal_opportunity", "partial_equalized_odds"])
def test_notions_within_labels_are_demographic_parity_of_their_rows(name):
    scores, group = untied(1)
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=len(scores))
    weight = rng.exponential(size=len(scores))
    options = {"interval": {0: (0.1, 0.6), 1: (0.2, 0.7), 2: (0, 1)}, "threshold": 0.4}

    def within(label):
        rows = y == label
        given = {"sensitive_features": group[rows], "sample_weight": weight[rows], **options}
        return metrics.partial_demographic_parity(None, scores[rows], **given)

    expected = within(1) if name == "partial_equal_opportunity" else max(within(0), within(1))
    options = {"sensitive_features": group, "sample_weight": weight, **options}
    value = getattr(metrics, name)(y, scores, **options)
    assert value == pytest.approx(expected, abs=1e-12)
    assert value > 0


PARTIAL = [
    *("ccdf_gap", "partial_demographic_parity", "partial_equal_opportunity"),
    *("partial_equalized_odds", "partial_group_auc", "partial_statistical_parity"),
]
every_metric = pytest.mark.parametrize("name", PARTIAL)


@every_metric
def test_tied_scores_are_fair_and_opposite_constants_are_not(name):
    """Ties that jump over the interval are not overlooked."""
    group, y = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    metric = getattr(metrics, name)
    options = {"sensitive_features": group, "interval": (0.05, 0.3)}
    assert metric(y, np.full(40, 0.7), **options) == 0.0
    assert metric(y, group - 0.5, **options) == (0.5 if name == "partial_group_auc" else 1.0)


def test_a_group_without_a_label_gives_a_warning_and_nan():
    scores, group = untied(0)
    y = np.where(group == 1, 0, np.arange(len(scores)) % 2)
    for metric in (metrics.partial_equal_opportunity, metrics.partial_equalized_odds):
        with pytest.warns(SmallGroupWarning, match="group 1 has no rows with label 1"):
            assert np.isnan(metric(y, scores, sensitive_features=group, interval=(0, 0.5)))
    with warnings.catch_warnings(action="error"):
        given = {"sensitive_features": group, "interval": (0, 0.5), "pos_label": 0}
        value = metrics.partial_equal_opportunity(y, scores, **given)
    assert 0 <= value <= 1


@pytest.mark.parametrize(
    "interval",
    [
        *((0.3, 0.1), (0.2, 0.2), (-0.1, 0.5), (0.5, 1.1), [], (0.1,), "auto", (0.1, np.nan)),
        *(None, (False, True), [(0.1, 0.2), (0.3,)], [(0.0, 0.2), (0.4, 0.3)]),
    ],
    ids=repr,
)
def test_bad_intervals_are_refused(interval):
    scores, group = untied(0)
    given = {"sensitive_features": group, "interval": interval}
    with pytest.raises(ValueError, match=r"interval must be .* got"):
        metrics.partial_statistical_parity(None, scores, **given)


def test_overlaps_and_wrong_groups_are_named():
    with pytest.raises(ValueError, match=r"overlapping parts: \(0.0, 0.3\) and \(0.2, 0.4\)"):
        read_intervals([(0.2, 0.4), (0.0, 0.3)], ["a", "b"])
    with pytest.raises(ValueError, match="there is none for b"):
        read_intervals({"a": (0, 0.3)}, ["a", "b"])
    with pytest.raises(ValueError, match=r"do not have: \['c'\]"):
        read_intervals({"a": (0, 0.3), "b": (0, 0.3), "c": (0, 1)}, ["a", "b"])
    assert read_intervals({"f & 1": (0, 0.25)}, [("f", 1)]).lengths == [0.25]


def test_bad_scores_are_refused():
    scores, group = untied(0)
    options = {"sensitive_features": group, "interval": (0, 0.5)}
    with pytest.raises(ValueError, match=r"one score per row.*\(120, 3\)"):
        metrics.ccdf_gap(None, np.zeros((120, 3)), **options)
    with pytest.raises(ValueError, match="NaN"):
        metrics.ccdf_gap(None, np.where(group == 0, np.nan, scores), **options)
    with pytest.raises(ValueError, match="must have two labels"):
        metrics.partial_equalized_odds(np.arange(120) % 3, scores, **options)

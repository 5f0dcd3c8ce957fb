"""AUC constraints: surrogates against sums over all pairs, hard values against the metrics."""

from itertools import cycle

import numpy as np
import pytest
import torch
from scipy.stats import norm

from fairconstrained import metrics
from fairconstrained.constraints import AUCParity, Binormal, DemographicParity, Quadratic, SoftBins
from fairconstrained.constraints.moments import Stack
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.problems.objectives import PairwiseLoss, RankedLoss
from tests.helpers.auc_fits import METRIC_OF
from tests.helpers.notions import bound, random_rows
from tests.helpers.notions import hard_values as hard
from tests.helpers.notions import soft_values as soft

SURROGATE_OBJECTS = [Quadratic(), Quadratic(c1=0.7, c2=0.4), Binormal(), SoftBins()]
every_notion = pytest.mark.parametrize("notion", COMPARISONS)
every_surrogate = pytest.mark.parametrize("surrogate", SURROGATE_OBJECTS, ids=repr)
PAIRS = list(zip(COMPARISONS, cycle(SURROGATE_OBJECTS), strict=False))
each_of_both = pytest.mark.parametrize(("notion", "surrogate"), PAIRS)


def constraint(notion="inter_group", surrogate="binormal", n_groups=3, slack=0.05):
    return bound(AUCParity(notion, slack, surrogate=surrogate), (2, n_groups))


def pair_mean(loss, rows, first, second):
    """Weighted mean of a loss of score differences over all pairs of two sets of cells."""
    z, w = rows.scores[:, 0].numpy(), rows.weight.numpy()
    i, j = (np.flatnonzero(cells[rows.y, rows.group]) for cells in (first, second))
    weights = np.outer(w[i], w[j])
    return (weights * loss(z[i][:, None] - z[j][None, :])).sum() / weights.sum()


@every_notion
def test_the_quadratic_form_is_the_double_sum(notion):
    """Equations 4 and 5 of the paper, pair by pair."""
    rows, c1, c2 = random_rows(0), 0.3, 0.8
    c = constraint(notion, Quadratic(c1, c2))

    def square(t):
        return c1 * (t - c2) ** 2

    expected = [
        pair_mean(square, rows, b, a) + pair_mean(square, rows, x, y) - 1 - 0.05
        for sign in (1, -1)
        for a, b, x, y in (q[::sign] if sign > 0 else q[[2, 3, 0, 1]] for q in c.comparisons)
    ]
    np.testing.assert_allclose(soft(c, rows), expected, rtol=1e-12)


def test_lemma_1_with_its_factor():
    """Min over a, b and max over alpha of E[F + alpha G] - c1 alpha^2 is the double sum."""
    rows = random_rows(1, n_groups=2)
    z, w = rows.scores[:, 0].numpy(), rows.weight.numpy()
    c1, c2 = 0.3, 0.8
    first, second = ((w * (rows.y == k).numpy()) / w[rows.y == k].sum() for k in (1, 0))

    def minmax(a, b, alpha, factor):
        F = c1 * c2**2 - 2 * c1 * c2 * (first @ z - second @ z)
        F += c1 * (first @ (z - a) ** 2 + second @ (z - b) ** 2)
        return F + alpha * 2 * c1 * (first @ z - second @ z) - factor * alpha**2

    a, b = first @ z, second @ z
    cells = np.array([[0, 0], [1, 1]]), np.array([[1, 1], [0, 0]])
    double_sum = pair_mean(lambda t: c1 * (t - c2) ** 2, rows, *cells)
    assert minmax(a, b, a - b, c1) == pytest.approx(double_sum, rel=1e-12)
    for step in (-0.1, 0.1):  # a saddle point
        assert minmax(a + step, b - step, a - b, c1) > double_sum
        assert minmax(a, b, a - b + step, c1) < double_sum
    printed = minmax(a, b, c1 * (a - b), 1.0)  # the maximum over alpha as the paper prints it
    assert printed == pytest.approx(double_sum - (c1 - c1**2) * (a - b) ** 2, rel=1e-12)


def test_the_binormal_form_is_exact_for_normal_scores():
    """Moments in, P(z <= z') out: against the normal distribution of the difference."""
    means = torch.tensor([[1.0, 1.0 + 4.0], [0.2, 0.04 + 2.25]], dtype=torch.float64)
    expected = norm.cdf(0, loc=0.8, scale=2.5)
    assert Binormal().loss(means[0], means[1]).item() == pytest.approx(expected, abs=1e-9)
    rng = np.random.default_rng(0)
    z = np.append(rng.normal(1, 2, 40_000), rng.normal(0.2, 1.5, 40_000))
    first = np.arange(80_000) < 40_000
    assert metrics.auc_between(z, ~first, first) == pytest.approx(expected, abs=0.005)


@every_notion
def test_soft_bins_tend_to_the_true_auc(notion):
    rows = random_rows(2, n=300)
    errors = []
    for n_bins in (8, 64, 1024):
        c = constraint(notion, SoftBins(n_bins))
        errors.append((soft(c, rows) - hard(c, rows)).abs().max().item())
    assert errors[0] > 0.01
    assert errors[2] < 0.1 * errors[0]
    assert errors[2] < 2e-3


@every_notion
def test_hard_values_are_the_metric(notion):
    rows = random_rows(4, n=200)
    c = constraint(notion)
    gap = METRIC_OF[notion](rows.y, rows.scores, **rows.beside_labels)
    values = hard(c, rows)
    assert c.measure(values) == pytest.approx(gap, abs=1e-12)
    assert values.max().item() == pytest.approx(gap - 0.05, abs=1e-12)
    both = values.reshape(2, -1) + 0.05
    np.testing.assert_allclose(both[0], -both[1], atol=1e-12)
    stacked = Stack(c.space, [bound(DemographicParity(), (2, 3)), c])
    _, (_, second) = stacked.split(hard(stacked, rows))
    np.testing.assert_allclose(second, values, atol=1e-14)


@each_of_both
def test_constant_scores_are_feasible(notion, surrogate):
    """Lemma 2: for c1 c2^2 <= 1/2 (0.5 and 0.112 here) a constant is feasible, even at slack 0."""
    rows = random_rows(7)._replace(scores=torch.zeros(60, 1, dtype=torch.float64))
    c = constraint(notion, surrogate, slack=0.0)
    assert soft(c, rows).max() <= 1e-12
    assert hard(c, rows).abs().max() <= 1e-12


@every_surrogate
def test_pairwise_loss_of_labels(surrogate):
    """The objective is the constraint's own loss between all positives and all negatives."""
    rows = random_rows(8)
    shares = [float(rows.weight[rows.y == k].sum() / rows.weight.sum()) for k in (0, 1)]
    objective = PairwiseLoss(surrogate, tuple(shares))
    value = objective.soft(rows.scores, rows.y, rows.weight)
    if isinstance(surrogate, Quadratic):
        cells = np.array([[0] * 3, [1] * 3]), np.array([[1] * 3, [0] * 3])
        expected = pair_mean(lambda t: surrogate.c1 * (t - surrogate.c2) ** 2, rows, *cells)
        assert value.item() == pytest.approx(expected, rel=1e-12)
    y, scores = rows.y.numpy(), rows.scores[:, 0]
    auc = metrics.auc_between(scores, y == 1, y == 0, sample_weight=rows.weight)
    for ranked in (objective, RankedLoss()):
        assert ranked.hard(rows.scores, rows.y, rows.weight).item() == pytest.approx(1 - auc)
    shifted = rows.scores + 3.0 * rows.y[:, None]
    assert objective.soft(shifted, rows.y, rows.weight) != value

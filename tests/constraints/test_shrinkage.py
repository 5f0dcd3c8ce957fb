"""Shrunken rates are nearer to the true ones, and constraints on them are what the formula says."""

import numpy as np
import pytest
import torch

from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    Event,
    LossParity,
    Parity,
    PredictiveParity,
    Space,
)
from fairconstrained.constraints.shrinkage import shrunken, told_apart
from fairconstrained.constraints.tables import Losses
from fairconstrained.losses import log_loss
from fairconstrained.rates import shrunken_rates

NONE = torch.zeros(0)
BAYES = {"shrinkage": "empirical_bayes"}


def drawn(rng, n_groups, between):
    """True rates of groups of 40 to 3,000 rows, their sizes, and rates of a sample."""
    size = np.exp(rng.uniform(np.log(40), np.log(3000), n_groups)).astype(int)
    true = rng.normal(0.3, between, n_groups).clip(0.01, 0.99)
    return true, size, rng.binomial(size, true) / size


@pytest.mark.parametrize(("n_groups", "between"), [(4, 0.2), (10, 0.03), (40, 0.0)])
def test_shrunken_rates_are_nearer_and_their_intervals_cover(n_groups, between):
    rng, missed, covered = np.random.default_rng(0), [], []
    for _ in range(200):
        true, size, rate = drawn(rng, n_groups, between)
        found = shrunken_rates(rate, size)
        missed.append([((own - true) ** 2).sum() for own in (found.rate, rate)])
        covered.append((np.abs(found.rate - true) <= 1.96 * found.error).mean())
    assert np.divide(*np.sum(missed, axis=0)) < (0.99 if between == 0.2 else 0.85)
    assert np.mean(covered) > 0.94


def test_the_variance_between_groups_is_that_of_moments():
    _, size, rate = drawn(np.random.default_rng(1), 12, 0.1)
    found = shrunken_rates(rate, size)
    of_all = rate @ size / size.sum()
    precision = 1 / (of_all * (1 - of_all) / size + found.variance)
    centre = rate @ precision / precision.sum()
    assert precision @ (rate - centre) ** 2 == pytest.approx(11, rel=1e-6)
    assert (np.abs(found.rate - centre) <= np.abs(rate - centre)).all()


def test_without_variance_rates_are_shrunken_towards_that_of_all():
    rate, size = np.array([0.3, 0.31, 0.29, 0.3, 0.3]), np.array([50, 50, 50, 50, 800])
    found = shrunken_rates(rate, size)
    assert found.variance == pytest.approx(0.0, abs=1e-12)
    of_all = rate @ size / 1000
    np.testing.assert_allclose(found.rate - of_all, 0.5 * (rate - of_all), atol=1e-9)  # 1 - 2 / 4


@pytest.mark.parametrize("rate", [[0.2, 0.9, 0.4], [0.0] * 5, [1.0] * 5])
def test_rates_of_few_groups_and_equal_ones_stay(rate):
    found = shrunken_rates(np.array(rate), np.full(len(rate), 20))
    np.testing.assert_array_equal(found.rate, rate)


@pytest.mark.parametrize("size", [[1, 2], [1, 2, 0], [1, 2, np.nan]])
def test_bad_sizes_are_refused(size):
    with pytest.raises(ValueError, match="sizes must be positive"):
        shrunken_rates([0.1, 0.2, 0.3], size)


def rows(n_classes, n_groups=6, n=400, seed=0):
    """Labels, groups of falling sizes, and predictions of a reference and of another model."""
    rng = np.random.default_rng(seed)
    share = 0.6 ** np.arange(n_groups)
    y, reference = rng.integers(0, n_classes, size=(2, n))
    group = rng.choice(n_groups, size=n, p=share / share.sum())
    group[:n_groups] = np.arange(n_groups)
    other = np.where(rng.random(n) < 0.7, reference, rng.integers(0, n_classes, size=n))
    reference[group == n_groups - 1] = 0  # a rate without hits
    return (torch.as_tensor(own) for own in (y, group, reference, other))


def scores_of(predicted, n_classes):
    """Scores of these predictions."""
    if n_classes == 2:
        return predicted[:, None] - 0.5
    return torch.nn.functional.one_hot(predicted, n_classes).double()


def by_formula(hit, hit_of_reference, group, n_groups):
    """Largest difference of shrunken rates, from the formula of DemographicParity."""
    means = [hit_of_reference[group == g].mean() for g in range(n_groups)]
    size = np.bincount(group, minlength=n_groups)
    noise = np.array(means) - shrunken_rates(means, size).rate
    slope = hit[hit_of_reference].mean() - hit[~hit_of_reference].mean()
    rates = [hit[group == g].mean() - slope * noise[g] for g in range(n_groups)]
    return np.ptp(rates)


def events(name, y, predicted, n_classes):
    """Rows of each condition, and which of them are hits."""
    everyone = np.ones(len(y), dtype=bool)
    positive = [1] if n_classes == 2 else range(n_classes)
    if name == "error_rate_parity":
        return [(everyone, predicted != y)]
    conditions = {
        "demographic_parity": [(everyone, c) for c in positive],
        "equal_opportunity": [(y == c, c) for c in positive],
        "equalized_odds": [(y == k, c) for k in range(n_classes) for c in positive],
    }
    return [(rows, predicted == c) for rows, c in conditions[name]]


@pytest.mark.parametrize(
    ("kind", "n_classes"),
    [(DemographicParity, 3), (EqualizedOdds, 2), (EqualOpportunity, 3), (ErrorRateParity, 2)],
)
def test_values_are_those_of_the_formula(kind, n_classes):
    y, group, reference, other = rows(n_classes)
    space, weight = Space(list(range(n_classes)), list(range(6))), torch.ones(400).double()
    measured = kind(slack=0.1, **BAYES).bind(space)
    placed = measured.place(y, group, weight)
    found = shrunken(measured, [measured.scatter(scores_of(reference, n_classes), placed)])
    divided = found.place(y, told_apart(space, y, group, reference), weight)
    for predicted in (reference, other):
        value = found.measure(found.hard_values(scores_of(predicted, n_classes), divided, NONE))
        hits = events(measured.name, y.numpy(), predicted.numpy(), n_classes)
        of_reference = events(measured.name, y.numpy(), reference.numpy(), n_classes)
        expected = [
            by_formula(hit[own], own_hit[own], group.numpy()[own], 6)
            for (own, hit), (_, own_hit) in zip(hits, of_reference, strict=True)
        ]
        assert value == pytest.approx(max(expected), abs=1e-9)
    if measured.name != "error_rate_parity":  # the error rates of a constant are no constant
        constant = scores_of(torch.zeros(400, dtype=torch.long), n_classes)
        assert found.measure(found.hard_values(constant, divided, NONE)) < 1e-9
    assert [found.describe(j).split(": ")[1] for j in range(len(found.slack))] == [
        measured.describe(j).split(": ")[1] for j in range(len(measured.slack))
    ]


class OfLosses(Parity):
    """A criterion of somebody's own, whose rates are not those of labels."""

    def events(self, classes):
        return [Event(np.ones(2), np.ones((2, 1)))]

    def statistic(self, n_classes):
        return Losses(log_loss)


@pytest.mark.parametrize(
    ("notion", "words"),
    [
        (DemographicParity(shrinkage="ridge"), "shrinkage must be 'empirical_bayes' or None"),
        (OfLosses(**BAYES), "only rates of predicted labels among rows"),
        (PredictiveParity(**BAYES), "only rates of predicted labels among rows"),
    ],
)
def test_what_cannot_be_shrunken_is_refused(notion, words):
    with pytest.raises(ValueError, match=words):
        notion.bind(Space([0, 1], ["a", "b"]), 0.1)
    assert "shrinkage" not in LossParity().get_params()

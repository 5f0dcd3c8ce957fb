"""Noisy tables of a private problem, and noisy sums over secret groups."""

import pytest
import torch

from fairconstrained.constraints import DemographicParity, FalseNegativeRate, Space
from fairconstrained.constraints.stack import Stack
from fairconstrained.constraints.tables import ClassProbabilities
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Budget, Gaussian, Phase, privacy_spent
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems import Rows
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.problems.private.secret_groups import noisy_sums, principal_components
from fairconstrained.solvers import DPSGDA
from fairconstrained.solvers.base import check_solves
from tests.helpers.releases import answered_by, without_noise

SIZES = [10, 30, 60]
SPACE = Space([0, 1], ["a", "b", "c"])
NOTIONS = DemographicParity(), FalseNegativeRate(temperature=2.0)


def problem(kind="gaussian", n_steps=2):
    """A hundred rows of three groups, on the whole in every batch."""
    group = torch.repeat_interleave(torch.tensor(SIZES))
    X = torch.linspace(-1.0, 1.0, 100, dtype=torch.float64)[:, None]
    y = torch.arange(100) % 2
    data = Rows((DenseFeatures(X),), y, group, torch.ones(100, dtype=torch.float64))
    stack = Stack(SPACE, [notion.bind(SPACE, 0.1) for notion in NOTIONS])
    counts = stack.partition.place(y, group, data.weight).counts()
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    solver = DPSGDA(n_steps=n_steps, sampling_rate=1.0, histogram_noise=kind)
    releases = Releases(solver.plan(100, Budget(1.0, 1e-5, "record")))
    model = LinearModel(1, zero, one, True)
    return PrivateERM(model, data, stack, counts, releases, 0.0, 100)


X = torch.tensor([0.3, 2.0], dtype=torch.float64)


def released(erm):
    no_dual = torch.zeros(erm.n_constraints).double()
    return erm.release(X, lambda _: no_dual, 1.0, torch.Generator().manual_seed(0))[0]


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_tables_add_up_to_the_counts_and_are_exact_without_noise(kind, monkeypatch):
    """For both of the statistics, with a column for each class."""
    noisy = problem(kind)
    table = released(noisy)
    for columns in (slice(0, 2), slice(2, 4)):
        torch.testing.assert_close(table[:, columns].sum(dim=1), noisy.counts)
    data, stack = noisy.data, noisy.constraint
    labels = stack.statistic.hard(noisy.model.scores(X, data.X), data.y)
    expected = torch.stack([labels[data.group == q].sum(dim=0) for q in range(stack.n_parts)])
    answered_by(monkeypatch, without_noise)
    torch.testing.assert_close(released(noisy), expected)


@pytest.mark.slow
def test_values_have_the_noise_that_is_said():
    """Of one statistic a count has half of the noise that the whole row (1, 0) would ask for."""
    erm, rng = problem(), torch.Generator().manual_seed(0)
    erm.releases._left["final table"] = 2_000
    values = torch.stack([erm.values(erm.release_table(X, rng)) for _ in range(2_000)])
    said = erm.deviations_of_estimates()
    torch.testing.assert_close(values.std(dim=0), said, rtol=0.08, atol=0.0)
    # The root of two for two statistics that are released together, and for two labels a group.
    noise = erm.plan.noise("final table")
    pair = 0.5 * 2**0.5 * 2**0.5 * noise * (SIZES[0] ** -2 + SIZES[1] ** -2) ** 0.5
    assert float(said[0]) == pytest.approx(pair)


def test_a_statistic_that_does_not_say_what_a_row_adds_is_refused(monkeypatch):
    """Before anything is released: what is not known cannot be priced."""
    monkeypatch.setattr(ClassProbabilities, "widths", ())
    with pytest.raises(IncompatibleSolverError, match="a bound on what one row"):
        check_solves(DPSGDA(), problem())


@pytest.mark.parametrize("k", [2, 3, 20])
def test_the_noise_is_that_of_the_distance_between_two_groups(k, monkeypatch):
    """Sensitivity sqrt(2) over the deviation costs what the plan says: neither more nor less."""
    plan = plan_releases({"group counts": 0.99}, Budget(1.0, 1e-5, "sensitive_features"))
    asked, one = answered_by(monkeypatch, without_noise), torch.ones(1, dtype=torch.float64)
    y = torch.zeros(1, dtype=torch.long)
    for group in (0, 1):
        data = Rows((DenseFeatures(one[:, None]),), y, torch.tensor([group]), one)
        noisy_sums("group counts", one[:, None], data, (2, k), Releases(plan), None)
    (_, deviation, first), (_, _, second) = asked
    moved = float((first - second).norm())
    assert moved == pytest.approx(2**0.5)
    once = Phase([Gaussian(deviation / moved)])  # a distance of 1 in these units
    assert privacy_spent([once], delta=1e-5) == pytest.approx(plan.epsilon, rel=3e-3)


def test_constant_features_have_one_component():
    """Without any a fit on them failed after its releases."""
    rows = DenseFeatures(torch.full((10, 2), 3.0).double())
    none = torch.zeros(10, dtype=torch.long)
    components = principal_components(Rows((rows,), none, none, torch.ones(10).double()), 5)
    torch.testing.assert_close(components, torch.ones(10, 1).double())

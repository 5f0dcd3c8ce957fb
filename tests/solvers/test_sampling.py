"""Draws of equal numbers from each part: their numbers, their independence, what they estimate."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairconstrained.constraints import DemographicParity, EqualizedOdds, LossParity
from fairconstrained.models import NetworkModel
from fairconstrained.solvers.stochastic import Balanced
from tests.helpers.erm import erm

strata_lists = st.lists(st.integers(-1, 4), min_size=1, max_size=40)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@settings(max_examples=50)
@given(strata_lists, st.integers(1, 6))
def test_every_tuple_has_one_row_of_each_stratum(strata, size):
    present, strata = torch.tensor(strata).unique(return_inverse=True)
    strata = strata - (present < 0).sum()  # 0, 1, ... without gaps, and -1
    balanced = Balanced(strata)
    index, scale = balanced.draw(size, generator())
    expected = strata[strata >= 0].unique() if (strata >= 0).any() else torch.tensor([-1])
    assert (strata[index].reshape(size, -1) == expected).all()
    counts = torch.stack([(strata == q).sum() for q in expected])
    torch.testing.assert_close(scale.reshape(size, -1)[0], counts / size, check_dtype=False)


def test_rows_of_a_stratum_are_equally_likely_and_draws_independent():
    strata = torch.tensor([0, 1, 1, 0, 1, -1])
    index, _ = Balanced(strata).draw(60_000, generator())
    first, second = index.reshape(-1, 2).T
    both = torch.bincount(6 * first + second, minlength=36).reshape(6, 6) / 60_000
    expected = torch.zeros(6, 6)
    expected[[0, 0, 0, 3, 3, 3], [1, 2, 4, 1, 2, 4]] = 1 / 6
    torch.testing.assert_close(both, expected, rtol=0, atol=5 * (5 / 36 / 60_000) ** 0.5)


@pytest.mark.parametrize(
    "notions",
    [
        [LossParity(0.1)],
        [LossParity(0.1, within="labels")],
        [EqualizedOdds(0.1), LossParity(0.1)],
        [DemographicParity(0.1, reference="overall")],
    ],
    ids=str,
)
def test_the_mean_over_all_balanced_draws_is_the_value_and_gradient_on_the_data(notions):
    """Every possible tuple once: unbiased to rounding, for weighted rows in unequal groups."""
    group = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
    y = torch.tensor([0, 0, 1, 1, 1, 0, 1, 1, 1])
    rng = torch.Generator().manual_seed(0)
    X = torch.randn((9, 3), generator=rng, dtype=torch.float64)
    weight = torch.rand(9, generator=rng, dtype=torch.float64) + 0.5
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
    problem = erm(X.numpy(), y.numpy(), group.numpy(), notions, weight=weight, alpha=0.0)
    problem = replace(problem, model=NetworkModel(network))
    x = problem.start() + 0.3
    strata = problem.strata
    members = [torch.nonzero(strata == q)[:, 0].tolist() for q in strata.unique().tolist()]
    scale = torch.tensor([len(rows) for rows in members], dtype=torch.float64)
    draws = [torch.tensor(rows) for rows in product(*members)]
    assert len(draws) > 10
    at = torch.randn(problem.n_constraints, generator=rng, dtype=torch.float64)
    found = [problem.constraints(x, rows, scale) for rows in draws]
    exact = problem.constraints(x)
    torch.testing.assert_close(torch.stack([t.value for t in found]).mean(0), exact.value)
    gradients = torch.stack([terms.pullback(at) for terms in found])
    torch.testing.assert_close(gradients.mean(0), exact.pullback(at))
    assert gradients.std(dim=0).max() > 1e-3  # single draws do differ

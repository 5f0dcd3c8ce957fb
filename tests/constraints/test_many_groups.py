"""Linear maps from tables to values: pairs of many groups are never stored."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
    Space,
    Stack,
)
from fairconstrained.constraints.linear import Combinations
from tests.helpers.notions import random_rows, table


def pairs(n):
    """The differences of all ordered pairs as a matrix."""
    identity = np.eye(n)
    return np.array([identity[i] - identity[j] for i in range(n) for j in range(n) if i != j])


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("families", [(45,), (2, 40, 3), ()])
def test_combinations_are_their_matrices(families, equal):
    """Products with both sides, the largest of C r + b, variances, and what is left."""
    rng = np.random.default_rng(0)
    entries = rng.normal(size=(70, 40)) * (rng.random((70, 40)) < 0.1)
    matrix = sp.block_diag([pairs(n) for n in families]).toarray() if families else entries
    mapped = Combinations.of(matrix, families)
    rates, weights = (torch.as_tensor(rng.normal(size=(n, 3))) for n in matrix.shape[::-1])
    np.testing.assert_allclose(mapped.times(rates), matrix @ rates.numpy(), atol=1e-12)
    on_rates = mapped.transposed_times(weights)
    np.testing.assert_allclose(on_rates, matrix.T @ weights.numpy(), atol=1e-12)
    offset = torch.as_tensor(-0.1 + (0.0 if equal else 0.1) * rng.random(len(matrix)))
    expected = (torch.as_tensor(matrix) @ rates + offset[:, None]).amax(dim=0)
    torch.testing.assert_close(mapped.largest(rates, offset), expected)
    root = rng.normal(size=(matrix.shape[1],) * 2)
    found = mapped.variances(torch.as_tensor(root @ root.T))
    np.testing.assert_allclose(found, ((matrix @ root) ** 2).sum(axis=1), rtol=1e-9)
    dropped = rng.random(matrix.shape[1]) < 0.2
    left, rows, columns = mapped.without(dropped)
    np.testing.assert_array_equal(rows, ~matrix[:, dropped].any(axis=1))
    np.testing.assert_array_equal(columns, matrix[rows].any(axis=0))
    np.testing.assert_array_equal(
        left.times(torch.eye(left.n_rates).double()), matrix[np.ix_(rows, columns)]
    )


@pytest.mark.parametrize("n_groups", [3, 120])
def test_affine_maps_are_the_values_of_tables_and_their_gradients(n_groups):
    """For stacks of notions, dense (few groups) and sparse (28,560 pairs, 240 parts)."""
    space = Space([0, 1], list(range(n_groups)))
    notions = [EqualizedOdds(0.1), DemographicParity(0.2, reference="rest"), FalseNegativeRate(0.3)]
    stack = Stack(space, [notion.bind(space) for notion in notions])
    rows, none = random_rows(1, n_groups=n_groups, n=1500), torch.zeros(0)
    own = rows.on(stack)
    affine, sums = stack.affine(own.counts()), table(stack, rows)
    assert (affine._product is None) == (n_groups == 120)
    torch.testing.assert_close(
        affine.of_table(sums), stack.values(rows.scores, own, none), atol=1e-12, rtol=0
    )
    leaf = sums.clone().requires_grad_()
    weights = torch.as_tensor(np.random.default_rng(0).normal(size=len(stack.slack)))
    (expected,) = torch.autograd.grad(weights @ stack.of_moments(leaf, own.counts(), none), leaf)
    torch.testing.assert_close(affine.on_table(weights), expected, atol=1e-12, rtol=1e-9)


def test_a_thousand_groups_pair_by_pair_are_largest_minus_smallest():
    """999,000 values; dense combinations would take 7.4 GiB, these some tens of MB."""
    space = Space([0, 1], list(range(1000)))
    constraint = DemographicParity(0.05).bind(space)
    assert len(constraint.slack) == 999_000
    assert len(pickle.dumps(constraint)) < 64e6
    rows = random_rows(0, n_groups=1000, n=8000)
    values = constraint.hard_values(rows.scores, rows.on(constraint), torch.zeros(0))
    positive = (rows.scores[:, 0] > 0).double() * rows.weight
    weight = torch.zeros(1000).double().index_add(0, rows.group, rows.weight)
    rates = torch.zeros(1000).double().index_add(0, rows.group, positive) / weight
    assert constraint.measure(values) == pytest.approx(float(rates.max() - rates.min()))
    assert constraint.describe(0) == "demographic_parity: group 0 against group 1"

"""Linear maps from tables to values: pairs of many groups are never stored."""

import pickle

import numpy as np
import pytest
import torch

from fairconstrained.constraints import DemographicParity, EqualizedOdds, FalseNegativeRate, Space
from fairconstrained.constraints.stack import Stack
from tests.helpers.notions import random_rows, table


def test_affine_maps_are_the_values_of_tables_and_their_gradients():
    """For stacks of notions with 28,560 pairs and 240 parts."""
    space = Space([0, 1], list(range(120)))
    notions = [EqualizedOdds(0.1), DemographicParity(0.2, reference="rest"), FalseNegativeRate(0.3)]
    stack = Stack(space, [notion.bind(space) for notion in notions])
    rows, none = random_rows(1, n_groups=120, n=1500), torch.zeros(0)
    own = rows.on(stack)
    affine, sums = stack.affine(own.counts()), table(stack, rows)
    torch.testing.assert_close(
        affine.values(sums), stack.values(rows.scores, own, none), atol=1e-12, rtol=0
    )
    leaf = sums.clone().requires_grad_()
    weights = torch.as_tensor(np.random.default_rng(0).normal(size=len(stack.slack)))
    (expected,) = torch.autograd.grad(weights @ stack.evaluate(leaf, own.counts(), none), leaf)
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

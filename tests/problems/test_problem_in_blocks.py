"""Problems on rows in blocks: the values, gradients and lines of those on rows in memory."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.testing import assert_close

from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
    LossParity,
    Space,
    Stack,
    stacked,
)
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.losses import log_loss
from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.problems import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.objectives import MeanLoss
from tests.helpers.parts import N_GROUPS, N_ROWS, assert_same_problem, model, rows

NOTIONS = {
    "rates": [DemographicParity(0.1)],
    "odds and a cap": [EqualizedOdds(0.1), FalseNegativeRate(max=0.3)],
    "losses": [LossParity(0.02)],
    "nothing": [],
}


def csr(X):
    return SparseFeatures(sp.csr_array(X.numpy()))


def both(notions, n_classes=2, wrap=DenseFeatures):
    whole, parts = rows(n_classes, wrap)
    space = Space(range(n_classes), range(N_GROUPS))
    stack = stacked(space, [notion.bind(space, 0.1) for notion in notions])
    common = model(whole, n_classes)
    x = torch.randn(
        common.n_params, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    return (
        FairERM(common, whole, MeanLoss(log_loss), stack, 1e-3),
        FairERM(common, parts, MeanLoss(log_loss), stack, 1e-3),
        x,
    )


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks that are longer than a piece, as long ones are."""
    monkeypatch.setattr("fairconstrained.problems.rows._PIECE_ROWS", 30)


@pytest.mark.parametrize(("n_classes", "wrap"), [(2, DenseFeatures), (3, csr)])
@pytest.mark.parametrize("notions", NOTIONS.values(), ids=NOTIONS)
def test_values_and_gradients_are_those_of_all_rows(notions, n_classes, wrap):
    exact, in_parts, x = both(notions, n_classes, wrap)
    assert_same_problem(exact, in_parts, x)


@pytest.mark.parametrize(
    ("name", "n_classes", "reach"),
    [("rates", 2, 0.3), ("odds and a cap", 3, np.inf), ("losses", 2, np.inf)],
)
def test_lines_are_those_of_all_rows(name, n_classes, reach):
    exact, in_parts, x = both(NOTIONS[name], n_classes)
    for direction in (torch.eye(len(x), dtype=x.dtype)[-1], torch.flip(x, [0])):
        own, other = exact.along(x, direction, reach), in_parts.along(x, direction, reach)
        for mine, theirs in zip(other, own, strict=True):
            assert_close(mine, theirs)


def test_the_table_of_fractions_is_the_mean_over_groups_that_are_drawn_from_them():
    """Sums over the parts are linear in the memberships of the rows."""
    exact, _, x = both([EqualizedOdds(0.1)])
    generator = torch.Generator().manual_seed(0)
    fractions = torch.rand((N_ROWS, N_GROUPS), dtype=torch.float64, generator=generator)
    fractions /= fractions.sum(dim=1, keepdim=True)
    scores = exact.model.scores(x, exact.data.X)
    drawn = torch.multinomial(fractions, 4000, replacement=True, generator=generator).T

    def table(group):
        rows = exact.constraint.place(exact.data.y, group, exact.data.weight)
        return exact.constraint.sums(scores, rows, x[:0])

    mean = torch.stack([table(group) for group in drawn]).mean(dim=0)
    assert_close(mean, table(fractions), rtol=0.02, atol=0.0)


@pytest.mark.parametrize(("n_classes", "groups"), [(2, "estimated"), (3, "known")])
def test_the_penalised_problem_is_that_of_all_rows(n_classes, groups):
    whole, parts = rows(n_classes)
    space = Space(range(n_classes), range(N_GROUPS))
    stack = Stack(space, [EqualizedOdds().bind(space, 1.0)])
    if groups == "estimated":
        fractions = torch.rand((N_ROWS, N_GROUPS), dtype=torch.float64).softmax(dim=1)
        whole, parts = (replace(data, group=fractions) for data in (whole, parts))
    counts = whole.counts(stack)
    assert_close(parts.counts(stack), counts)
    penalty = {"information": MutualInformation.within(stack, counts), "weight": 2.0}
    exact, in_parts = (
        FermiERM(model(whole, n_classes), data, MeanLoss(log_loss), stack, 1e-3, **penalty)
        for data in (whole, parts)
    )
    x = torch.randn(exact.model.n_params, dtype=torch.float64)
    for _ in range(2):  # the second time with the table of the labels
        own, other = exact.linearize(x), in_parts.linearize(x)
        assert_close(other.value, own.value)
        assert_close(other.pullback(torch.ones(1)), own.pullback(torch.ones(1)), check_dtype=False)
        assert in_parts.of_labels(x) == pytest.approx(exact.of_labels(x))
        for mine, theirs in zip(in_parts.evaluate(x), exact.evaluate(x), strict=True):
            assert_close(mine, theirs)
        exact, in_parts = exact.moved_to_labels(x), in_parts.moved_to_labels(x)


def test_statistics_of_columns_are_those_of_all_rows():
    whole, parts = rows()
    centre = whole.X.mean(whole.weight)
    assert parts.X.shape == whole.X.shape
    assert_close(parts.X.mean(parts.weight), centre)
    for name in ("variance", "covariance"):
        own = getattr(whole.X, name)(whole.weight, centre)
        assert_close(getattr(parts.X, name)(parts.weight, centre), own)


def test_single_precision_is_summed_in_double():
    X = np.random.default_rng(0).normal(1e4, 1.0, size=(50, 2)).astype(np.float32)
    (piece,) = as_features(X).split(100)
    assert piece.X.dtype == torch.float64

"""Problems that compare the order of all scores, on rows in blocks and of several workers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch.testing import assert_close

from fairconstrained.constraints import (
    PARTIAL,
    AUCParity,
    DemographicParity,
    Quadratic,
    Space,
    Stack,
    stacked,
)
from fairconstrained.distributed import ALONE, Workers
from fairconstrained.losses import log_loss
from fairconstrained.models.features import DenseFeatures
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems import rows as rows_module
from fairconstrained.problems.moments import RankingERM
from fairconstrained.problems.objectives import MeanLoss, PairwiseLoss, RankedLoss
from tests.helpers.parts import N_GROUPS, assert_same_problem, model, rows

SPACE = Space([0, 1], range(N_GROUPS))
PARTS = {name: notion(interval=(0.1, 0.6)) for name, notion in PARTIAL.items()}
AUCS = {
    f"{comparison}, {surrogate}": AUCParity(comparison, surrogate=surrogate)
    for comparison, surrogate in (
        ("group_auc", "binormal"),
        ("inter_group", "soft_bins"),
        ("bpsn_bnsp", Quadratic()),
    )
}
NOTIONS = {name: [notion] for name, notion in (AUCS | PARTS).items()}
NOTIONS["two kinds"] = [AUCParity("intra_group"), DemographicParity(0.1)]
RISKS = {"log": MeanLoss(log_loss), "log for ranking": RankedLoss()}


def both(notions, risk=RISKS["log"], kind=FairERM):
    """The problem on all rows, that on the same rows in parts, and a point."""
    whole, parts = rows()
    stack = stacked(SPACE, [notion.bind(SPACE, 0.1) for notion in notions])
    linear = model(whole, 2)
    exact = kind(linear, whole, risk, stack, 1e-3)
    rng = torch.Generator().manual_seed(0)
    w = torch.randn(linear.n_params, dtype=torch.float64, generator=rng)
    return exact, kind(linear, parts, risk, stack, 1e-3), exact.variables(w)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Blocks that are longer than a piece, as long ones are."""
    monkeypatch.setattr("fairconstrained.problems.rows._PIECE_ROWS", 30)


@pytest.mark.parametrize("notions", NOTIONS.values(), ids=NOTIONS)
def test_values_and_gradients_are_those_of_all_rows(notions):
    exact, in_parts, x = both(notions)
    assert_close(in_parts.variables(x[: exact.model.n_params]), x)
    assert_same_problem(exact, in_parts, x)


@pytest.mark.parametrize("name", ["inter_group, soft_bins", "two kinds", "rank_parity"])
def test_lines_are_those_of_all_rows(name):
    exact, in_parts, x = both(NOTIONS[name])
    offset = torch.zeros_like(x)
    offset[in_parts.offsets] = 1.0
    for direction in (offset, torch.flip(x, [0])):
        own, other = exact.along(x, direction, 0.3), in_parts.along(x, direction, 0.3)
        for mine, theirs in zip(other, own, strict=True):
            assert_close(mine, theirs)


@pytest.mark.parametrize("risk", ["log for ranking", "soft_bins", "binormal"])
def test_rankings_start_and_are_measured_as_on_all_rows(risk):
    whole, _ = rows()
    fractions = [float(whole.weight[whole.y == k].sum() / whole.weight.sum()) for k in (0, 1)]
    notion = AUCParity("inter_group")
    if risk in RISKS:
        risk = RISKS[risk]
    else:
        risk = PairwiseLoss(replace(notion, surrogate=risk).chosen_surrogate(), tuple(fractions))
    exact, in_parts, x = both([notion], risk, RankingERM)
    assert_close(in_parts.start(), exact.start())
    for at in (x, exact.start()):
        own, other = exact.linearize(at), in_parts.linearize(at)
        assert_close(other.value, own.value)
        assert_close(other.jacobian(), own.jacobian())
        for mine, theirs in zip(in_parts.evaluate(at), exact.evaluate(at), strict=True):
            assert_close(mine, theirs)


# ---------------------------------------------------------------------- what stands for all rows


class Apart(Workers):
    """A worker that hears nothing of the others."""

    def sum(self, tensor):
        return tensor

    def gather(self, mine):
        return [mine]


def of_scores(scores, y, group, weight, workers=ALONE):
    """Rows in parts whose only column is the score."""
    codes = [torch.as_tensor(column).to(torch.int8) for column in (y, group)]
    block = DenseFeatures(torch.as_tensor(scores)[:, None])
    return Rows([block], *codes, torch.as_tensor(weight), workers)


@st.composite
def scored(draw):
    """Scores with ties, labels, groups and weights of 30 to 80 rows, with some of every cell."""
    n = draw(st.integers(30, 80))
    cell = np.arange(n) % 4
    scores = draw(npst.arrays(float, n, elements=st.integers(-8, 8).map(float)))
    weight = draw(npst.arrays(float, n, elements=st.floats(0.25, 4.0)))
    return scores + cell % 3, cell // 2, cell % 2, weight


SIZES = st.sampled_from([(rank, size) for size in (1, 2, 7) for rank in range(size)])


@given(data=scored(), most=st.integers(1, 12), of=SIZES)
@settings(max_examples=50, deadline=None)
def test_fractions_of_cells_above_any_threshold_are_off_by_less_than_a_part(data, most, of):
    """|F - F~| <= max(o, 1 - o) / K for K quantiles; cells of up to K rows are exact."""
    scores, y, group, weight = data
    rank, size = of
    offset = (rank + 0.5) / size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_MOST_SCORES", 4 * most * size)
        data = of_scores(*data, Apart(rank, size))
        patch.setattr(Rows, "n_rows", np.inf)  # of all workers
        few = data.quantiles
        found = few.X.matmul(torch.ones((1, 1), dtype=torch.float64))[:, 0].numpy()
    assert np.isin(found, scores).all()
    at = np.unique(scores)
    for cell in range(4):
        mine, theirs = 2 * y + group == cell, (2 * few.y + few.group).numpy() == cell
        allowed = 0.0 if mine.sum() <= most else max(offset, 1.0 - offset) / most
        assert theirs.sum() == min(mine.sum(), most)
        above, other = (
            ((z[:, None] > at) * w[:, None]).sum(axis=0) / w.sum()
            for z, w in ((scores[mine], weight[mine]), (found[theirs], few.weight.numpy()[theirs]))
        )
        assert np.abs(above - other).max() <= allowed + 1e-12
        assert few.weight.numpy()[theirs].sum() == pytest.approx(weight[mine].sum())


@given(data=scored(), most=st.integers(1, 5), size=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_workers_with_rows_alike_are_as_exact_together_as_one_that_sends_as_much(data, most, size):
    """Their levels are evenly spaced together: |F - F~| <= 1 / (2 K W) in each cell."""
    scores, y, group, weight = data
    pieces = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_MOST_SCORES", 4 * most * size)
        patch.setattr(Rows, "n_rows", np.inf)
        for rank in range(size):
            few = of_scores(*data, Apart(rank, size)).quantiles
            found = few.X.matmul(torch.ones((1, 1), dtype=torch.float64))[:, 0]
            pieces.append((found, 2 * few.y + few.group, few.weight))
    found, cells, weights = (torch.cat(column).numpy() for column in zip(*pieces, strict=True))
    at = np.unique(scores)
    for cell in range(4):
        mine, theirs = 2 * y + group == cell, cells == cell
        above, other = (
            ((z[:, None] > at) * w[:, None]).sum(axis=0) / w.sum()
            for z, w in ((scores[mine], weight[mine]), (found[theirs], weights[theirs]))
        )
        assert np.abs(above - other).max() <= 0.5 / (most * size) + 1e-12


@given(data=scored(), most=st.integers(5, 12), of=SIZES, name=st.sampled_from([*AUCS, *PARTS]))
@settings(max_examples=50, deadline=None)
def test_hard_values_are_as_exact_as_is_said(data, most, of, name):
    """AUCs 4 / K, gaps within an interval of length L 2 / (K L), ranks by moved ends."""
    notion = (AUCS | PARTS)[name]
    constraint = notion.bind(Space([0, 1], [0, 1]), 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_MOST_SCORES", 4 * most * of[1])
        patch.setattr(Rows, "n_rows", np.inf)  # of all workers
        few = of_scores(*data, Apart(*of)).quantiles
        scores = few.X.matmul(torch.ones((1, 1), dtype=torch.float64))
    every = [torch.as_tensor(column) for column in data]
    aux = torch.zeros(constraint.n_aux, dtype=torch.float64)

    def measured(constraint, z, *rows):
        return constraint.measure(constraint.hard_values(z, constraint.place(*rows), aux))

    def exact(constraint):
        return measured(constraint, every[0][:, None], *every[1:])

    found = measured(constraint, scores, few.y, few.group, few.weight)
    if name == "rank_parity":
        inner, outer = (
            exact(constraint.within(max(0.1 + moved, 0.0), 0.6 - moved))
            for moved in (1 / most, -1 / most)
        )
        assert inner - 2 / most - 1e-12 <= found <= outer + 2 / most + 1e-12
    else:
        allowed = 4 / most if name in AUCS else 2 / (0.5 * most)
        assert abs(found - exact(constraint)) <= allowed + 1e-12


def test_the_sample_for_standard_errors_is_corrected_for_its_size(monkeypatch):
    """The mean of a third of the rows has a standard error of sqrt(3) times that of all."""
    rng = np.random.default_rng(0)
    n = 9000
    y, group = rng.integers(2, size=n), rng.integers(2, size=n)
    scores = rng.normal(size=n) + y
    data = of_scores(scores, y, group, np.ones(n))
    space = Space([0, 1], [0, 1])
    stack = Stack(space, [AUCParity("inter_group").bind(space, 0.1)])
    x = torch.ones(2, dtype=torch.float64)

    def errors():
        whole = replace(data)
        linear = model(whole, 2)
        return FairERM(linear, whole, MeanLoss(log_loss), stack, 1e-3).standard_errors(x)

    exact = errors()
    monkeypatch.setattr(rows_module, "_MOST_SCORES", 3000)
    assert len(replace(data).sample.y) == 3000
    assert_close(errors(), exact, rtol=0.05, atol=0)

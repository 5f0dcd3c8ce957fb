"""Problems on rows in parts, in blocks or of several workers, are those on rows in memory."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.testing import assert_close

from fairconstrained import constraints
from fairconstrained.constraints.moments import Stack, stacked
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.distributed import ALONE, Workers
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.numerics import PIECE_ROWS, SENT_SCORES
from fairconstrained.problems import FairERM, Rows
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import RankingERM
from fairconstrained.problems.objectives import MeanLoss, PairwiseLoss, RankedLoss

N_ROWS, N_GROUPS = 120, 3


def rows(n_classes=2, wrap=DenseFeatures):
    rng = np.random.default_rng(0)
    y, group = rng.integers(n_classes, size=N_ROWS), rng.integers(N_GROUPS, size=N_ROWS)
    X = rng.normal(size=(N_ROWS, 4)) + y[:, None] + 0.3 * group[:, None]
    X[:, 3] = rng.random(N_ROWS) < 0.2
    weight = torch.as_tensor(rng.uniform(0.5, 2.0, size=N_ROWS))
    blocks = [wrap(torch.as_tensor(block)) for block in np.split(X, [7, 8, 70])]
    codes = [torch.as_tensor(column) for column in (y, group)]
    small = [column.to(torch.int8) for column in codes]
    whole = Rows((wrap(torch.as_tensor(X)),), *codes, weight)
    return whole, Rows(blocks, *small, weight)


def model(whole, n_classes):
    n_outputs = 1 if n_classes == 2 else n_classes
    return LinearModel.preconditioned(whole.X, whole.weight, n_outputs, 1e-3, True)


def csr(X):
    return SparseFeatures(sp.csr_array(X.numpy()))


PARTS = {name: notion(interval=(0.1, 0.6)) for name, notion in constraints.PARTIAL.items()}
SURROGATES = {"group_auc": "binormal", "inter_group": "soft_bins", "bpsn_bnsp": "quadratic"}
AUCS = {
    f"{comparison}, {surrogate}": constraints.AUCParity(comparison, surrogate=surrogate)
    for comparison, surrogate in SURROGATES.items()
}
OF_ROWS = {
    "rates": [constraints.DemographicParity(0.1)],
    "odds and a cap": [constraints.EqualizedOdds(0.1), constraints.FalseNegativeRate(max=0.3)],
    "losses": [constraints.LossParity(0.02)],
    "nothing": [],
}
OF_ORDERS = {name: [notion] for name, notion in (AUCS | PARTS).items()}
OF_ORDERS["two kinds"] = [constraints.AUCParity("intra_group"), constraints.DemographicParity(0.1)]
NOTIONS = OF_ROWS | OF_ORDERS


def both(notions, n_classes=2, wrap=DenseFeatures, risk=None, kind=FairERM):
    whole, parts = rows(n_classes, wrap)
    space = constraints.Space(range(n_classes), range(N_GROUPS))
    stack = stacked(space, [notion.bind(space, 0.1) for notion in notions])
    linear = model(whole, n_classes)
    risk = risk or MeanLoss(log_loss)
    exact, in_parts = (kind(linear, data, risk, stack, 1e-3) for data in (whole, parts))
    rng = torch.Generator().manual_seed(0)
    w = torch.randn(linear.n_params, dtype=torch.float64, generator=rng)
    return exact, in_parts, exact.variables(w)


@pytest.mark.parametrize(
    ("name", "n_classes", "wrap"),
    [(name, 2, DenseFeatures) for name in NOTIONS] + [(name, 3, csr) for name in OF_ROWS],
)
def test_values_and_gradients_are_those_of_all_rows(name, n_classes, wrap):
    exact, in_parts, x = both(NOTIONS[name], n_classes, wrap)
    assert_close(in_parts.variables(x[: exact.model.n_params]), x)
    assert (in_parts.n_rows, in_parts.n_constraints) == (exact.n_rows, exact.n_constraints)
    own, other = exact.linearize(x), in_parts.linearize(x)
    assert_close(other.value, own.value)
    weights = torch.randn((3, len(own.value)), dtype=torch.float64)
    assert_close(other.pullbacks(weights), own.pullbacks(weights))
    assert_close(other.pullback(weights[0]), own.pullback(weights[0]))
    for mine, theirs in zip(in_parts.evaluate(x), exact.evaluate(x), strict=True):
        assert_close(mine, theirs)
    assert_close(in_parts.standard_errors(x), exact.standard_errors(x))
    for mine, theirs in zip(in_parts.baselines, exact.baselines, strict=True):
        assert_close(mine.x, theirs.x)
        assert mine.by == theirs.by


@pytest.mark.parametrize(
    ("name", "n_classes", "reach"),
    [
        *(("rates", 2, 0.3), ("odds and a cap", 3, np.inf), ("losses", 2, np.inf)),
        *(("inter_group, soft_bins", 2, 0.3), ("two kinds", 2, 0.3), ("rank_parity", 2, 0.3)),
    ],
)
def test_lines_are_those_of_all_rows(name, n_classes, reach):
    exact, in_parts, x = both(NOTIONS[name], n_classes)
    for direction in (torch.eye(len(x), dtype=x.dtype)[-1], torch.flip(x, [0])):
        own, other = exact.along(x, direction, reach), in_parts.along(x, direction, reach)
        for mine, theirs in zip(other, own, strict=True):
            assert_close(mine, theirs)


def test_the_table_of_fractions_is_the_mean_over_groups_that_are_drawn_from_them():
    """Sums over the parts are linear in the memberships of the rows."""
    exact, _, x = both([constraints.EqualizedOdds(0.1)])
    generator = torch.Generator().manual_seed(0)
    fractions = torch.rand((N_ROWS, N_GROUPS), dtype=torch.float64, generator=generator)
    fractions /= fractions.sum(dim=1, keepdim=True)
    scores = exact.model.scores(x, exact.data.X)
    drawn = torch.multinomial(fractions, 4000, replacement=True, generator=generator).T

    def table(group):
        rows = exact.constraint.partition.place(exact.data.y, group, exact.data.weight)
        return exact.constraint.statistic.sums(scores, rows)

    mean = torch.stack([table(group) for group in drawn]).mean(dim=0)
    assert_close(mean, table(fractions), rtol=0.02, atol=0.0)


@pytest.mark.parametrize(("n_classes", "groups"), [(2, "estimated"), (3, "known")])
def test_the_penalised_problem_is_that_of_all_rows(n_classes, groups):
    whole, parts = rows(n_classes)
    space = constraints.Space(range(n_classes), range(N_GROUPS))
    stack = Stack(space, [constraints.EqualizedOdds().bind(space, 1.0)])
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
        assert in_parts.label_objective(x) == pytest.approx(exact.label_objective(x))
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


def test_long_blocks_are_read_in_pieces():
    n = 2 * PIECE_ROWS + 1
    data = of_scores(np.arange(n), np.arange(n) % 2, np.zeros(n), np.ones(n))
    assert [len(piece.y) for piece in data.pieces()] == [PIECE_ROWS, PIECE_ROWS, 1]
    total = data.total(lambda piece: piece.X.t_matmul(piece.weight[:, None]))
    assert total.item() == n * (n - 1) / 2


def test_single_precision_is_summed_in_double():
    X = np.random.default_rng(0).normal(1e4, 1.0, size=(50, 2)).astype(np.float32)
    (piece,) = as_features(X).split(100)
    assert piece.X.dtype == torch.float64


@pytest.mark.parametrize("risk", ["log for ranking", "soft_bins", "binormal"])
def test_rankings_start_and_are_measured_as_on_all_rows(risk):
    whole, _ = rows()
    fractions = [float(whole.weight[whole.y == k].sum() / whole.weight.sum()) for k in (0, 1)]
    notion = constraints.AUCParity("inter_group")
    if risk == "log for ranking":
        risk = RankedLoss()
    else:
        risk = PairwiseLoss(replace(notion, surrogate=risk).chosen_surrogate(), tuple(fractions))
    exact, in_parts, x = both([notion], risk=risk, kind=RankingERM)
    assert_close(in_parts.start(), exact.start())
    for at in (x, exact.start()):
        own, other = exact.linearize(at), in_parts.linearize(at)
        assert_close(other.value, own.value)
        assert_close(other.jacobian(), own.jacobian())
        for mine, theirs in zip(in_parts.evaluate(at), exact.evaluate(at), strict=True):
            assert_close(mine, theirs)


class Apart(Workers):
    """A worker that hears nothing of the others."""

    def sum(self, tensor):
        return tensor

    def gather(self, mine):
        return [mine]


def of_scores(scores, y, group, weight, workers=ALONE):
    codes = [torch.as_tensor(column).to(torch.int8) for column in (y, group)]
    block = DenseFeatures(torch.as_tensor(scores)[:, None])
    return Rows([block], *codes, torch.as_tensor(weight), workers)


def scored(n_rows=450_000):
    """Scores with ties, labels, groups and weights of more rows than workers send to each other."""
    rng = np.random.default_rng(0)
    cell = rng.choice(4, size=n_rows, p=[0.02, 0.22, 0.36, 0.4])
    scores = rng.integers(-50_000, 50_000, size=n_rows) + 10_000.0 * (cell % 3)
    return scores, cell // 2, cell % 2, rng.uniform(0.25, 4.0, size=n_rows)


WORKERS = [(0, 1), (0, 2), (1, 2), (3, 7)]  # rank and number


def scores_of(few):
    return few.X.matmul(torch.ones((1, 1), dtype=torch.float64))


def of_each_cell(few):
    scores, cells = scores_of(few)[:, 0].numpy(), (2 * few.y + few.group).numpy()
    return [(scores[cells == cell], few.weight.numpy()[cells == cell]) for cell in range(4)]


def above(at, scores, weight):
    """Return the fractions of the weight of scores above each of these."""
    order = np.argsort(scores)
    below = np.concatenate(([0.0], np.cumsum(weight[order]) / weight.sum()))
    return 1.0 - below[np.searchsorted(scores[order], at, side="right")]


@pytest.mark.parametrize(("rank", "size"), WORKERS)
def test_fractions_of_cells_above_any_threshold_are_off_by_less_than_a_part(rank, size):
    """|F - F~| <= max(o, 1 - o) / K for K quantiles; cells of up to K rows are exact."""
    data = scored()
    scores, y, group, weight = data
    most, offset = SENT_SCORES // (4 * size), (rank + 0.5) / size
    few = of_each_cell(of_scores(*data, Apart(rank, size)).quantiles)
    at = np.unique(scores)
    for cell, (found, its_weight) in enumerate(few):
        mine = 2 * y + group == cell
        allowed = 0.0 if mine.sum() <= most else max(offset, 1.0 - offset) / most
        assert np.isin(found, at).all()
        assert len(found) == min(mine.sum(), most)
        error = above(at, scores[mine], weight[mine]) - above(at, found, its_weight)
        assert np.abs(error).max() <= allowed + 1e-10
        assert its_weight.sum() == pytest.approx(weight[mine].sum())


@pytest.mark.parametrize("size", [2, 5])
def test_workers_with_rows_alike_are_as_exact_together_as_one_that_sends_as_much(size):
    """Their levels are evenly spaced together: |F - F~| <= 1 / (2 K W) in each cell."""
    data = scored()
    scores, y, group, weight = data
    each = [of_each_cell(of_scores(*data, Apart(rank, size)).quantiles) for rank in range(size)]
    at = np.unique(scores)
    for cell in range(1, 4):  # all rows of the first are sent
        mine = 2 * y + group == cell
        found, weights = (np.concatenate(c) for c in zip(*(few[cell] for few in each), strict=True))
        error = above(at, scores[mine], weight[mine]) - above(at, found, weights)
        assert np.abs(error).max() <= 0.5 / (SENT_SCORES // (4 * size) * size) + 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("name", [*AUCS, *PARTS])
def test_hard_values_are_as_exact_as_is_said(name):
    """AUCs 4 / K, gaps within an interval of length L 2 / (K L), ranks by moved ends."""
    data, most = scored(), SENT_SCORES // (4 * 2)
    constraint = (AUCS | PARTS)[name].bind(constraints.Space([0, 1], [0, 1]), 0.0)
    few = of_scores(*data, Apart(1, 2)).quantiles
    every = [torch.as_tensor(column) for column in data]
    aux = torch.zeros(constraint.n_aux, dtype=torch.float64)

    def measured(constraint, z, *rows):
        return constraint.measure(constraint.hard_values(z, constraint.partition.place(*rows), aux))

    def exact(constraint):
        return measured(constraint, every[0][:, None], *every[1:])

    found = measured(constraint, scores_of(few), few.y, few.group, few.weight)
    if name == "rank_parity":
        ends = ((max(0.1 + moved, 0.0), 0.6 - moved) for moved in (1 / most, -1 / most))
        inner, outer = (exact(constraint.within(*interval)) for interval in ends)
        assert inner - 2 / most - 1e-10 <= found <= outer + 2 / most + 1e-10
    else:
        allowed = 4 / most if name in AUCS else 2 / (0.5 * most)
        assert abs(found - exact(constraint)) <= allowed + 1e-10


@pytest.mark.slow
def test_the_sample_for_standard_errors_is_corrected_for_its_size():
    """The mean of a third of the rows has a standard error of sqrt(3) times that of all."""
    rng, n = np.random.default_rng(0), 3 * SENT_SCORES
    y, group = rng.integers(2, size=n), rng.integers(2, size=n)
    scores = rng.normal(size=n) + y
    in_parts = of_scores(scores, y, group, np.ones(n))
    whole = replace(in_parts, blocks=tuple(in_parts.blocks)).block
    space = constraints.Space([0, 1], [0, 1])
    stack = Stack(space, [constraints.AUCParity("inter_group").bind(space, 0.1)])
    x = torch.ones(2, dtype=torch.float64)
    risk = MeanLoss(log_loss)
    problems = [FairERM(model(data, 2), data, risk, stack, 1e-3) for data in (whole, in_parts)]
    exact, estimated = (problem.standard_errors(x) for problem in problems)
    assert len(in_parts.sample.y) == SENT_SCORES
    assert_close(estimated, exact, rtol=0.05, atol=0)

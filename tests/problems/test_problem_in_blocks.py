"""Problems on rows in blocks: the values, gradients and lines of those on rows in memory."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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
from fairconstrained.distributed import Workers
from fairconstrained.losses import log_loss
from fairconstrained.models.features import DenseFeatures, SparseFeatures, as_features
from fairconstrained.problems import FairERM, Rows, alternatives
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


@pytest.mark.parametrize("wrap", [DenseFeatures, csr])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("notions", NOTIONS.values(), ids=NOTIONS)
def test_values_and_gradients_are_those_of_all_rows(notions, n_classes, wrap):
    exact, in_parts, x = both(notions, n_classes, wrap)
    assert_same_problem(exact, in_parts, x)


@pytest.mark.parametrize("reach", [0.3, np.inf])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("notions", [*NOTIONS.values()][:3], ids=[*NOTIONS][:3])
def test_lines_are_those_of_all_rows(notions, n_classes, reach):
    exact, in_parts, x = both(notions, n_classes)
    for direction in (torch.eye(len(x), dtype=x.dtype)[-1], torch.flip(x, [0])):
        own, other = exact.along(x, direction, reach), in_parts.along(x, direction, reach)
        for mine, theirs in zip(other, own, strict=True):
            assert_close(mine, theirs)


def test_a_line_of_many_rows_is_seen_at_fewer_points_with_exact_values(monkeypatch):
    """Of every piece evenly spaced changes are named: rates between points are off by a part."""
    exact, in_parts, x = both([DemographicParity(0.1)])
    direction = torch.flip(x, [0])
    every = in_parts.along(x, direction, np.inf)
    monkeypatch.setattr(alternatives, "_MOST_NAMED", 40)
    few = in_parts.along(x, direction, np.inf)
    assert 10 < len(few.steps) < len(every.steps) / 2
    for step, error, excess in zip(*few, strict=True):
        hard = exact.evaluate(x + step * direction).hard
        assert_close(error, hard[0])
        assert_close(excess, hard[1:].max())
    jumps = few.error.diff().abs().max()
    assert jumps < 4 * 2.0 / len(few.steps)  # the largest weight is 4 times the least


def shares(group):
    """Indices as fractions."""
    return torch.nn.functional.one_hot(group, N_GROUPS).double()


@pytest.mark.parametrize("notions", NOTIONS.values(), ids=NOTIONS)
def test_groups_known_for_sure_may_be_given_as_fractions(notions):
    exact, in_parts, x = both(notions, 3)
    for problem in (exact, in_parts):
        data = replace(problem.data, group=shares(exact.data.group))
        own, other = replace(problem, data=data), exact
        assert_close(own.linearize(x).value, other.linearize(x).value)
        weights = torch.ones(1 + exact.n_constraints, dtype=torch.float64)
        assert_close(own.linearize(x).pullback(weights), other.linearize(x).pullback(weights))
        for mine, theirs in zip(own.evaluate(x), other.evaluate(x), strict=True):
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


def test_sharpened_and_loosened():
    exact, in_parts, x = both([DemographicParity(0.1)])
    assert_close(in_parts.sharpened().linearize(x).value, exact.sharpened().linearize(x).value)
    assert in_parts.loosened(x, 0.1) == (in_parts, x)
    _, losses, _ = both([LossParity(0.1)])
    assert losses.sharpened() is losses


@pytest.mark.parametrize("wrap", [DenseFeatures, csr])
def test_fewer_rows_are_those_of_the_problem_on_all_rows(wrap, monkeypatch):
    for name, value in {"_MANY_ROWS": 30, "_FEW_OF_CELL": 5}.items():
        monkeypatch.setattr(f"fairconstrained.problems.rows.{name}", value)
    exact, in_parts, x = both([EqualizedOdds(0.1), LossParity(0.02)], 3, wrap)
    for fewer in (Rows.subsample, Rows.by_cell):
        own, other = (replace(p, data=fewer(p.data, p.constraint)) for p in (exact, in_parts))
        assert own.n_rows == other.n_rows < exact.n_rows
        assert_close(other.linearize(x).value, own.linearize(x).value)


class Second(Workers):
    """The second of two workers, that hears nothing of the first."""

    def __init__(self):
        super().__init__(1, 2)

    def sum(self, tensor):
        return tensor

    def gather(self, mine):
        return [mine]


def test_workers_keep_the_rows_that_one_worker_would_keep(monkeypatch):
    for name, value in {"_MANY_ROWS": 30, "_LEAST": 4, "_FEW_OF_CELL": 0}.items():
        monkeypatch.setattr(f"fairconstrained.problems.rows.{name}", value)
    _, parts = rows()
    constraint, part = both([EqualizedOdds(0.1)])[0].constraint, slice(50, None)
    all_kept = parts.subsample(constraint).weight
    monkeypatch.setattr(Rows, "n_rows", 120)
    monkeypatch.setattr(Rows, "starts", [0, 50, N_ROWS])
    X = torch.cat([block.X for block in parts.blocks])[part]
    columns = parts.y[part], parts.group[part], parts.weight[part]
    second = Rows([DenseFeatures(X)], *columns, Second())
    of_second = second.subsample(constraint).weight
    assert_close(all_kept[-len(of_second) :], of_second)
    assert 0 < len(of_second) < len(all_kept)


@pytest.mark.parametrize("n_before", [0, 1, 50, 51])
def test_workers_take_every_row_that_one_worker_would_take(n_before, monkeypatch):
    monkeypatch.setattr("fairconstrained.problems.rows._MOST_SCORES", 30)
    whole, parts = rows()
    taken = whole.spaced()
    assert_close(taken, torch.arange(0, N_ROWS, 4))
    monkeypatch.setattr(Rows, "n_rows", N_ROWS)
    monkeypatch.setattr(Rows, "starts", [0, n_before, N_ROWS])
    columns = (column[n_before:] for column in (parts.y, parts.group, parts.weight))
    last = Rows(parts.blocks, *columns, Second())
    assert_close(n_before + last.spaced(), taken[taken >= n_before])


def test_rows_stay_where_a_worker_would_have_none(monkeypatch):
    for name, value in {"_MANY_ROWS": 1, "_LEAST": 100, "_FEW_OF_CELL": 0}.items():
        monkeypatch.setattr(f"fairconstrained.problems.rows.{name}", value)
    _, parts = rows()
    constraint = both([EqualizedOdds(0.1)])[0].constraint
    assert len(parts.subsample(constraint).y) > 0

    class WithEmpty(Workers):
        """One that hears of another, which would keep no row."""

        def gather(self, mine):
            return [mine, 0]

    other = replace(parts, workers=WithEmpty())
    assert other.subsample(constraint) is other


@pytest.mark.parametrize("groups", ["known", "estimated"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_penalised_problem_is_that_of_all_rows(n_classes, groups, monkeypatch):
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
    assert in_parts.of_weight(0.0).moved_to_labels(x).weight == 0.0
    assert exact.thinned() is exact
    for name, value in {"_MANY_ROWS": 30, "_FEW_OF_CELL": 5}.items():
        monkeypatch.setattr(f"fairconstrained.problems.rows.{name}", value)
    own, other = exact.thinned(), in_parts.thinned()
    assert own.n_rows == other.n_rows < exact.n_rows
    assert_close(other.linearize(x).value, own.linearize(x).value)
    back = own.on_rows_of(exact).moved_to_labels(x)
    assert_close(
        back.linearize(x).value, replace(exact, shift=None).moved_to_labels(x).linearize(x).value
    )


@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=1, max_size=5), min_size=1),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_ranges_of_binary_columns_are_those_of_all_rows(columns, is_sparse):
    """Two values in all rows together, whichever block has which."""
    X = np.concatenate(columns)[:, None]
    wrap = csr if is_sparse else DenseFeatures
    n = len(X)
    codes = torch.zeros(n, dtype=torch.int8)
    blocks = [wrap(torch.tensor(column)[:, None]) for column in columns]
    parts = Rows(blocks, codes, codes, torch.ones(n, dtype=torch.float64))
    values = np.unique(X)
    expected = np.ptp(values) if len(values) == 2 else 0.0
    for low, high, more in (parts.X.values(), wrap(torch.tensor(X)).values()):
        assert float(torch.where(more, 0.0, high - low)) == expected


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

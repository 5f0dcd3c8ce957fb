"""Sums of clipped row gradients: what differential privacy needs of a model."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fairconstrained.models import LinearModel, Network, NetworkModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.models.network import check_rows_independent
from tests.helpers.numeric import tensor
from tests.helpers.steep import STEEP

N, D = 12, 5


class Shared(nn.Module):
    """One layer used twice: its gradient is no outer product."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, X):
        return self.last(self.layer(torch.tanh(self.layer(X))))[:, 0]


def module(build, seed=0):
    torch.manual_seed(seed)
    return NetworkModel(build().double())


def linear(transform, n_outputs=1, intercept=True):
    return LinearModel(n_outputs, tensor(np.linspace(-1, 1, D)), transform, intercept)


def binned():
    """A perceptron on ramps within the bins of public ranges."""
    low, high = tensor(np.full(D, -3.0)), tensor([3.0, 3.0, 40.0, 3.0, 3.0])
    torch.manual_seed(0)
    return Network((4, 3)).build_private(torch.zeros_like(low), high, 1, (low, high))


PERCEPTRON = module(lambda: nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)))
NORMALISED = module(lambda: nn.Sequential(nn.Linear(D, 4), nn.LayerNorm(4), nn.Linear(4, 1)))
MODELS = {
    "diagonal": linear(tensor(np.linspace(0.5, 2, D)), 3),
    "triangular": linear(torch.triu(torch.ones(D, D, dtype=torch.float64))),
    "no intercept": linear(torch.ones(D, dtype=torch.float64), intercept=False),
    "perceptron": PERCEPTRON,
    "layer normalisation": NORMALISED,
    "group normalisation": module(
        lambda: nn.Sequential(
            *(nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64, 3)),
        )
    ),
    "shared layer": module(Shared),
    "bins": binned(),
}


def case(model, seed=0):
    """Parameters, rows and cotangents for a model."""
    rng = np.random.default_rng(seed)
    n_features = 36 if model is MODELS["group normalisation"] else D
    w = model.init() + 0.3 * tensor(rng.normal(size=model.n_params))
    X = tensor(rng.normal(size=(N, n_features)) * rng.choice([0.1, 1, 10], size=(N, 1)))
    n_outputs = model.scores(w, DenseFeatures(X)).shape[1]
    return w, X, tensor(rng.normal(size=(N, n_outputs)))


def row_gradients(model, w, X, cotangent):
    """Each row by itself, through the plain pullback."""
    rows = []
    for i in range(len(X)):
        _, pullback = model.linearize(w, DenseFeatures(X[i : i + 1]))
        rows.append(pullback(cotangent[i : i + 1]))
    return torch.stack(rows)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_sum_is_that_of_rows_clipped_one_by_one(model):
    """Limits may differ, and are infinite for public rows, whose gradients go in whole."""
    w, X, cotangent = case(model)
    rows = row_gradients(model, w, X, cotangent)
    norms = rows.norm(dim=1)
    each = torch.linspace(0.0, 1.0, N).to(rows) * norms.max()
    each[N // 2] = torch.inf
    scores, clipped = model.linearize_rows(w, DenseFeatures(X))
    torch.testing.assert_close(scores, model.linearize(w, DenseFeatures(X))[0])
    for limit in (norms.quantile(0.2), each):
        expected = (rows * (limit / norms).clamp_max(1)[:, None]).sum(dim=0)
        torch.testing.assert_close(clipped(cotangent, limit), expected, rtol=1e-9, atol=1e-11)


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 1000), st.floats(1e-3, 10))
def test_one_row_more_moves_the_sum_by_at_most_the_limit(name, seed, max_norm):
    """The sensitivity that the accountant is told."""
    model = MODELS[name]
    w, X, cotangent = case(model, seed)
    sums = [
        model.linearize_rows(w, DenseFeatures(X[:n]))[1](cotangent[:n], max_norm)
        for n in (N - 1, N)
    ]
    assert float((sums[1] - sums[0]).norm()) <= max_norm * (1 + 1e-9)


def test_no_rows_sum_to_nothing():
    """A Poisson batch may be empty."""
    for model in MODELS.values():
        w, X, cotangent = case(model)
        scores, clipped = model.linearize_rows(w, DenseFeatures(X[:0]))
        assert scores.shape == (0, cotangent.shape[1])
        assert not clipped(cotangent[:0], 1.0).any()


def hooked():
    layer = nn.Linear(D, 1)
    layer.register_forward_hook(lambda module, inputs, output: 30 * output)
    return nn.Sequential(layer)


# --- networks that are not what they seem ---------------------------------------------------------


class Running(nn.Module):
    """Every row is moved by those before it."""

    def forward(self, X):
        return X.cumsum(dim=0)


class CentredInTraining(nn.Module):
    """Rows are moved by their mean, in training only."""

    def forward(self, X):
        return X - X.mean(dim=0) if self.training else X


def zeroed(layer):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)], r"batch normalisation \(1.*Group"),
        ([nn.Linear(D, 3), CentredInTraining(), nn.Linear(3, 1)], "other rows are in its batch"),
        ([nn.Linear(D, 3), Running(), zeroed(nn.Linear(3, 1))], "other rows are in its batch"),
        (
            [
                *(nn.Unflatten(1, (1, D)), nn.InstanceNorm1d(1, track_running_stats=True)),
                *(nn.Flatten(), nn.Linear(D, 1)),
            ],
            "keeps statistics",
        ),
    ],
)
def test_networks_that_mix_rows_are_refused(layers, message):
    """Also in training only, behind scores that are zero at first, and by kept statistics."""
    with pytest.raises(ValueError, match=message):
        check_rows_independent(nn.Sequential(*layers), D)


class Louder(nn.Linear):
    """Does more than its weights say."""

    def forward(self, X):
        return 100 * super().forward(X)


class Tied(nn.Module):
    """The layer's weight is used once more, out of its hooks' sight."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, X):
        return nn.functional.linear(torch.tanh(self.layer(X)), self.layer.weight.T)[:, :1]


class TiedInTraining(Tied):
    """The weight is used once more, in training only."""

    def forward(self, X):
        return super().forward(X) if self.training else self.layer(X)[:, :1]


class TiedForFarRows(Tied):
    """The weight is used once more, for rows that no trial has."""

    def forward(self, X):
        far = (X.abs().amax(dim=1, keepdim=True) > 4).to(X)
        hidden = self.layer(X)
        again = nn.functional.linear(torch.tanh(hidden), self.layer.weight.T)
        return (hidden + far * again)[:, :1]


@pytest.mark.parametrize(
    "build",
    [
        TiedInTraining,
        TiedForFarRows,
        lambda: nn.Sequential(Louder(D, 3), nn.Tanh(), nn.Linear(3, 1)),
        lambda: nn.Sequential(*[nn.Linear(D, D)] * 2, nn.Linear(D, 1)),
        hooked,
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(D, 1))),
        lambda: nn.Sequential(nn.Linear(D, 4), nn.ReLU(inplace=True), nn.Linear(4, 1)),
    ],
    ids=["in training", "far rows", "subclass", "twice", "hooked", "weight norm", "in place"],
)
def test_every_row_is_clipped_to_the_limit_whatever_the_network(build):
    """The sum over one row is its clipped gradient: of norm at most 1, and 1 where it is cut."""
    model = module(build)
    rng = np.random.default_rng(0)
    for row in rng.normal(size=(8, 1, D)) * 3:
        _, clipped = model.linearize_rows(model.init(), DenseFeatures(tensor(row)))
        cotangent = tensor(rng.normal(size=(1, 1)) * 10)
        norm = clipped(cotangent, 1.0).norm()
        assert norm <= 1 + 1e-9
        loose = clipped(cotangent, 1e9).norm()
        torch.testing.assert_close(norm, loose.clamp_max(1.0))


@pytest.mark.parametrize("name", STEEP)
def test_a_row_without_a_finite_gradient_adds_at_most_the_limit(name):
    """And takes nothing from the sum over others: numbers that are not finite count as zero."""
    model = module(lambda: STEEP[name](D))
    rng = np.random.default_rng(0)
    X, cotangent = (tensor(rng.normal(size=(6, n))) for n in (D, 1))
    X[0] = 0.0
    sums = [
        model.linearize_rows(model.init(), DenseFeatures(X[rows]))[1](cotangent[rows], 1.0)
        for rows in (slice(0, None), slice(1, None))
    ]
    assert (sums[0] - sums[1]).norm() <= 1.0 + 1e-9


def test_branches_on_values_are_refused_before_any_step():
    class Branches(nn.Linear):
        def forward(self, X):
            return super().forward(X) * (2 if X.max() > 50 else 1)

    with pytest.raises(ValueError, match="cannot be differentiated row by row"):
        check_rows_independent(Branches(D, 1), D)

"""Backpropagation by hand through perceptrons, against autograd; and their files."""

import pytest
import torch
from torch import nn

from fairconstrained.models import Network, NetworkModel, Standardize
from fairconstrained.models.features import DenseFeatures
from fairconstrained.models.perceptron import PerceptronModel, auditable

N, D = 30, 4


def perceptron(hidden, n_outputs, seed=0):
    torch.manual_seed(seed)
    X = DenseFeatures(torch.randn((N, D), dtype=torch.float64) * 3.0 + 1.0)
    return Network(hidden).build(X, torch.ones(N).double(), n_outputs, 0.0), X


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (7, 3, 4)])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_scores_and_gradients_are_those_of_autograd(hidden, n_outputs):
    model, X = perceptron(hidden, n_outputs)
    assert isinstance(model, PerceptronModel)
    reference = NetworkModel(model.network)
    w = model.init() + 0.3 * torch.randn(model.n_params).double()
    scores, pullback = model.linearize(w, X)
    expected, by_autograd = reference.linearize(w, X)
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(scores, model.scores(w, X))
    for rows in (slice(0, N), slice(0, 7), slice(11, 20), slice(N - 1, N)):
        cotangent = torch.zeros((N, n_outputs), dtype=torch.float64)
        cotangent[rows] = torch.randn_like(cotangent[rows])
        gradient = pullback(cotangent)
        assert gradient.abs().max() > 0
        torch.testing.assert_close(gradient, by_autograd(cotangent))
        torch.testing.assert_close(pullback(cotangent), gradient)  # and again


@pytest.mark.parametrize("n_bins", [5, 64, None])
@pytest.mark.parametrize("hidden", [(6,), (8, 6), (7, 6, 9)])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_perceptron_contains_every_linear_model(hidden, n_outputs, n_bins):
    torch.manual_seed(0)
    X = DenseFeatures(torch.randn((N, D), dtype=torch.float64) * 3.0 + 1.0)
    X.X[:, 1], X.X[:, 2] = (X.X[:, 1] > 0).double(), 4.0  # a flag and a constant
    model = Network(hidden, n_bins=n_bins).build(X, torch.ones(N).double(), n_outputs, 0.0)
    assert model.contains_linear
    coef, intercept = torch.randn((n_outputs, D)).double(), torch.randn(n_outputs).double()
    scores = model.scores(model.of_linear(coef, intercept), X)
    torch.testing.assert_close(scores, X.X @ coef.T + intercept)


@pytest.mark.parametrize(("hidden", "n_outputs"), [((1,), 1), ((8, 5), 3)])
def test_without_two_units_for_each_output_it_does_not(hidden, n_outputs):
    assert not perceptron(hidden, n_outputs)[0].contains_linear


# --- files ---------------------------------------------------------------------------------------


def first():
    return Standardize(torch.ones(D), torch.full((D,), 2.0))


class Residual(nn.Module):
    """The layers of a perceptron, and more than one after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.hidden, self.last = first(), nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, X):
        X = self.first(X)
        return self.last(X + self.hidden(X))


class Squared(nn.Linear):
    """More than a layer of a perceptron."""

    def forward(self, X):
        return super().forward(X) ** 2


@pytest.mark.parametrize(
    "module",
    [
        Residual(),
        nn.Sequential(first(), Squared(D, 1)),
        nn.Sequential(first(), nn.Linear(D, 1, bias=False)),
        nn.Sequential(nn.Linear(D, 1)),
        nn.Linear(D, 1),
    ],
    ids=["residual", "other class", "no bias", "no first layer", "one layer"],
)
def test_other_modules_stay_as_they_are(module):
    assert auditable(module) is module

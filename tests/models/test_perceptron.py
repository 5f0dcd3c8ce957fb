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


@pytest.mark.parametrize(("hidden", "n_outputs"), [((6,), 3), ((7, 3, 4), 1)])
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


@pytest.mark.parametrize(
    ("hidden", "n_outputs", "n_bins"), [((6,), 3, 5), ((8, 6), 1, 64), ((7, 6, 9), 3, None)]
)
def test_a_perceptron_contains_every_linear_model(hidden, n_outputs, n_bins):
    torch.manual_seed(0)
    X = DenseFeatures(torch.randn((N, D), dtype=torch.float64) * 3.0 + 1.0)
    X.X[:, 1], X.X[:, 2] = (X.X[:, 1] > 0).double(), 4.0  # a flag and a constant
    model = Network(hidden, n_bins=n_bins).build(X, torch.ones(N).double(), n_outputs, 0.0)
    assert model.contains_linear
    coef, intercept = torch.randn((n_outputs, D)).double(), torch.randn(n_outputs).double()
    scores = model.scores(model.from_linear(coef, intercept), X)
    torch.testing.assert_close(scores, X.X @ coef.T + intercept)


@pytest.mark.parametrize(("hidden", "n_outputs"), [((1,), 1), ((8, 5), 3)])
def test_without_two_units_for_each_output_it_does_not(hidden, n_outputs):
    assert not perceptron(hidden, n_outputs)[0].contains_linear


# --- files ---------------------------------------------------------------------------------------


class Squared(nn.Linear):
    """More than a layer of a perceptron."""

    def forward(self, X):
        return super().forward(X) ** 2


def test_other_modules_stay_as_they_are():
    first = Standardize(torch.ones(D), torch.full((D,), 2.0))
    for layers in ([first, Squared(D, 1)], [first, nn.Linear(D, 1, bias=False)], [nn.Linear(D, 1)]):
        module = nn.Sequential(*layers)
        assert auditable(module) is module

"""Models: one map from parameters to scores, its transpose, and harmless coordinates."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel, NetworkModel
from fairconstrained.models.features import DenseFeatures, SparseFeatures
from tests.helpers.numeric import badly_scaled, numerical_jacobian, tensor

X = badly_scaled(n=30)
WEIGHT = tensor(np.random.default_rng(1).exponential(size=400) + 0.1)


def cotangent(n_rows, n_outputs):
    return tensor(np.random.default_rng(2).normal(size=(n_rows, n_outputs)))


def network(*sizes, seed=0):
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


def linear(transform, n_outputs, fit_intercept):
    d = X.shape[1]
    rng = np.random.default_rng(3)
    transforms = {
        "diagonal": tensor(rng.uniform(0.5, 2, size=d)) / X.std(dim=0),
        "triangular": tensor(np.triu(rng.normal(size=(d, d)) + 2 * np.eye(d)))
        / X.std(dim=0)[:, None],
    }
    centre = X.mean(dim=0) if fit_intercept else X.new_zeros(d)
    return LinearModel(n_outputs, centre, transforms[transform], fit_intercept)


every_model = pytest.mark.parametrize(
    "model",
    [
        linear("diagonal", 3, True),
        linear("triangular", 1, False),
        LinearModel.preconditioned(DenseFeatures(X), WEIGHT[:30], 3, 1e-3, True),
        NetworkModel(network(5, 4, 1)),
        NetworkModel(network(5, 4, 3, 3)),
    ],
    ids=lambda m: f"{type(m).__name__}{m.n_params}",
)


def some_parameters(model):
    start = model.init()
    return start + 0.3 * tensor(np.random.default_rng(4).normal(size=len(start)))


# --- derivatives ---------------------------------------------------------------------------------


@every_model
def test_pullback_is_the_transposed_jacobian_of_the_scores(model):
    w, features = some_parameters(model), DenseFeatures(X)
    scores, pullback = model.linearize(w, features)
    torch.testing.assert_close(scores, model.scores(w, features))
    seed = cotangent(*scores.shape)
    expected = numerical_jacobian(lambda v: (seed * model.scores(v, features)).sum(), w)[0]
    torch.testing.assert_close(pullback(seed), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pullback(2.0 * seed), 2.0 * pullback(seed))  # may be called again


@every_model
def test_penalty_gradient_equals_differences(model):
    w = some_parameters(model)
    penalty = model.penalty(w)
    # Of a quadratic, central differences are exact at any step.
    expected = numerical_jacobian(lambda v: model.penalty(v).value, w, step=1.0)[0]
    torch.testing.assert_close(penalty.gradient, expected, rtol=1e-7, atol=1e-7)


# --- linear models ------------------------------------------------------------------------------


def hessian(model, features, weight, alpha):
    """Of the weighted log loss and the penalty, at zero."""
    y = torch.arange(features.shape[0]) % max(2, model.n_outputs)

    def gradient(w):
        scores, pullback = model.linearize(w, features)
        scores.requires_grad_()
        risk = weight @ log_loss(scores, y) / weight.sum()
        (on_scores,) = torch.autograd.grad(risk, scores)
        return pullback(on_scores) + alpha * model.penalty(w).gradient

    return numerical_jacobian(gradient, model.init(), step=1e-4)


def sparse(X):
    return SparseFeatures(sp.csr_array(X.numpy()))


@pytest.mark.parametrize(
    ("wrap", "fit_intercept", "alpha"),
    [(DenseFeatures, True, 1e-4), (DenseFeatures, False, 0.0), (sparse, True, 10.0)],
)
def test_hessian_is_near_the_identity_in_the_chosen_coordinates(wrap, fit_intercept, alpha):
    """On columns whose own Hessian has a condition number beyond 1e6."""
    features = wrap(badly_scaled())
    model = LinearModel.preconditioned(features, WEIGHT, 1, alpha, fit_intercept)
    found = hessian(model, features, WEIGHT, alpha)
    of_coef = found[: model.n_coef, : model.n_coef]
    torch.testing.assert_close(of_coef, torch.eye(5).double(), rtol=0, atol=5e-3)
    assert torch.linalg.eigvalsh(found)[0] > 0.2  # the intercept: curvature 1/4
    assert torch.linalg.cond(badly_scaled().T @ badly_scaled()) > 1e6


degenerate = {
    "constant": lambda X: torch.cat((X, torch.full_like(X[:, :1], 0.1)), dim=1),
    "zero": lambda X: torch.cat((X, torch.zeros_like(X[:, :1])), dim=1),
    "duplicate": lambda X: torch.cat((X, X, X[:, :2] * 3.0), dim=1),
    "fewer rows than columns": lambda X: X[:3],
    "one row": lambda X: X[:1],
}


@pytest.mark.parametrize(("wrap", "alpha"), [(DenseFeatures, 0.0), (sparse, 1e-4)])
@pytest.mark.parametrize("columns", degenerate.values(), ids=degenerate)
def test_degenerate_columns_get_harmless_coordinates(columns, wrap, alpha):
    """Finite, no direction steep, and no constant column blown up."""
    array = columns(badly_scaled())
    features, weight = wrap(array), WEIGHT[: len(array)]
    model = LinearModel.preconditioned(features, weight, 1, alpha, True)
    w = model.restore(model.attributes(some_parameters(model)))
    assert model.scores(w, features).isfinite().all()
    eigenvalues = torch.linalg.eigvalsh(hessian(model, features, weight, alpha))
    assert eigenvalues[-1] < 10 * array.shape[1]
    if alpha == 0 and array.shape[1] == 6:  # a constant column has no scale: about 1 is given
        assert 0.1 < model.transform[5].norm() < 1e4


# --- networks -----------------------------------------------------------------------------------


def test_only_matrices_are_penalised():
    """Biases and normalisation gains are free."""
    layers = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)).double()
    model = NetworkModel(layers)
    expected = 0.5 * sum((layers[i].weight ** 2).sum().item() for i in (0, 3))
    assert model.penalty(model.init()).value.item() == pytest.approx(expected)
    matrices = layers[0].weight.numel() + layers[3].weight.numel()
    assert (model.penalty(torch.ones(model.n_params).double()).gradient != 0).sum() == matrices


def test_frozen_and_shared_parameters_keep_their_roles():
    """Frozen ones stay as they came; a shared one counts, and is pulled back, once."""
    first, _, second = layers = network(5, 5, 5)
    second.weight = first.weight
    second.bias.requires_grad_(False)
    model, frozen = NetworkModel(layers), second.bias.clone()
    assert model.n_params == 25 + 5
    w, features, seed = some_parameters(model), DenseFeatures(X), cotangent(30, 5)
    expected = numerical_jacobian(lambda v: (seed * model.scores(v, features)).sum(), w)[0]
    torch.testing.assert_close(
        model.linearize(w, features)[1](seed), expected, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(model.attributes(w)["module_"][2].bias, frozen)

"""Models: from flat parameters to scores, and from cotangents on scores back to parameters.

Solvers see parameters as one vector; constraints and losses see scores. A model is the map between
the two and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fairconstrained.features import Features

__all__ = [
    "Linear",
    "Model",
    "Module",
    "Penalty",
    "Standardize",
    "as_model",
    "multilayer_perceptron",
]

Pullback = Callable[[Tensor], Tensor]

# Whitening costs d^2 per row once and d^3; beyond this many columns only the diagonal is used.
_WHITEN_UP_TO = 1024
_WHITEN_ROWS = 5
# Variance of a constant column, relative to its squared mean: what rounding can leave of zero.
_ROUNDING = 1e-12
# Rows that a network evaluates at a time outside training: bounds the memory of its activations.
_CHUNK_ROWS = 16_384


class Penalty(NamedTuple):
    """Half the squared norm of the penalised coefficients, and its gradient."""

    value: Tensor
    gradient: Tensor


class Model(Protocol):
    """The map from parameters w of shape (n_params,) to scores of shape (n, K)."""

    n_params: int
    offsets: Tensor  # positions of the parameters that shift all rows' scores alike

    def init(self) -> Tensor:
        """Give the starting parameters."""

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores as in prediction, without a graph."""

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores as in training, and the map from cotangents (n, K) to gradients (n_params,)."""

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of the coefficients (never of intercepts and biases)."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """What a fitted estimator keeps of the model, on the CPU."""

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Give the parameters of a fitted estimator's attributes: for warm starts."""

    def settle(self, w: Tensor, X: Features) -> None:
        """Make state that depends on parameters and data (batch statistics) fit these."""


class Linear:
    r"""Scores :math:`z = (x - c) T v + b`, in coordinates in which training is well conditioned.

    ``T`` is chosen so that the Hessian of the log loss plus the penalty is near the identity in
    ``v``; the problem itself is that of the coefficients :math:`\beta = T v` of the columns as
    given, and only the path of a solver depends on ``T``.

    Parameters
    ----------
    n_outputs : int
        Columns K of the scores.
    center : Tensor of shape (d,)
    transform : Tensor of shape (d,) or (d, d)
        Diagonal or upper triangular ``T``.
    fit_intercept : bool
    """

    def __init__(self, n_outputs: int, center: Tensor, transform: Tensor, fit_intercept: bool):
        self.n_outputs = n_outputs
        self.center = center
        self.transform = transform
        self.fit_intercept = fit_intercept
        self.n_coef = center.shape[0] * n_outputs
        self.n_params = self.n_coef + fit_intercept * n_outputs
        self.offsets = torch.arange(self.n_coef, self.n_params)

    @classmethod
    def preconditioned(
        cls, X: Features, weight: Tensor, n_outputs: int, alpha: float, fit_intercept: bool
    ) -> Linear:
        """Choose centre and coordinates from the data: not for private training."""
        n_features = X.shape[1]
        center = X.mean(weight) if fit_intercept else weight.new_zeros(n_features)
        # The logistic loss has curvature at most 1/4 in the score. A column without variance and
        # without penalty has no scale of its own: any positive one will do.
        curvature = 0.25 * _variance(X, weight, center) + alpha
        scale = torch.where(curvature > 0, curvature, torch.ones_like(curvature)).rsqrt()
        # With few rows a column the fit can be near perfect, and its curvature far from 1/4.
        if n_features > _WHITEN_UP_TO or X.shape[0] < _WHITEN_ROWS * n_features:
            return cls(n_outputs, center, scale, fit_intercept)
        hessian = 0.25 * X.covariance(weight, center) + alpha * torch.eye(n_features).to(scale)
        return cls(n_outputs, center, whitener(hessian, scale), fit_intercept)

    def init(self) -> Tensor:
        """Zeros."""
        return self.center.new_zeros(self.n_params)

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores (n, K)."""
        coef, intercept = self.unpack(w)
        return X.matmul(coef) + intercept

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores, and the closed-form pullback T' (X - c)' cotangent."""

        def pullback(cotangent: Tensor) -> Tensor:
            total = cotangent.sum(dim=0)
            gradient = self.coordinates(
                X.t_matmul(cotangent) - self.center[:, None] * total
            ).reshape(-1)
            return torch.cat((gradient, total)) if self.fit_intercept else gradient

        return self.scores(w, X), pullback

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of the coefficients of the columns as given."""
        coef, _ = self.unpack(w)
        gradient = torch.zeros_like(w)
        gradient[: self.n_coef] = self.coordinates(coef).reshape(-1)
        return Penalty(0.5 * (coef**2).sum(), gradient)

    def settle(self, w: Tensor, X: Features) -> None:
        """Nothing: a linear model has no other state."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """``coef_`` (K, d) and ``intercept_`` (K,) for the columns as given."""
        coef, intercept = self.unpack(w)
        return {"coef_": coef.T.cpu().numpy().copy(), "intercept_": intercept.cpu().numpy()}

    def unpack(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (d, K) and intercept (K,) for the columns as given."""
        v = w[: self.n_coef].reshape(-1, self.n_outputs)
        coef = self.transform @ v if self.transform.ndim == 2 else self.transform[:, None] * v
        intercept = -(self.center @ coef)
        return coef, intercept + w[self.n_coef :] if self.fit_intercept else 0.0 * intercept

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Parameters of given ``coef_`` and ``intercept_``."""
        coef = torch.as_tensor(_attribute(attributes, "coef_")).to(self.center).T
        intercept = torch.as_tensor(attributes["intercept_"]).to(self.center)
        if coef.shape != (self.center.shape[0], self.n_outputs):
            raise ValueError(
                f"warm_start=True needs the {self.center.shape[0]} features of the last fit; it "
                f"had {coef.shape[0]}."
            )
        if self.transform.ndim == 2:
            v = torch.linalg.solve(self.transform, coef)
        else:
            v = coef / self.transform[:, None]
        parts = [v.reshape(-1)]
        if self.fit_intercept:
            parts.append(intercept + self.center @ coef)
        return torch.cat(parts)

    def coordinates(self, gradient: Tensor) -> Tensor:
        """Gradients (d, K) in coefficients as gradients in this model's coordinates, T' g."""
        if self.transform.ndim == 2:
            return self.transform.T @ gradient
        return self.transform[:, None] * gradient


class Module:
    """Any ``nn.Module`` as a function of one flat parameter vector.

    Parameters
    ----------
    network : nn.Module
        Maps (n, d) to (n, K), or to (n,) where K = 1. Its buffers (batch statistics) change while
        it trains, its own parameters do not until :meth:`attributes`.
    """

    def __init__(self, network: nn.Module):
        self.network = network
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._shapes = [p.shape for _, p in named]
        self._sizes = [p.numel() for _, p in named]
        self.n_params = sum(self._sizes)
        self._first = torch.cat([p.detach().reshape(-1) for _, p in named])
        # As usual, matrices are penalised; biases and normalisation gains are not.
        self._penalised = torch.cat(
            [torch.full_like(p.detach(), p.ndim > 1).reshape(-1) for _, p in named]
        )
        self.offsets = torch.arange(self.n_params - self._last_bias_size(), self.n_params)
        self._batch_norms = [
            module
            for module in network.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
        ]

    def init(self) -> Tensor:
        """Give the parameters that the network came with."""
        return self._first.clone()

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores (n, K) in evaluation mode, in chunks of rows."""
        self.network.eval()
        parameters = self._unflatten(w)
        with torch.no_grad():
            chunks = [self._forward(parameters, rows.to_dense()) for rows in _chunks(X)]
        return torch.cat(chunks)

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores in training mode, and reverse-mode differentiation through the network."""
        self.network.train()
        w = w.detach().requires_grad_()
        scores = self._forward(self._unflatten(w), X.to_dense())

        def pullback(cotangent: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(scores, w, cotangent, retain_graph=True)
            return gradient

        return scores.detach(), pullback

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of weight matrices."""
        penalised = self._penalised * w
        return Penalty(0.5 * penalised @ w, penalised)

    def settle(self, w: Tensor, X: Features) -> None:
        """Compute batch statistics afresh, as the average over chunks of `X` at `w`."""
        if not self._batch_norms:
            return
        momenta = [norm.momentum for norm in self._batch_norms]
        for norm in self._batch_norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average
        self.network.train()
        parameters = self._unflatten(w)
        with torch.no_grad():
            for rows in _chunks(X):
                self._forward(parameters, rows.to_dense())
        for norm, momentum in zip(self._batch_norms, momenta, strict=True):
            norm.momentum = momentum

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """``module_``: the network with these parameters, ready for prediction."""
        with torch.no_grad():
            for name, value in self._unflatten(w).items():
                self.network.get_parameter(name).copy_(value)
        return {"module_": self.network.eval().cpu()}

    def _last_bias_size(self) -> int:
        last = [module for module in self.network.modules() if not list(module.children())][-1]
        parameter = self.network.get_parameter(self._names[-1])
        return self._sizes[-1] if isinstance(last, nn.Linear) and parameter is last.bias else 0

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Parameters of a given ``module_``; its buffers replace those of the network."""
        fitted = _attribute(attributes, "module_")
        self.network.load_state_dict(fitted.state_dict())
        parameters = dict(self.network.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self._names])

    def _unflatten(self, w: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(w, self._sizes)
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self._names, pieces, self._shapes, strict=True)
        }

    def _forward(self, parameters: dict[str, Tensor], X: Tensor) -> Tensor:
        scores: Tensor = functional_call(self.network, parameters, (X,))
        return scores[:, None] if scores.ndim == 1 else scores


class Standardize(nn.Module):
    """Shift and scale the columns by fixed amounts: the first layer of a perceptron."""

    center: Tensor
    scale: Tensor

    def __init__(self, center: Tensor, scale: Tensor):
        super().__init__()
        self.register_buffer("center", center)
        self.register_buffer("scale", scale)

    def forward(self, X: Tensor) -> Tensor:
        """Standardised columns."""
        return (X - self.center) / self.scale


def multilayer_perceptron(
    X: Features, weight: Tensor, hidden: Sequence[int], n_outputs: int
) -> nn.Module:
    """Rectified layers of the given sizes, on columns standardised as in `X`."""
    center = X.mean(weight)
    deviation = _variance(X, weight, center).sqrt()
    layers: list[nn.Module] = [
        Standardize(center, torch.where(deviation > 0, deviation, torch.ones_like(deviation)))
    ]
    sizes = [X.shape[1], *hidden]
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], n_outputs))


def as_model(
    spec: Any, X: Features, weight: Tensor, n_outputs: int, alpha: float, fit_intercept: bool
) -> Linear | Module:
    """Build the model that an estimator's ``model`` parameter names, for these data.

    Parameters
    ----------
    spec : "linear", sequence of int, or callable
        Sizes of hidden layers, or ``(n_features, n_outputs) -> nn.Module``.
    X : Features
    weight : Tensor of shape (n,)
    n_outputs : int
        Columns that the scores must have.
    alpha : float
        The l2 penalty, for the coordinates of a linear model.
    fit_intercept : bool
        For a linear model; networks have their own biases.

    Raises
    ------
    ValueError
        If `spec` is none of these, or the network does not give scores of shape (n, n_outputs).
    """
    if isinstance(spec, str) and spec == "linear":
        return Linear.preconditioned(X, weight, n_outputs, alpha, fit_intercept)
    if callable(spec):
        network = spec(X.shape[1], n_outputs)
    elif isinstance(spec, Sequence) and spec and all(isinstance(n, int) and n > 0 for n in spec):
        network = multilayer_perceptron(X, weight, spec, n_outputs)
    else:
        raise ValueError(
            "model must be 'linear', a tuple of hidden sizes such as (64, 32), or a callable "
            f"(n_features, n_outputs) -> nn.Module; got {spec!r}."
        )
    if not isinstance(network, nn.Module) or not any(
        parameter.requires_grad for parameter in network.parameters()
    ):
        raise ValueError(
            f"model must return an nn.Module with parameters to train; got {network!r}."
        )
    network = network.to(device=weight.device, dtype=weight.dtype).eval()
    n = min(2, X.shape[0])
    with torch.no_grad():
        shape = tuple(network(X.rows(torch.arange(n)).to_dense()).shape)
    if shape != (n, n_outputs) and (shape, n_outputs) != ((n,), 1):
        raise ValueError(
            f"model must give scores of shape (n, {n_outputs}); for {n} rows it gave {shape}. Two "
            "classes take one column, more take one each."
        )
    return Module(network)


def whitener(hessian: Tensor, scale: Tensor) -> Tensor:
    """Upper triangular T with T' hessian T near the identity; `scale` where there is none."""
    # On the scaled matrix (unit diagonal) a small ridge makes duplicate columns harmless.
    hessian = scale[:, None] * hessian * scale
    hessian.diagonal().add_(1e-6)
    factor, info = torch.linalg.cholesky_ex(hessian)
    eye = torch.eye(len(scale)).to(scale)
    inverse: Tensor = torch.linalg.solve_triangular(factor.T, eye, upper=True)
    return scale if info.item() else scale[:, None] * inverse


def _variance(X: Features, weight: Tensor, center: Tensor) -> Tensor:
    """Column variances, zero where no more than rounding errors make a column vary."""
    variance = X.variance(weight, center)
    return torch.where(variance > _ROUNDING * center**2, variance, torch.zeros_like(variance))


def _attribute(attributes: Mapping[str, Any], name: str) -> Any:
    if name not in attributes:
        raise ValueError(f"warm_start=True needs a last fit with the same model ({name}).")
    return attributes[name]


def _chunks(X: Features) -> Any:
    # Chunks of nearly equal size: their plain average is that of the rows, and none has one row.
    index = torch.arange(X.shape[0]).tensor_split(-(-X.shape[0] // _CHUNK_ROWS))
    return (X.rows(rows) for rows in index)

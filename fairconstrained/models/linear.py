"""Linear scores, dense or sparse, in coordinates in which training is well conditioned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fairconstrained.models.base import (
    ClippedPullback,
    Penalty,
    Pullback,
    attribute,
    clip_factors,
    column_variances,
)
from fairconstrained.models.features import DenseFeatures, Features

__all__ = ["LinearModel", "OwnCoordinates", "ScaledLinearModel", "whitener"]

# Whitening costs d^2 per row once and d^3; beyond this many columns only the diagonal is used.
_WHITEN_UP_TO = 1024
_WHITEN_ROWS = 5
_CHUNK_ROWS = 1024


class LinearModel:
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

    linear = True

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
    ) -> LinearModel:
        """Choose centre and coordinates from the data: not for private training."""
        n_features = X.shape[1]
        center = X.mean(weight) if fit_intercept else weight.new_zeros(n_features)
        # The logistic loss has curvature at most 1/4 in the score. A column without variance has
        # no scale of its own: it keeps its units, for rows of a stream that are still to come.
        variances = column_variances(X, weight, center)
        ridge = torch.where(variances > 0, alpha, 1.0).to(variances)
        scale = (0.25 * variances + ridge).rsqrt()
        # With few rows a column the fit can be near perfect, and its curvature far from 1/4.
        if n_features > _WHITEN_UP_TO or X.shape[0] < _WHITEN_ROWS * n_features:
            return cls(n_outputs, center, scale, fit_intercept)
        hessian = 0.25 * X.covariance(weight, center) + torch.diag(ridge)
        return cls(n_outputs, center, whitener(hessian, scale), fit_intercept)

    def for_ranking(self) -> LinearModel:
        """The model without an intercept.

        AUCs are flat along an intercept: solvers would stop there where rounding lets them.
        """
        return LinearModel(self.n_outputs, self.center, self.transform, fit_intercept=False)

    def rescaled(self, attributes: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        """Attributes of the model whose scores are ``slope * scores + offset``."""
        coef, intercept = attributes["coef_"], attributes["intercept_"]
        return {"coef_": coef * slope, "intercept_": intercept * slope + offset}

    def init(self) -> Tensor:
        """Zeros."""
        return self.center.new_zeros(self.n_params)

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores (n, K)."""
        coef, intercept = self.unpack(w)
        return X.matmul(coef) + intercept

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores, and the closed-form pullback T' (X - c)' cotangent: also of several at once."""

        def pullback(cotangent: Tensor) -> Tensor:
            several = cotangent.shape[2:]
            columns = cotangent.flatten(start_dim=1)
            total = columns.sum(dim=0)
            gradient = self.coordinates(X.t_matmul(columns) - self.center[:, None] * total)
            gradient = gradient.reshape(-1, *several)
            if not self.fit_intercept:
                return gradient
            return torch.cat((gradient, total.reshape(-1, *several)))

        return self.scores(w, X), pullback

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Scores, and the clipped pullback: row norms are |cotangent| |(T'(x - c), 1)|."""
        scores, pullback = self.linearize(w, X)
        squares = X.square_norms(self.center, self.transform)
        lengths = (squares + 1.0 if self.fit_intercept else squares).sqrt()

        def clipped(cotangent: Tensor, max_norm: float | Tensor) -> Tensor:
            norms = lengths * torch.linalg.vector_norm(cotangent, dim=1)
            return pullback(cotangent * clip_factors(norms, max_norm)[:, None])

        return scores, clipped

    def prepared(self, X: Features) -> tuple[LinearModel, Features]:
        """With the norms of the rows; where a dense copy pays, it lies in these coordinates."""
        if X.better_dense:
            return OwnCoordinates.of(self, X)
        return self, X.with_norms(self.center, self.transform)

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of the coefficients of the columns as given."""
        gradient = self.coordinates(self._coef(w)).reshape(-1)
        value = 0.5 * gradient @ w[: self.n_coef]
        return Penalty(value, torch.cat((gradient, torch.zeros_like(w[self.n_coef :]))))

    def settle(self, w: Tensor, X: Features) -> None:
        """Nothing: a linear model has no other state."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """``coef_`` (K, d) and ``intercept_`` (K,) for the columns as given."""
        coef, intercept = self.unpack(w)
        return {"coef_": coef.T.cpu().numpy().copy(), "intercept_": intercept.cpu().numpy()}

    def unpack(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients (d, K) and intercept (K,) for the columns as given."""
        coef = self._coef(w)
        intercept = 0.0 - self.center @ coef
        return coef, intercept + w[self.n_coef :] if self.fit_intercept else intercept

    def _coef(self, w: Tensor) -> Tensor:
        v = w[: self.n_coef].reshape(-1, self.n_outputs)
        return self.transform @ v if self.transform.ndim == 2 else self.transform[:, None] * v

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Parameters of given ``coef_`` and ``intercept_``."""
        coef = torch.as_tensor(attribute(attributes, "coef_")).to(self.center).T
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


class ScaledLinearModel(LinearModel):
    """Linear in coordinates that are given, with the penalty on its own coefficients ``v``.

    For private training: columns of very different units, brought to one scale by public ranges,
    are penalised alike there, where a penalty on the columns as given would make steps diverge.
    """

    def penalty(self, w: Tensor) -> Penalty:
        """Half the squared norm of the coefficients of the scaled columns."""
        v = w[: self.n_coef]
        return Penalty(0.5 * v @ v, torch.cat((v, torch.zeros_like(w[self.n_coef :]))))


class OwnCoordinates(LinearModel):
    """A linear model on rows :math:`((x - c) T, 1)`: its scores are one product, its pullback too.

    Parameters
    ----------
    given : LinearModel
        The model for the columns as given; the parameters are the same.
    """

    def __init__(self, given: LinearModel):
        n_columns = given.n_params // given.n_outputs
        zeros = given.center.new_zeros(n_columns)
        super().__init__(given.n_outputs, zeros, torch.ones_like(zeros), fit_intercept=False)
        self.offsets = given.offsets
        self._given = given

    @classmethod
    def of(cls, given: LinearModel, X: Features) -> tuple[OwnCoordinates, Features]:
        """The model, and the rows of X in its coordinates."""
        model, (n_rows, n_columns) = cls(given), X.shape
        rows = given.center.new_ones((n_rows, len(model.center)))
        for chunk in torch.split(torch.arange(n_rows), _CHUNK_ROWS):  # that fit into the cache
            part = rows[chunk[0] : chunk[-1] + 1]
            centred = X.rows(chunk).to_dense() - given.center
            if given.transform.ndim == 2:
                torch.mm(centred, given.transform, out=part[:, :n_columns])
            else:
                torch.mul(centred, given.transform, out=part[:, :n_columns])
            # Rows too long for their length to be known are clipped to nothing, and infinite
            # entries would make that nan.
            part[~torch.linalg.vecdot(part, part).isfinite()] = 0.0
        return model, DenseFeatures(rows).with_norms(model.center, model.transform)

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Scores (n, K)."""
        return X.matmul(w.reshape(-1, self.n_outputs))

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores, and the pullback X' cotangent."""
        return self.scores(w, X), lambda cotangent: X.t_matmul(cotangent).reshape(-1)

    def penalty(self, w: Tensor) -> Penalty:
        """That of the model for the columns as given."""
        return self._given.penalty(w)

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """Those of the model for the columns as given."""
        return self._given.attributes(w)

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """As the model for the columns as given."""
        return self._given.restore(attributes)


def whitener(hessian: Tensor, scale: Tensor) -> Tensor:
    """Upper triangular T with T' hessian T near the identity; `scale` where there is none."""
    # On the scaled matrix (unit diagonal) a small ridge makes duplicate columns harmless.
    hessian = scale[:, None] * hessian * scale
    hessian.diagonal().add_(1e-6)
    factor, info = torch.linalg.cholesky_ex(hessian)
    eye = torch.eye(len(scale)).to(scale)
    inverse: Tensor = torch.linalg.solve_triangular(factor.T, eye, upper=True)
    return scale if info.item() else scale[:, None] * inverse

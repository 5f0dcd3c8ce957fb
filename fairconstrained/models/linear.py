"""Linear models, in coordinates in which training is well conditioned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairconstrained.models.features import (
    ClippedPullback,
    ColumnStatistics,
    DenseFeatures,
    Features,
    Penalty,
    Pullback,
    attribute,
    clip_factors,
    column_variances,
)
from fairconstrained.numerics import CACHE_ROWS

# Rows per column: with fewer a covariance is mostly noise, and its inverse more so.
WHITEN_ROWS = 5


@dataclass(eq=False, repr=False)
class LinearModel:
    r"""Scores :math:`z = (x - c) T v + b`, in coordinates in which training is well conditioned.

    ``T`` (`transform`) is chosen so that the Hessian of the penalised log loss in ``v`` is close to
    the identity, and is diagonal, (d,), upper triangular, (d, d), or sparse (:func:`with_sums`).
    Only the path of a solver depends on T. The problem is the one in the coefficients
    :math:`\beta = T v` of the original columns, with the penalty

    .. math:: \tfrac12 \sum_j (s_j \beta_j)^2 ,

    the squared norm of the coefficients of the columns :math:`x_j / s_j`, by default with s = 1.
    """

    n_outputs: int
    centre: Tensor
    transform: Tensor
    fit_intercept: bool
    scale: Any = None

    def __post_init__(self) -> None:
        self.scale = torch.ones_like(self.centre) if self.scale is None else self.scale
        self.n_coef = self.transform.shape[-1] * self.n_outputs
        self.n_params = self.n_coef + self.fit_intercept * self.n_outputs
        self.offsets = torch.arange(self.n_coef, self.n_params, device=self.centre.device)

    @classmethod
    def preconditioned(
        cls, X: ColumnStatistics, weight: Tensor, n_outputs: int, alpha: float, fit_intercept: bool
    ) -> LinearModel:
        """Choose coordinates and scales from the data, which private training must not do.

        Scales are standard deviations, or the range of a column of two values, as in Gelman (2008),
        "Scaling regression inputs by dividing by two standard deviations": a rare category needs
        the penalty most. The scale of a constant column is its size.
        """
        n_features = X.shape[1]
        mean = X.mean(weight)
        variances = column_variances(X, weight, mean)
        size = torch.where(mean != 0, mean.abs(), torch.ones_like(mean))
        low, high, more = X.values()
        scale = torch.where(variances > 0, variances.sqrt(), size)
        scale = torch.where(more | (low == high), scale, high - low)
        centre = mean if fit_intercept else torch.zeros_like(mean)
        squares = variances + (mean - centre) ** 2
        # The logistic loss has curvature at most 1/4 in the score. A constant column keeps its
        # units, because later rows of a stream may vary in it.
        ridge = torch.where(squares > 0, alpha * scale**2, 1.0)
        units = (0.25 * squares + ridge).rsqrt()
        # With few rows per column the fit can be near perfect and its curvature far from 1/4.
        # Whitening costs O(n d^2 + d^3), and a covariance of few rows is no estimate: then only the
        # diagonal is used.
        if n_features > 1024 or X.shape[0] < WHITEN_ROWS * n_features:
            return cls(n_outputs, centre, units, fit_intercept, scale)
        hessian = 0.25 * X.covariance(weight, centre) + torch.diag(ridge)
        return cls(n_outputs, centre, whitener(hessian, units), fit_intercept, scale)

    def for_ranking(self) -> LinearModel:
        """Return the model without an intercept, which changes no AUC."""
        return LinearModel(self.n_outputs, self.centre, self.transform, False, self.scale)

    def rescaled(self, attributes: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        coef, intercept = attributes["coef_"], attributes["intercept_"]
        return {"coef_": coef * slope, "intercept_": intercept * slope + offset}

    def init(self) -> Tensor:
        return self.centre.new_zeros(self.n_params)

    def scores(self, w: Tensor, X: Features) -> Tensor:
        coef, intercept = self.unpack(w)
        return X.matmul(coef).add_(intercept)  # in place: another (n, K) is slow to allocate

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return scores, and the pullback T' (X - c)' cotangent, of one or several cotangents."""

        def pullback(cotangent: Tensor) -> Tensor:
            several = cotangent.shape[2:]
            columns = cotangent.flatten(start_dim=1)
            total = columns.sum(dim=0)
            gradient = self.coordinates(X.t_matmul(columns) - self.centre[:, None] * total)
            gradient = gradient.reshape(-1, *several)
            if not self.fit_intercept:
                return gradient
            return torch.cat((gradient, total.reshape(-1, *several)))

        return self.scores(w, X), pullback

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Return scores, and the clipped pullback: row norms are |c| |(T'(x - centre), 1)|."""
        scores, pullback = self.linearize(w, X)
        squares = X.square_norms(self.centre, self.transform)
        row_norms = (squares + 1.0 if self.fit_intercept else squares).sqrt()

        def clipped(cotangent: Tensor, max_norm: float | Tensor) -> Tensor:
            norms = row_norms * torch.linalg.vector_norm(cotangent, dim=1)
            return pullback(cotangent * clip_factors(norms, max_norm)[:, None])

        return scores, clipped

    def prepared(self, X: Features) -> tuple[LinearModel, Features]:
        """Store the norms of the rows in X or, where it pays, copy the rows ((x - c) T, 1)."""
        if not X.better_dense:
            return self, X.with_norms(self.centre, self.transform)
        n_coordinates = self.transform.shape[-1]
        rows = self.centre.new_ones((X.shape[0], n_coordinates + self.fit_intercept))
        for chunk in torch.split(torch.arange(len(rows)), CACHE_ROWS):
            part = rows[chunk[0] : chunk[-1] + 1]
            centred = X.rows(chunk).to_dense() - self.centre
            if self.transform.ndim == 2:
                part[:, :n_coordinates] = centred @ self.transform
            else:
                torch.mul(centred, self.transform, out=part[:, :n_coordinates])
            # Clipping multiplies rows of infinite norm by zero, which would make infinite entries
            # nan.
            part[~torch.linalg.vecdot(part, part).isfinite()] = 0.0
        zeros = rows.new_zeros(rows.shape[1])
        model = ProductModel(self.n_outputs, zeros, torch.ones_like(zeros), fit_intercept=False)
        return model, DenseFeatures(rows).with_norms(model.centre, model.transform)

    def penalty(self, w: Tensor) -> Penalty:
        scale = self.scale[:, None]
        coef, _ = self.unpack(w)
        gradient = self.coordinates(scale * (scale * coef)).reshape(-1)
        value = 0.5 * gradient @ w[: self.n_coef]
        return Penalty(value, torch.cat((gradient, torch.zeros_like(w[self.n_coef :]))))

    def update_batch_norm(self, w: Tensor, X: Features) -> None:
        """Do nothing: a linear model has no batch statistics."""

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """Return ``coef_`` (K, d) and ``intercept_`` (K,) for the original columns."""
        coef, intercept = self.unpack(w)
        return {"coef_": coef.T.cpu().numpy().copy(), "intercept_": intercept.cpu().numpy()}

    def unpack(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return coefficients (d, K) and intercept (K,) for the original columns."""
        v = w[: self.n_coef].reshape(-1, self.n_outputs)
        coef = self.transform @ v if self.transform.ndim == 2 else self.transform[:, None] * v
        intercept = 0.0 - self.centre @ coef
        return coef, intercept + w[self.n_coef :] if self.fit_intercept else intercept

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        coef = torch.as_tensor(attribute(attributes, "coef_")).to(self.centre).T
        intercept = torch.as_tensor(attributes["intercept_"]).to(self.centre)
        if coef.shape != (self.centre.shape[0], self.n_outputs):
            raise ValueError(
                f"warm_start=True needs the {self.centre.shape[0]} features of the last fit; it "
                f"had {coef.shape[0]}."
            )
        if self.transform.ndim == 2:
            v = torch.linalg.solve(self.transform, coef)
        else:
            v = coef / self.transform[:, None]
        intercept = intercept + self.centre @ coef
        return torch.cat((v.reshape(-1), intercept)) if self.fit_intercept else v.reshape(-1)

    def coordinates(self, gradient: Tensor) -> Tensor:
        """Convert gradients (d, K) by coefficients to this model's coordinates, T' g."""
        if self.transform.ndim == 2:
            return self.transform.T @ gradient
        return self.transform[:, None] * gradient


class ProductModel(LinearModel):
    """A linear model in the coordinates of its columns: scores are the product with them alone."""

    def scores(self, w: Tensor, X: Features) -> Tensor:
        return X.matmul(w.reshape(-1, self.n_outputs))

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        return self.scores(w, X), lambda cotangent: X.t_matmul(cotangent).reshape(-1)


def whitener(hessian: Tensor, scale: Tensor) -> Tensor:
    """Return upper triangular T with T' hessian T near the identity, else `scale`."""
    # The scaled matrix has unit diagonal; a small ridge makes duplicate columns harmless.
    hessian = scale[:, None] * hessian * scale
    hessian.diagonal().add_(1e-6)
    factor, info = torch.linalg.cholesky_ex(hessian)
    eye = torch.eye(len(scale)).to(scale)
    inverse: Tensor = torch.linalg.solve_triangular(factor.T, eye, upper=True)
    return scale if info.item() else scale[:, None] * inverse


def with_sums(transform: Tensor, run: Tensor) -> Tensor:
    """Return a sparse (d, d + k) transform to scaled columns and to the sums of k runs of columns.

    `run` has the index of each column's run, -1 for none. Without runs it is `transform`.
    """
    n_columns, n_runs = len(run), int(run.max()) + 1
    if not n_runs:
        return transform
    column = torch.arange(n_columns, device=run.device)
    member = column[run >= 0]
    place = torch.stack((torch.cat((column, member)), torch.cat((column, n_columns + run[member]))))
    values = torch.cat((transform, transform[member]))
    size = n_columns, n_columns + n_runs
    return torch.sparse_coo_tensor(place, values, size, check_invariants=True).coalesce()

"""Protocols through which solvers see a problem.

The class attribute ``offers`` of a problem names its capabilities; ``requires`` of a solver names
the ones that it needs. A problem on rows in blocks or shards lacks those in ``in_memory_only``.
Each capability stands for some methods:

=============================  =====================================================
``exact``                      all of :class:`Problem`, on all rows
``sharpness``                  all of :class:`Sharpenable`
``more_slack``                 ``loosened`` of :class:`Sharpenable`
``draws``                      all of :class:`SampledProblem`
``held_out``                   its ``split_holdout``, ``warm_point`` and ``holdout_risk``
``convex_parts``               :math:`(f, c^+, c^-)`, all convex, where c = c^+ - c^-
``convex_bounds``              convex bounds of constraints on draws, for any model
``quadratic_forms``            Hessians, gradients and values of (f, c_1, ..., c_m) at zero
``saddle``                     AUCs as sums over rows, for the level-set method
``label_tables``               a penalty on a table, and the table of predicted labels
``mutual_information_saddle``  gradients of the saddle form of mutual information
``noisy_rates``                noisy tables, and noisy gradients of a Lagrangian
``noisy_saddle``               noisy tables, and noisy gradients of the saddle form
``noisy_moments``              noisy sums of public vectors over secret groups
=============================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Generator, Tensor

from fairconstrained.losses import linearized
from fairconstrained.models.features import Features, Model, Penalty

Answer = TypeVar("Answer")
GRID = torch.logspace(-4, 2, 25, dtype=torch.float64)  # steps to try where changes are unknown


class Linearization(NamedTuple):
    """Values at a point, and the map from weights to the gradient of their weighted sum."""

    value: Tensor  # (m,)
    pullback: Callable[[Tensor], Tensor]  # (m,) -> (n_variables,)
    span: Callable[[], Tensor | None] | None = None  # () -> (m, r), orthonormal: J's columns
    pullback_many: Callable[[Tensor], Tensor] | None = None  # `pullbacks` in one pass

    def pullbacks(self, weights: Tensor) -> Tensor:
        """Return gradients of several weighted sums, (k, n_variables), from weights (k, m)."""
        if self.pullback_many is not None:
            return self.pullback_many(weights)
        return torch.stack([self.pullback(row) for row in weights])

    def gradients(self, which: Tensor) -> Tensor:
        """Return gradients of the values at given indices, (len(which), n_variables)."""
        weights = self.value.new_zeros(len(which), len(self.value))
        weights[torch.arange(len(which)), which] = 1.0
        return self.pullbacks(weights)

    def jacobian(self) -> Tensor:
        """Return the Jacobian J, (m, n_variables), from r gradients: J = U U'J for the span U."""
        span = self.span and self.span()
        if span is None:
            span = torch.eye(len(self.value)).to(self.value)
        return span @ self.pullbacks(span.T)


class Evaluation(NamedTuple):
    """Soft values, which are optimised, and hard values, measured on predicted labels.

    The first soft value is the objective. The first hard value is the criterion among feasible
    points, such as the error rate. The next m values are the constraints. Any further values are
    measured but not constrained, because a penalty in the objective takes their place.
    """

    soft: Tensor  # (1 + m + k,)
    hard: Tensor  # (1 + m + k,)


class Line(NamedTuple):
    """Hard values at some points of a line."""

    steps: Tensor  # (T,)
    error: Tensor  # (T,), the hard objective
    excess: Tensor  # (T,), the largest value of the constraints


class Problem(Protocol):
    """Minimise f(x) subject to c_1(x), ..., c_m(x) <= 0: the protocol of all problems."""

    @property
    def n_rows(self) -> int:
        """Number of rows of the data."""

    @property
    def n_constraints(self) -> int:
        """Number m of constraints."""

    def start(self) -> Tensor:
        """Return the starting point, (n_variables,)."""

    def linearize(self, x: Tensor) -> Linearization:
        """Linearize (f, c_1, ..., c_m) on all rows; a pullback gives the Lagrangian's gradient."""

    def evaluate(self, x: Tensor) -> Evaluation:
        """Evaluate all values at x on all rows, as in prediction, without gradients."""


class SampledProblem(Problem, Protocol):
    """A problem whose values and gradients can be estimated without bias from draws of rows.

    Some of its rows can be held out, to judge a model trained on the others.
    """

    @property
    def strata(self) -> Tensor:
        """The part of each row, (n_rows,): 0, 1, ... without gaps, or -1 for rows in no part.

        Constraints compare parts, so a draw for them should have rows of each.
        """

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Linearize (f, c_1, ..., c_m), estimated from uniformly drawn `rows` if given."""

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Estimate f from `rows`, drawn uniformly, and c from each draw in turn.

        A draw consists of row indices and scales. The scale of a row is the number of rows of the
        data that it represents: the inverse of its expected number in a draw. Without draws the
        result is f alone.
        """

    def split_holdout(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        """Return the problem on the training rows, and the indices of the rows held out.

        One in `every` rows of each label and group is held out at random; where rows are few, all
        of them are in both.
        """

    def warm_point(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the point and multipliers of a simpler model of these rows, or the arguments."""

    def holdout_risk(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return soft and hard objective on held-out rows, as in prediction, without penalty."""


def one_in(every: int, cell: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Split row indices: most rows, and one in `every` rows of each cell chosen at random."""
    order = torch.randperm(len(cell), generator=rng)
    # Sorting a random order stably by cell shuffles the rows within each cell.
    order = order[torch.argsort(cell[order], stable=True)]
    counts = torch.bincount(cell)
    place = torch.arange(len(cell)) - (counts.cumsum(dim=0) - counts)[cell[order]]
    chosen = place % every == every - 1
    return order[~chosen].sort().values, order[chosen].sort().values


class Sharpenable(Problem, Protocol):
    """A problem whose soft values can be sharpened, and whose slack can be increased."""

    def sharpened(self) -> Self:
        """Return the problem with soft values twice as sharp, or itself if they cannot be."""

    def subsample(self) -> Self:
        """Return the problem on a subsample of its rows, or itself if there are few."""

    @property
    def offsets(self) -> Tensor:
        """Positions in x that shift all scores alike: far out along one, predictions are equal."""

    def along(self, x: Tensor, direction: Tensor, reach: float) -> Line:
        """Return hard values on the line x + t direction with t at most `reach` from 0."""

    def loosened(self, x: Tensor, by: float) -> tuple[Self, Tensor]:
        """Return the problem with `by` more slack and a start for it, or itself and `x`."""


def cached_last(function: Callable[[Tensor], Answer]) -> Callable[[Tensor], Answer]:
    """Cache the most recent value of a function."""
    last: list[tuple[Tensor, Answer]] = []

    def cached(x: Tensor) -> Answer:
        if not (last and torch.equal(last[0][0], x)):
            last[:] = [(x.clone(), function(x))]  # the caller may change x in place
        return last[0][1]

    return cached


def on_grid(hard: Callable[[Tensor], Tensor], steps: Tensor) -> Line:
    """Evaluate a line at given steps; `hard` returns (f, c_1, ..., c_m) at one step."""
    values = torch.stack([hard(step) for step in steps])
    # Padded, because a maximum over no constraints is not defined.
    excess = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-torch.inf).amax(dim=1)
    return Line(steps, values[:, 0], excess)


def grid(like: Tensor, reach: float) -> Tensor:
    """Return steps of both signs on a logarithmic grid."""
    steps = torch.cat((-GRID.flip(0), GRID)).to(like)
    return steps[steps.abs() <= reach]


class FixedSoftness:
    """Mixin for problems with soft values of fixed sharpness and with fixed slack."""

    evaluate: Callable[[Tensor], Evaluation]

    def sharpened(self) -> Self:
        """Return the problem itself."""
        return self

    subsample = sharpened

    def loosened(self, x: Tensor, by: float) -> tuple[Self, Tensor]:
        """Return the problem itself and `x`."""
        return self, x

    def along(self, x: Tensor, direction: Tensor, reach: float) -> Line:
        """Return hard values on a grid."""
        return on_grid(lambda step: self.evaluate(x + step * direction).hard, grid(x, reach))


def through_scores(
    terms: Callable[[Tensor, Tensor], Tensor], model: Model, x: Tensor, X: Features
) -> Linearization:
    """Linearize differentiable functions of scores and extra variables at x = (w, a)."""
    w, aux = x.tensor_split([model.n_params])
    scores, model_pullback = model.linearize(w, X)
    value, terms_pullback = linearized(terms, scores, aux)

    def pullback(weights: Tensor) -> Tensor:
        on_scores, on_aux = terms_pullback(weights)
        return torch.cat((model_pullback(on_scores), on_aux))

    return Linearization(value, pullback)


def separate_estimates(
    problem: Any, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]
) -> Linearization:
    """Estimate the objective in one pass, and the constraints in one for each draw."""
    terms = [problem.objective(x, rows), *(problem.constraints(x, *draw) for draw in draws)]
    sizes = [len(term.value) for term in terms]

    def pullback(weights: Tensor) -> Tensor:
        gradient = torch.zeros_like(x)
        for term, piece in zip(terms, torch.split(weights, sizes), strict=True):
            if piece.any():
                gradient += term.pullback(piece)
        return gradient

    return Linearization(torch.cat([term.value for term in terms]), pullback)


def with_penalty(terms: Linearization, penalty: Penalty, alpha: float) -> Linearization:
    """Add `alpha` times the penalty on the first variables to the first term."""
    if alpha == 0:
        return terms

    def pullback(weights: Tensor) -> Tensor:
        gradient = terms.pullback(weights)
        gradient[: len(penalty.gradient)] += (alpha * weights[0]) * penalty.gradient
        return gradient

    value = terms.value.clone()
    value[0] += alpha * penalty.value
    return Linearization(value, pullback, terms.span)

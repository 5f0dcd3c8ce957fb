"""What solvers see: minimise f(x) subject to c(x) <= 0, and rows of data in a batch."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fairconstrained.models.features import Features
from fairconstrained.problems.linearization import Evaluation, Linearization

__all__ = ["Batch", "Problem", "separate_estimates"]


class Batch(NamedTuple):
    """Rows of data on one device."""

    X: Features
    y: Tensor  # (n,) class indices
    group: Tensor  # (n,) group indices
    weight: Tensor  # (n,) positive

    def rows(self, index: Tensor) -> Batch:
        """These rows."""
        y, group, weight = (column.index_select(0, index) for column in self[1:])
        return Batch(self.X.rows(index), y, group, weight)


class Problem(Protocol):
    """Minimise f(x) subject to c(x) <= 0; with `rows`, unbiased estimates from these rows.

    Rows are drawn uniformly unless `scale` says otherwise: how many rows each of them stands for,
    the inverse of how often it is expected in a draw.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_constraints(self) -> int: ...

    @property
    def strata(self) -> Tensor:
        """The part of each row, (n_rows,): 0, 1, ... without gaps, or -1 for rows in none.

        Constraints compare parts: a draw for them should have rows of each.
        """

    def linearize(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """(f, c_1, ..., c_m) in one pass: their weighted gradient is the Lagrangian's."""

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """F alone, as one value."""

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """C alone: for methods that draw independent rows for it."""

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """F from `rows`, then C from each draw of rows and scales, in one pass if possible."""

    def evaluate(self, x: Tensor) -> Evaluation:
        """All values at x as in prediction, on all rows; nothing to differentiate."""

    def sharpened(self) -> Problem:
        """The problem with soft values twice as close to the hard ones, where that can be."""

    def loosened(self, x: Tensor, by: float) -> tuple[Problem, Tensor]:
        """The problem with so much more slack, or itself where x is start enough, and x there."""

    @property
    def offsets(self) -> Tensor:
        """Positions in x that shift all rows' scores alike; far out, predictions are constant."""

    def project(self, x: Tensor) -> Tensor:
        """Nearest point of the set that x must stay in."""


def separate_estimates(
    problem: Problem, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]
) -> Linearization:
    """:meth:`Problem.estimates` by one pass for each draw."""
    terms = [problem.objective(x, rows), *(problem.constraints(x, *draw) for draw in draws)]
    sizes = [len(term.value) for term in terms]

    def pullback(weights: Tensor) -> Tensor:
        gradient = torch.zeros_like(x)
        for term, piece in zip(terms, torch.split(weights, sizes), strict=True):
            if piece.any():
                gradient += term.pullback(piece)
        return gradient

    return Linearization(torch.cat([term.value for term in terms]), pullback)

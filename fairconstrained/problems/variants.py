"""A problem on other rows or under another constraint, all else equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

from torch import Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.models import Model
from fairconstrained.problems import fewer_rows
from fairconstrained.problems.known import Known, first_point, known_points


class Varied:
    """Mixin for problems on rows: fewer rows, sharper soft values, more slack, known points."""

    model: Model
    data: Any  # Batch or PartedRows
    constraint: MomentConstraint
    initial: Tensor | None
    free: Tensor | None
    variables: Callable[[Tensor], Tensor]

    def start(self) -> Tensor:
        """Starting point, (n_variables,)."""
        if self.initial is not None:
            return self.variables(self.initial)
        return first_point(self)  # type: ignore[arg-type]

    def sharpened(self) -> Self:
        """The problem with soft rates at twice the temperature, or itself without soft rates."""
        return self._under(self.constraint.sharpened())

    def loosened(self, x: Tensor, by: float) -> tuple[Self, Tensor]:
        """The problem with more slack, and x with extra variables that suit it."""
        problem = self._under(self.constraint.loosened(by))
        return problem, x if problem is self else problem.variables(self._split(x)[0])

    def known(self) -> list[Known]:
        """Points that no result may be clearly worse than."""
        return known_points(self)  # type: ignore[arg-type]

    def thinned(self) -> Self:
        """The problem on some hundred thousand rows that stand for all; itself if few."""
        return self._on(fewer_rows.thinned(self.data, self._shape_of_cells))

    @cached_property
    def few(self) -> Self:
        """`thinned`, kept for what need not be known exactly."""
        return self.thinned()

    def by_cell(self) -> Self:
        """The problem on one row of each label and group, which has the weight of all of them.

        Where all scores are equal, its values are those of this problem.
        """
        return self._on(fewer_rows.by_cell(self.data, self._shape_of_cells))

    @property
    def _shape_of_cells(self) -> tuple[int, int]:
        n_classes, n_groups = self.constraint.part_of_cell.shape
        return n_classes, n_groups

    def _under(self, constraint: MomentConstraint) -> Self:
        return self if constraint is self.constraint else self._with(constraint=constraint)

    def _on(self, data: Any) -> Self:
        return self if data is self.data else self._with(data=data)

    def _with(self, **changes: Any) -> Self:
        return replace(self, **changes)  # type: ignore[type-var]

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: self.model.n_params], x[self.model.n_params :]

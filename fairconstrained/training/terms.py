"""A user's loss and constraints as functions of outputs and batches, with checks of both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairconstrained.constraints.notions import Notion
from fairconstrained.constraints.space import Space
from fairconstrained.constraints.stack import stacked
from fairconstrained.training.data import Batch

Function = Callable[[Tensor, Batch], Tensor]


class Drawn(NamedTuple):
    """How the rows of a batch were drawn; without groups and scales where a loader chose them."""

    fraction: float  # of the whole draw that this batch is
    group: Tensor = torch.zeros(0)  # of each row
    scale: Tensor = torch.zeros(0)  # number of rows of the data that each stands for


class Term:
    """Values from a module's outputs and the batch they belong to, by way of additive moments.

    Moments of the parts of a draw (workers) add up to those of the draw; values follow from the
    sum. All the data are measured batch by batch too, except for a :class:`FunctionConstraint`.

    Attributes
    ----------
    cell : LongTensor of shape (n_rows,) or (1,)
        Rows of which some of each cell must be in every part of the data.
    """

    cell = torch.zeros(1, dtype=torch.long)

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return differentiable moments, (k,)."""
        raise NotImplementedError

    def measured(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return soft and hard moments, (2, k)."""
        return self.soft(outputs, batch, drawn).expand(2, -1)

    def values(self, moments: Tensor) -> Tensor:
        """Return values from the moments of a whole draw."""
        return moments

    def on(self, rows: Tensor) -> Term:
        """Return the term for data of these rows only."""
        return self


class Risk(Term):
    """The mean of a loss that gives one value, or one for each row."""

    def __init__(self, loss: Function):
        self._loss = loss

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return the batch's part of the mean."""
        value: Any = self._loss(outputs, batch)
        if not isinstance(value, Tensor) or value.shape not in ((), (len(outputs),), (1,)):
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"loss must return one value, or one for each of the {len(outputs)} rows; got "
                f"{shape}. (Outputs of shape (n, 1) and labels of shape (n,) make a matrix.)"
            )
        return drawn.fraction * value.mean()[None]


class FunctionConstraint(Term):
    """Any function of outputs and batch: of several workers, the mean weighted by their rows.

    Its values for parts of the data need not add up to those of all, which are therefore measured
    on all rows at once.
    """

    def __init__(self, function: Function):
        self._function = function
        self._n_values: int | None = None

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return the batch's part of the function's values, after these have been checked."""
        value: Any = self._function(outputs, batch)
        if not isinstance(value, Tensor):
            raise self._wrong(f"a tensor; it returned {type(value).__name__}")
        if value.ndim > 1 or not value.numel():
            raise self._wrong(f"one value or a vector of them; its shape is {tuple(value.shape)}")
        values: Tensor = value.reshape(-1)
        if self._n_values not in (None, len(values)):
            raise self._wrong(f"{self._n_values} values as before; it returned {len(values)}")
        if bool(outputs.isfinite().all()) and not bool(values.isfinite().all()):
            raise self._wrong(
                f"finite values; it returned {values.tolist()} for a batch of {len(outputs)} rows. "
                "A mean over no rows is nan: give `groups`, for batches with rows of each"
            )
        if torch.is_grad_enabled() and not values.requires_grad:
            raise self._wrong(
                "values that depend on the outputs it was given; these have no gradient "
                "(was it detached, rounded, or computed from labels alone?)"
            )
        self._n_values = len(values)
        return drawn.fraction * values

    def reads_features(self, outputs: Tensor, batch: Batch) -> bool:
        """Return whether the function needs the first tensor of a batch, the features."""
        without = (batch[0].to("meta"), *batch[1:])
        try:
            value = self._function(outputs, without)
        except Exception:
            return True
        return isinstance(value, Tensor) and value.is_meta

    def _wrong(self, expected: str) -> ValueError:
        name = getattr(self._function, "__name__", repr(self._function))
        return ValueError(f"constraint {name} must return {expected}.")


class NotionConstraint(Term):
    """Constraints of the package, on the second tensor of a batch as labels."""

    def __init__(self, notions: Sequence[Notion], y: Tensor, group: Tensor, slack: float):
        n_classes, n_groups = max(2, int(y.max()) + 1), int(group.max()) + 1
        self._n_groups = n_groups
        space = Space(list(range(n_classes)), list(range(n_groups)))
        self.cell = y * n_groups + group
        rows = torch.bincount(self.cell, minlength=space.n_cells)
        cells = rows.reshape(n_classes, n_groups).numpy()
        bound = [notion.bind(space, slack) for notion in notions]
        for constraint in bound:
            _, missing = constraint.without_small(cells, 1)
            if missing:
                raise ValueError(f"{constraint.name} needs rows of {'; '.join(missing)}.")
        self._stack = stacked(space, bound)
        self._counts = self._counted()

    def on(self, rows: Tensor) -> Term:
        """Return the constraints with the counts of these rows."""
        part = copy.copy(self)
        part.cell = self.cell[rows]
        part._counts = part._counted()
        return part

    def _counted(self) -> Tensor:
        y, group = self.cell // self._n_groups, self.cell % self._n_groups
        ones = torch.ones(len(y), dtype=torch.float64)
        return self._stack.place(y, group, ones).counts()

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return the table of soft statistics."""
        rows = self._stack.place(batch[1].long(), drawn.group, drawn.scale)
        return self._stack.sums(_columns(outputs), rows, outputs.new_zeros(0)).reshape(-1)

    def measured(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return the tables of soft statistics and of predicted labels."""
        rows = self._stack.place(batch[1].long(), drawn.group, drawn.scale)
        hard = self._stack.hard_sums(_columns(outputs), rows).reshape(-1)
        return torch.stack((self.soft(outputs, batch, drawn), hard))

    def values(self, moments: Tensor) -> Tensor:
        """Return values from the table."""
        sums = moments.reshape(self._stack.n_parts, -1)
        return self._stack.of_moments(sums, self._counts.to(sums), sums.new_zeros(0))


def _columns(outputs: Tensor) -> Tensor:
    return outputs[:, None] if outputs.ndim == 1 else outputs

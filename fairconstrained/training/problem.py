"""A module, a user's loss and constraints, with checks of both, as a problem for solvers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.moments import stacked
from fairconstrained.constraints.notions import Notion
from fairconstrained.constraints.tables import Space
from fairconstrained.distributed import Workers
from fairconstrained.models.features import DenseFeatures
from fairconstrained.models.network import NetworkModel, flat_gradient
from fairconstrained.problems.base import (
    Evaluation,
    FixedSoftness,
    Linearization,
    one_in,
    with_penalty,
)
from fairconstrained.training.data import Batch, Source

Function = Callable[[Tensor, Batch], Tensor]


class Drawn(NamedTuple):
    """The draw of a batch; groups and scales are empty where a loader chose the rows."""

    fraction: float  # of the whole draw that this batch is
    group: Tensor = torch.zeros(0)  # of each row
    scale: Tensor = torch.zeros(0)  # number of rows of the data that each represents


class Term:
    """Values of a module's outputs on a batch, computed by way of additive moments.

    Moments of the parts of a draw (workers) add up to those of the draw; values follow from the
    sum. The loss of all the data is measured batch by batch too; constraints see them at once.
    """

    cell = torch.zeros(1, dtype=torch.long)  # of rows; some of each must be in every part

    def __init__(self, function: Function):
        self._function = function

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return differentiable moments, (k,): by default the batch's part of a mean."""
        return drawn.fraction * self._function(outputs, batch)

    def measured(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return soft and hard values, (2, k)."""
        return self.soft(outputs, batch, drawn).expand(2, -1)

    def reads_features(self, outputs: Tensor, batch: Batch) -> bool:
        """Return whether the term needs the first tensor of a batch, the features."""
        return False

    def values(self, moments: Tensor) -> Tensor:
        """Return values from the moments of a whole draw."""
        return moments

    def on(self, rows: Tensor) -> Term:
        """Return the term for a subset of the rows."""
        return self


def risk(loss: Function) -> Term:
    """Return the term of a mean loss; the loss returns one value, or one for each row."""

    def mean(outputs: Tensor, batch: Batch) -> Tensor:
        value: Any = loss(outputs, batch)
        if not isinstance(value, Tensor) or value.shape not in ((), (len(outputs),), (1,)):
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"loss must return one value, or one for each of the {len(outputs)} rows; got "
                f"{shape}. (Outputs of shape (n, 1) and labels of shape (n,) make a matrix.)"
            )
        if bool(value.isnan().any()) and bool(outputs.isfinite().all()):
            raise ValueError("loss must return numbers; of finite outputs it returned nan.")
        if torch.is_grad_enabled() and not value.requires_grad:
            raise ValueError(
                "loss must return values that depend on the outputs it was given; these have no "
                "gradient (was it detached?). A loss of zero is (0 * outputs).sum()."
            )
        return value.mean()[None]

    return Term(mean)


class FunctionConstraint(Term):
    """Any function of outputs and batch; workers' values are averaged, weighted by their rows."""

    _n_values: int | None = None

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
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
        # A constraint without a gradient would be violated silently, as no step changes it.
        if torch.is_grad_enabled() and not values.requires_grad:
            raise self._wrong(
                "values that depend on the outputs it was given; these have no gradient "
                "(was it detached, rounded, or computed from labels alone?)"
            )
        self._n_values = len(values)
        return drawn.fraction * values

    def reads_features(self, outputs: Tensor, batch: Batch) -> bool:
        # Tensors on the meta device have shapes and no numbers: functions that read features fail
        # on them, or return one.
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

    def __init__(
        self, notions: Sequence[Notion], y: Tensor, group: Tensor, names: Any, slack: float
    ):
        n_classes, n_groups = max(2, int(y.max()) + 1), len(names)
        self._n_groups = n_groups
        space = Space(list(range(n_classes)), names)
        self.cell = y * n_groups + group
        rows = torch.bincount(self.cell, minlength=n_classes * n_groups)
        cells = rows.reshape(n_classes, n_groups).numpy()
        bound = [notion.bind(space, slack) for notion in notions]
        for notion, constraint in zip(notions, bound, strict=True):
            if constraint.n_aux:
                raise ValueError(
                    f"{notion!r} has thresholds that are trained with a model of this package, and "
                    "not with a module: use PartialStatisticalParityInBins, whose thresholds are "
                    "fixed, or PartialDemographicParity."
                )
            _, missing = constraint.without_small(cells, 1)
            if missing:
                raise ValueError(f"{constraint.name} needs rows of {'; '.join(missing)}.")
        self._stack = stacked(space, bound)
        self._counts = self._stack.partition.place(y, group, torch.ones(len(y)).double()).counts()

    def on(self, rows: Tensor) -> Term:
        part = copy.copy(self)
        part.cell = self.cell[rows]
        y, group = part.cell // self._n_groups, part.cell % self._n_groups
        # Counts of these rows: tables of a part are divided by what the part has.
        part._counts = self._stack.partition.place(y, group, torch.ones(len(y)).double()).counts()
        return part

    def soft(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        rows = self._stack.partition.place(batch[1].long(), drawn.group, drawn.scale)
        return self._stack.statistic.sums(self._scores(outputs), rows).reshape(-1)

    def measured(self, outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        rows = self._stack.partition.place(batch[1].long(), drawn.group, drawn.scale)
        # Of scores and not of their table: gaps of AUCs depend on the order of all rows.
        hard = self._stack.hard_values(self._scores(outputs), rows, outputs.new_zeros(0))
        return torch.stack((self.values(self.soft(outputs, batch, drawn)), hard))

    def _scores(self, outputs: Tensor) -> Tensor:
        """Return the scores (n, K); raise ValueError unless they fit the classes in the data."""
        scores, n_classes = outputs.reshape(len(outputs), -1), len(self._stack.space.classes)
        one = n_classes == 2 and scores.shape[1] == 1
        if not one and scores.shape[1] != n_classes:
            raise ValueError(
                f"module must return a score for each of the {n_classes} class indices in data, or "
                f"one score for two; got {scores.shape[1]}."
            )
        return scores

    def values(self, moments: Tensor) -> Tensor:
        sums = moments.reshape(self._stack.n_parts, -1)
        return self._stack.evaluate(sums, self._counts.to(sums), sums.new_zeros(0))


Draw = tuple[Sequence[Term], Tensor | None, Tensor | None]  # terms, their rows, and scales


class _AsGiven(DenseFeatures):
    """Rows in the type that the user's module takes: single precision, or integers."""

    def to_dense(self) -> Tensor:
        return self.X


@dataclass(eq=False, repr=False)
class ModuleProblem(FixedSoftness):
    """Minimise the mean loss of a module's outputs subject to constraints on them."""

    offers = frozenset({"exact", "sharpness", "more_slack", "draws", "held_out"})

    model: NetworkModel
    source: Source
    risk: Term
    constraints: Sequence[Term]
    strata: Tensor  # the group of each row
    device: torch.device
    alpha: float
    workers: Workers

    def __post_init__(self) -> None:
        source, model = self.source, self.model
        self.offsets = model.offsets
        n_rows = torch.tensor(source.n_rows, device=self.device)
        self.n_rows = int(self.workers.sum(n_rows)) if source.streams else source.n_rows
        self._n_strata = int(self.strata.max()) + 1
        # One batch shows the shape of outputs, on which losses depend.
        _, first = next(iter(source.chunks()))
        with torch.no_grad():  # models see one column where the module gives (n,)
            outputs = model.network.eval()(self._moved(first)[0][:2])
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != first[0][:2].shape[:1]:
            kind = getattr(outputs, "shape", type(outputs).__name__)
            raise ValueError(
                f"module must return one tensor with an entry for each row; of {len(first[0][:2])} "
                f"rows it returned {kind}. Several outputs can be joined by torch.cat, and taken "
                "apart by the loss and the constraints."
            )
        self._flat = outputs.ndim == 1
        # Only a call shows how many values functions of the user return.
        self.n_constraints = len(self.evaluate(model.init()).soft) - 1

    def start(self) -> Tensor:
        """Return the module's parameters."""
        return self.model.init()

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Return loss and constraints from one pass."""
        return self._linearized(x, [([self.risk, *self.constraints], rows, None)])

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Estimate all terms by one forward and one backward pass over the batches of all draws."""
        passes: list[Draw] = [([self.risk], rows, None)]
        return self._linearized(x, passes + [(self.constraints, *draw) for draw in draws])

    def evaluate(self, x: Tensor) -> Evaluation:
        """Return soft and hard values in evaluation mode."""
        self.update_batch_norm(x)
        terms = [self.risk, *self.constraints]
        soft, hard = torch.cat(self._measured(terms, x), dim=1)
        soft[0] += self.alpha * self.model.penalty(x).value
        return Evaluation(soft, hard)

    def split_holdout(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        """Hold out one in `every` rows of each group and label; return the problem on the rest too.

        If there are too few rows for that, or the data are a stream, every row is in both.
        """
        cell = self.strata
        for term in self.constraints:
            cell = cell * (int(term.cell.max()) + 1) + term.cell
        kept, held = one_in(every, torch.unique(cell, return_inverse=True)[1], rng)
        if self.source.streams or not len(held):
            return self, torch.arange(self.n_rows)
        return self._subset(kept), held

    def warm_point(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return the starting point unchanged."""
        return x, dual

    def holdout_risk(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the soft and hard objective on these rows alone, without penalty, (2,)."""
        held = self if self.source.streams else self._subset(rows)
        return held._measured([self.risk], x)[0][:, 0]

    def update_batch_norm(self, x: Tensor) -> None:
        """Compute batch statistics of all the data at `x`, where the module has them."""
        self.model.average_batch_norm(
            x, (self._moved(batch)[0] for _, batch in self.source.chunks())
        )

    def _subset(self, rows: Tensor) -> Self:
        """Return the problem on some rows of data that can be indexed."""
        part = copy.copy(self)
        part.source, part.strata = self.source.subset(rows), self.strata[rows]
        part.n_rows = len(rows)
        part.constraints = [term.on(rows) for term in self.constraints]
        return part

    def _measured(self, terms: Sequence[Term], x: Tensor) -> list[Tensor]:
        """Return soft and hard values of each term on all rows, (2, k).

        Constraints see all outputs at once; the features of all rows only if they read them.
        """
        whole = [term for term in terms if term is not self.risk]
        moments: dict[Term, Any] = dict.fromkeys(terms, 0.0)
        kept: list[tuple[Tensor, Batch]] = []
        read = False
        with torch.no_grad():
            for rows, chunk in self.source.chunks():
                batch = self._moved(chunk)
                outputs = self._shaped(self._scores(x, batch[0]))
                drawn = self._drawn(rows, torch.ones(len(rows)), batch, len(rows) / self.n_rows)
                moments[self.risk] += self.risk.measured(outputs, batch, drawn)
                if whole:
                    # The features of all rows may not fit into memory: keep them only for functions
                    # that read them.
                    if not kept:
                        read = any(term.reads_features(outputs, batch) for term in whole)
                    kept.append((outputs, (batch[0] if read else batch[0].to("meta"), *batch[1:])))
            if whole:
                outputs = torch.cat([own for own, _ in kept])
                columns = zip(*(batch for _, batch in kept), strict=True)
                batch = tuple(torch.cat(column) for column in columns)
                rows = torch.arange(self.source.n_rows)
                drawn = self._drawn(rows, torch.ones(len(rows)), batch, len(rows) / self.n_rows)
                moments |= {term: term.measured(outputs, batch, drawn) for term in whole}
        found: list[Tensor] = list(moments.values())
        # Workers with loaders have rows of their own.
        return list(map(self.workers.sum, found)) if self.source.streams else found

    def _scores(self, x: Tensor, X: Tensor) -> Tensor:
        """Compute scores as in prediction, of a part of the rows on each worker."""
        if self.source.streams or self.workers.size == 1:
            return self.model.scores(x, _AsGiven(X))
        places = self.workers.part(len(X))
        part = self.model.scores(x, _AsGiven(X[places]))
        scores = part.new_zeros((len(X), *part.shape[1:]))
        scores[places] = part
        return self.workers.sum(scores)

    def _linearized(self, x: Tensor, draws: Sequence[Draw]) -> Linearization:
        """Return values of terms on each draw, the first with the penalty."""
        function, leaves = self.model.differentiable(x)
        batches = [self._own_batch(rows, scale) for _, rows, scale in draws]
        X = [batch[0] for batch, _ in batches]
        # All draws go through the module at once: a step is mostly the overhead of small operations
        # (decisions: one pass for independent draws).
        if self.source.streams:  # whose batches may differ in shape
            outputs = [function(rows) for rows in X]
        else:
            outputs = list(torch.split(function(torch.cat(X)), [len(rows) for rows in X]))
        values = []
        for (terms, *_), own, batch in zip(draws, outputs, batches, strict=True):
            moments = [term.soft(self._shaped(own), *batch) for term in terms]
            # One exchange for all terms of a draw.
            total = self.workers.sum_with_gradient(torch.cat([own.new_zeros(0), *moments]))
            values.append(_values(terms, torch.split(total, [len(m) for m in moments])))
        value = torch.cat(values)

        def pullback(weights: Tensor) -> Tensor:
            if not value.requires_grad:  # no terms at all
                return torch.zeros_like(x)
            return self.workers.sum(flat_gradient(value, leaves, weights))

        found = Linearization(value.detach(), pullback)
        return with_penalty(found, self.model.penalty(x), self.alpha) if self.alpha else found

    def _own_batch(self, rows: Tensor | None, scale: Tensor | None) -> tuple[Batch, Drawn]:
        """Return this worker's part of a draw."""
        rows = torch.arange(self.n_rows) if rows is None else rows
        places = self.workers.part(len(rows), 1 if scale is None else self._n_strata)
        if scale is None:
            scale = torch.full((len(rows),), self.n_rows / len(rows))
        batch = self._moved(self.source.batch(rows[places]))
        fraction = 1 / self.workers.size if self.source.streams else len(rows[places]) / len(rows)
        return batch, self._drawn(rows[places], scale[places], batch, fraction)

    def _drawn(self, rows: Tensor, scale: Tensor, batch: Batch, fraction: float) -> Drawn:
        if self.source.streams:  # its batches are what they are
            return Drawn(fraction)
        scale = scale.to(self.device, batch[0].dtype)
        return Drawn(fraction, self.strata[rows].to(self.device), scale)

    def _moved(self, batch: Batch) -> Batch:
        return tuple(tensor.to(self.device) for tensor in batch)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] if self._flat else outputs


def _values(terms: Sequence[Term], moments: Sequence[Tensor]) -> Tensor:
    values = [term.values(own) for term, own in zip(terms, moments, strict=True)]
    return torch.cat(values) if values else torch.zeros(0)

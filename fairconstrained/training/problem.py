"""The problem of training a module, as solvers see it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Generator, Tensor

from fairconstrained.models import NetworkModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.models.network import flat_gradient
from fairconstrained.problems import (
    Evaluation,
    FixedSoftness,
    Linearization,
    one_in,
    with_penalty,
)
from fairconstrained.training.data import Chosen, Rows, Source, Stream
from fairconstrained.training.terms import Drawn, FunctionConstraint, Term
from fairconstrained.workers import Workers

Draw = tuple[Sequence[Term], Tensor | None, Tensor | None]  # terms, and their rows and scales


class _AsGiven(DenseFeatures):
    """Rows in the type that the user's module takes: single precision, or integers."""

    def to_dense(self) -> Tensor:
        """The tensor as it is."""
        return self.X


class ModuleProblem(FixedSoftness):
    """Minimise the mean loss of a module's outputs subject to constraints on them.

    Parameters
    ----------
    model : NetworkModel
    source : Source
    risk : Term
    constraints : sequence of Term
    group : LongTensor of shape (n_rows,)
    device : torch.device
    alpha : float
    workers : Workers
    """

    offers = frozenset({"exact", "sharpness", "more_slack", "draws", "held_out"})

    def __init__(
        self,
        model: NetworkModel,
        source: Source,
        risk: Term,
        constraints: Sequence[Term],
        group: Tensor,
        device: torch.device,
        alpha: float,
        workers: Workers,
    ):
        self.model = model
        self.source = source
        self.strata = group
        self.offsets = model.offsets
        self._risk = risk
        self._constraints = constraints
        self._device = device
        self._alpha = alpha
        self._workers = workers
        self._streams = isinstance(source, Stream)
        n_rows = torch.tensor(source.n_rows, device=device)
        self._n_own = source.n_rows
        self.n_rows = int(workers.sum(n_rows)) if self._streams else source.n_rows
        self._n_strata = int(group.max()) + 1
        _, first = next(iter(source.chunks()))
        self._flat = self._outputs_are_flat(first)
        self.n_constraints = len(self.evaluate(model.init()).soft) - 1

    def start(self) -> Tensor:
        """The module's parameters."""
        return self.model.init()

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Loss and constraints from one pass."""
        members = [self._risk, *self._constraints]
        return self._penalised(x, self._differentiable(x, [(members, rows, None)]))

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Estimate all terms by one forward and one backward pass, of batches from each draw."""
        passes: list[Draw] = [([self._risk], rows, None)]
        passes += [(self._constraints, *draw) for draw in draws]
        return self._penalised(x, self._differentiable(x, passes))

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft and hard values in evaluation mode.

        Moments that add up are summed over batches. Other terms see all outputs at once, with the
        labels and whatever else a batch has; with the features where they read them.
        """
        self.settle(x)
        members = [self._risk, *self._constraints]
        soft, hard = self._measured(members, x)
        values = _values(members, soft)
        values[0] += self._alpha * self.model.penalty(x).value
        return Evaluation(values, _values(members, hard))

    def divided(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        """Return the problem on most rows, and one in `every` rows of each group.

        A constraint of the package divides the rows by labels, too. If there are too few rows for
        that, or the data are a stream, every row is in both.
        """
        cell = self.strata
        for term in self._constraints:
            cell = cell * (int(term.cell.max()) + 1) + term.cell
        kept, held = one_in(every, torch.unique(cell, return_inverse=True)[1], rng)
        if self._streams or not len(held):
            return self, torch.arange(self.n_rows)
        return self._on(kept), held

    def begun(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return where training begins: here."""
        return x, dual

    def risks(self, x: Tensor, rows: Tensor) -> Tensor:
        """Soft and hard objective of these rows alone, without penalty, as in prediction, (2,)."""
        held = self if self._streams else self._on(rows)
        soft, hard = held._measured([self._risk], x)
        return torch.cat((*soft, *hard))

    def _on(self, rows: Tensor) -> Self:
        """The problem on some rows of data that can be indexed."""
        part = copy.copy(self)
        part.source, part.strata = Chosen(self.source, rows), self.strata[rows]
        part.n_rows = part._n_own = len(rows)
        part._constraints = [term.on(rows) for term in self._constraints]
        return part

    def _measured(self, members: Sequence[Term], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Soft and hard moments of all rows."""
        moments = _Moments(members)
        with torch.no_grad():
            for rows, chunk in self.source.chunks():
                batch = self._place(chunk)
                drawn = self._how_drawn(rows, torch.ones(len(rows)), batch, len(rows) / self.n_rows)
                moments.add(self._shaped(self._scores(x, batch[0])), batch, drawn)
            soft, hard = moments.totals(self._n_own / self.n_rows)
        if self._streams:  # each worker has rows of its own
            soft, hard = ([self._workers.sum(own) for own in found] for found in (soft, hard))
        return soft, hard

    def settle(self, x: Tensor) -> None:
        """Compute batch statistics of all the data at `x`, where the module has them."""
        self.model.settle_on(x, (self._place(batch)[0] for _, batch in self.source.chunks()))

    def _scores(self, x: Tensor, X: Tensor) -> Tensor:
        """Scores as in prediction; each worker passes a part of the rows through the module."""
        if self._streams or self._workers.size == 1:
            return self.model.scores(x, _AsGiven(X))
        own = self._workers.part(len(X))
        part = self.model.scores(x, _AsGiven(X[own]))
        scores = part.new_zeros((len(X), *part.shape[1:]))
        scores[own] = part
        return self._workers.sum(scores)

    def _differentiable(self, x: Tensor, draws: Sequence[Draw]) -> Linearization:
        """Values of some terms on each draw."""
        function, leaves = self.model.differentiable(x)
        batches = [self._drawn(rows, scale) for _, rows, scale in draws]
        X = [batch[0] for batch, _ in batches]
        if self._streams:  # whose batches may differ in shape
            outputs = [function(rows) for rows in X]
        else:
            outputs = list(torch.split(function(torch.cat(X)), [len(rows) for rows in X]))
        value = torch.cat(
            [
                self._totals(members, self._shaped(own), *batch)
                for (members, *_), own, batch in zip(draws, outputs, batches, strict=True)
            ]
        )

        def pullback(weights: Tensor) -> Tensor:
            if not value.requires_grad:  # no terms at all
                return torch.zeros_like(x)
            return self._workers.sum(flat_gradient(value, leaves, weights))

        return Linearization(value.detach(), pullback)

    def _drawn(self, rows: Tensor | None, scale: Tensor | None) -> tuple[Rows, Drawn]:
        """The part of a draw that is this worker's."""
        rows = torch.arange(self.n_rows) if rows is None else rows
        if scale is None:
            scale = torch.full((len(rows),), self.n_rows / len(rows))
            own = self._workers.part(len(rows))
        else:
            own = self._workers.part(len(rows), self._n_strata)
        fraction = 1 / self._workers.size if self._streams else len(rows[own]) / len(rows)
        batch = self._place(self.source.batch(rows[own]))
        return batch, self._how_drawn(rows[own], scale[own], batch, fraction)

    def _totals(
        self, members: Sequence[Term], outputs: Tensor, batch: Rows, drawn: Drawn
    ) -> Tensor:
        """Values from the moments of all workers."""
        moments = [member.soft(outputs, batch, drawn) for member in members]
        sizes = [len(moment) for moment in moments]
        total = self._workers.sum_with_gradient(torch.cat([outputs.new_zeros(0), *moments]))
        return _values(members, torch.split(total, sizes))

    def _penalised(self, x: Tensor, terms: Linearization) -> Linearization:
        if not self._alpha:
            return terms
        return with_penalty(terms, self.model.penalty(x), self._alpha)

    def _how_drawn(self, rows: Tensor, scale: Tensor, batch: Rows, fraction: float) -> Drawn:
        if self._streams:  # its batches are what they are
            return Drawn(torch.zeros(0), torch.zeros(0), fraction)
        scale = scale.to(self._device, batch[0].dtype)
        return Drawn(self.strata[rows].to(self._device), scale, fraction)

    def _place(self, batch: Rows) -> Rows:
        return tuple(tensor.to(self._device) for tensor in batch)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] if self._flat else outputs

    def _outputs_are_flat(self, batch: Rows) -> bool:
        """Whether the module gives (n,): models see one column instead."""
        with torch.no_grad():
            outputs = self.model.network.eval()(self._place(batch)[0][:2])
        return bool(outputs.ndim == 1)


class _Moments:
    """Soft and hard moments of all rows, from one batch after the other."""

    def __init__(self, members: Sequence[Term]):
        self._members = members
        self._sums: list[tuple[Tensor, Tensor] | None] = [None] * len(members)
        self._outputs: list[Tensor] = []
        self._batches: list[Rows] = []
        self._features = False

    def add(self, outputs: Tensor, batch: Rows, drawn: Drawn) -> None:
        """Take in a batch."""
        whole = [member for member in self._members if isinstance(member, FunctionConstraint)]
        if whole:
            if not self._batches:
                self._features = any(member.reads_features(outputs, batch) for member in whole)
            features = batch[0] if self._features else batch[0].to("meta")
            self._outputs.append(outputs)
            self._batches.append((features, *batch[1:]))
        for j, member in enumerate(self._members):
            if not isinstance(member, FunctionConstraint):
                own = member.soft(outputs, batch, drawn), member.hard(outputs, batch, drawn)
                before = self._sums[j]
                self._sums[j] = own if before is None else (before[0] + own[0], before[1] + own[1])

    def totals(self, fraction: float) -> tuple[list[Tensor], list[Tensor]]:
        """Soft and hard moments of each term; `fraction` of all rows were taken in."""
        if self._batches:
            outputs = torch.cat(self._outputs)
            batch = tuple(torch.cat(column) for column in zip(*self._batches, strict=True))
            drawn = Drawn(torch.zeros(0), torch.zeros(0), fraction)
        found = [
            (member.soft(outputs, batch, drawn), member.hard(outputs, batch, drawn))
            if sums is None
            else sums
            for member, sums in zip(self._members, self._sums, strict=True)
        ]
        return [soft for soft, _ in found], [hard for _, hard in found]


def _values(members: Sequence[Term], moments: Sequence[Tensor]) -> Tensor:
    values = [member.values(own) for member, own in zip(members, moments, strict=True)]
    return torch.cat(values) if values else torch.zeros(0)

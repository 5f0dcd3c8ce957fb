"""The problem of training a module, as solvers see it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Generator, Tensor

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
from fairconstrained.training.terms import Drawn, FunctionConstraint, Term

Draw = tuple[Sequence[Term], Tensor | None, Tensor | None]  # terms, their rows, and scales


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
        n_rows = torch.tensor(source.n_rows, device=device)
        self.n_rows = int(workers.sum(n_rows)) if source.streams else source.n_rows
        self._n_strata = int(group.max()) + 1
        self._flat = self._outputs_are_flat()
        self.n_constraints = len(self.evaluate(model.init()).soft) - 1

    @property
    def _terms(self) -> list[Term]:
        return [self._risk, *self._constraints]

    def start(self) -> Tensor:
        """Return the module's parameters."""
        return self.model.init()

    def linearize(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Return loss and constraints from one pass."""
        return self._linearized(x, [(self._terms, rows, None)])

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """Estimate all terms by one forward and one backward pass, of batches from each draw."""
        passes: list[Draw] = [([self._risk], rows, None)]
        return self._linearized(x, passes + [(self._constraints, *draw) for draw in draws])

    def evaluate(self, x: Tensor) -> Evaluation:
        """Return soft and hard values in evaluation mode.

        Moments that add up are summed over batches. Other terms see all outputs at once, with the
        labels and the other columns; with the features if they read them.
        """
        self.update_batch_norm(x)
        moments = self._measured(self._terms, x)
        soft, hard = (_values(self._terms, [own[i] for own in moments]) for i in (0, 1))
        soft[0] += self._alpha * self.model.penalty(x).value
        return Evaluation(soft, hard)

    def divided(self, every: int, rng: Generator) -> tuple[Self, Tensor]:
        """Return the problem on most rows, and one in `every` rows of each group.

        A constraint of the package divides the rows by labels, too. If there are too few rows for
        that, or the data are a stream, every row is in both.
        """
        cell = self.strata
        for term in self._constraints:
            cell = cell * (int(term.cell.max()) + 1) + term.cell
        kept, held = one_in(every, torch.unique(cell, return_inverse=True)[1], rng)
        if self.source.streams or not len(held):
            return self, torch.arange(self.n_rows)
        return self._subset(kept), held

    def begun(self, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor]:
        """Return where training begins: here."""
        return x, dual

    def risks(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the soft and hard objective of these rows alone, without penalty, (2,)."""
        held = self if self.source.streams else self._subset(rows)
        return held._measured([self._risk], x)[0][:, 0]

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
        part._constraints = [term.on(rows) for term in self._constraints]
        return part

    def _measured(self, terms: Sequence[Term], x: Tensor) -> list[Tensor]:
        """Return soft and hard moments of each term on all rows, (2, k)."""
        whole = [term for term in terms if isinstance(term, FunctionConstraint)]
        moments: dict[Term, Any] = dict.fromkeys(terms, 0.0)
        kept: list[tuple[Tensor, Batch]] = []
        read = False  # whether functions read the features, which are kept only then
        with torch.no_grad():
            for rows, chunk in self.source.chunks():
                batch = self._moved(chunk)
                outputs = self._shaped(self._scores(x, batch[0]))
                drawn = self._drawn(rows, torch.ones(len(rows)), batch, len(rows) / self.n_rows)
                for term in terms:
                    if term not in whole:
                        moments[term] += term.measured(outputs, batch, drawn)
                if whole:
                    if not kept:
                        read = any(term.reads_features(outputs, batch) for term in whole)
                    kept.append((outputs, (batch[0] if read else batch[0].to("meta"), *batch[1:])))
            if whole:
                outputs = torch.cat([own for own, _ in kept])
                columns = zip(*(batch for _, batch in kept), strict=True)
                batch = tuple(torch.cat(column) for column in columns)
                drawn = Drawn(self.source.n_rows / self.n_rows)
                moments |= {term: term.measured(outputs, batch, drawn) for term in whole}
        found: list[Tensor] = list(moments.values())
        # Workers with loaders have rows of their own.
        return list(map(self._workers.sum, found)) if self.source.streams else found

    def _scores(self, x: Tensor, X: Tensor) -> Tensor:
        """Compute scores as in prediction, of a part of the rows on each worker."""
        if self.source.streams or self._workers.size == 1:
            return self.model.scores(x, _AsGiven(X))
        own = self._workers.part(len(X))
        part = self.model.scores(x, _AsGiven(X[own]))
        scores = part.new_zeros((len(X), *part.shape[1:]))
        scores[own] = part
        return self._workers.sum(scores)

    def _linearized(self, x: Tensor, draws: Sequence[Draw]) -> Linearization:
        """Return values of terms on each draw, the first with the penalty."""
        function, leaves = self.model.differentiable(x)
        batches = [self._own_batch(rows, scale) for _, rows, scale in draws]
        X = [batch[0] for batch, _ in batches]
        if self.source.streams:  # whose batches may differ in shape
            outputs = [function(rows) for rows in X]
        else:
            outputs = list(torch.split(function(torch.cat(X)), [len(rows) for rows in X]))
        value = torch.cat(
            [
                self._totals(terms, self._shaped(own), *batch)
                for (terms, *_), own, batch in zip(draws, outputs, batches, strict=True)
            ]
        )

        def pullback(weights: Tensor) -> Tensor:
            if not value.requires_grad:  # no terms at all
                return torch.zeros_like(x)
            return self._workers.sum(flat_gradient(value, leaves, weights))

        terms = Linearization(value.detach(), pullback)
        return with_penalty(terms, self.model.penalty(x), self._alpha) if self._alpha else terms

    def _own_batch(self, rows: Tensor | None, scale: Tensor | None) -> tuple[Batch, Drawn]:
        """Return this worker's part of a draw."""
        rows = torch.arange(self.n_rows) if rows is None else rows
        if scale is None:
            scale = torch.full((len(rows),), self.n_rows / len(rows))
            own = self._workers.part(len(rows))
        else:
            own = self._workers.part(len(rows), self._n_strata)
        batch = self._moved(self.source.batch(rows[own]))
        fraction = 1 / self._workers.size if self.source.streams else len(rows[own]) / len(rows)
        return batch, self._drawn(rows[own], scale[own], batch, fraction)

    def _drawn(self, rows: Tensor, scale: Tensor, batch: Batch, fraction: float) -> Drawn:
        if self.source.streams:  # its batches are what they are
            return Drawn(fraction)
        scale = scale.to(self._device, batch[0].dtype)
        return Drawn(fraction, self.strata[rows].to(self._device), scale)

    def _totals(self, terms: Sequence[Term], outputs: Tensor, batch: Batch, drawn: Drawn) -> Tensor:
        """Return values from the moments of all workers."""
        moments = [term.soft(outputs, batch, drawn) for term in terms]
        sizes = [len(moment) for moment in moments]
        total = self._workers.sum_with_gradient(torch.cat([outputs.new_zeros(0), *moments]))
        return _values(terms, torch.split(total, sizes))

    def _moved(self, batch: Batch) -> Batch:
        return tuple(tensor.to(self._device) for tensor in batch)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] if self._flat else outputs

    def _outputs_are_flat(self) -> bool:
        """Return whether the module gives (n,): models see one column instead."""
        _, first = next(iter(self.source.chunks()))
        with torch.no_grad():
            outputs = self.model.network.eval()(self._moved(first)[0][:2])
        return bool(outputs.ndim == 1)


def _values(terms: Sequence[Term], moments: Sequence[Tensor]) -> Tensor:
    values = [term.values(own) for term, own in zip(terms, moments, strict=True)]
    return torch.cat(values) if values else torch.zeros(0)

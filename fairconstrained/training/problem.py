"""The problem of training a module, as solvers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fairconstrained.features import DenseFeatures
from fairconstrained.models import Module
from fairconstrained.problem import Evaluation, Linearization, separate_estimates
from fairconstrained.training.data import Rows, Source
from fairconstrained.training.terms import Constraint, Function, Group, mean_loss

__all__ = ["ModuleProblem"]

Terms = Callable[[Tensor, Rows, Group], Tensor]


class ModuleProblem:
    """Minimise the mean loss of a module's outputs subject to constraints on them.

    Parameters
    ----------
    model : Module
    source : Source
    loss : callable
    constraints : sequence of Constraint
    group : LongTensor of shape (n_rows,)
    device : torch.device
    alpha : float
    """

    def __init__(
        self,
        model: Module,
        source: Source,
        loss: Function,
        constraints: Sequence[Constraint],
        group: Tensor,
        device: torch.device,
        alpha: float,
    ):
        self.model = model
        self.source = source
        self.strata = group
        self.n_rows = source.n_rows
        self.offsets = model.offsets
        self._loss = loss
        self._constraints = constraints
        self._device = device
        self._alpha = alpha
        _, first = next(iter(source.chunks()))
        self._flat = self._outputs_are_flat(first)
        self.n_constraints = len(self.evaluate(model.init()).soft) - 1

    def linearize(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Loss and constraints from one pass."""

        def terms(outputs: Tensor, batch: Rows, group: Group) -> Tensor:
            risk = mean_loss(self._loss, outputs, batch)[None]
            return torch.cat((risk, self._soft(outputs, batch, group)))

        return self._penalised(x, self._differentiable(terms, x, rows, scale))

    def objective(self, x: Tensor, rows: Tensor | None = None) -> Linearization:
        """Penalised loss."""

        def terms(outputs: Tensor, batch: Rows, group: Group) -> Tensor:
            return mean_loss(self._loss, outputs, batch)[None]

        return self._penalised(x, self._differentiable(terms, x, rows, None))

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Constraint values."""
        return self._differentiable(self._soft, x, rows, scale)

    def estimates(self, x: Tensor, rows: Tensor, *draws: tuple[Tensor, Tensor]) -> Linearization:
        """One pass for each draw: a stream gives one batch at a time."""
        return separate_estimates(self, x, rows, *draws)

    def evaluate(self, x: Tensor) -> Evaluation:
        """Soft and hard values in evaluation mode.

        Tensors in memory are one batch; elsewhere values are means over batches.
        """
        self.model.settle_on(x, (self._place(batch)[0] for _, batch in self.source.chunks()))
        soft: Tensor | float = 0.0
        hard: Tensor | float = 0.0
        for rows, batch in self.source.chunks():
            share = len(rows) / self.source.n_rows
            batch = self._place(batch)
            group = self._group(rows, None, batch)
            with torch.no_grad():
                outputs = self._shaped(self.model.scores(x, DenseFeatures(batch[0])))
                risk = mean_loss(self._loss, outputs, batch)[None]
                values = [torch.zeros_like(risk[:0])]
                values += [c.hard(outputs, batch, group) for c in self._constraints]
                soft = soft + share * torch.cat((risk, self._soft(outputs, batch, group)))
                hard = hard + share * torch.cat((risk, *values))
        assert isinstance(soft, Tensor)
        assert isinstance(hard, Tensor)
        soft[0] += self._alpha * self.model.penalty(x).value
        return Evaluation(soft, hard)

    def sharpened(self) -> ModuleProblem:
        """Itself: functions have one form."""
        return self

    def project(self, x: Tensor) -> Tensor:
        """No set constraint here."""
        return x

    def _soft(self, outputs: Tensor, batch: Rows, group: Group) -> Tensor:
        none = outputs.new_zeros(0)
        return torch.cat([none, *(c.soft(outputs, batch, group) for c in self._constraints)])

    def _differentiable(
        self, terms: Terms, x: Tensor, rows: Tensor | None, scale: Tensor | None
    ) -> Linearization:
        rows = torch.arange(self.n_rows) if rows is None else rows
        batch = self._place(self.source.batch(rows))
        outputs, model_pullback = self.model.linearize(x, DenseFeatures(batch[0]))
        outputs = outputs.requires_grad_()
        value = terms(self._shaped(outputs), batch, self._group(rows, scale, batch))

        def pullback(weights: Tensor) -> Tensor:
            if not value.requires_grad:  # no terms at all
                return torch.zeros_like(x)
            (cotangent,) = torch.autograd.grad(value, outputs, weights, retain_graph=True)
            return model_pullback(cotangent)

        return Linearization(value.detach(), pullback)

    def _penalised(self, x: Tensor, terms: Linearization) -> Linearization:
        penalty = self.model.penalty(x)
        value = terms.value.clone()
        value[0] += self._alpha * penalty.value

        def pullback(weights: Tensor) -> Tensor:
            return terms.pullback(weights) + self._alpha * weights[0] * penalty.gradient

        return Linearization(value, pullback)

    def _group(self, rows: Tensor, scale: Tensor | None, batch: Rows) -> Group:
        if len(rows) != len(batch[0]):  # a stream: its batches are what they are
            return Group(torch.zeros(0), torch.zeros(0))
        if scale is None:
            scale = torch.full((len(rows),), self.n_rows / len(rows))
        return Group(self.strata[rows].to(self._device), scale.to(self._device, batch[0].dtype))

    def _place(self, batch: Rows) -> Rows:
        return tuple(tensor.to(self._device) for tensor in batch)

    def _shaped(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] if self._flat else outputs

    def _outputs_are_flat(self, batch: Rows) -> bool:
        """Whether the module gives (n,): models see one column instead."""
        with torch.no_grad():
            outputs = self.model.network.eval()(self._place(batch)[0][:2])
        return bool(outputs.ndim == 1)

r"""Convex upper bounds on differences of convex constraints, for mini-batches and any model.

Let :math:`c = c^+ - c^-` with both parts convex in the scores z and the extra variables a. With the
values :math:`z_0, a_0` at an anchor,

.. math:: g(z, a) = c^+(z, a) - c^-(z_0, a_0)
          - \nabla c^-(z_0, a_0)' \big( (z, a) - (z_0, a_0) \big) \ge c(z, a) .

For a linear model this gives the subproblem (31) of the partial-parity paper. For other models it
is still a bound, because c is a function of scores. A linearization in the parameters would give no
bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairconstrained.problems.base import Linearization
from fairconstrained.problems.rows import Rows

if TYPE_CHECKING:
    from fairconstrained.problems.erm import FairERM


@dataclass(frozen=True)
class Majorant:
    """The bound g on a problem's constraints at an anchor."""

    problem: FairERM
    anchor: Tensor  # like x

    def constraints(
        self, x: Tensor, rows: Tensor | None = None, scale: Tensor | None = None
    ) -> Linearization:
        """Values of g, with the parameters of :meth:`FairERM.constraints`."""
        return self.problem.of_scores(self._values, x, rows, scale)

    def _values(self, scores: Tensor, aux: Tensor, batch: Rows) -> Tensor:
        n_params = self.problem.model.n_params
        with torch.no_grad():
            scores_0 = self.problem.model.scores(self.anchor[:n_params], batch.X)
        at = (scores_0.requires_grad_(), self.anchor[n_params:].clone().requires_grad_())
        parts = self.problem.constraint.convex_parts
        rows = self.problem.constraint.place(batch.y, batch.group, batch.weight)
        concave = parts(at[0], rows, at[1])[1]
        # The slopes times a step, J d, are the derivative in u of the linear map u -> (J'u)'d.
        # torch's forward mode would give them directly, but it compiles scripts on first use.
        u = torch.ones_like(concave, requires_grad=True)
        slopes = torch.autograd.grad(concave @ u, at, create_graph=True, materialize_grads=True)
        steps = (scores - scores_0.detach(), aux - at[1].detach())
        along = (slopes[0] * steps[0]).sum() + (slopes[1] * steps[1]).sum()
        (change,) = torch.autograd.grad(along, u, create_graph=True)
        linear: Tensor = concave.detach() + change
        return parts(scores, rows, aux)[0] - linear

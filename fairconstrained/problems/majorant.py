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

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairconstrained.problems.rows import Rows

if TYPE_CHECKING:
    from fairconstrained.problems.erm import FairERM


def convex_bounds(
    problem: FairERM, anchor: Tensor, scores: Tensor, aux: Tensor, rows: Rows
) -> Tensor:
    """Values of g, (m,), at the scores and extra variables of drawn rows.

    Parameters
    ----------
    problem : FairERM
    anchor : Tensor of shape (n_variables,)
    scores : Tensor of shape (n, K)
    aux : Tensor of shape (n_aux,)
    rows : Rows
    """
    n_params, parts = problem.model.n_params, problem.constraint.convex_parts
    with torch.no_grad():
        scores_0 = problem.model.scores(anchor[:n_params], rows.X)
    at = (scores_0.requires_grad_(), anchor[n_params:].clone().requires_grad_())
    placed = problem.constraint.place(rows.y, rows.group, rows.weight)
    concave = parts(at[0], placed, at[1])[1]
    # The slopes times a step, J d, are the derivative in u of the linear map u -> (J'u)'d.
    # torch's forward mode would give them directly, but it compiles scripts on first use.
    u = torch.ones_like(concave, requires_grad=True)
    slopes = torch.autograd.grad(concave @ u, at, create_graph=True, materialize_grads=True)
    steps = (scores - scores_0.detach(), aux - at[1].detach())
    along = (slopes[0] * steps[0]).sum() + (slopes[1] * steps[1]).sum()
    (change,) = torch.autograd.grad(along, u, create_graph=True)
    linear: Tensor = concave.detach() + change
    return parts(scores, placed, aux)[0] - linear

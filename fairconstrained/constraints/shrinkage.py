r"""Constraints on shrunken rates: what the groups' rates are, and not how they turned out.

A reference that has not been made fair says how rates vary between groups, and with that how much
of its own measured rates is noise. Rates of other predictions are corrected for as much of this
noise as they share with the reference, by regression, and they remain linear in predictions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor
from torch.nn.functional import one_hot

from fairconstrained.arrays import Floats, Ints
from fairconstrained.constraints.linear import LinearMoments
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.stack import stacked
from fairconstrained.constraints.tables import Space
from fairconstrained.rates import shrunken_rates


def has_families(constraint: MomentConstraint) -> bool:
    """Whether some rates of a constraint are to be shrunken."""
    return any(member.families is not None for member in constraint.members)


def told_apart(space: Space, y: Tensor, group: Tensor, reference: Tensor) -> Tensor:
    """Groups, or shares of groups, each divided by the labels (n,) that a reference predicts."""
    n_classes = len(space.classes)
    if space.stands_for is not None and group.ndim == 1:
        group = space.shares(y, group.long())
    if group.ndim == 1:
        return n_classes * group.long() + reference
    predicted = one_hot(reference, n_classes).to(group)
    return (group[:, :, None] * predicted[:, None]).flatten(start_dim=1)


def shrunken(constraint: MomentConstraint, scatters: list[Tensor]) -> MomentConstraint:
    """The constraint with shrunken rates, on groups that :func:`told_apart` has divided.

    Members without families of rates stay as they are; the others have
    :meth:`LinearMoments.scatter` of the reference in `scatters`, in their order.
    """
    space, remaining = constraint.space, iter(scatters)
    members: list[MomentConstraint] = []
    n_classes = len(space.classes)
    divided = Space(
        space.classes,
        [group for group in space.groups for _ in space.classes],
        n_classes * space.unknown,
        space.n_control,
    )
    for member in constraint.members:
        if isinstance(member, LinearMoments) and member.families is not None:
            members.append(_shrunken(member, divided, next(remaining)))
        else:
            cells = member.part_of_cell.repeat_interleave(n_classes, dim=1)
            members.append(member._with(part_of_cell=cells))
    return stacked(divided, members)


def _shrunken(member: LinearMoments, space: Space, scatter: Tensor) -> LinearMoments:
    """One constraint with shrunken rates, from the scatter of the reference."""
    assert member.families is not None
    k, families = member.statistic.n_columns, member.families
    scatter = scatter.cpu().double()
    sums, counts, squares = scatter[:, :-1, 0], scatter[:, -1, 0], scatter[:, -1, -1]
    rate, below = member.rates(sums, counts).numpy(), member._denominators
    total = below @ counts.numpy()
    size, target = total**2 / (below @ squares.numpy()), rate.copy()
    for number in range(families.max() + 1):
        own = families == number
        if own.any():
            target[own] = shrunken_rates(rate[own], size[own]).rate
    # The reference predicts one column for the rows of a divided cell: where that is a hit.
    hit = member.cell_numerators
    every = sp.kron(member.cell_denominators, np.ones((1, k)), format="csr")
    counted = _of_divided_cells(member.cell_numerators, k)
    numerators = _where(every, counted, k)
    noise = sp.diags_array(total * (target - rate))
    for rows, share, sign in ((hit, rate, 1.0), (every - hit, 1.0 - rate, -1.0)):
        together = _of_family(total * share, families)
        numerators = numerators + sign * noise @ together @ _where(rows, counted, k)
    return type(member)(
        space,
        numerators,
        every,
        member.combinations,
        member.slack.numpy(),
        member.statistic,
        member.name,
        f"{member.title} of shrunken rates",
    )


def _of_divided_cells(numerators: Any, k: int) -> Any:
    """Coefficients of cells (n_rates, n_cells * k) for the k cells that each is divided into."""
    found = sp.coo_array(numerators)
    row, column = found.coords
    cell, own = np.divmod(column, k)
    columns = np.concatenate([(cell * k + c) * k + own for c in range(k)])
    shape = found.shape[0], found.shape[1] * k
    return sp.csr_array((np.tile(found.data, k), (np.tile(row, k), columns)), shape=shape)


def _where(rows: Any, counted: Any, k: int) -> Any:
    """Coefficients of some divided cells, (n_rates, n_cells * k), and zero of the others."""
    return sp.kron(rows, np.ones((1, k)), format="csr").multiply(counted)


def _of_family(weight: Floats, families: Ints) -> Any:
    """Means over all rows of a family, from sums of each rate over rows of this weight."""
    same = (families[:, None] == families) & (families >= 0)
    total = same @ weight
    return sp.csr_array(same / np.where(total > 0, total, 1.0)[:, None])

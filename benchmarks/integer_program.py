r"""Repairs by integer programs, to compare searches of lines with in `benchmarks.ablation`.

    python -m benchmarks.ablation --trials 40 0 0 0 --tasks --variants "as it is" "integer program"

From an iterate with scores z, whose derivatives along the directions of a repair are the columns of
D, the program chooses steps t and the labels b of the rows that are nearest to the threshold:

.. math::

    \min_{t, b, v} \; e'b + 100\, v \quad \text{s.t.} \quad
    c_0 + G b \le v, \quad b_i = 1 \iff z_i + D_i t > 0, \quad |t| \le \text{reach}, \quad v \ge 0 .

Errors and rates of labels are linear in b. The equivalences take a bound M of each score (HiGHS, by
``scipy.optimize.milp``). For linear models of two classes under constraints of labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from fairconstrained.constraints.statistics import sum_by
from fairconstrained.problems import FairERM
from fairconstrained.solvers import Iterate, repair
from fairconstrained.solvers.base import FEASIBILITY_TOL, best_feasible

_MOST_ROWS = 200  # whose labels are variables
_SECONDS = 2.0  # for a program
_REACH, _MISSED = 1.0, 100.0
_BEYOND = 1e-7  # least score of a row of the second class

_by_lines = repair.repaired


class Labels(NamedTuple):
    """Errors and constraints as linear functions of the labels of some rows."""

    error: Tensor  # (r,) what a row adds to the error by the second label
    values: Tensor  # (m,) of the constraints, with the first label for these rows
    added: Tensor  # (m, r)


def repaired(problem: Any, seen: repair.Seen) -> Iterate:
    """As the solver's own, by an integer program from each iterate of least violation."""
    labels_decide = isinstance(problem, FairERM) and problem.constraint.of_labels
    if not labels_decide or problem.affine is None or problem.model.n_outputs > 1:
        return _by_lines(problem, seen)
    return best_feasible([*seen.best, *(_moved(problem, iterate) for iterate in seen.nearest)])


def _moved(problem: Any, iterate: Iterate) -> Iterate:
    """The iterate, or the point that its program leads to."""
    directions = torch.stack(repair._directions(problem, iterate))
    X, x = problem.data.X, iterate.x
    scores = problem.model.scores(x, X)[:, 0]
    slopes = torch.stack([problem.model.scores(x + d, X)[:, 0] - scores for d in directions], 1)
    needed = scores.abs() / slopes.abs().sum(dim=1).clamp_min(1e-12)
    reach = min(_REACH, float(needed.sort().values[: _MOST_ROWS + 1][-1]))
    near = torch.nonzero(needed <= reach)[:, 0]
    labels = _labels(problem, scores > 0, near)
    steps = _solved(scores[near].numpy(), slopes[near].numpy(), labels, reach)
    if steps is None:
        return iterate
    there = x + torch.as_tensor(steps) @ directions
    soft, hard = problem.evaluate(there)
    moved = iterate._replace(x=there, soft=soft, hard=hard, residual=torch.inf)
    return best_feasible([iterate, moved])


def _labels(problem: Any, second: Tensor, near: Tensor) -> Labels:
    rows, y, n_parts = problem.placed, problem.data.y, problem.placed.n_parts
    scores = torch.ones((len(y), 1), dtype=torch.float64)
    of_label = [problem.constraint.statistic.hard(sign * scores, y) for sign in (-1.0, 1.0)]
    errors = [problem.risk.error(sign * scores, y) for sign in (-1.0, 1.0)]
    fixed = second.clone()
    fixed[near] = False
    table = sum_by(
        torch.where(fixed[:, None], *reversed(of_label)) * rows.weight[:, None],
        rows.part,
        n_parts + 1,
    )
    moves = ((of_label[1] - of_label[0]) * rows.weight[:, None])[near]
    alike, which = torch.unique(
        torch.cat((rows.part[near, None], moves), dim=1), dim=0, return_inverse=True
    )
    tables = moves.new_zeros(len(alike), n_parts + 1, moves.shape[1])
    tables[torch.arange(len(alike)), alike[:, 0].long()] = alike[:, 1:]
    none = problem.affine.of_table(torch.zeros_like(table[:-1]))
    added = problem.affine.of_tables(tables[:, :-1]) - none
    error = ((errors[1] - errors[0]) * rows.weight)[near] / rows.weight.sum()
    return Labels(error, problem.affine.of_table(table[:-1]), added[which].T)


def _solved(z: Any, slopes: Any, labels: Labels, reach: float) -> Any:
    """The steps along the directions, or None."""
    (n_rows, n_steps), n_values = slopes.shape, len(labels.values)
    bound = np.abs(z) + np.abs(slopes).sum(axis=1) * reach + _BEYOND
    of_scores = sparse.hstack((slopes, sparse.diags(-bound), np.zeros((n_rows, 1))))
    of_values = np.hstack((np.zeros((n_values, n_steps)), labels.added, -np.ones((n_values, 1))))
    slack = 0.5 * FEASIBILITY_TOL - labels.values.numpy()
    found = milp(
        np.concatenate((np.zeros(n_steps), labels.error, [_MISSED])),
        constraints=[
            LinearConstraint(of_scores, _BEYOND - bound - z, -z),
            LinearConstraint(of_values, -np.inf, slack),
        ],
        integrality=np.repeat([0, 1, 0], [n_steps, n_rows, 1]),
        bounds=Bounds(
            np.repeat([-reach, 0.0, 0.0], [n_steps, n_rows, 1]),
            np.repeat([reach, 1.0, np.inf], [n_steps, n_rows, 1]),
        ),
        options={"time_limit": _SECONDS},
    )
    return None if found.x is None else found.x[:n_steps]

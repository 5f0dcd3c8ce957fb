"""Costs of predicted classes at multipliers of a constraint, and the multipliers by posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from fairconstrained.arrays import Floats

if TYPE_CHECKING:
    from fairconstrained.problems.erm import FairERM

_SMOOTHED = 1e-2  # width of the smooth minimum over classes, in units of the error of a row
_LARGEST = 10.0  # multiplier: at one a rate of a tenth too much costs as much as all errors


def costs_of_parts(problem: FairERM, dual: Tensor) -> Tensor:
    """Price of each predicted class in each part, (n_parts, K), per unit of weight.

    The derivative of ``dual @ g`` by the weight of the rows of a part with this prediction. The
    constraint must depend on predicted labels only.
    """
    assert problem.affine is not None  # as for all constraints on predicted labels
    return problem.affine.on_table(dual) @ _statistics(problem).T


def costs_of_rows(problem: FairERM, dual: Tensor) -> Tensor:
    """Cost of predicting each class for each row, (n, K): its error, and its price."""
    data = problem.data
    prices = costs_of_parts(problem, dual)
    wrong = 1.0 - torch.nn.functional.one_hot(data.y.long(), prices.shape[1]).to(prices)
    errors = wrong * (data.weight / data.total_weight)[:, None]
    return errors + problem.placed.on_columns(prices, wrong)


def multipliers(problem: FairERM, label: Tensor, parts: Tensor, excess: Tensor) -> Tensor:
    r"""Multipliers (m,) of the least error, if posteriors are right but for an excess of values.

    They maximise the dual function, which is concave,

    .. math::

        D(\lambda) = \sum_i \min_k E[c_{ik}(\lambda) \mid x_i] + \lambda \cdot (b + e) ,

    with the values of the constraint :math:`g(M) = A\, \mathrm{vec}(M) + b`. The minimum over
    classes is smoothed.

    Parameters
    ----------
    label, parts : Tensor of shape (n, K), (n, n_parts)
        Posteriors of the labels and of the parts.
    excess : Tensor of shape (m,)
        By how much the values will be larger than the posteriors say.
    """
    assert problem.affine is not None
    offset, width = problem.affine.offset + excess, _SMOOTHED / problem.n_rows

    def negative(x: Floats) -> tuple[float, Floats]:
        dual = torch.as_tensor(x)
        costs = -expected_costs(problem, label, parts, dual) / width
        value = dual @ offset - width * torch.logsumexp(costs, dim=1).sum()
        gradient = expected_values(problem, parts, torch.softmax(costs, dim=1)) + excess
        return -float(value), -gradient.numpy()

    bounds = [(0.0, _LARGEST)] * problem.n_constraints
    start = np.zeros(problem.n_constraints)
    return torch.as_tensor(minimize(negative, start, jac=True, bounds=bounds).x)


def expected_costs(problem: FairERM, label: Tensor, parts: Tensor, dual: Tensor) -> Tensor:
    """Cost of predicting each class for each row, (n, K), by posteriors of labels and parts."""
    data = problem.data
    prices = parts @ costs_of_parts(problem, dual)
    return data.weight[:, None] * (prices + (1.0 - label) / data.total_weight)


def expected_values(problem: FairERM, parts: Tensor, chosen: Tensor) -> Tensor:
    """Values of the constraint (m,) by posteriors, for labels chosen with probabilities (n, K)."""
    assert problem.affine is not None
    table = (parts * problem.data.weight[:, None]).T @ chosen @ _statistics(problem)
    return problem.affine.of_table(table)


def _statistics(problem: FairERM) -> Tensor:
    """The statistic of the constraint for each predicted class, (K, n_columns)."""
    scores = torch.eye(len(problem.constraint.space.classes)).to(problem.data.total_weight)
    scores = torch.diff(scores, dim=1) if len(scores) == 2 else scores
    y = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return problem.constraint.statistic.hard(scores, y)

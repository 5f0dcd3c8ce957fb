r"""The best thresholds by group: the baseline for heads on posteriors.

Error and constraints are affine in how many rows of each label and group are predicted 1. For
thresholds on one score these numbers lie, in each group, between the convex hull of its ROC curve
and the diagonal. The best of them solve a linear program, and an integer one, since predictions are
not random.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.special import expit
from sklearn.isotonic import isotonic_regression
from torch import Tensor

from fairconstrained.arrays import Floats, as_numpy
from fairconstrained.constraints.affine import AffineMap
from fairconstrained.problems.values import ERM

# Tolerance on the constraint values of one group; two groups may differ by twice as much, which is
# less than the violation that counts as near.
_TOLERANCE = 4e-4

Curve = tuple[Floats, Floats]  # thresholds (k,), falling, and weight above them by label, (k, 2)


def thresholds_by_group(problem: ERM) -> Tensor | None:
    """Return the parameters whose scores are nearest to the best thresholds by group.

    A group at a corner of its ROC curve has one threshold. Any other has three, t > v > u, and the
    rule predicts 1 above t and between u and v, so that fewer rows of both labels are right and no
    randomness is needed. On log odds l of probabilities p its score is

    .. math:: l - (a + b p + c p^2) ,

    where the parabola meets the log odds at the three thresholds. As the third derivative of l by p
    is positive, the score has the sign of (p - u) (p - v) (p - t). A head on posteriors has these
    columns for each part of equalized odds. Where columns do not tell the group, the nearest scores
    are far from these, as the hard values of the point show.

    Return None without log odds, if no numbers of rows keep the constraint, or if error and
    constraints are not affine in them.
    """
    data, affine, by_labels = problem.data, problem.affine, problem.constraint.label_based
    if problem.log_odds is None or affine is None or not (by_labels and problem.sums_decide):
        return None
    if not data.in_memory or data.group.ndim > 1:
        return None
    log_odds = as_numpy(problem.model.scores(problem.log_odds, data.X))[:, 0]
    label, group, weight = map(as_numpy, (data.y, data.group, data.weight))
    rows_of = [group == g for g in np.unique(group)]
    curves = [_curve(log_odds[rows], label[rows], weight[rows]) for rows in rows_of]
    at_none, slopes = _affine_values(problem, len(curves))
    values = at_none.copy()
    unit = float(weight[0]) if np.ptp(weight) == 0 else None
    slack, first, scores = as_numpy(problem.constraint.slack), None, np.empty(len(label))
    families = _families(affine)
    units = torch.eye(problem.model.n_params).to(data.weight)
    columns = torch.cat([problem.model.scores(w, data.X) for w in units], dim=1)
    # Whole rows may exceed a slack that fractions of rows keep: aim at less of it then.
    for part in (1.0, 0.5, 0.25):
        values[1:] = at_none[1:] + (1.0 - part) * slack
        targets = _program(curves, values, slopes, unit, families)
        if targets is None:
            break
        for rows, curve, target, slope in zip(rows_of, curves, targets, slopes, strict=True):
            scores[rows] = _scores(log_odds[rows], _thresholds(curve, target, slope))
        solution = np.linalg.lstsq(as_numpy(columns), scores, rcond=None)[0]
        rule = torch.from_numpy(solution).to(columns)
        excess = float(problem.evaluate(rule).hard[1:].max())
        if excess <= 2 * _TOLERANCE:
            return rule
        first = rule if first is None else first
        # The columns cannot express these thresholds: aiming at less slack does not help.
        if excess > 0.1:
            break
    return first


def _curve(log_odds: Floats, label: Floats, weight: Floats) -> Curve:
    """Return the ROC curve of a group, in sums of weight."""
    order = np.argsort(-log_odds, kind="stable")
    falling = log_odds[order]
    by_label = weight[order, None] * (label[order, None] == [0, 1])
    above = np.concatenate((np.zeros((1, 2)), by_label.cumsum(axis=0)))
    between = 0.5 * (falling[1:] + falling[:-1])
    cuts = np.concatenate(([True], np.diff(falling) != 0, [True]))
    # Beyond the log odds of any row: posteriors are at least 1e-6, which is 13.8.
    extreme = 16.0
    return np.concatenate(([extreme], between, [-extreme]))[cuts], above[cuts]


def _affine_values(problem: ERM, n_groups: int) -> tuple[Floats, Floats]:
    """Return error and constraints, (1 + m,), if no row is predicted 1, and their slopes.

    Slopes, (n_groups, 2, 1 + m), are per weight predicted 1 of each group and label.
    """
    cells = problem.data.by_cell(problem.constraint)
    small = replace(problem, data=cells)
    none = -torch.ones_like(cells.weight)[:, None]
    n_values, aux = 1 + problem.n_constraints, cells.weight[:0]
    values = small.hard(none, aux)[:n_values]
    slopes = np.zeros((n_groups, 2, n_values))
    _, group = np.unique(as_numpy(cells.group), return_inverse=True)
    for i, (g, y) in enumerate(zip(group, as_numpy(cells.y), strict=True)):
        # Values are affine: one row per cell gives its slope.
        one = none.clone()
        one[i] = 1.0
        slopes[g, y] = as_numpy((small.hard(one, aux)[:n_values] - values) / cells.weight[i])
    return as_numpy(values), slopes


def _families(affine: AffineMap) -> list[tuple[int, int]]:
    """Return first values and numbers of rates of families compared pairwise at equal slacks."""
    families, start = [], 0
    for block in affine.combinations:
        for n_rates in block.families:
            stop = start + n_rates * (n_rates - 1)
            if n_rates > 1 and bool((affine.offset[start:stop] == affine.offset[start]).all()):
                families.append((start, n_rates))
            start = stop
        if not block.families:
            start += block.rate.shape[1]
    return families


def _program(
    curves: list[Curve],
    values: Floats,
    slopes: Floats,
    unit: float | None,
    families: list[tuple[int, int]],
) -> Floats | None:
    """Solve for the weight predicted 1 of each group and label, (n_groups, 2), or None.

    If all rows have the same weight, it is `unit`, and the solution is whole numbers of rows, up to
    the node limit.
    """
    n = 2 * len(curves)
    size, flat = unit or 1.0, slopes.reshape(n, -1).T
    edges, least = [], []
    for g, (_, above) in enumerate(curves):
        corners = _hull(above)
        # On the right of each edge, and on the left of the diagonal.
        for (x, y), (x2, y2) in [*pairwise(corners), (corners[-1], corners[0])]:
            edge = np.zeros(n)
            edge[2 * g : 2 * g + 2] = y2 - y, x - x2
            edges.append(edge)
            least.append(edge[2 * g : 2 * g + 2] @ (x, y))
    rates, lowest, highest, width = _as_ranges(size * flat[1:], -values[1:], families)
    nothing = np.zeros_like(width)  # of each range, whose lower end is a variable too
    hulls = np.hstack((size * np.array(edges), np.zeros((len(edges), len(width)))))
    most = np.concatenate([above[-1] for _, above in curves]) / size
    # The best point at the node limit is used: other rows have other best thresholds.
    result = milp(
        np.append(size * flat[0], nothing),
        constraints=[LinearConstraint(rates, lowest, highest), LinearConstraint(hulls, lb=least)],
        bounds=Bounds(np.append(np.zeros(n), -width), np.append(most, nothing)),
        integrality=np.append(np.full(n, int(unit is not None)), nothing),
        options={"node_limit": 100, "mip_rel_gap": 1e-3},
    )
    return None if result.x is None else np.asarray(size * result.x[:n].reshape(-1, 2))


def _as_ranges(
    slopes: Floats, most: Floats, families: list[tuple[int, int]]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return slopes and bounds of constraints in which each family is a range, and its width.

    All pairs of a family are within the slack if all rates, less the first, are in an interval as
    long as the slack: a row for each rate, in place of one for each pair. The lower end of the
    interval, between minus the width and 0, is a further column.
    """
    used, lowest = np.ones(len(most), dtype=bool), np.full(len(most), -np.inf)
    lower_end, width = np.zeros((len(most), len(families))), np.zeros(len(families))
    for f, (start, n_rates) in enumerate(families):
        less_first = start + np.arange(1, n_rates) * (n_rates - 1)
        used[start : start + n_rates * (n_rates - 1)] = False
        used[less_first] = True
        width[f] = max(0.5 * (most[start] + most[less_first[0]]), 0.0)
        lowest[less_first] = most[less_first] - width[f]
        lower_end[less_first, f] = -1.0
    return np.hstack((slopes, lower_end))[used], lowest[used], most[used], width


def _hull(points: Floats) -> Floats:
    """Return the corners of the upper convex hull of points with ascending coordinates.

    Its slopes are the isotonic regression of the slopes between neighbours.
    """
    step = np.diff(points, axis=0)
    weight = step.sum(axis=1)
    slope = isotonic_regression(step[:, 1] / weight, sample_weight=weight, increasing=False)
    corners = np.flatnonzero(np.diff(slope)) + 1
    return np.asarray(points[[0, *corners, -1]])


def _thresholds(curve: Curve, target: Floats, slopes: Floats) -> Floats:
    """Find one or three falling thresholds that nearly reach a target; slopes are (2, 1 + m)."""
    thresholds, above = curve

    def missed(weight: Floats) -> Floats:
        deviation = np.abs((weight - target) @ slopes[:, 1:]).max(axis=1)
        return np.asarray(deviation.clip(min=_TOLERANCE))

    miss = missed(above)
    single = int(np.lexsort((above @ slopes[:, 0], miss))[0])
    if miss[single] <= _TOLERANCE or np.linalg.matrix_rank(slopes[:, 1:]) < 2:
        return np.asarray(thresholds[[single]])
    total, most = above.sum(axis=1), target.sum()
    best, cuts = (miss[single], 0.0), [single]
    last = np.searchsorted(total, most, side="right")
    # All triples would cost the cube of the rows: the highest threshold takes 64 places.
    tops = np.unique(np.linspace(0, last - 1, 64).astype(int))
    for top in tops[tops + 2 < len(total)]:
        upper = np.arange(top + 1, len(total) - 1)
        lower = np.searchsorted(total, total[upper] + most - total[top]).clip(max=len(total) - 1)
        # The widest apart win: errors in scores then change the fewest predictions.
        width = np.minimum(total[lower] - total[upper], total[upper] - total[top])
        miss = np.where(width > 0, missed(above[top] + above[lower] - above[upper]), np.inf)
        least = np.flatnonzero(miss == miss.min())
        i = least[width[least].argmax()]
        if (miss[i], -width[i]) < best:
            best, cuts = (miss[i], -width[i]), [top, int(upper[i]), int(lower[i])]
    return np.asarray(thresholds[cuts])


def _scores(log_odds: Floats, thresholds: Floats) -> Floats:
    """Return scores that change sign at one or three thresholds and are positive above them."""
    if len(thresholds) == 1:
        return np.asarray(log_odds - thresholds[0])
    # Log odds that differ by rounding have thresholds between them that are nearly one.
    parabola = np.linalg.lstsq(np.vander(expit(thresholds), 3), thresholds, rcond=None)[0]
    return np.asarray(log_odds - np.polyval(parabola, expit(log_odds)))

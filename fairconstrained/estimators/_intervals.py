"""The choice of an interval from the data, and a check that it holds enough rows."""

from __future__ import annotations

import numpy as np
import torch

from fairconstrained.exceptions import SmallGroupWarning, warn_caller

__all__ = ["in_least_fair_interval", "warn_of_fine_grids"]

# Candidates: the paper's chosen intervals have lengths of 0.2 to 0.3.
_LENGTH, _STEP = 0.25, 0.05


def in_least_fair_interval(member, scores, threshold, data):
    """The constraint in the candidate interval with the largest gap of these scores.

    Candidates contain the rate of scores above the threshold (Appendix B of the paper).
    """
    rows, weight = member.place(data.y, data.group, data.weight), data.weight
    above = (scores[:, 0] > threshold).to(weight)
    rate = float(weight @ above / weight.sum())
    starts = np.arange(0.0, 1.0 - _LENGTH + 1e-9, _STEP).round(10)
    candidates = [
        member.within(start, round(start + _LENGTH, 10))
        for start in starts
        if start - 1e-9 <= rate <= start + _LENGTH + 1e-9
    ]
    aux = member.init_aux(scores, rows)

    def gap(candidate):
        return candidate.measure(candidate.hard_values(scores, rows, aux))

    return max(candidates, key=gap)


def warn_of_fine_grids(members, data):
    """Name the parts with fewer rows in their intervals than thresholds to tell apart."""
    shape = (2, 1 + int(data.group.max()))
    rows = torch.bincount(data.y * shape[1] + data.group, minlength=shape[0] * shape[1])
    for member in members:
        coarse = member.coarse_parts(rows.reshape(shape).cpu().numpy())
        if coarse:
            warn_caller(
                f"{member.name} compares {member.statistic.n_columns} thresholds (n_grid), but few "
                f"rows lie in the interval: {'; '.join(coarse)}. Take a longer interval or a "
                "smaller n_grid.",
                SmallGroupWarning,
            )

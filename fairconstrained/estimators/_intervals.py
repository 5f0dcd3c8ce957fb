"""The choice of an interval from the data, and a check that it holds enough rows."""

from __future__ import annotations

import numpy as np

from fairconstrained.exceptions import SmallGroupWarning, warn_caller

# Candidates: the paper's chosen intervals have lengths of 0.2 to 0.3.
_LENGTH, _STEP = 0.25, 0.05


def in_least_fair_interval(member, scores, threshold, data):
    """The constraint in the candidate interval with the largest gap of these scores.

    Candidates contain the rate of scores above the threshold (Appendix B of the paper).
    """
    rows = member.place(data.y, data.group, data.weight)
    # Paper: the rate of all rows; here: that of the rows which the notion ranks, for each label
    # by itself where it compares within labels, because outside of ranks near this rate all
    # groups' clipped rates are equal.
    rates = _rates_above(member, (scores > threshold).to(data.weight), rows)
    starts = np.arange(0.0, 1.0 - _LENGTH + 1e-9, _STEP).round(10)
    candidates = [
        member.within(start, round(start + _LENGTH, 10))
        for start in starts
        if any(start - 1e-9 <= rate <= start + _LENGTH + 1e-9 for rate in rates)
    ]
    aux = member.init_aux(scores, rows)

    def gap(candidate):
        return candidate.measure(candidate.hard_values(scores, rows, aux))

    return max(candidates, key=gap)


def _rates_above(member, above, rows):
    """Fractions of rows above the threshold among those that are compared with each other."""
    sums, counts = rows.sum(above[:, :1])[:, 0].cpu().numpy(), rows.counts().cpu().numpy()
    label = member.parts.labels()
    return [sums[label == own].sum() / counts[label == own].sum() for own in np.unique(label)]


def warn_of_fine_grids(members, cells):
    """Name the parts with fewer rows in their intervals than thresholds to tell apart.

    From the number of rows of each label and group.
    """
    for member in members:
        coarse = member.coarse_parts(cells.cpu().numpy())
        if coarse:
            warn_caller(
                f"{member.name} compares {member.statistic.n_columns} thresholds (n_grid), but few "
                f"rows lie in the interval: {'; '.join(coarse)}. Take a longer interval or a "
                "smaller n_grid.",
                SmallGroupWarning,
            )

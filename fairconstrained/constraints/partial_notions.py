r"""Criteria of partial parity: fairness inside an interval of percentiles.

They follow Definitions 4.2, 4.3 and A.1 to A.3 of the partial-parity paper, and Remark 5.3 for
unions of intervals that differ by group. They are for two classes, and for the worst pair of any
number of groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fairconstrained.arrays import check_number
from fairconstrained.constraints import notions, partial
from fairconstrained.constraints.steps import STEPS, Above, ScoreBins
from fairconstrained.constraints.tables import Space
from fairconstrained.percentiles import read_intervals

_EDGES = torch.linspace(-6.0, 6.0, 49, dtype=torch.float64)  # of bins of log odds


@dataclass(eq=False, repr=False)
class PartialNotion(notions.Notion):
    """Base of the partial criteria, with parameters as in :class:`PartialStatisticalParity`."""

    interval: Any = None
    slack: float | None = None
    temperature: float = field(default=2.0, kw_only=True)

    def bind(
        self, space: Space, slack: float | None = None, interval: Any = None
    ) -> partial.WithinIntervals:
        """Return the constraint, with the estimator's slack and interval if it has none."""
        if len(space.classes) != 2:
            raise ValueError(f"{type(self).__name__} needs two classes; got {len(space.classes)}.")
        gap = notions.checked_number(self, "slack", slack if self.slack is None else self.slack)
        n_groups = len(space.groups)
        notions.refuse_too_many(self, n_groups * (n_groups - 1), n_groups, notions.FEWER)
        (positive,) = self.positive(space.classes)
        part = self._parts(n_groups, positive)
        part = np.pad(part, ((0, 0), (0, int(space.unknown))), constant_values=-1)
        group_of_part = [np.argwhere(part == q)[0, 1] for q in range(part.max() + 1)]
        ranks = interval if self.interval is None else self.interval
        intervals = read_intervals(ranks, list(space.groups)).take(group_of_part)
        made, arguments = self._constraint()
        return made(space, part, intervals, gap, name=self.name, **arguments)

    def _constraint(self) -> tuple[type[partial.WithinIntervals], dict[str, Any]]:
        """Return the class of the constraint, and its arguments besides parts, gap and name."""
        raise NotImplementedError

    def _parts(self, n_groups: int, positive: int) -> NDArray[np.int64]:
        """Return the part of each label and group, (2, n_groups): here one for each group."""
        return np.tile(np.arange(n_groups), (2, 1))

    def _steps(self, thresholds: Any) -> Above:
        """Build the surrogate of "score above threshold" at these thresholds."""
        step = notions.chosen(self, "surrogate", STEPS)
        return Above(torch.as_tensor(thresholds), step, notions.checked_temperature(self))


@dataclass(eq=False, repr=False)
class PartialStatisticalParity(PartialNotion):
    r"""Equal distributions of scores inside an interval of percentiles (Definition 4.2).

    Parameters
    ----------
    interval : pair of float, list of pairs, or dict, optional
        Ranks ``(alpha, beta)`` in [0, 1], counted from the top of the scores of each group. Also a
        list of such pairs that do not overlap, or a dict with one of these for every group.
        Default: the estimator's ``interval``.
    slack : float, optional
        Largest allowed gap of the conditional distributions; default: the estimator's ``slack``.
    n_grid : int, default=10
        Number of thresholds at which training compares the distributions. The true gap, which
        solvers follow, is over all thresholds.
    surrogate : {"logistic", "ramp"}, default="logistic"
        Step function that replaces "score above threshold" in training.
    temperature : float, default=2.0
        Sharpness of the surrogate. Solvers increase it if the true gap does not follow.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialStatisticalParity
    >>> PartialStatisticalParity((0.05, 0.3), slack=0.1)
    PartialStatisticalParity(interval=(0.05, 0.3), slack=0.1)
    """

    name = "partial_statistical_parity"
    _compared_by: ClassVar[Any] = partial.FractionsInside

    n_grid: int = field(default=10, kw_only=True)
    surrogate: str = field(default="logistic", kw_only=True)

    def _constraint(self) -> tuple[type[partial.WithinIntervals], dict[str, Any]]:
        # The thresholds are variables: see PartialDistributions.statistic_at.
        steps = self._steps(np.zeros(_checked_grid(self, least=1)))
        return partial.PartialDistributions, {"statistic": steps, "compared_by": self._compared_by}


class PartialRankParity(PartialStatisticalParity):
    r"""Equal ranks of all thresholds in the interval: :func:`fairconstrained.metrics.ccdf_gap`.

    The tables of the paper report this gap. Definition 4.2 divides by the length of the interval,
    while this criterion compares fractions of whole groups: with a slack of 0.1, the fraction of
    one group above a threshold may exceed that of another by 0.1. Parameters are as in
    :class:`PartialStatisticalParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialRankParity
    >>> PartialRankParity((0.05, 0.3), slack=0.1)
    PartialRankParity(interval=(0.05, 0.3), slack=0.1)
    """

    name = "partial_rank_parity"
    _compared_by: ClassVar[Any] = partial.RanksOfThresholds


@dataclass(eq=False, repr=False)
class PartialDemographicParity(PartialNotion):
    r"""Equal rates of positive decisions inside an interval of percentiles (Definition 4.3).

    Parameters
    ----------
    interval, slack, surrogate, temperature
        As in :class:`PartialStatisticalParity`.
    threshold : float, default=0.0
        Scores above it are positive decisions.
    leak : float, default=0.05
        Slope of the soft rates outside the interval, relative to that inside. It keeps gradients
        from vanishing there. Paper: 0.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialDemographicParity
    >>> PartialDemographicParity((0.1, 0.4), slack=0.1)
    PartialDemographicParity(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_demographic_parity"

    threshold: float = field(default=0.0, kw_only=True)
    surrogate: str = field(default="logistic", kw_only=True)
    leak: float = field(default=0.05, kw_only=True)

    def _constraint(self) -> tuple[type[partial.WithinIntervals], dict[str, Any]]:
        name = f"{type(self).__name__}.threshold"
        threshold = check_number(name, self.threshold, "a finite number", np.isfinite)
        leak = notions.checked_number(self, "leak", self.leak)
        return partial.PartialRates, {"statistic": self._steps(np.array([threshold])), "leak": leak}


@dataclass(eq=False, repr=False)
class PartialEqualOpportunity(PartialDemographicParity):
    """Partial demographic parity among the samples of the positive label (Definition A.2).

    Ranks are among these samples, as in problem (50) of the paper. The other parameters are as in
    :class:`PartialDemographicParity`.

    Parameters
    ----------
    pos_label : label, optional
        The positive label; default: the second in sorted order. In any case scores are for the
        second label, and ranks count from their top.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialEqualOpportunity
    >>> PartialEqualOpportunity((0.1, 0.4), slack=0.1)
    PartialEqualOpportunity(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_equal_opportunity"

    pos_label: Any = field(default=None, kw_only=True)

    def _parts(self, n_groups: int, positive: int) -> NDArray[np.int64]:
        part = np.full((2, n_groups), -1)
        part[positive] = np.arange(n_groups)
        return part


class PartialEqualizedOdds(PartialDemographicParity):
    """Partial demographic parity within each label (Definition A.3).

    Ranks are among the samples of a label, as in problem (56) of the paper. Parameters are as in
    :class:`PartialDemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialEqualizedOdds
    >>> PartialEqualizedOdds((0.1, 0.4), slack=0.1)
    PartialEqualizedOdds(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_equalized_odds"

    def _parts(self, n_groups: int, positive: int) -> NDArray[np.int64]:
        return np.arange(2 * n_groups).reshape(2, n_groups)


@dataclass(eq=False, repr=False)
class PartialStatisticalParityInBins(PartialNotion):
    r"""Partial statistical parity at fixed thresholds, from a table of counts alone.

    It is for private training, where thresholds that depend on the data would have to be released.
    It does not see gaps between the thresholds.

    Parameters
    ----------
    interval, slack, temperature
        As in :class:`PartialStatisticalParity`.
    n_grid : int, default=10
        Number of thresholds, equally spaced.
    reach : float, default=3.0
        The thresholds lie between -reach and reach, in log odds.
    leak : float, default=0.05
        As in :class:`PartialDemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialStatisticalParityInBins
    >>> PartialStatisticalParityInBins((0.0, 0.5), n_grid=20)
    PartialStatisticalParityInBins(interval=(0.0, 0.5), n_grid=20)
    """

    name = "partial_statistical_parity"

    n_grid: int = field(default=10, kw_only=True)
    reach: float = field(default=3.0, kw_only=True)
    leak: float = field(default=0.05, kw_only=True)

    def _constraint(self) -> tuple[type[partial.WithinIntervals], dict[str, Any]]:
        n_bins = _checked_grid(self, least=2) + 1
        reach = notions.checked_number(self, "reach", self.reach)
        bins = ScoreBins(n_bins, notions.checked_temperature(self), reach)
        return partial.PartialRates, {
            "statistic": bins,
            "leak": notions.checked_number(self, "leak", self.leak),
        }


@dataclass(eq=False, repr=False)
class PartialGroupAUC(PartialNotion):
    """Group AUCs close to 1/2 inside an interval of percentiles (Definition A.1).

    Training compares scores in bins of width 1/4 in log odds. Parameters are as in
    :class:`PartialStatisticalParity`, without `n_grid`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialGroupAUC
    >>> PartialGroupAUC((0.1, 0.4), slack=0.1)
    PartialGroupAUC(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_group_auc"

    surrogate: str = field(default="logistic", kw_only=True)

    def _constraint(self) -> tuple[type[partial.WithinIntervals], dict[str, Any]]:
        return partial.PartialGroupAUCs, {"statistic": self._steps(_EDGES)}


def _checked_grid(notion: Any, least: int) -> int:
    """Return the number of thresholds, or raise ValueError."""
    n, name = notion.n_grid, f"{type(notion).__name__}.n_grid"
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < least:
        raise ValueError(f"{name} must be an integer >= {least}; got {n!r}.")
    return int(n)


# By the names that estimators accept.
PARTIAL: Mapping[str, type[PartialNotion]] = {
    "statistical_parity": PartialStatisticalParity,
    "rank_parity": PartialRankParity,
    "demographic_parity": PartialDemographicParity,
    "equal_opportunity": PartialEqualOpportunity,
    "equalized_odds": PartialEqualizedOdds,
    "group_auc": PartialGroupAUC,
}
# Criteria that read the data only through a table of counts with bounded rows.
PARTIAL_PRIVATE: Mapping[str, type[PartialNotion]] = {
    "statistical_parity": PartialStatisticalParityInBins,
    "demographic_parity": PartialDemographicParity,
    "equal_opportunity": PartialEqualOpportunity,
    "equalized_odds": PartialEqualizedOdds,
}

r"""Partial parity as users ask for it: fairness inside an interval of percentiles.

Sources: the partial-parity paper, Definitions 4.2, 4.3 and A.1 to A.3; Remark 5.3 for intervals by
group and unions of them. Two classes, any number of groups by the worst pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairconstrained.constraints.moments import BoundConstraint, Space
from fairconstrained.constraints.notions import Notion, checked_slack
from fairconstrained.constraints.partial_pairs import (
    PartialDistributionsInBins,
    PartialGroupAUCs,
    PartialRates,
)
from fairconstrained.constraints.partial_parity import PartialDistributions, PartialRanks
from fairconstrained.constraints.steps import STEPS, Above
from fairconstrained.constraints.surrogates import ScoreBins
from fairconstrained.constraints.within_intervals import WithinIntervals
from fairconstrained.percentiles import read_intervals

__all__ = [
    "PARTIAL",
    "PARTIAL_PRIVATE",
    "PartialDemographicParity",
    "PartialEqualOpportunity",
    "PartialEqualizedOdds",
    "PartialGroupAUC",
    "PartialNotion",
    "PartialRankParity",
    "PartialStatisticalParity",
    "PartialStatisticalParityInBins",
]

_LEAK = 0.05
_BINS = torch.linspace(-6.0, 6.0, 49, dtype=torch.float64)  # of log odds


class PartialNotion(Notion):
    """Base of the partial notions: an interval, and what stands in for "above a threshold"."""

    name = "partial"
    _constraint: Callable[..., WithinIntervals]  # what it becomes on given labels and groups

    def __init__(self, interval: Any, slack: float | None = None, *, surrogate: str = "logistic"):
        self.interval = interval
        self.slack = slack
        self.surrogate = surrogate

    def bind(self, space: Space, slack: float, temperature: float) -> BoundConstraint:
        """Give the constraint on these labels and groups."""
        if len(space.classes) != 2:
            raise ValueError(f"{type(self).__name__} needs two classes; got {len(space.classes)}.")
        slack = checked_slack(self, "slack", slack if self.slack is None else self.slack)
        statistic = self._statistic(float(temperature))
        part = self._sets(len(space.groups))
        group_of_part = [np.argwhere(part == q)[0, 1] for q in range(part.max() + 1)]
        intervals = read_intervals(self.interval, list(space.groups)).take(group_of_part)
        return self._constraint(space, part, intervals, slack, statistic, self.name, *self._more())

    def _statistic(self, temperature: float) -> Any:
        """What the table sums over rows: steps at the thresholds."""
        step = self._chosen("surrogate", STEPS)
        return Above(torch.as_tensor(self._thresholds()), step, temperature)

    def _thresholds(self) -> Any:
        """Where the steps are."""
        raise NotImplementedError

    def _sets(self, n_groups: int) -> NDArray[np.int64]:
        """The set of the rows of each label and group, (2, n_groups): here the groups."""
        return np.tile(np.arange(n_groups), (2, 1))

    def _more(self) -> tuple[float, ...]:
        """What the constraint takes beyond what all do."""
        return ()


class PartialStatisticalParity(PartialNotion):
    r"""Equal distributions of scores inside an interval of percentiles (Definition 4.2).

    Parameters
    ----------
    interval : pair of float, list of pairs, or dict
        Ranks ``(alpha, beta)`` out of [0, 1], counted from the top of each group's scores; several
        that do not overlap; or one of these for every group.
    slack : float, optional
        Largest allowed gap of the conditional distributions; default: the estimator's ``slack``.
    n_grid : int, default=10
        Thresholds at which the distributions are compared in training. The true gap, which solvers
        follow, is that at all thresholds.
    surrogate : {"logistic", "ramp"}, default="logistic"
        What stands in for "score above threshold".

    Examples
    --------
    >>> from fairconstrained.constraints import PartialStatisticalParity
    >>> PartialStatisticalParity((0.05, 0.3), slack=0.1)
    PartialStatisticalParity(interval=(0.05, 0.3), slack=0.1)
    """

    name = "partial_statistical_parity"
    _constraint = PartialDistributions

    def __init__(
        self,
        interval: Any,
        slack: float | None = None,
        *,
        n_grid: int = 10,
        surrogate: str = "logistic",
    ):
        super().__init__(interval, slack, surrogate=surrogate)
        self.n_grid = n_grid

    def _thresholds(self) -> Any:
        return np.zeros(_checked_grid(self, least=1))  # variables, see PartialDistributions.at


class PartialRankParity(PartialStatisticalParity):
    r"""Equal ranks of all thresholds in the interval: :func:`fairconstrained.metrics.ccdf_gap`.

    What the tables of the paper report. Where Definition 4.2 divides by the length of the interval,
    this compares shares of whole groups: a slack of 0.1 lets the share of one group's rows above a
    threshold exceed another's by 0.1. Parameters are those of :class:`PartialStatisticalParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialRankParity
    >>> PartialRankParity((0.05, 0.3), slack=0.1)
    PartialRankParity(interval=(0.05, 0.3), slack=0.1)
    """

    name = "partial_rank_parity"
    _constraint = PartialRanks


class PartialDemographicParity(PartialNotion):
    r"""Equal rates of positive decisions inside an interval of percentiles (Definition 4.3).

    Parameters
    ----------
    interval, slack, surrogate
        As in :class:`PartialStatisticalParity`.
    threshold : float, default=0.0
        Scores above it are positive decisions.
    leak : float, default=0.05
        Slope of the soft rates outside of the interval, which keeps gradients alive there; the
        paper's model has 0.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialDemographicParity
    >>> PartialDemographicParity((0.1, 0.4), slack=0.1)
    PartialDemographicParity(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_demographic_parity"
    _constraint = PartialRates

    def __init__(
        self,
        interval: Any,
        slack: float | None = None,
        *,
        threshold: float = 0.0,
        surrogate: str = "logistic",
        leak: float = _LEAK,
    ):
        super().__init__(interval, slack, surrogate=surrogate)
        self.threshold = threshold
        self.leak = leak

    def _thresholds(self) -> Any:
        return np.array([checked_slack(self, "threshold", self.threshold, minimum=-np.inf)])

    def _more(self) -> tuple[float, ...]:
        return (checked_slack(self, "leak", self.leak),)


class PartialEqualOpportunity(PartialDemographicParity):
    """Partial demographic parity among the rows of the positive label (Definition A.2).

    Ranks are those among these rows, as in the paper's problem (50). Parameters are those of
    :class:`PartialDemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialEqualOpportunity
    >>> PartialEqualOpportunity((0.1, 0.4), slack=0.1)
    PartialEqualOpportunity(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_equal_opportunity"

    def _sets(self, n_groups: int) -> NDArray[np.int64]:
        return np.stack((np.full(n_groups, -1), np.arange(n_groups)))


class PartialEqualizedOdds(PartialDemographicParity):
    """Partial demographic parity within each label (Definition A.3).

    Ranks are those among the rows of a label, as in the paper's problem (56). Parameters are those
    of :class:`PartialDemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialEqualizedOdds
    >>> PartialEqualizedOdds((0.1, 0.4), slack=0.1)
    PartialEqualizedOdds(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_equalized_odds"

    def _sets(self, n_groups: int) -> NDArray[np.int64]:
        return np.arange(2 * n_groups).reshape(2, n_groups)


class PartialStatisticalParityInBins(PartialNotion):
    r"""Partial statistical parity at fixed thresholds: a table of counts is all it reads.

    For private training, where thresholds that follow the data would have to be released. Gaps
    between the thresholds are not seen.

    Parameters
    ----------
    interval, slack
        As in :class:`PartialStatisticalParity`.
    n_grid : int, default=10
        Thresholds, equally spaced.
    reach : float, default=3.0
        They lie between -reach and reach, in log odds.
    leak : float, default=0.05
        As in :class:`PartialDemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialStatisticalParityInBins
    >>> PartialStatisticalParityInBins((0.0, 0.5), n_grid=20)
    PartialStatisticalParityInBins(interval=(0.0, 0.5), n_grid=20)
    """

    name = "partial_statistical_parity"
    _constraint = PartialDistributionsInBins

    def __init__(
        self,
        interval: Any,
        slack: float | None = None,
        *,
        n_grid: int = 10,
        reach: float = 3.0,
        leak: float = _LEAK,
    ):
        super().__init__(interval, slack)
        self.n_grid = n_grid
        self.reach = reach
        self.leak = leak

    def _statistic(self, temperature: float) -> Any:
        n = _checked_grid(self, least=2)
        return ScoreBins(n + 1, temperature, checked_slack(self, "reach", self.reach))

    def _more(self) -> tuple[float, ...]:
        return (checked_slack(self, "leak", self.leak),)


class PartialGroupAUC(PartialNotion):
    """No group's scores above another's inside an interval of percentiles (Definition A.1).

    In training, scores are compared by bins of a quarter in log odds. Parameters are those of
    :class:`PartialStatisticalParity` without the grid.

    Examples
    --------
    >>> from fairconstrained.constraints import PartialGroupAUC
    >>> PartialGroupAUC((0.1, 0.4), slack=0.1)
    PartialGroupAUC(interval=(0.1, 0.4), slack=0.1)
    """

    name = "partial_group_auc"
    _constraint = PartialGroupAUCs

    def _thresholds(self) -> Any:
        return _BINS


def _checked_grid(notion: Any, least: int) -> int:
    """Give the number of thresholds, or raise ValueError."""
    n = notion.n_grid
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < least:
        raise ValueError(
            f"{type(notion).__name__}.n_grid must be an integer >= {least}; got {n!r}."
        )
    return int(n)


# By the names that estimators accept: without the "partial".
PARTIAL: dict[str, type[PartialNotion]] = {
    notion.name.removeprefix("partial_"): notion
    for notion in (
        PartialStatisticalParity,
        PartialRankParity,
        PartialDemographicParity,
        PartialEqualOpportunity,
        PartialEqualizedOdds,
        PartialGroupAUC,
    )
}
# What reads the data through a bounded table of counts alone.
PARTIAL_PRIVATE: dict[str, type[PartialNotion]] = {
    notion.name.removeprefix("partial_"): notion
    for notion in (
        PartialStatisticalParityInBins,
        PartialDemographicParity,
        PartialEqualOpportunity,
        PartialEqualizedOdds,
    )
}

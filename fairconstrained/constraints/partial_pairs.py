r"""Partial parity of rates and of AUCs: every two sets of rows are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairconstrained.constraints.space import Space
from fairconstrained.constraints.within_intervals import WithinIntervals, convex_rates
from fairconstrained.percentiles import Intervals, auc_inside, share

__all__ = ["PartialDistributionsInBins", "PartialGroupAUCs", "PartialRates"]


class _Pairs(WithinIntervals):
    """Base: one value for each ordered pair of sets of the same label."""

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Any,
        name: str,
    ):
        super().__init__(space, part_of_cell, intervals, slack, statistic, name)
        # A set that spans both labels is found under the first.
        label = np.array([np.argwhere(part_of_cell == q)[0, 0] for q in range(self.n_parts)])
        same = (label[:, None] == label) & ~np.eye(self.n_parts, dtype=bool)
        self.first, self.second = (torch.as_tensor(index) for index in np.nonzero(same))
        self.slack = torch.full((len(self.first),), self.gap, dtype=torch.float64)

    def describe(self, j: int) -> str:
        """Words for value j."""
        sides = (self._describe_part(side[j]) for side in (self.first, self.second))
        return f"{self.name}: " + " against ".join(sides)


class _Shares(_Pairs):
    r"""Base: differences of shares of the rows inside, by rates above thresholds.

    .. math:: \tilde G(r) = G(r) + \mathrm{leak} \, (r / L - G(r))

    Hard values are those of G. Where both rates are outside of their intervals, G is flat and a
    violated constraint says nothing of how to mend it; the leak keeps a direction, and solvers that
    follow the hard values undo its bias.
    """

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Any,
        name: str,
        leak: float,
    ):
        super().__init__(space, part_of_cell, intervals, slack, statistic, name)
        self.leak = leak

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        return self._differences(self._above(sums) / counts[:, None], self.leak)

    def hard_of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values of G, without the leak."""
        return self._differences(self._above(sums) / counts[:, None], 0.0)

    def _above(self, sums: Tensor) -> Tensor:
        """Weight of each set above each threshold, (n_sets, n_thresholds), from the table."""
        return sums

    def _differences(self, rates: Tensor, leak: float) -> Tensor:
        """Values from rates above the thresholds, (n_sets, n_thresholds)."""
        inside: Tensor = share(rates, self.lower.to(rates), self.upper.to(rates))
        shares = inside + leak * (rates / self.lengths.to(rates)[:, None] - inside)
        first, second = self.first.to(shares.device), self.second.to(shares.device)
        return (shares[first] - shares[second]).reshape(-1) - self.slack.to(shares)

    def _more(self) -> tuple[float, ...]:
        return (self.leak,)


class PartialRates(_Shares):
    r"""Equal rates of positive decisions inside the intervals (problems 21, 50 and 56).

    For every ordered pair of sets of the same label, at the decision threshold,

    .. math:: \tilde G_q(r_q) - \tilde G_{q'}(r_{q'}) - \mathrm{slack} .

    Parameters
    ----------
    space, part_of_cell, intervals, slack, statistic, name
        As in the base class; one column of the statistic, for the decision threshold.
    leak : float
        Slope of soft shares outside of the intervals, relative to that inside. Paper: 0.
    """

    difference_of_convex = True

    def convex_parts(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        r"""By min(S+ - S-, a) = S+ + a - max(S- + a, S+), with the means S of convex steps.

        (Appendix D.3, where a factor 1 / n is missing.)
        """
        plus, minus = convex_rates(self, scores, y, group, weight)
        scale = 1.0 / self.lengths.to(plus)[:, None]
        ends = (self.upper.to(plus), self.lower.to(plus))
        highest = [torch.maximum(minus + end, plus).sum(1, keepdim=True) for end in ends]
        leak = self.leak * scale
        # min(r, upper) - min(r, lower) = upper - lower + (max at lower) - (max at upper)
        rising = (1.0 - self.leak) * (scale * highest[1] + 1.0) + leak * plus
        falling = (1.0 - self.leak) * scale * highest[0] + leak * minus
        first, second = self.first.to(plus.device), self.second.to(plus.device)
        return torch.stack(
            (
                (rising[first] + falling[second])[:, 0] - self.slack.to(plus),
                (falling[first] + rising[second])[:, 0],
            )
        )


class PartialDistributionsInBins(_Shares):
    r"""Equal distributions inside the intervals at fixed thresholds: the edges of bins of scores.

    For every ordered pair of sets and every edge t,

    .. math:: \tilde G_q(r_q(t)) - \tilde G_{q'}(r_{q'}(t)) - \mathrm{slack},

    with the leak of the base class. A row falls into one bin, so that it adds 1 to the table
    however many edges there are, as private training asks for; between edges nothing is compared.

    Parameters are those of the base class, with bins in the statistic, and `leak`.
    """

    def __init__(
        self,
        space: Space,
        part_of_cell: NDArray[np.int64],
        intervals: Intervals,
        slack: float,
        statistic: Any,
        name: str,
        leak: float,
    ):
        super().__init__(space, part_of_cell, intervals, slack, statistic, name, leak)
        self._n_edges = statistic.n_columns - 1
        self.slack = self.slack.repeat_interleave(self._n_edges)

    def describe(self, j: int) -> str:
        """Words for value j."""
        pair, edge = divmod(j, self._n_edges)
        return f"{super().describe(pair)} at edge {1 + edge} of {self._n_edges}"

    def _above(self, sums: Tensor) -> Tensor:
        # The bins to the right of an edge.
        return sums.flip(1).cumsum(1).flip(1)[:, 1:]


class PartialGroupAUCs(_Pairs):
    r"""AUCs between the groups' scores inside the intervals, at most `slack` from 1/2.

    Scores are binned by fixed thresholds: with the shares of G in each bin,
    :math:`m_b = G(r(t_b)) - G(r(t_{b+1}))`, rows of the same bin count as tied. Against the AUC
    without bins the error is at most :math:`\frac12 \sum_b m_{gb} m_{hb}` for steps that are
    indicators. Hard values are exact.

    Parameters are those of the base class, with ascending thresholds in the statistic.
    """

    offsets_matter = False

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = sums / counts[:, None]
        everybody, nobody = torch.ones_like(rates[:, :1]), torch.zeros_like(rates[:, :1])
        bins = torch.cat((everybody, rates, nobody), dim=1)
        aucs = auc_inside(share(bins, self.lower.to(sums), self.upper.to(sums)))
        return self._of_aucs(aucs)

    def hard_values(
        self, scores: Tensor, y: Tensor, group: Tensor, weight: Tensor, aux: Tensor
    ) -> Tensor:
        """Exact AUCs from sorted scores."""
        shares = self.intervals.share(self._ranks(scores, y, group, weight).rank)
        return self._of_aucs(torch.as_tensor(auc_inside(shares)).to(scores))

    def _of_aucs(self, aucs: Tensor) -> Tensor:
        pairs = aucs[self.first.to(aucs.device), self.second.to(aucs.device)]
        return pairs - 0.5 - self.slack.to(aucs)

r"""Partial parity of rates and of AUCs, which compares all pairs of parts of the same label."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from fairconstrained.constraints.moments import Rows
from fairconstrained.constraints.steps import Above
from fairconstrained.constraints.within_intervals import IntervalParts, WithinIntervals
from fairconstrained.percentiles import auc_inside, fraction_inside


class PartialRates(WithinIntervals):
    r"""Equal rates above thresholds inside the intervals (problems 21, 50 and 56).

    For every ordered pair of parts of the same label, and every threshold t,

    .. math::

        \tilde G_q(r_q(t)) - \tilde G_{q'}(r_{q'}(t)) - \mathrm{slack}, \qquad
        \tilde G(r) = G(r) + \mathrm{leak} \, (r / L - G(r)) .

    Hard values are those of G. Where both rates are outside their intervals, G is flat and a
    violated constraint has no gradient. The leak gives it one. Solvers that follow the hard values
    correct its bias.

    Parameters
    ----------
    parts, gap, statistic, name
        As in the base class. With :class:`Above` a row adds to one column for each threshold. With
        :class:`ScoreBins` it adds 1 in all to the table for any number of thresholds, as private
        training needs.
    leak : float
        Slope of the soft values outside the intervals, relative to that inside. Paper: 0.
    """

    def __init__(self, parts: IntervalParts, gap: float, statistic: Any, name: str, leak: float):
        super().__init__(parts, gap, statistic, name)
        self.leak = leak
        self.first, self.second = map(torch.as_tensor, parts.pairs_within_labels())
        self._n_thresholds = statistic.above(torch.zeros(1, statistic.n_columns)).shape[1]
        n_values = len(self.first) * self._n_thresholds
        self.slack = torch.full((n_values,), self.gap, dtype=torch.float64)

    @property
    def difference_of_convex(self) -> bool:
        """Whether the steps are differences of convex functions."""
        return isinstance(self.statistic, Above)

    def on(self, parts: IntervalParts) -> Self:
        """The same constraint on other parts."""
        return type(self)(parts, self.gap, self.statistic, self.name, self.leak)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        return self._differences(sums, counts, self.leak)

    def hard_of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values of G, without the leak."""
        return self._differences(sums, counts, 0.0)

    def _differences(self, sums: Tensor, counts: Tensor, leak: float) -> Tensor:
        rates: Tensor = self.statistic.above(sums) / counts[:, None]
        inside: Tensor = fraction_inside(rates, self.lower.to(rates), self.upper.to(rates))
        leaky = inside + leak * (rates / self.lengths.to(rates)[:, None] - inside)
        first, second = self.first.to(rates.device), self.second.to(rates.device)
        return (leaky[first] - leaky[second]).reshape(-1) - self.slack.to(rates)

    def convex_parts(self, scores: Tensor, rows: Rows, aux: Tensor) -> Tensor:
        r"""Convex parts by min(S+ - S-, a) = S+ + a - max(S- + a, S+) for means S of convex steps.

        See Appendix D.3 of the paper, where a factor 1 / n is missing.
        """
        plus, minus = self.convex_rates(scores, rows, aux)
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

    def describe(self, j: int) -> str:
        """Words for value j."""
        pair, threshold = divmod(j, self._n_thresholds)
        first, second = (self.parts.describe(side[pair]) for side in (self.first, self.second))
        words = f"{self.name}: {first} against {second}"
        if self._n_thresholds > 1:
            words += f" at threshold {1 + threshold} of {self._n_thresholds}"
        return words


class PartialGroupAUCs(WithinIntervals):
    r"""AUCs between the scores of two parts inside the intervals, at most `gap` from 1/2.

    Fixed thresholds divide scores into bins, and rows of the same bin count as tied. Bin b holds
    the fraction :math:`m_b = G(r(t_b)) - G(r(t_{b+1}))` of a part. For steps that are indicators,
    the error of the AUC is at most :math:`\frac12 \sum_b m_{gb} m_{hb}`. Hard values are exact.

    Parameters are as in the base class, with ascending thresholds in the statistic.
    """

    def __init__(self, parts: IntervalParts, gap: float, statistic: Any, name: str):
        super().__init__(parts, gap, statistic, name)
        self.first, self.second = map(torch.as_tensor, parts.pairs_within_labels())
        self.slack = torch.full((len(self.first),), self.gap, dtype=torch.float64)

    def of_moments(self, sums: Tensor, counts: Tensor, aux: Tensor) -> Tensor:
        """Values from the table, (m,)."""
        rates = sums / counts[:, None]
        ones, zeros = torch.ones_like(rates[:, :1]), torch.zeros_like(rates[:, :1])
        edges = torch.cat((ones, rates, zeros), dim=1)
        return self._of_aucs(
            auc_inside(fraction_inside(edges, self.lower.to(sums), self.upper.to(sums)))
        )

    def hard_values(self, scores: Tensor, rows: Rows, aux: Tensor) -> Tensor:
        """Exact AUCs from sorted scores."""
        inside = self.intervals.fraction(self.ranks(scores, rows).rank)
        return self._of_aucs(torch.as_tensor(auc_inside(inside)).to(scores))

    def describe(self, j: int) -> str:
        """Words for value j."""
        first, second = (self.parts.describe(side[j]) for side in (self.first, self.second))
        return f"{self.name}: {first} against {second}"

    def _of_aucs(self, aucs: Tensor) -> Tensor:
        pairs = aucs[self.first.to(aucs.device), self.second.to(aucs.device)]
        return pairs - 0.5 - self.slack.to(aucs)

r"""Smooth or piecewise linear step functions that replace "score above threshold".

Each step is a difference of two convex functions, :math:`\sigma = \sigma^+ - \sigma^-`. If scores
are linear in the parameters, every mean of steps is therefore a difference of convex functions of
parameters and thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairconstrained.constraints.tables import Fractions, Linear, Statistic


@dataclass(frozen=True)
class Step:
    """A step from 0 to 1 around 0, with its slope and its convex part, all elementwise."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]  # from the step's value
    convex: Callable[[Tensor], Tensor]


STEPS: dict[str, Step] = {
    # Paper (Example D.4): sigma + rho |w|^2 / 2; here: no rho and less curvature, by a tangent.
    "logistic": Step(
        torch.sigmoid,
        lambda value: value * (1.0 - value),
        lambda x: torch.where(x < 0, torch.sigmoid(x), 0.5 + 0.25 * x),
    ),
    # Paper: Example D.3.
    "ramp": Step(
        lambda x: (x + 0.5).clamp(0.0, 1.0),
        lambda value: ((value > 0.0) & (value < 1.0)).to(value.dtype),
        lambda x: (x + 0.5).clamp_min(0.0),
    ),
}


@dataclass(frozen=True, eq=False)
class Above(Statistic):
    """Whether the score is above each of several thresholds, one column for each."""

    thresholds: Tensor  # (n_columns,), fixed or variables of the problem
    step: Step  # in place of the indicator, of temperature times (score - threshold)
    temperature: float

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        """Number of thresholds."""
        return len(self.thresholds)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return a width of 1 for each column."""
        return (1,) * self.n_columns

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return self.step.value(self._distance(scores))

    def slopes(self, soft: Tensor) -> Tensor:
        """Return the derivative of each column by the score: minus the one by the threshold."""
        return self.temperature * self.step.slope(soft)

    def linearize(self, scores: Tensor, y: Tensor) -> Linear:
        """Return `soft` and its pullback to the scores, in closed form."""
        soft = self.soft(scores, y)

        def pullback(weights: Tensor) -> Tensor:
            gradient = torch.zeros_like(scores)
            gradient[:, 0] = torch.linalg.vecdot(weights, self.slopes(soft))
            return gradient

        return soft, pullback

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        return (self._distance(scores) > 0).to(scores.dtype)

    def predicted(self, table: Tensor, counts: Tensor) -> Tensor:
        """Return counts below and above the threshold, if there is one: it decides predictions."""
        if len(self.thresholds) != 1:
            return super().predicted(table, counts)
        return torch.cat((counts[:, None] - table, table), dim=1)

    def convex(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return two convex functions of scores and thresholds whose difference is `soft`."""
        distance = self._distance(scores)
        plus = self.step.convex(distance)
        return plus, plus - self.step.value(distance)

    def above(self, sums: Tensor) -> Tensor:
        """Return sums over the rows above each threshold, (n_parts, n_columns)."""
        return sums

    def sharpened(self) -> Above:
        return replace(self, temperature=2.0 * self.temperature)

    def _distance(self, scores: Tensor) -> Tensor:
        return self.temperature * (scores[:, :1] - self.thresholds.to(scores))


@dataclass(frozen=True)
class ScoreBins(Fractions):
    """Weights of a row in the bins between `n_columns` - 1 thresholds on [-reach, reach]."""

    n_columns: int
    temperature: float
    reach: float = 8.0  # beyond which few scores of a logistic model lie: they are log odds

    def soft(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._weights(torch.sigmoid(self.temperature * (scores - self._thresholds(scores))))

    def hard(self, scores: Tensor, y: Tensor) -> Tensor:
        return self._weights((scores > self._thresholds(scores)).to(scores.dtype))

    def predicted(self, table: Tensor, counts: Tensor) -> Tensor:
        """Return counts by predicted label, threshold 0, without a bin that straddles it."""
        below = int((self._thresholds(table) <= 0).sum())
        above = int((self._thresholds(table) < 0).sum()) + 1
        return torch.stack((table[:, :below].sum(dim=1), table[:, above:].sum(dim=1)), dim=1)

    def sharpened(self) -> ScoreBins:
        return replace(self, temperature=2.0 * self.temperature)

    def above(self, sums: Tensor) -> Tensor:
        """Return sums over the bins above each threshold, (n_parts, n_columns - 1)."""
        return sums.flip(1).cumsum(1).flip(1)[:, 1:]

    def _thresholds(self, scores: Tensor) -> Tensor:
        return torch.linspace(
            -self.reach, self.reach, self.n_columns - 1, dtype=scores.dtype, device=scores.device
        )

    def _weights(self, above: Tensor) -> Tensor:
        ends = above.new_ones(len(above), 1), above.new_zeros(len(above), 1)
        return torch.cat((ends[0], above), dim=1) - torch.cat((above, ends[1]), dim=1)

"""Ratios of rates: the four-fifths rule, and others with another fraction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, as_tensor

from fairconstrained.constraints.linear import LinearMoments
from fairconstrained.numerics import ROUNDING


class RateRatios(LinearMoments):
    r"""Ratios of rates of at least c, as linear combinations of the rates.

    For both orders of each pair of rates that is compared,

    .. math:: g_{ab} = c\, \rho_a - \rho_b + 10^{-9} \le 0 .

    :meth:`measure` is one minus the smallest ratio. Rates that are zero in both
    sets have no ratio, and are left out by name (:meth:`undefined`). The combinations are those of
    :func:`in_both_orders`.
    """

    @cached_property
    def _pairs(self) -> tuple[float, NDArray[np.int64]]:
        """Return the fraction c, and for each value the index of its pair in the other order."""
        rate, factor = self.combinations.rate.numpy(), self.combinations.factor.numpy()
        first, second = ((rate * side).sum(axis=0) for side in (factor > 0, factor < 0))
        key, reverse = (
            np.ravel_multi_index(ab, (rate.max() + 1,) * 2)
            for ab in ((first, second), (second, first))
        )
        return float(factor.max()), key.argsort()[reverse.argsort().argsort()]

    def measure(self, values: Tensor) -> float:
        if not len(values):
            return float("nan")
        a, b = self._both(values)
        defined = a > ROUNDING
        return float((1.0 - b[defined] / a[defined]).max()) if defined.any() else float("nan")

    def undefined(self, values: Tensor) -> dict[int, str]:
        a, b = self._both(values)
        places = torch.nonzero(torch.maximum(a, b) <= ROUNDING)[:, 0].tolist()
        events = {j: self._event(j) for j in places}
        rates: dict[str, set[str]] = {}
        for j, event in events.items():
            names = map(self._rate_names.__getitem__, self.combinations.rate[:, j].tolist())
            rates.setdefault(event, set()).update(names)
        return {j: _no_ratio(event, sorted(rates[event])) for j, event in events.items()}

    def _both(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two rates of each comparison, (m,) each."""
        c, partner = self._pairs
        first = values + self.slack.to(values)
        second = first[as_tensor(partner, device=values.device)]
        # The two equations are solved for the rates.
        return (c * first + second) / (c**2 - 1.0), (c * second + first) / (c**2 - 1.0)

    def _event(self, j: int) -> str:
        """Name the predicted label whose rates are compared; "" for several."""
        rates = self.cell_numerators[self.combinations.rate[:, j].tolist()]
        columns = np.unique(rates.indices % self.statistic.n_columns)
        return f"prediction {self.space.classes[columns[0]]}" if len(columns) == 1 else ""

    def narrowed(self, by: Tensor) -> Self:
        """Subtract `by` (m,) from the slacks, as far as equal rates of 1 still satisfy them."""
        least = (self._pairs[0] - 1.0) / 2.0
        return self._with(slack=(self.slack - by.to(self.slack)).clamp_min(least))

    @property
    def gaps(self) -> Tensor:
        """Return 1 - c for each value, (m,): the gap of a rate of c from one of 1."""
        return torch.full_like(self.slack, 1.0 - self._pairs[0]) if len(self.slack) else self.slack

    def describe(self, j: int) -> str:
        rate, factor = self.combinations.rate[:, j], self.combinations.factor[:, j]
        words = [self._rate_names[int(rate[side])] for side in (factor.argmax(), factor.argmin())]
        return f"{self.title}: {float(factor.max()):g} times {words[0]} against {words[1]}"


def _no_ratio(event: str, rates: Sequence[str]) -> str:
    """Say that an event happens in none of several sets of rows."""
    return f"{event}{' in ' * bool(event)}{'; '.join(rates)} (rates of zero have no ratio)"


def in_both_orders(differences: Any, ratio: float) -> Any:
    """Turn differences a less b, in both orders, into combinations `ratio` times a less b."""
    return ratio * differences.maximum(0.0) + differences.minimum(0.0)

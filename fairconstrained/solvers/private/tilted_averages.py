"""Averages of noisy iterates, some of which lean towards those that keep the constraints."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_TILTS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
MOST_RELEASES = 6  # the plain average, and five to bisect


class TiltedAverages:
    r"""Averages of the second half of a run, with weights that fall with what iterates violate.

    Iterates of a descent-ascent swing around the point where the constraints hold: on average over
    iterates they do, and the average of the iterates, which is more accurate than any of them, may
    violate them. With networks the difference is large (a slack of 0.05 ended at 0.17). Among

    .. math::

        \bar x_\tau = \frac{\sum_t w_t x_t}{\sum_t w_t}, \qquad w_t = e^{-\tau z_t},

    with the standardised values :math:`z_t` of the constraints that have multipliers, one with a
    small :math:`\tau` is looked for that keeps them. All of that reads released numbers only.

    Parameters
    ----------
    n_steps : int
        Length of the run.

    Attributes
    ----------
    points : Tensor of shape (8, n_variables)
        The averages, by rising tilt; the first has none.
    """

    def __init__(self, n_steps: int):
        self._start = n_steps // 2
        self._early: list[float] = []  # of the first half: what is usual
        self.points = torch.empty(0)

    def see(self, x: Tensor, violated: float) -> None:
        """The iterate of a step, and what it violates by its noisy table."""
        if len(self._early) < self._start:
            self._early.append(violated)
            return
        if not len(self.points):
            usual = x.new_tensor(self._early or [violated])
            self._mean, self._deviation = usual.mean(), usual.std(correction=0).clamp_min(1e-12)
            self._tilts = x.new_tensor(_TILTS)
            self._totals = torch.zeros_like(self._tilts)
            self.points = x.new_zeros((len(_TILTS), len(x)))
        standard = ((violated - self._mean) / self._deviation).clamp(-10.0, 10.0)
        weights = torch.exp(-self._tilts * standard)
        self._totals += weights
        self.points += (weights / self._totals)[:, None] * (x - self.points)

    def choose(self, release: Callable[[Tensor], Tensor], noise: Tensor) -> tuple[Tensor, Tensor]:
        """The least tilted average that violates nothing by over two standard deviations of noise.

        Bisection on what the plain average violates: too much tilt violates the opposite.

        Parameters
        ----------
        release : callable
            Noisy constraint values of a point; called at most ``MOST_RELEASES`` times.
        noise : Tensor of shape (m,)
            Standard deviations of these values.

        Returns
        -------
        x, values : Tensor
            The point, and what was released of it; where none keeps the constraints, the one that
            violates them least.
        """
        tried: list[tuple[float, float, Tensor, Tensor]] = []

        def excess(position: float) -> Tensor:
            x = self._between(position)
            values = release(x)
            over = (values - 2.0 * noise).clamp_min(0.0)
            tried.append((max(over.tolist(), default=0.0), position, x, values))
            return over

        low, high = 0.0, len(_TILTS) - 1.0
        violated = excess(low) > 0
        if violated.any():
            for _ in range(MOST_RELEASES - 1):
                middle = 0.5 * (low + high)
                if excess(middle)[violated].any():
                    low = middle
                else:
                    high = middle
        _, _, x, values = min(tried, key=lambda trial: trial[:2])
        return x, values

    def _between(self, position: float) -> Tensor:
        """An average of two neighbouring averages."""
        k = min(int(position), len(_TILTS) - 2)
        return torch.lerp(self.points[k], self.points[k + 1], position - k)

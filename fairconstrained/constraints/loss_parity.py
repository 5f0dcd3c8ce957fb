r"""Loss parity: the mean losses of groups are close (paper 5).

.. math:: | E[\ell(f(x), y) \mid g] - E[\ell(f(x), y) \mid g'] | \le \mathrm{slack},

overall, within the positive label, or within every label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from fairconstrained.constraints.notions import Event, Floats, Parity, chosen
from fairconstrained.constraints.statistics import Losses, Statistic
from fairconstrained.losses import LOSSES

__all__ = ["LOSS_PARITIES", "LossParity"]

_CONDITIONS: dict[str, Callable[[int], Floats]] = {
    "all": lambda n_classes: np.ones((1, n_classes)),
    "positive": lambda n_classes: np.eye(n_classes)[1:],
    "labels": lambda n_classes: np.eye(n_classes),
}
_NAMES = {"all": "loss_parity", "positive": "equal_opportunity", "labels": "equalized_odds"}


class LossParity(Parity):
    """The mean losses of groups differ by at most `slack`, in units of the loss.

    Parameters
    ----------
    slack : float, optional
        Largest allowed gap; default: the estimator's ``slack``.
    within : {"all", "positive", "labels"}, default="all"
        Compare over all samples, over those of the positive label (with more than two labels, of
        every label but the first), or within each label.
    loss : {"log", "brier"}, default="log"
        The loss that is compared.
    reference : {"pairwise", "rest", "overall"}, default="pairwise"
        As in :class:`fairconstrained.constraints.DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import LossParity
    >>> LossParity(slack=0.005)
    LossParity(slack=0.005)
    """

    def __init__(
        self,
        slack: float | None = None,
        *,
        within: str = "all",
        loss: str = "log",
        reference: str = "pairwise",
    ):
        self.slack = slack
        self.reference = reference
        self.within = within
        self.loss = loss

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name in the paper for this value of `within`."""
        return _NAMES.get(self.within, "loss_parity")

    def events(self, n_classes: int) -> list[Event]:
        """The loss within each condition."""
        conditions: Floats = chosen(self, "within", _CONDITIONS)(n_classes)
        return [Event(labels, labels[:, None]) for labels in conditions]

    def statistic(self, n_classes: int) -> Statistic:
        """The loss of a row, which needs no temperature."""
        return Losses(chosen(self, "loss", LOSSES))


# Paper: equalized odds bounds the sum of the gaps of all labels; here each gap, because the slack
# of every notion in this package is in units of a gap.
LOSS_PARITIES: Mapping[str, Callable[..., LossParity]] = {
    name: partial(LossParity, within=within) for within, name in _NAMES.items()
}

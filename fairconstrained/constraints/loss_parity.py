r"""Loss parity: groups pay the same average loss (paper 5).

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
    """Groups' mean losses differ by at most `slack`, in the units of the loss.

    Parameters
    ----------
    slack : float, optional
        Largest allowed gap; default: the estimator's ``slack``.
    within : {"all", "positive", "labels"}, default="all"
        Compare over all rows, over the rows of the positive label (of every label but the first,
        if there are more than two), or within each label.
    loss : {"log", "brier"}, default="log"
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
        """The paper's name for where losses are compared."""
        return _NAMES.get(self.within, "loss_parity")

    def events(self, n_classes: int) -> list[Event]:
        """The loss within each condition."""
        conditions: Floats = chosen(self, "within", _CONDITIONS)(n_classes)
        return [Event(labels, labels[:, None]) for labels in conditions]

    def statistic(self, n_classes: int) -> Statistic:
        """The loss of a row, which is differentiable and needs no temperature."""
        return Losses(chosen(self, "loss", LOSSES))


# The names of the paper. Paper: equalized odds bounds the sum of the labels' gaps; here each of
# them, so that the slack is in the units of a gap, as everywhere in this package.
LOSS_PARITIES: Mapping[str, Callable[..., LossParity]] = {
    name: partial(LossParity, within=within) for within, name in _NAMES.items()
}

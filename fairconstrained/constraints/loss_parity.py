r"""Loss parity: the mean losses of groups are close.

.. math:: | E[\ell(f(x), y) \mid g] - E[\ell(f(x), y) \mid g'] | \le \mathrm{slack},

overall, within the positive label, or within every label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairconstrained.arrays import Floats
from fairconstrained.constraints.notions import Event, Parity, chosen
from fairconstrained.constraints.tables import Losses, Statistic
from fairconstrained.losses import LOSSES

# The labels of each condition, given the number of labels and the positive ones among them.
_CONDITIONS: dict[str, Callable[[int, list[int]], Floats]] = {
    "all": lambda n_classes, positive: np.ones((1, n_classes)),
    "positive": lambda n_classes, positive: np.eye(n_classes)[positive],
    "labels": lambda n_classes, positive: np.eye(n_classes),
}
_NAMES = {"all": "loss_parity", "positive": "equal_opportunity", "labels": "equalized_odds"}


class LossParity(Parity):
    """The mean losses of groups differ by at most `slack`, in units of the loss.

    Parameters
    ----------
    slack : float, optional
        Largest allowed gap; default: the estimator's ``slack``.
    within : {"all", "positive", "labels"}, default="all"
        Compare over all samples, over samples of the positive label, or within each label.
    loss : {"log", "brier"}, default="log"
        The loss that is compared.
    reference, attributes
        As in :class:`DemographicParity`.
    pos_label : label, optional
        The favourable label, required for two labels that are words if losses are compared within
        it. Default: 1 of 0 and 1, True; of several labels every one but the first in sorted order.

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
        attributes: str = "crossed",
        pos_label: Any = None,
    ):
        self.slack, self.within, self.loss, self.pos_label = slack, within, loss, pos_label
        self.reference, self.attributes = reference, attributes

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name in the paper for this value of `within`."""
        return _NAMES.get(self.within, "loss_parity")

    @property
    def needs_favourable(self) -> bool:
        return self.within == "positive"

    def events(self, classes: Sequence[Any]) -> list[Event]:
        positive = self.positive(classes)
        if self.pos_label is None:
            positive = list(range(1, len(classes)))
        conditions = chosen(self, "within", _CONDITIONS)(len(classes), positive)
        return [Event(labels, labels[:, None]) for labels in conditions]

    def statistic(self, n_classes: int) -> Statistic:
        return Losses(chosen(self, "loss", LOSSES))


# Paper: equalized odds bounds the sum of the gaps of all labels; here each gap, because the slack
# of every criterion in this package is in units of a gap.
LOSS_PARITIES: Mapping[str, Callable[..., LossParity]] = {
    name: partial(LossParity, within=within) for within, name in _NAMES.items()
}

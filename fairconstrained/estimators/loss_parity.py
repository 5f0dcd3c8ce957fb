"""Classification with equal losses of groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fairconstrained.constraints.loss_parity import LOSS_PARITIES
from fairconstrained.constraints.notions import as_notions
from fairconstrained.estimators.base import FairClassifier
from fairconstrained.fit.exact import as_exact
from fairconstrained.fit.task import Task
from fairconstrained.losses import LOSSES
from fairconstrained.problems.objectives import MeanLoss


@dataclass(kw_only=True, eq=False, repr=False)
class LossParityClassifier(FairClassifier):
    r"""Logistic model or network whose mean losses differ little between groups.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \big| E[\ell(f_w(x), y) \mid g] - E[\ell(f_w(x), y) \mid h] \big| \le \mathrm{slack}
        \quad \text{for all groups } g, h .

    A small gap means that the model serves the groups equally well, not that it treats them alike:
    rates of positive predictions may still differ.

    Parameters
    ----------
    constraint : str, LossParity object, or list of them, default="loss_parity"
        ``"loss_parity"``, ``"equal_opportunity"`` or ``"equalized_odds"`` compare mean losses over
        all samples, over samples of the positive label (with more than two labels, of every label
        but the first), or within each label. An object may compare a loss that differs from `loss`.
    slack : float, default=0.005
        Largest allowed gap of any two groups, in units of the loss.
    margin : float, default=0.0
        As in :class:`RateConstrainedClassifier`.
    loss : {"log", "brier"}, default="log"
        The loss that is minimised and compared.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    violation_ : float
        Largest gap; nan if nothing is constrained.
    all others
        As in :class:`RateConstrainedClassifier`; ``privacy_`` is None.

    References
    ----------
    Kliachkin, Lepsova, Bareilles and Marecek, "Benchmarking Stochastic Approximation Algorithms for
    Fairness-Constrained Training of Deep Neural Networks", Table 1.

    Examples
    --------
    >>> from fairconstrained import LossParityClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import loss_gap
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = LossParityClassifier(slack=0.01)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    LossParityClassifier(slack=0.01)
    >>> proba = clf.predict_proba(data.data)
    >>> gap = loss_gap(data.target, proba, sensitive_features=data.sensitive_features)
    >>> bool(gap <= 0.011)
    True
    """

    constraint: Any = field(default="loss_parity", kw_only=False)
    slack: float = 0.005
    margin: float = 0.0
    loss: str = "log"

    def _notions(self) -> list[Any]:
        names = {name: partial(notion, loss=self.loss) for name, notion in LOSS_PARITIES.items()}
        return as_notions(self, self.constraint, names)

    def _with_steps(self, task: Task) -> Task:
        loss = MeanLoss(LOSSES[self.loss])
        return as_exact(replace(task, bounds=(self.slack,), risk=lambda rows: loss))

"""Cap on the mean cost of predictions: a floor under accuracy, balanced accuracy or a utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairconstrained import rate_definitions as rates
from fairconstrained.constraints.notions import Cap, Event


@dataclass(eq=False, repr=False)
class ExpectedCost(Cap):
    r"""Cap on the mean cost of predictions, :math:`E[c(y, \hat y)]`.

    It keeps a model useful while another criterion makes it fair:
    ``ExpectedCost(0.2)`` is an accuracy of at least 0.8, ``ExpectedCost(0.2, costs="balanced")`` a
    balanced accuracy of at least 0.8. A floor under a mean utility u is a cap on the cost
    :math:`\max u - u`.

    It is a mean over everybody, or with `per_group` over each group, and says nothing about who
    bears the costs. That costs are the same for all people of one outcome is an assumption of
    yours.

    Parameters
    ----------
    max : float or mapping, optional
        The cap, or one for each group by its label; default: the estimator's ``slack``.
    costs : array-like of shape (n_classes, n_classes) or "balanced", optional
        Costs of at least 0, true label by predicted label, in the sorted order of the labels.
        Default: 1 for every error, so that the mean is the error rate. "balanced": the mean over
        labels of the error rate within each, which is 1 less the balanced accuracy.
    per_group : bool, default=False
        Whether the cap is on the mean in every group instead of the mean over all rows.
    temperature : float, default=1.0
        As in :class:`DemographicParity`.

    Examples
    --------
    A missed positive costs five times as much as a false alarm:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import ExpectedCost
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(1000, random_state=0)
    >>> cost = ExpectedCost(0.45, costs=[[0, 1], [5, 0]])
    >>> clf = RateConstrainedClassifier(["demographic_parity", cost], slack=0.1)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    name = "expected_cost"

    costs: Any = field(default=None, kw_only=True)

    def events(self, classes: Sequence[Any]) -> list[Event]:
        costs = rates.expected_costs(self.costs, len(classes))
        return [Event(rate.possible.max(axis=1), rate.hits) for rate in costs]

    def combined(self, n_events: int) -> Any:
        """Return the weights that average the events."""
        return np.full((1, n_events), 1.0 / n_events)

r"""Rate constraints: demographic parity, equalized odds, error and rate caps, and the user's own.

Each notion lists its events (see :mod:`fairconstrained.constraints.notions`). Two classes need one
event where more need one per class, because the rates of the two add up to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairconstrained.constraints.moments import LinearMoments, Space
from fairconstrained.constraints.notions import (
    Cap,
    Event,
    Floats,
    Notion,
    Parity,
    checked_slack,
)
from fairconstrained.constraints.statistics import ClassProbabilities

__all__ = [
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "FalseNegativeRate",
    "FalsePositiveRate",
    "FalsePositiveRateParity",
    "RateConstraint",
]


class DemographicParity(Parity):
    r"""Equal prediction rates: :math:`P(\hat y = k \mid g)` differs by at most `slack`.

    Parameters
    ----------
    slack : float, optional
        Largest allowed gap; default: the estimator's ``slack``.
    reference : {"pairwise", "rest", "overall"}, default="pairwise"
        Each pair of groups (largest minus smallest rate), each group against all others together
        (RaCO-DP, Section 2), or each group against everybody (fairlearn's form).

    Examples
    --------
    >>> from fairconstrained.constraints import DemographicParity
    >>> DemographicParity(slack=0.02, reference="overall")
    DemographicParity(reference='overall', slack=0.02)
    """

    name = "demographic_parity"

    def events(self, n_classes: int) -> list[Event]:
        """One per predicted class."""
        return [Event(np.ones(n_classes), _predicts(k, n_classes)) for k in _worst(n_classes)]


class EqualizedOdds(Parity):
    r"""Equal prediction rates within every label: :math:`P(\hat y = k \mid y, g)`.

    Parameters are those of :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualizedOdds
    >>> EqualizedOdds(slack=0.05)
    EqualizedOdds(slack=0.05)
    """

    name = "equalized_odds"

    def events(self, n_classes: int) -> list[Event]:
        """One per true label and predicted class."""
        return [
            Event(label, label[:, None] * _predicts(k, n_classes))
            for label in np.eye(n_classes)
            for k in _worst(n_classes)
        ]


class EqualOpportunity(Parity):
    r"""Equal true positive rates: :math:`P(\hat y = c \mid y = c, g)`.

    Two classes: of the second (positive) class; more: of every class. Parameters are those of
    :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import EqualOpportunity
    >>> EqualOpportunity(slack=0.05)
    EqualOpportunity(slack=0.05)
    """

    name = "equal_opportunity"

    def events(self, n_classes: int) -> list[Event]:
        """One per class."""
        return [
            Event(label, np.outer(label, label)) for label in np.eye(n_classes)[_worst(n_classes)]
        ]


class FalsePositiveRateParity(Parity):
    r"""Equal false positive rates: :math:`P(\hat y = c \mid y \neq c, g)`.

    Two classes: of the second (positive) class; more: of every class. Parameters are those of
    :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import FalsePositiveRateParity
    >>> FalsePositiveRateParity(slack=0.05)
    FalsePositiveRateParity(slack=0.05)
    """

    name = "false_positive_rate_parity"

    def events(self, n_classes: int) -> list[Event]:
        """One per class."""
        return [_false_positive(label) for label in np.eye(n_classes)[_worst(n_classes)]]


class ErrorRateParity(Parity):
    r"""Equal error rates: :math:`P(\hat y \neq y \mid g)`.

    Parameters are those of :class:`DemographicParity`.

    Examples
    --------
    >>> from fairconstrained.constraints import ErrorRateParity
    >>> ErrorRateParity(slack=0.05, reference="rest")
    ErrorRateParity(reference='rest', slack=0.05)
    """

    name = "error_rate_parity"

    def events(self, n_classes: int) -> list[Event]:
        """A wrong prediction."""
        return [Event(np.ones(n_classes), 1.0 - np.eye(n_classes))]


class FalseNegativeRate(Cap):
    r"""Cap on :math:`P(\hat y \neq c \mid y = c)`.

    Two classes: of the second (positive) class; more: of every class.

    Parameters
    ----------
    max : float, optional
        The cap; default: the estimator's ``slack``.
    per_group : bool, default=False
        Whether every group must keep it, instead of everybody together.

    Examples
    --------
    At most a fifth of the positives of each group may be missed:

    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import FalseNegativeRate
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(500, random_state=0)
    >>> clf = RateConstrainedClassifier(FalseNegativeRate(max=0.2, per_group=True))
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    name = "false_negative_rate"

    def events(self, n_classes: int) -> list[Event]:
        """One per class."""
        return [
            Event(label, np.outer(label, 1.0 - label))
            for label in np.eye(n_classes)[_worst(n_classes)]
        ]


class FalsePositiveRate(Cap):
    r"""Cap on :math:`P(\hat y = c \mid y \neq c)`; parameters as :class:`FalseNegativeRate`.

    Examples
    --------
    >>> from fairconstrained.constraints import FalsePositiveRate
    >>> FalsePositiveRate(max=0.1, per_group=True)
    FalsePositiveRate(max=0.1, per_group=True)
    """

    name = "false_positive_rate"

    def events(self, n_classes: int) -> list[Event]:
        """One per class."""
        return [_false_positive(label) for label in np.eye(n_classes)[_worst(n_classes)]]


class RateConstraint(Notion):
    r"""Any linear combination of prediction rates (RaCO-DP, Definition 2.1).

    .. math:: \sum_{r,k} \mathrm{weights}_{jrk}\, P(\hat y = k \mid \text{union } r)
              \le \mathrm{slack}_j .

    Parameters
    ----------
    part : array-like of shape (n_classes, n_groups), or callable
        Part of the rows of each label and group (indices into sorted labels and groups), -1 where
        they take no part; or a function of the index arrays ``(y, group)`` that gives it.
    unions : array-like of shape (n_unions, n_parts)
        Zeros and ones: which parts make up each union.
    weights : array-like of shape (m, n_unions, n_classes)
    slack : float or array-like of shape (m,), optional
        Default: the estimator's ``slack``.

    Examples
    --------
    Group 0 must be predicted positive at least as often as group 1, up to 0.01:

    >>> from fairconstrained.constraints import RateConstraint
    >>> one_sided = RateConstraint(
    ...     part=lambda y, group: group, unions=[[1, 0], [0, 1]],
    ...     weights=[[[0, -1], [0, 1]]], slack=0.01)
    """

    name = "rate_constraint"

    def __init__(
        self,
        part: Any,
        unions: Any,
        weights: Any,
        slack: Any = None,
    ):
        self.part = part
        self.unions = unions
        self.weights = weights
        self.slack = slack

    def bind(self, space: Space, slack: float, temperature: float) -> LinearMoments:
        """Give the constraint on these labels and groups."""
        shape = (len(space.classes), len(space.groups))
        unions = np.asarray(self.unions, dtype=float)
        weights = np.asarray(self.weights, dtype=float)
        part = self._part(shape)
        n_classes = shape[0]
        if unions.ndim != 2 or not np.isin(unions, (0, 1)).all() or part.max() >= unions.shape[1]:
            raise ValueError(
                "RateConstraint.unions must be zeros and ones of shape (n_unions, n_parts) with "
                f"n_parts > {part.max()}, the largest part; got shape {unions.shape}."
            )
        if weights.ndim != 3 or weights.shape[1:] != (len(unions), n_classes):
            raise ValueError(
                f"RateConstraint.weights must have shape (m, {len(unions)}, {n_classes}): values, "
                f"unions, classes; got {weights.shape}."
            )
        if not np.isfinite(weights).all():
            raise ValueError(f"RateConstraint.weights must be finite; got {self.weights!r}.")
        own = np.asarray(slack if self.slack is None else self.slack)
        if own.shape not in ((), (len(weights),)):
            raise ValueError(
                f"RateConstraint.slack must be a number or of shape ({len(weights)},), one for "
                f"each value; got shape {own.shape}."
            )
        for value in own.reshape(-1):
            checked_slack(self, "slack", value, minimum=-np.inf)
        cells = np.where(part >= 0, unions[:, part], 0.0)  # (n_unions, n_classes, n_groups)
        numerators = np.einsum("ryg,ks->rkygs", cells, np.eye(n_classes))
        return LinearMoments(
            space,
            numerators.reshape(-1, *shape, n_classes),
            np.repeat(cells, n_classes, axis=0),
            weights.reshape(len(weights), -1),
            np.full(len(weights), own, dtype=float),
            ClassProbabilities(n_classes, temperature),
            self.name,
        )

    def _part(self, shape: tuple[int, int]) -> NDArray[np.int64]:
        y, group = (torch.as_tensor(index) for index in np.indices(shape))
        given = self.part(y, group) if callable(self.part) else self.part
        part = np.asarray(given)
        if part.shape != shape or part.dtype.kind not in "iu" or part.min() < -1:
            raise ValueError(
                f"RateConstraint.part must give an integer >= -1 for each of {shape[0]} labels and "
                f"{shape[1]} groups; got shape {part.shape}, dtype {part.dtype}."
            )
        return part.astype(np.int64)


def _worst(n_classes: int) -> list[int]:
    """The classes to look at: the positive one of two, or all."""
    return [1] if n_classes == 2 else list(range(n_classes))


def _predicts(k: int, n_classes: int) -> Floats:
    return np.tile(np.eye(n_classes)[k], (n_classes, 1))


def _false_positive(label: Floats) -> Event:
    return Event(1.0 - label, np.outer(1.0 - label, label))

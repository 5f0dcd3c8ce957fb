r"""What users ask for: a notion describes events and becomes a constraint on given data.

An event has a condition on the true label and measures, of the rows that meet it, a statistic. Its
rate in a group is the mean of that statistic over the group's rows that meet the condition: for a
prediction rate

.. math:: P(\hat y = k \text{ for a pair } (y, k) \mid y \in \text{condition}, \text{group}).

Parity notions bound differences of an event's rate between groups, caps bound the rate itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from fairconstrained.constraints.moments import BoundConstraint, LinearMoments, Space
from fairconstrained.constraints.statistics import ClassProbabilities, Statistic

__all__ = ["Cap", "Event", "Notion", "Parity", "checked_slack"]

Floats = NDArray[np.float64]
T = TypeVar("T")


class Event(NamedTuple):
    """Which labels count, and which columns of the statistic are added up for each of them.

    Examples
    --------
    The condition "any label" and the event "the second class is predicted":

    >>> import numpy as np
    >>> from fairconstrained.constraints import Event
    >>> selected = Event(condition=np.ones(2), pairs=np.array([[0, 1], [0, 1]]))
    >>> selected.pairs[0]  # what counts for rows of the first label
    array([0, 1])
    """

    condition: Floats  # (n_classes,) zeros and ones
    pairs: Floats  # (n_classes, n_columns) zeros and ones


class Notion(BaseEstimator):  # type: ignore[misc]
    """What a user asks for, before the data's labels and groups are known.

    A subclass takes its parameters in ``__init__`` (so that ``get_params``, ``clone`` and grid
    searches work) and implements :meth:`bind`.

    Examples
    --------
    >>> from fairconstrained.constraints import CONSTRAINTS, Space
    >>> notion = CONSTRAINTS["demographic_parity"](slack=0.1).set_params(slack=0.2)
    >>> notion.bind(Space([0, 1], ["a", "b"]), slack=0.05, temperature=1.0).slack
    tensor([0.2000, 0.2000], dtype=torch.float64)
    """

    name = "constraint"
    needs_groups = True

    def bind(self, space: Space, slack: float, temperature: float) -> BoundConstraint:
        """Give the constraint on these labels and groups.

        Parameters
        ----------
        space : Space
            Labels and groups of the training data.
        slack : float
            The estimator's slack; used where the notion has none of its own.
        temperature : float
            Of the class probabilities that stand in for predictions.
        """
        raise NotImplementedError

    def _chosen(self, parameter: str, choices: Mapping[str, T]) -> T:
        value = getattr(self, parameter)
        if not isinstance(value, str) or value not in choices:
            raise ValueError(
                f"{type(self).__name__}.{parameter} must be one of {sorted(choices)}; "
                f"got {value!r}."
            )
        return choices[value]

    def statistic(self, n_classes: int, temperature: float) -> Statistic:
        """What the events measure; class probabilities unless a notion says otherwise."""
        return ClassProbabilities(n_classes, temperature)


class Parity(Notion):
    """Differences of event rates between groups, at most `slack`.

    Examples
    --------
    A notion of one's own lists its events:

    >>> import numpy as np
    >>> from fairconstrained.constraints import Event, Parity, Space
    >>> class SelectionParity(Parity):
    ...     def events(self, n_classes):
    ...         return [Event(np.ones(n_classes), np.tile(np.eye(n_classes)[1], (n_classes, 1)))]
    >>> bound = SelectionParity(slack=0.1).bind(Space([0, 1], ["a", "b"]), 0.05, 1.0)
    >>> bound.describe(0)
    'constraint: group a against group b'
    """

    def __init__(self, slack: float | None = None, *, reference: str = "pairwise"):
        self.slack = slack
        self.reference = reference

    def events(self, n_classes: int) -> list[Event]:
        """The events whose rates are to be equal."""
        raise NotImplementedError

    def bind(self, space: Space, slack: float, temperature: float) -> LinearMoments:
        """Give the constraint on these labels and groups."""
        slack = checked_slack(self, "slack", slack if self.slack is None else self.slack)
        members, differences = self._chosen("reference", _REFERENCES)(len(space.groups))
        events = self.events(len(space.classes))
        rates = [(event, groups) for event in events for groups in members]
        combinations = np.kron(np.eye(len(events)), differences).astype(np.float64)
        statistic = self.statistic(len(space.classes), temperature)
        return _linear(space, rates, combinations, slack, statistic, self.name)


class Cap(Notion):
    """Event rates at most `max`, over everybody or in each group.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.constraints import Cap, Event, Space
    >>> class ErrorRate(Cap):
    ...     name = "error_rate"
    ...     def events(self, n_classes):
    ...         return [Event(np.ones(n_classes), 1 - np.eye(n_classes))]
    >>> ErrorRate(max=0.1).bind(Space([0, 1], ["a", "b"]), 0.05, 1.0).slack
    tensor([0.1000], dtype=torch.float64)
    """

    def __init__(self, max: float | None = None, *, per_group: bool = False):
        self.max = max
        self.per_group = per_group

    @property
    def needs_groups(self) -> bool:  # type: ignore[override]
        """Only a cap in each group does."""
        return self.per_group

    def events(self, n_classes: int) -> list[Event]:
        """The events whose rates are capped."""
        raise NotImplementedError

    def bind(self, space: Space, slack: float, temperature: float) -> LinearMoments:
        """Give the constraint on these labels and groups."""
        cap = checked_slack(self, "max", slack if self.max is None else self.max)
        n_groups = len(space.groups)
        members = np.eye(n_groups) if self.per_group else np.ones((1, n_groups))
        rates = [(event, groups) for event in self.events(len(space.classes)) for groups in members]
        statistic = self.statistic(len(space.classes), temperature)
        return _linear(space, rates, np.eye(len(rates)), cap, statistic, self.name)


def _pairwise(n_groups: int) -> tuple[Floats, Floats]:
    """Members of the rates and the ordered pairs of them: largest minus smallest."""
    first, second = np.nonzero(~np.eye(n_groups, dtype=bool))
    identity = np.eye(n_groups)
    return identity, identity[first] - identity[second]


def _rest(n_groups: int) -> tuple[Floats, Floats]:
    """Each group against all others together, both signs."""
    if n_groups < 2:
        return np.zeros((0, n_groups)), np.zeros((0, 0))
    identity = np.eye(n_groups)
    difference = np.hstack((identity, -identity))
    return np.vstack((identity, 1.0 - identity)), np.vstack((difference, -difference))


def _overall(n_groups: int) -> tuple[Floats, Floats]:
    """Each group against everybody, both signs."""
    if n_groups < 2:
        return np.zeros((0, n_groups)), np.zeros((0, 0))
    identity = np.eye(n_groups)
    difference = np.hstack((identity, -np.ones((n_groups, 1))))
    return np.vstack((identity, np.ones(n_groups))), np.vstack((difference, -difference))


_REFERENCES: dict[str, Callable[[int], tuple[Floats, Floats]]] = {
    "pairwise": _pairwise,
    "rest": _rest,
    "overall": _overall,
}


def _linear(
    space: Space,
    rates: Sequence[tuple[Event, Floats]],
    combinations: Floats,
    slack: float,
    statistic: Statistic,
    name: str,
) -> LinearMoments:
    """Rates of (event, member groups) on the cells, combined."""
    n_classes, n_groups = len(space.classes), len(space.groups)
    numerators = np.zeros((len(rates), n_classes, n_groups, statistic.n_columns))
    denominators = np.zeros((len(rates), n_classes, n_groups))
    for r, (event, groups) in enumerate(rates):
        numerators[r] = event.pairs[:, None, :] * groups[None, :, None]
        denominators[r] = np.outer(event.condition, groups)
    return LinearMoments(
        space,
        numerators,
        denominators,
        combinations,
        np.full(len(combinations), slack),
        statistic,
        name,
    )


def checked_slack(notion: Notion, parameter: str, value: Any, minimum: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= minimum:
        raise ValueError(
            f"{type(notion).__name__}.{parameter} must be a number >= {minimum:g}; got {value!r}."
        )
    return float(value)

r"""Criteria of fairness: they describe events, and are bound to data to give constraints.

An event has a condition on the true label and a statistic of the rows that meet it. Its rate in a
group is the mean of the statistic over the rows of the group that meet the condition. A prediction
rate, for example, is

.. math:: P(\hat y = k \text{ for a pair } (y, k) \mid y \in \text{condition}, \text{group}).

Parity criteria bound the differences of a rate between groups, or their ratio. Caps bound the rate
itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from fairconstrained.arrays import Floats, check_number, numbers_in
from fairconstrained.constraints.affine import Combinations
from fairconstrained.constraints.linear import LinearMoments, RateRatios
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.tables import ClassProbabilities, Space, Statistic
from fairconstrained.inputs.groups import group_name
from fairconstrained.inputs.labels import classes_of
from fairconstrained.numerics import NEGLIGIBLE
from fairconstrained.rate_definitions import Rate, is_symmetric

T = TypeVar("T")
StaticRates: TypeAlias = "staticmethod[[Sequence[Any], Sequence[int]], Iterator[Rate]]"

# Values of a criterion: 1,000 groups pairwise, within each of two labels. Each has a multiplier,
# and the history of a fit would hold all of them.
_MOST_VALUES = 2_000_000


class Event(NamedTuple):
    """The labels that count, and the columns of the statistic that are added up for each.

    Examples
    --------
    The condition "any label" and the event "the second class is predicted":

    >>> import numpy as np
    >>> from fairconstrained.constraints import Event
    >>> selected = Event(condition=np.ones(2), pairs=np.array([[0, 1], [0, 1]]))
    >>> selected.pairs[0]  # columns that count for rows of the first label
    array([0, 1])
    """

    condition: Floats  # (n_classes,) zeros and ones
    pairs: Floats  # (n_classes, n_columns) zeros and ones, or costs; zero outside the condition


class Notion(BaseEstimator):  # type: ignore[misc]
    """A definition of fairness, before the labels and groups of the data are known.

    A subclass takes its parameters in ``__init__``, so that ``get_params``, ``clone`` and grid
    searches work, and implements :meth:`bind`. ``@dataclass(eq=False, repr=False)`` generates such
    an ``__init__``.

    Examples
    --------
    >>> from fairconstrained.constraints import DemographicParity, Space
    >>> notion = DemographicParity(slack=0.1).set_params(slack=0.2)
    >>> notion.bind(Space([0, 1], ["a", "b"]), slack=0.05).slack
    tensor([0.2000, 0.2000], dtype=torch.float64)
    """

    name = "constraint"
    pos_label: Any = None  # a parameter of criteria about a positive class
    attributes: str = "crossed"  # a parameter of criteria that may compare columns side by side
    within_strata = False  # whether it compares groups within strata of control features

    @property
    def needs_groups(self) -> bool:
        """Return whether the criterion compares groups, or is about each of them."""
        return True

    @property
    def needs_favourable(self) -> bool:
        """Return whether the criterion depends on which label is the favourable one."""
        return False

    def positive(self, classes: Sequence[Any]) -> list[int]:
        """Return the index of the favourable class, or of each of several classes.

        The favourable class is ``pos_label``; by default the second of two classes.

        Raises
        ------
        ValueError
            If ``pos_label`` is none of the classes, or is not given although the criterion depends
            on the favourable label and it is not known.
        """
        name = f"{type(self).__name__}.pos_label"
        read = classes_of(np.asarray(classes).tolist(), self.pos_label, parameter=name)
        if self.needs_favourable:
            read.require_known(name)
        return read.targets

    def title(self, classes: Sequence[Any]) -> str:
        """Return the name of the constraint on these labels, for descriptions of its values."""
        return self.name

    def bind(self, space: Space, slack: float | None = None) -> MomentConstraint:
        """Return the constraint on these labels and groups.

        Parameters
        ----------
        space : Space
            Labels and groups of the training data.
        slack : float, optional
            The slack of the estimator, used if the criterion has none of its own.

        Raises
        ------
        ValueError
            If a parameter is not valid, or if there would be too many values.
        """
        raise NotImplementedError


class EventNotion(Notion):
    """Base of criteria on rates of events, which the attribute `rates` lists for the labels."""

    within_strata = True
    rates: ClassVar[StaticRates]

    @property
    def needs_favourable(self) -> bool:
        rates, ratio = getattr(type(self), "rates", None), getattr(self, "ratio", None)
        return rates is not None and not is_symmetric(rates, ratio is not None)

    def events(self, classes: Sequence[Any]) -> list[Event]:
        """List the events whose rates are compared or capped, given the labels in sorted order."""
        rates = type(self).rates(classes, self.positive(classes))
        return [Event(rate.possible.max(axis=1), rate.hits) for rate in rates]

    def checked_events(self, classes: Sequence[Any], n_columns: int) -> list[Event]:
        """Return :meth:`events`; raise ValueError unless they fit the labels and the columns."""
        shapes = (len(classes),), (len(classes), n_columns)
        try:
            events = [Event(*map(numbers_in, event)) for event in self.events(classes)]
        except TypeError:  # not a list, or not of pairs
            events = []
        fits = [
            (one.condition.shape, one.pairs.shape) == shapes
            and not one.pairs[one.condition == 0].any()
            for one in events
        ]
        if not events or not all(fits):
            raise ValueError(
                f"{type(self).__name__}.events must return a list of Event(condition, pairs), "
                f"arrays of shapes {shapes[0]} and {shapes[1]}, with pairs of zero where the "
                f"condition is zero; got {events or 'none'}."
            )
        return events


@dataclass(eq=False, repr=False)
class Parity(EventNotion):
    r"""The rates of an event differ between groups by at most `slack`.

    Parameters
    ----------
    slack, ratio, reference, attributes
        As in :class:`DemographicParity`.
    temperature : float, default=1.0
        As in :class:`DemographicParity`.

    Examples
    --------
    A custom criterion lists its events:

    >>> import numpy as np
    >>> from fairconstrained.constraints import Event, Parity, Space
    >>> class SelectionParity(Parity):
    ...     def events(self, classes):
    ...         n = len(classes)
    ...         return [Event(np.ones(n), np.tile(np.eye(n)[1], (n, 1)))]
    >>> bound = SelectionParity(slack=0.1).bind(Space([0, 1], ["a", "b"]))
    >>> bound.describe(0)
    'constraint: group a against group b'
    """

    slack: float | Sequence[float] | None = None
    ratio: float | None = field(default=None, kw_only=True)
    reference: str = field(default="pairwise", kw_only=True)
    attributes: str = field(default="crossed", kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)

    _differences: ClassVar[type[LinearMoments]] = LinearMoments
    _ratios: ClassVar[type[LinearMoments]] = RateRatios

    def statistic(self, n_classes: int) -> Statistic:
        """Return the statistic of the events; by default class probabilities."""
        return ClassProbabilities(n_classes, checked_temperature(self))

    def bind(self, space: Space, slack: float | None = None) -> LinearMoments:
        reference = chosen(self, "reference", _REFERENCES)
        bound: Any = slack if self.slack is None else self.slack
        n_groups, statistic = len(space.groups), self.statistic(len(space.classes))
        events = self.checked_events(space.classes, statistic.n_columns)
        # In the usual case, which comes first, each group is one set and the matrices stay sparse.
        sets = [ComparedSets(sp.eye_array(n_groups, format="csr"), bound, space.crossed)]
        if space.n_control or self.attributes != "crossed":
            sets = compared_sets(self, space, bound)
        rates, comparisons, families, slacks = [], [], (), np.zeros(0)
        group_columns: list[tuple[int, ...]] = []
        for groups, set_slack, columns in sets:
            n_sets = groups.shape[0]
            n_values = len(events) * (len(slacks) + reference.size(n_sets))
            # Checked first, since the matrices would not fit into memory.
            refuse_too_many(self, n_values, n_groups, reference.advice)
            members, differences = reference.compare(n_sets)
            by_label = [sp.csr_array(members) @ groups] * len(space.classes)
            if space.partly and self.attributes == "parallel":
                weights = space.factors_by(columns[0])[:, : groups.shape[1]]
                by_label = [s.multiply(w).tocsr() for s, w in zip(by_label, weights, strict=True)]
            rates.append(by_label)
            comparisons.append(differences)
            if self.ratio is None:
                gap = checked_number(self, "slack", set_slack)
                slacks = np.append(slacks, np.full(differences.shape[0], gap))
            # Where all pairs are compared, the largest value is a range, and no product with all
            # pairs is needed.
            families += (n_sets,) if reference.all_pairs else ()
            # Sets of all others, or of everybody, are no group: one row is enough for them.
            group_columns += [columns] * n_sets + [()] * (members.shape[0] - n_sets)
        compared: Any = sp.block_diag(comparisons, format="csr")
        kind, allowed = self._differences, np.tile(slacks, len(events))
        if self.ratio is not None:
            # Differences a - b, in both orders, become ratio * a - b.
            compared = checked_ratio(self) * compared.maximum(0.0) + compared.minimum(0.0)
            kind, families = self._ratios, ()
            # A hair inside: quotients that users compute must not round to less than the ratio.
            allowed = np.full(len(events) * compared.shape[0], -NEGLIGIBLE)
        compared = sp.kron(sp.eye_array(len(events)), compared)
        # A family of one has no pair.
        families = families if max(families, default=0) > 1 else ()
        combinations = Combinations.of(compared, families * len(events))
        names = self.name, self.title(space.classes)
        by_label = list(map(sp.vstack, zip(*rates, strict=True)))
        constraint = linear(kind, space, events, by_label, combinations, allowed, statistic, *names)
        return constraint._with(group_columns=group_columns * len(events))


@dataclass(eq=False, repr=False)
class Cap(EventNotion):
    """The rates of an event are at most `max`, overall or in each group.

    Parameters
    ----------
    max : float or mapping, optional
        The cap, or one for each group by its label; default: the estimator's ``slack``.
    per_group : bool, default=False
        Whether the cap is on the rate of every group instead of the overall rate.
    temperature : float, default=1.0
        As in :class:`DemographicParity`.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.constraints import Cap, Event, Space
    >>> class ErrorRate(Cap):
    ...     name = "error_rate"
    ...     def events(self, classes):
    ...         return [Event(np.ones(len(classes)), 1 - np.eye(len(classes)))]
    >>> ErrorRate(max=0.1).bind(Space([0, 1], ["a", "b"])).slack
    tensor([0.1000], dtype=torch.float64)
    """

    max: float | Mapping[Any, float] | None = None
    per_group: bool = field(default=False, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)

    @property
    def needs_groups(self) -> bool:
        return self.per_group

    def combined(self, n_events: int) -> Any:
        """Return the capped combinations of event rates, (m, n_events); by default each rate."""
        return sp.eye_array(n_events)

    def bind(self, space: Space, slack: float | None = None) -> LinearMoments:
        limit: Any = slack if self.max is None else self.max
        caps = [limit]
        if isinstance(limit, Mapping):
            # A cap for an unknown group is more likely a mistyped label than intended.
            if not self.per_group or set(limit) != set(space.groups):
                raise ValueError(
                    f"{type(self).__name__}.max must have a cap for each of the groups "
                    f"{list(map(group_name, space.groups))}, with per_group=True; got {limit!r}."
                )
            caps = list(map(limit.__getitem__, space.groups))
        caps = [checked_number(self, "max", cap) for cap in caps]
        n_groups, n_classes = len(space.groups), len(space.classes)
        events = self.checked_events(space.classes, n_classes)
        # Without groups the cap is on all rows, also those of unknown group.
        groups = sp.eye_array(n_groups) if self.per_group else np.ones((1, space.shape[1]))
        combined = sp.kron(self.combined(len(events)), sp.eye_array(groups.shape[0]))
        combinations = Combinations.of(combined)
        statistic = ClassProbabilities(n_classes, checked_temperature(self))
        names = self.name, self.title(space.classes)
        slacks = np.resize(caps, combinations.rate.shape[1])
        sets = [groups] * n_classes
        return linear(LinearMoments, space, events, sets, combinations, slacks, statistic, *names)


@dataclass(eq=False, repr=False)
class ParityOfClass(Parity):
    """Base of parity criteria about a positive class."""

    pos_label: Any = field(default=None, kw_only=True)


@dataclass(eq=False, repr=False)
class CapOfClass(Cap):
    """Base of caps about a positive class."""

    pos_label: Any = field(default=None, kw_only=True)


class ComparedSets(NamedTuple):
    """Sets of groups whose rates are compared with each other, and by how much they may differ."""

    groups: Any  # (n_sets, n_groups)
    slack: Any
    columns: tuple[int, ...]  # whose values tell the sets apart


def compared_sets(notion: Parity, space: Space, slack: Any) -> list[ComparedSets]:
    """List the sets of groups to compare, stratum by stratum of the control features.

    For parallel attributes, each set has the groups with one value of one column. Each column may
    have its own slack.
    """
    every = space.labels_of(notion.attributes)
    labels = [group if isinstance(group, tuple) else (group,) for group in every]
    n_sensitive = len(space.crossed)
    choices: dict[str, list[tuple[int, ...]]] = {
        "crossed": [space.crossed],
        "parallel": [(k,) for k in space.crossed],
    }
    column_sets = chosen(notion, "attributes", choices)
    slacks = list(slack) if isinstance(slack, Sequence) else [slack] * len(column_sets)
    if len(slacks) != len(column_sets):
        raise ValueError(
            f"{type(notion).__name__}.slack must be a number, or one for each of "
            f"{len(column_sets)} columns of sensitive_features; got {slack!r}."
        )
    compared = []
    for columns, allowed in zip(column_sets, slacks, strict=True):
        keys = [(label[n_sensitive:], *(label[k] for k in columns)) for label in labels]
        known = [key for key in keys if None not in key]
        # In the order of first appearance, as descriptions name them.
        for stratum in dict.fromkeys(key[0] for key in known):
            inside = dict.fromkeys(key for key in known if key[0] == stratum)
            sets = np.array([[key == one for key in keys] for one in inside], dtype=float)
            compared.append(ComparedSets(sp.csr_array(sets), allowed, columns))
    return compared


def as_notions(
    owner: Any, constraint: Any, names: Mapping[str, Any], kind: type[Notion] = Notion
) -> list[Any]:
    """Return the criteria in ``constraint`` of an estimator: one or several names or objects."""
    parameter, notions = f"{type(owner).__name__}.constraint", []
    for value in constraint if isinstance(constraint, (list, tuple)) else [constraint]:
        named = isinstance(value, str) and value in names
        if not (named or isinstance(value, kind)):
            example = next(iter(names.values()))()
            raise ValueError(
                f"{parameter} must be one of {sorted(names)}, or an object of "
                f"fairconstrained.constraints such as {example!r}; got {value!r}."
            )
        notions.append(names[value]() if named else value)
    if not notions:
        raise ValueError(f"{parameter} is empty; give at least one.")
    return notions


def checked_number(notion: Notion, parameter: str, value: Any, minimum: float = 0.0) -> float:
    """Return the value as a float; raise ValueError unless it is a number >= minimum."""
    name = f"{type(notion).__name__}.{parameter}"
    return check_number(name, value, f"a number >= {minimum:g}", float(minimum).__le__)


def checked_ratio(notion: Any) -> float:
    """Return the ratio; raise ValueError unless it is between 0 and 1, and there is no slack."""
    name, allowed = type(notion).__name__, "a number between 0 and 1 (equal rates: slack=0)"
    ratio = check_number(f"{name}.ratio", notion.ratio, allowed, lambda v: 0 < v < 1)
    if notion.slack is not None:
        raise ValueError(
            f"{name} takes slack or ratio; got both, {notion.slack!r} and {ratio!r}. For both "
            "bounds give a list of two constraints."
        )
    return ratio


def checked_temperature(notion: Any) -> float:
    """Return the temperature; raise ValueError unless it is a positive finite number."""
    name, temperature = f"{type(notion).__name__}.temperature", notion.temperature
    return check_number(name, temperature, "a finite number > 0", lambda v: 0 < v < np.inf)


def named_positive(notion: Notion, classes: Sequence[Any]) -> str:
    """Return the name of the constraint with its positive class, unless there are several."""
    positive = notion.positive(classes)
    return notion.name if len(positive) > 1 else f"{notion.name} of {classes[positive[0]]}"


def naming(notion: Any, label: Any) -> Any:
    """Return the criterion with this favourable label as each ``pos_label`` that is not set."""
    unset = {}
    for name, value in notion.get_params().items() if label is not None else ():
        if name.split("__")[-1] == "pos_label" and value is None:
            unset[name] = label
    # The user's object stays without a label, for other data.
    return copy.deepcopy(notion).set_params(**unset) if unset else notion


def chosen(notion: Notion, parameter: str, choices: Mapping[str, T]) -> T:
    """Return the choice that a parameter names; raise ValueError, listing the names, if none."""
    value = getattr(notion, parameter)
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{type(notion).__name__}.{parameter} must be one of {sorted(choices)}; got {value!r}."
        )
    return choices[value]


def refuse_too_many(notion: Notion, n_values: int, n_groups: int, advice: str) -> None:
    """Raise ValueError, before any work, if a constraint would be too large for memory."""
    if n_values > _MOST_VALUES:
        raise ValueError(
            f"{type(notion).__name__} of {n_groups:,} groups would have {n_values:,} entries, more "
            f"than {_MOST_VALUES:,}. {advice}"
        )


class _Reference(NamedTuple):
    """A value of `reference`: sets of groups, and the comparisons of their rates."""

    compare: Callable[[int], tuple[Any, Any]]  # (n_rates, n_groups), (m, n_rates)
    size: Callable[[int], int]  # entries of the larger one
    advice: str
    all_pairs: bool = False  # all rates are compared with each other


def differences(compared: NDArray[np.bool_]) -> Any:
    """Return the matrix of differences of rates (m, n_rates), one for each pair `compared`."""
    pairs = np.argwhere(compared)
    m = len(pairs)
    entries = np.tile([1.0, -1.0], m), pairs.reshape(-1), np.arange(0, 2 * m + 1, 2)
    return sp.csr_array(entries, shape=(m, len(compared)))


def _against(others: Floats, paired: Floats) -> tuple[Any, Any]:
    """Compare the rate of each group with the rate of its reference set, with both signs.

    `others` (n_sets, n_groups) has these sets, `paired` (n_groups, n_sets) marks the set of each.
    """
    n_groups = len(paired)
    if n_groups < 2:
        return np.eye(n_groups), np.zeros((0, n_groups))
    identity = sp.eye_array(n_groups)
    difference = sp.hstack((identity, -paired))
    return sp.vstack((identity, others)), sp.vstack((difference, -difference))


FEWER = "Use fewer groups: cross fewer columns, or join small groups."
_OVERALL = "Use reference='overall', which needs two values a group, or fewer groups."
_REFERENCES: dict[str, _Reference] = {
    "pairwise": _Reference(  # all ordered pairs: largest minus smallest
        lambda n: (sp.eye_array(n), differences(~np.eye(n, dtype=bool))),
        *(lambda n: n * (n - 1), _OVERALL, True),
    ),
    "rest": _Reference(lambda n: _against(1.0 - np.eye(n), np.eye(n)), lambda n: n * n, _OVERALL),
    "overall": _Reference(
        lambda n: _against(np.ones((1, n)), np.ones((n, 1))), lambda n: 2 * n, FEWER
    ),
}


def linear(
    kind: type[LinearMoments],
    space: Space,
    events: Sequence[Event],
    groups: Sequence[Any],
    combinations: Any,
    slack: Any,
    statistic: Statistic,
    name: str,
    title: str,
) -> LinearMoments:
    """Build a constraint on rates of all events in sets of groups.

    The sets, (n_sets, n_groups) for each label, may weigh rows. Rows of unknown group are in no
    set, unless the sets have a column for them.
    """
    shape = groups[0].shape[0], prod(space.shape)
    sets = sp.vstack(list(map(sp.coo_array, groups))).tocoo()  # label by label
    label, rate = np.divmod(sets.row, shape[0])
    cell, weight = label * space.shape[1] + sets.col, sets.data

    def times(factors: Any, n_columns: int) -> Any:
        """Multiply the sets by factors (n_events, n_classes, n_columns), event by event."""
        # Entry by entry: Kronecker products of small matrices are mostly overhead.
        values = weight[:, None] * np.reshape(factors, (-1, len(groups), n_columns))[:, label]
        row = shape[0] * np.arange(len(values))[:, None, None] + rate[:, None]
        column = n_columns * cell[:, None] + np.arange(n_columns)
        values, row, column = map(np.ravel, np.broadcast_arrays(values, row, column))
        size = len(factors) * shape[0], shape[1] * n_columns
        return sp.coo_array((values, (row, column)), shape=size)

    hits = times([event.pairs for event in events], statistic.n_columns)
    possible = times([event.condition for event in events], 1)
    slacks = np.full(combinations.rate.shape[1], slack)
    return kind(space, hits, possible, combinations, slacks, statistic, name, title)

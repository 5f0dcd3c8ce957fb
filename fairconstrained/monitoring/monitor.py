"""A monitor of a deployed model's decisions, whose evidence may be read at any time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from fairconstrained.arrays import Array, Floats, Ints, check_confidence, check_number
from fairconstrained.comparison import NO_RATIO, Compared
from fairconstrained.engines.columns import accepts_tables
from fairconstrained.exceptions import (
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.inputs.groups import encode_groups, group_name, read_groups
from fairconstrained.inputs.labels import UNSEEN, order_of, read_decisions
from fairconstrained.inputs.samples import check_length, check_samples
from fairconstrained.inputs.values import Description, listed
from fairconstrained.metrics.bounds import rate_facts, worst_value
from fairconstrained.metrics.claims import OVERALL, Claim, constraint_bound, read_claim
from fairconstrained.metrics.inputs import predicted
from fairconstrained.monitoring import betting
from fairconstrained.monitoring.betting import WINDOW, Bets, Comparison, interval, rate_bounds
from fairconstrained.rate_definitions import CRITERIA, Rate

# No alarm comes before this number of rows, and later groups get no full share of the stake.
FIRST_ROWS = 100
# Share of the stake for the groups of the first rows; each later batch of groups gets half of the
# rest, so that all shares together are at most one.
FOR_FIRST = 0.9
# Each pair of groups has its own state of a comparison: 2,016 states.
MOST_GROUPS = 64
# Records of the history; when there are more, every second one is dropped, so that a year takes no
# more memory than a day.
MOST_RECORDS = 200
_ASSUMPTIONS = (
    "the rows are independent given their groups, and come in the order of time.",
    "in windows of at most eight rows of two groups, either their rates or their fractions stay.",
)
_MISSING = (
    "the group of {} of {} rows is missing; the others of a group have the predictions of all. "
    "Known rows alone count here; in fits and metrics they stand for all rows of their label."
)


@dataclass(eq=False, repr=False)
class FairnessMonitor(BaseEstimator):  # type: ignore[misc]
    r"""A monitor of whether a criterion is kept; however often one looks, a false alarm is rare.

    Rows come in calls of any size, such as a row or a day. If at every row the violation is at most
    the slack, the probability of an alarm *ever* is at most 1 - confidence,

    .. math:: P(\exists t: E_t \geq 1 / (1 - \text{confidence})) \leq 1 - \text{confidence},

    where :math:`E_t`, the evidence, is the wealth of someone who bets against this claim. A fixed
    sample's test or certificate that is repeated every day has no such promise.

    Parameters
    ----------
    constraint : str or constraint object, default="demographic_parity"
        "demographic_parity", "equalized_odds", "equal_opportunity", "false_positive_rate_parity",
        "error_rate_parity", "predictive_parity", "false_omission_rate_parity"; an object with
        ``ratio``, such as ``DemographicParity(ratio=0.8)``; the caps "false_negative_rate",
        "false_positive_rate" and "rejection_rate", of all rows or, with
        ``FalseNegativeRate(per_group=True)``, of each group.
    slack : float, default=0.05
        The largest gap that is allowed, or the cap; that of the object, if it has one, comes first.
    confidence : float, default=0.95
        One minus the probability of a false alarm at any time.
    pos_label : label, optional
        The favourable label. By default 1, True, or the last of ordered categories; of other labels
        it must be given.

    Attributes
    ----------
    alarm_ : bool
        Whether the evidence has reached 1 / (1 - confidence) after some update. It stays.
    alarm_at_ : int or None
        The number of rows by then.
    evidence_ : float
        The e-value now: 1 at the start. Small values are no evidence that the criterion is kept:
        for that see `interval_`.
    interval_ : tuple of float
        Bounds of the violation, which hold at all times together with probability `confidence`: it
        was not always below the first one, nor always above the second. A recent change moves them
        later than it raises the alarm.
    limit_ : float
        The largest violation that is allowed: the slack, the cap, or one minus the ratio.
    rates_ : list of dict
        Each rate: "event", "group", "rows", "hits", "rate", "low", "high"; each pair of bounds
        holds at all times together with probability `confidence`.
    estimate_ : float
        The violation of the rows so far: the largest gap or rate, or one minus the smallest ratio;
        nan while there is nothing to compare.
    left_out_ : list of str
        The groups, or groups within a label, with too few rows or with none to be compared with, by
        the rule of fits and certificates: they are no part of `estimate_`. Also pairs of groups
        that no call has together: they are no part of `evidence_` and `interval_`.
    history_ : dict of str to list
        From the first update on: "rows", "evidence", "estimate", "low" and "high" at some 200
        times, for a picture.
    n_rows_, n_unknown_, n_unlabelled_ : int
        Rows that count; rows of unknown group, and rows without the label that the criterion needs,
        which do not.
    assumptions_ : list of str
        The assumptions of all this. Where rows of unknown group came in, one of them is that the
        others have their decisions; fits and metrics assume so within each label only.

    Notes
    -----
    Rows are assumed to be independent given their groups, and to come in the order of time. Rates
    and composition may drift in any way, as long as the rule is kept by the rates of the time: two
    groups are compared within windows of at most eight rows that follow each other (of those that
    the criterion is about) and lie within 64 rows of the stream. The promise is exact if within
    each window either the rates or the fractions of the groups stay as they are;
    ``fairconstrained/monitoring/betting.py`` proves it.
    **Cycles of a hundred rows or less, or of a few hundred where a group is small in between, in
    which both swing far raise false alarms**, the more if they jump: pass shorter times in calls of
    their own. :doc:`/evidence/monitoring` has their numbers.

    **Rows of a call are compared with each other only**, if it has four or more of two groups, so
    pass together what belongs together, such as the rows of an hour. Rows of smaller calls wait for
    a whole window. Groups that come in calls of their own are not compared; a warning says so. A
    call that is sorted by group, decision or label has no order in time: its rows are shuffled, and
    rates are assumed constant within it.

    `estimate_` and `rates_` are about all rows so far. If rates and composition have moved
    together, `estimate_` may lie outside of `interval_`, which compares rows of the same time only.
    Bounds of a rate are those of a constant one.

    Comparisons of the groups that come among the first 100 rows share nine tenths of the stake
    equally, and each later batch of groups has half of what is left. The state is a small table for
    each pair of groups and event, whatever the number of rows; ``pickle`` it to survive a restart.

    References
    ----------
    Chugg, Cortes-Gomez, Wilder and Ramdas, "Auditing fairness by betting", NeurIPS 2023.
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86
    (2024).

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.monitoring import FairnessMonitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = FairnessMonitor("demographic_parity", slack=0.05)
    >>> for day in range(60):
    ...     group = rng.choice(["f", "m"], size=100)
    ...     granted = rng.random(100) < np.where(group == "f", 0.3, 0.45)
    ...     if monitor.update(granted, sensitive_features=group).alarm_:
    ...         break
    >>> day, monitor.alarm_at_
    (8, 900)
    """

    _seen: Description = field(init=False)  # of groups and labels so far
    alarm_: bool = field(init=False, default=False)
    alarm_at_: int | None = field(init=False, default=None)
    n_rows_ = n_unknown_ = n_unlabelled_ = 0

    constraint: Any = "demographic_parity"
    slack: float = 0.05
    confidence: float = 0.95
    pos_label: Any = None

    @accepts_tables("y_pred", "sensitive_features", "y_true")
    def update(
        self,
        y_pred: ArrayLike,
        *,
        sensitive_features: Any = None,
        y_true: ArrayLike | None = None,
        X: Any = None,
    ) -> FairnessMonitor:
        """Add rows, and raise the alarm if the evidence suffices.

        Parameters
        ----------
        y_pred : array-like of shape (n_samples,)
            Decisions: labels of two kinds.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
            The group of each row. Rows of unknown group are counted and left out. None for a cap on
            all rows together.
        y_true : array-like of shape (n_samples,), optional
            True labels, if the criterion needs them. Rows whose label is not known yet (NaN or
            None) are left out: pass them, with their decisions and groups, once it is. That a label
            comes late, or not at all, must not depend on what it is.
        X : DataFrame of Dask or Spark, or Dataset of Ray, optional
            The table whose columns the others are, by name. Its rows count in the order of its
            partitions: sort a table of Spark by time first.

        Returns
        -------
        FairnessMonitor
            This monitor.

        Raises
        ------
        ValueError
            A parameter or an input that is not valid; nothing has been added then.

        Warns
        -----
        MissingSensitiveFeaturesWarning
            When the first rows of unknown group come; `assumptions_` says it from then on.
        SmallGroupWarning
            When two groups have a hundred rows each and no call has had rows of both.
        """
        self._begin()
        claim = self._claim
        check_samples(y_pred=y_pred, sensitive_features=sensitive_features, y_true=y_true)
        best, orders = claim.pos_label, (order_of(y_pred), order_of(y_true))
        decisions, seen = read_decisions(y_pred, "y_pred", self._seen, best, orders)
        true = np.zeros(len(decisions), dtype=np.int64)
        if claim.needs_labels:
            if y_true is None:
                raise ValueError(
                    f"y_true must hold the true labels for {claim.notion!r}; got None."
                )
            true, seen = read_decisions(y_true, "y_true", seen, best, orders, missing=True)
        check_length("y_true", len(true), len(decisions), "y_pred")  # lazy columns
        codes, names, self._seen = self._groups(sensitive_features, len(decisions), seen)
        known = self._places(names)
        n_before = self._compare_new_groups()
        usable = (codes >= 0) & (true >= 0)
        places = np.flatnonzero(usable) + self.n_rows_ + self.n_unknown_ + self.n_unlabelled_
        n_unknown, n_usable = (int(np.count_nonzero(rows)) for rows in (codes < 0, usable))
        first, self.n_unknown_ = not self.n_unknown_, self.n_unknown_ + n_unknown
        self.n_unlabelled_ += len(usable) - n_unknown - n_usable
        self.n_rows_ += n_usable
        apart_before = self._apart
        self._add(true[usable], decisions[usable], known[codes[usable]], places, n_before)
        if first and n_unknown:
            warn_caller(f"FairnessMonitor: {self._missing}", MissingSensitiveFeaturesWarning)
        new = (pair for pair in self._apart if pair not in apart_before)
        apart = listed(new, between="; ")
        if apart:
            warn_caller(
                f"FairnessMonitor does not compare {apart}: pass groups together in one "
                "call, such as all rows of a day.",
                SmallGroupWarning,
            )
        self._look()
        return self

    @accepts_tables("y", "sensitive_features")
    def __call__(
        self, estimator: Any, X: Any, y: ArrayLike | None = None, *, sensitive_features: Any = None
    ) -> float:
        """Update with the predictions of a model, with the arguments of a scorer.

        Parameters
        ----------
        estimator : fitted classifier
        X : array-like of shape (n_samples, n_features)
        y, sensitive_features
            As `y_true` and `sensitive_features` of :meth:`update`.

        Returns
        -------
        float
            Minus the evidence: greater is better.
        """
        decisions = predicted(estimator, X, sensitive_features)
        return -self.update(decisions, sensitive_features=sensitive_features, y_true=y).evidence_

    def merge(self, other: FairnessMonitor) -> FairnessMonitor:
        """Add the rows that another monitor of the same criterion has seen.

        Parameters
        ----------
        other : FairnessMonitor
            It must have seen other rows, such as those of another server; it is not changed. The
            last rows of each pair of groups, which fill no window there, are lost, and so is its
            alarm: two watches would have more false alarms together.

        Returns
        -------
        FairnessMonitor
            This monitor.

        Raises
        ------
        ValueError
            If the other one watches something else, or the two have seen too many groups; nothing
            has been added then.

        Notes
        -----
        The order of merging matters a little, the promise does not depend on it: of the bets that
        began later the mean of the two parts is taken. Groups that are new here come as a later
        batch.
        """
        if self is other:
            raise ValueError("merge needs another monitor, of other rows; got this monitor.")
        if repr(self) != repr(other):
            raise ValueError(f"merge needs monitors of the same rule; got {self!r} and {other!r}.")
        self._begin()
        if not hasattr(other, "_claim"):
            return self
        seen, in_order = self._seen.also(other._seen), self._seen.placing(other._seen)
        if len(seen.labels) > 2:
            labels = sorted(seen.labels, key=str)
            raise ValueError(f"merge needs monitors of the same two labels; got {labels}.")
        names = list(map(in_order, other.groups_))
        self._check_number(names)
        self._seen, place = seen, self._places(names)
        self._compare_new_groups()
        self._hits[place] += other._hits
        self._rows[place] += other._rows
        for (event, groups), later in other._comparisons.items():
            there = tuple(place[g] for g in groups)
            pair = tuple(sorted(there))
            self._comparisons[event, pair].merge(later, there != pair)
        for name in ("n_rows_", "n_unknown_", "n_unlabelled_"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._look()
        return self

    @property
    def limit_(self) -> float:
        """The largest violation that is allowed."""
        self._begin()
        return self._claim.slack

    @property
    def evidence_(self) -> float:
        """The wealth of all bets together."""
        self._begin()
        wealth = [comparison.wealth for comparison in self._comparisons.values()]
        return 1.0 + float(self._stakes @ (np.array(wealth) - 1.0))

    @property
    def interval_(self) -> tuple[float, float]:
        """Bounds of the violation at all times."""
        self._begin()
        counts = np.array([comparison.counts for comparison in self._comparisons.values()])
        return interval(counts, self._stakes, self._payoffs, 1.0 - self.confidence)

    @property
    def rates_(self) -> list[dict[str, Any]]:
        """Each rate with its bounds at all times."""
        self._begin()
        low, high = rate_bounds(self._hits, self._rows, 1.0 - self.confidence)
        names, cells = list(map(group_name, self.groups_)), np.argwhere(self._rows.T >= 0)[:, ::-1]
        rate = self._hits / np.where(self._rows > 0, self._rows, np.nan)
        columns = {"rows": self._rows, "hits": self._hits, "rate": rate, "low": low, "high": high}
        events = [one.event + one.condition for one in self._named]
        return rate_facts(events, names, cells, **columns)

    @property
    def estimate_(self) -> float:
        """The violation of the rows so far; nan if there is nothing to compare."""
        self._begin()
        return worst_value(self._hits, self._rows, self._compared.kept, self._claim.comparison)

    @property
    def left_out_(self) -> list[str]:
        """The groups, pairs of them and groups within a label that are not compared, and why."""
        self._begin()
        names, rates = list(map(group_name, self.groups_)), self._named
        left_out = self._compared.left_out(lambda g, e: f"group {names[g]}{rates[e].condition}")
        without = (rates[e] for e in np.flatnonzero(self._without_ratio))
        zero = [f"{rate.event}{rate.condition} ({NO_RATIO})" for rate in without]
        return [*left_out, *zero, *self._apart]

    @property
    def assumptions_(self) -> list[str]:
        """The assumptions of the evidence, the estimate and all bounds."""
        return [*_ASSUMPTIONS, *([self._missing] if self.n_unknown_ else [])]

    @property
    def _missing(self) -> str:
        return _MISSING.format(self.n_unknown_, self.n_unknown_ + self.n_unlabelled_ + self.n_rows_)

    @property
    def _apart(self) -> list[str]:
        """Name the pairs of groups with enough rows for bets, but with no call in common."""
        names, rates = list(self.groups_), self._named
        return [
            f"groups {group_name(names[g])} and {group_name(names[h])}{rates[event].condition} "
            "(in no call together)"
            for (event, (g, *others)), comparison in self._comparisons.items()
            # Those that have begun to spend their stake have seen both.
            if comparison.unspent == 1.0
            for h in others
            if self._rows[[g, h], event].min() >= FIRST_ROWS
        ]

    @property
    def _named(self) -> list[Rate]:
        """The rates that are compared, with the labels as they are in the data."""
        seen, best = self._seen.labels, self._seen.favourable
        best = 1 if best is None else best
        other = next((label for label in seen if label != best), UNSEEN if best != 1 else 0)
        return self._claim.rates_of([other, best])

    @property
    def _without_ratio(self) -> Array:
        """Whether the rates of an event have no ratio that the criterion needs, (n_events,)."""
        return self._compared.without_ratio(self._hits) & bool(self._claim.ratio)

    @property
    def _compared(self) -> Compared:
        """The rates that the estimate compares; the evidence itself allows for small groups."""
        return self._claim.compared(self._rows, sets=0)

    @property
    def _stakes(self) -> Floats:
        """The share of each comparison in the stake: those of a batch of groups share equally."""
        batches = np.array([one.batch for one in self._comparisons.values()], dtype=np.int64)
        shares = np.where(batches == 0, FOR_FIRST, (1.0 - FOR_FIRST) * 0.5**batches)
        return np.asarray(shares / np.bincount(batches)[batches])

    def _begin(self) -> None:
        """Check the parameters before the first rows."""
        if hasattr(self, "_claim"):
            return
        check_confidence(self.confidence)
        self._claim: Claim = watched(self.constraint, self.slack, self.pos_label)
        rates = self._claim.rates
        # Of each event and cell, true label 0 or 1 by prediction 0 or 1.
        self._hit_cells = np.array([rate.hits.ravel() for rate in rates], dtype=np.int8)
        self._possible_cells = np.array([rate.possible.ravel() > 0 for rate in rates])
        self._seen = Description()
        parity_payoffs = betting.gap_payoffs if self._claim.ratio is None else betting.ratio_payoffs
        self._payoffs = betting.cap_payoffs if self._claim.is_cap else parity_payoffs
        self._bets = Bets.on(self._payoffs(self._claim.slack))
        self.groups_: dict[Any, int] = {OVERALL: 0} if self._claim.pooled else {}
        # By the event and two groups, or the one whose rate is capped.
        self._comparisons: dict[tuple[int, tuple[int, ...]], Comparison] = {}
        self._batch = 0  # of groups
        self._hits = self._rows = np.zeros((0, len(rates)), dtype=np.int64)  # by group and event
        self.history_: dict[str, list[float]] = {
            key: [] for key in ("rows", "evidence", "estimate", "low", "high")
        }
        self._every = self._next = 50  # rows from one record to the next

    def _places(self, groups: Iterable[Any]) -> Ints:
        """Return the places of groups; new groups get the next places."""
        places = [self.groups_.setdefault(group, len(self.groups_)) for group in groups]
        return np.array(places, dtype=np.int64)

    def _groups(
        self, sensitive_features: Any, n_rows: int, seen: Description
    ) -> tuple[Array, list[Any], Description]:
        """Return the codes of the rows (-1: unknown), their groups, and the description."""
        if self._claim.pooled:
            if sensitive_features is not None:  # read as in fits, where they do not matter either
                encode_groups(sensitive_features, n_rows)
            return np.zeros(n_rows, dtype=np.int64), [OVERALL], seen
        groups, seen = read_groups(sensitive_features, n_rows, seen)
        codes, labels = groups.certain("FairnessMonitor")
        names = labels.tolist()
        self._check_number(names)
        return codes, names, seen

    def _check_number(self, names: Iterable[Any]) -> None:
        """Raise ValueError if these groups and earlier ones are too many."""
        if (n_groups := len({*self.groups_, *names})) > MOST_GROUPS:
            raise ValueError(
                f"FairnessMonitor compares at most {MOST_GROUPS} groups; got {n_groups}. Cross "
                "fewer columns, or join small groups."
            )

    def _compare_new_groups(self) -> int:
        """Begin the comparisons of new groups; return the number of earlier groups."""
        n_before, n_groups = len(self._hits), len(self.groups_)
        if n_before == n_groups:
            return n_before
        if self.n_rows_ >= FIRST_ROWS and self._comparisons:
            # Earlier comparisons keep their stake: taking from them would change bets that were
            # made.
            self._batch += 1
        size = 1 if self._claim.is_cap else 2
        self._comparisons |= {
            (event, groups): Comparison(self._bets, self._batch)
            for event in range(len(self._hit_cells))
            for groups in combinations(range(n_groups), size)
            if groups[-1] >= n_before
        }
        new = ((0, n_groups - n_before), (0, 0))
        self._hits, self._rows = np.pad(self._hits, new), np.pad(self._rows, new)
        return n_before

    def _add(
        self, true: Array, decisions: Array, groups: Array, places: Ints, n_before: int
    ) -> None:
        """Count rows by event and group, and let the comparisons bet on them."""
        # Cells first in the order of bets, since windows are cut from rows as they come.
        order = self._order(groups, decisions, true)
        cells, groups = (2 * true + decisions)[order], groups[order]
        came = {g: groups == g for g in np.unique(groups).tolist()}
        begins = {g: int(rows.argmax()) for g, rows in came.items() if g >= n_before}
        possible, hits = self._possible_cells[:, cells], self._hit_cells[:, cells]
        for g, rows in came.items():
            self._rows[g] += np.count_nonzero(possible[:, rows], axis=1)
            self._hits[g] += (hits * possible)[:, rows].sum(axis=1)
        nobody = np.zeros(len(groups), dtype=bool)
        for (event, compared), comparison in self._comparisons.items():
            if came.keys().isdisjoint(compared):
                continue
            first, *others = (came.get(g, nobody) for g in compared)
            rows = np.logical_or.reduce([first, *others]) & possible[event]
            if not others:
                comparison.bet(hits[event, rows])
                continue
            # Rows before the later group came would be bets on a comparison that nobody had chosen
            # yet; its first row has chosen it.
            rows[: 1 + max(begins.get(g, -1) for g in compared)] = False
            comparison.bet(comparison.windows(hits[event, rows], first[rows], places[rows]))

    def _order(self, *columns: Array) -> Array:
        """Return the order of the rows: as they came, or random if a column is sorted.

        Where rows sorted by decision, and then by group, change from one decision to the next, all
        with the first decision are of the last group, and all with the next one of the first.
        """
        rows = np.arange(len(columns[0]))
        runs = (1 + np.count_nonzero(np.diff(column)) for column in columns)
        is_sorted = any(
            n == len(np.unique(column)) > 1 for n, column in zip(runs, columns, strict=True)
        )
        if len(rows) > WINDOW and is_sorted:
            # A seed that is known beforehand: shuffling in hindsight could choose the evidence.
            np.random.default_rng(self.n_rows_).shuffle(rows)
        return rows

    def _look(self) -> None:
        """Raise the alarm if there is enough evidence, and record the state now and then."""
        evidence = self.evidence_
        enough = self.n_rows_ >= FIRST_ROWS and evidence * (1.0 - self.confidence) >= 1.0
        new = enough and not self.alarm_
        if new:
            self.alarm_, self.alarm_at_ = True, self.n_rows_
        if self.n_rows_ < self._next and not new:
            return
        low, high = self.interval_
        now = self.n_rows_, evidence, self.estimate_, low, high
        for values, value in zip(self.history_.values(), now, strict=True):
            values.append(value)
        if len(self.history_["rows"]) > MOST_RECORDS:  # every second one stays
            self.history_ = {key: values[::2] for key, values in self.history_.items()}
            self._every *= 2
        self._next = self.n_rows_ + self._every


def watched(constraint: Any, slack: Any, pos_label: Any) -> Claim:
    """Check the parameters of a monitor; return the claim that it watches."""
    bound = constraint_bound(constraint)
    most, how = slack if bound is None else bound, {"interval": None, "min_group_size": "auto"}
    claim = read_claim(constraint, most, pos_label, known=[*CRITERIA], **how)
    if claim.attributes != "crossed":
        raise ValueError(
            "FairnessMonitor compares crossed groups (attributes='crossed'): watch each column of "
            f"sensitive_features by a separate monitor; got {constraint!r}."
        )
    check_number("slack", most, "a number >= 0 and < 1", lambda s: s < 1)
    return claim

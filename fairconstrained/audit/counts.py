"""The rows of an audit, counted by group, label and decision: rates are computed from these."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.audit.sample import Grouping, Sample
from fairconstrained.inputs.labels import Classes
from fairconstrained.metrics.inputs import Counts, GroupedRows, Labels, counted
from fairconstrained.metrics.metric import standing_weights
from fairconstrained.rate_definitions import PARITIES, Rate

_TWO = Classes([0, 1], [1], True)


def within(counts: Counts, cells: Array) -> Counts:
    """Return the counts of the rows in some cells, (n_groups, 4), and of groups with such rows."""
    inside = cells.reshape(-1, 2, 2)
    table, squares, rows = (
        np.where(inside, values, 0) for values in (counts.table, counts.squares, counts.rows)
    )
    has = np.asarray(rows.any(axis=(1, 2)))
    groups = list(compress(counts.groups, has))
    return counts._replace(table=table[has], groups=groups, squares=squares[has], rows=rows[has])


@dataclass(frozen=True, eq=False)
class Counted:
    """The rows of a sample, counted in the groups of one grouping."""

    sample: Sample
    by: Grouping

    def count(self, label: Floats, decision: Array, weight: Floats | None = None) -> Counts:
        """Count rows of known group, label and decision; labels and decisions are 0 or 1."""
        known = (self.by.codes >= 0) & ~np.isnan(label + decision)
        true, decided = (column[known].astype(np.int64) for column in (label, decision))
        return counted(self.rows(known, weight), Labels(true, decided, _TWO))

    def rows(self, known: Array, weight: Floats | None = None) -> GroupedRows:
        """Return the rows of known group for metrics, by default with the sample's weights."""
        weight = self.sample.weights if weight is None else weight
        return GroupedRows(slice(None), 1.0, self.by.codes[known], self.by.groups, weight[known])

    def counts(self, criterion: str) -> Counts:
        """Return the counts of the rows that a criterion is about."""
        return self.decided if needs_no_label(self.sample, criterion) else self.labelled

    def earlier(self, criterion: str, compared: Array) -> Counts | None:
        """Return the counts with earlier decisions in place of the decisions.

        None if a rate that is `compared`, (n_groups, n_events), rests on too few rows then.
        """
        if self.sample.before is None:
            return None
        earlier = self.count(labels_for(self.sample, criterion), self.sample.before)
        rows = earlier.rows.reshape(-1, 4) @ event_cells(criterion).T
        return None if (rows[compared] < max(self.sample.min_cell, 1)).any() else earlier

    def standing(self, criterion: str) -> Counts | None:
        """Return counts in which known groups represent their label; None if nothing changes."""
        sample, events = self.sample, event_cells(criterion)
        known = sample.known(self.by)
        if (
            sample.label is None
            or known.all()
            or not (events[:, :2].any(axis=1) & events[:, 2:].any(axis=1)).any()
        ):
            return None
        weight = standing_weights(known, sample.label, sample.weights)
        return self.count(labels_for(sample, criterion), sample.decision, weight)

    @cached_property
    def decided(self) -> Counts:
        """Return the counts of all rows, with their decisions in place of labels."""
        return self.count(self.sample.decision + 0.0, self.sample.decision)

    @cached_property
    def labelled(self) -> Counts:
        """Return the counts of the rows with a label."""
        return self.count(labels_for(self.sample, ""), self.sample.decision)

    def sizes(self, rows: Array) -> Ints:
        """Return how many of the rows are in each group, (n_groups,)."""
        return np.bincount(self.by.codes[rows], minlength=len(self.by.groups))

    def members(self, criterion: str, where: Array) -> Array:
        """Return which rows are in the cells, (n_groups, 4), that `where` marks."""
        label = labels_for(self.sample, criterion)
        known = (self.by.codes >= 0) & ~np.isnan(label)
        cells = 2 * np.nan_to_num(label).astype(int) + self.sample.decision
        return np.asarray(known & where[self.by.codes, cells])


def needs_no_label(sample: Sample, criterion: str) -> bool:
    """Return whether a criterion is about all rows with a decision."""
    return criterion == "demographic_parity" or sample.label is None


def labels_for(sample: Sample, criterion: str) -> Floats:
    """Return the labels for a criterion, or decisions in their place if it needs no labels."""
    if needs_no_label(sample, criterion) or sample.label is None:
        return sample.decision.astype(float)
    return sample.label


def event_cells(criterion: str) -> Array:
    """Return which cells count in the rate of each event, (n_events, 4)."""
    events = PARITIES[criterion](_TWO.labels, _TWO.targets)
    return np.array([rate.possible.ravel() for rate in events]) > 0


def favourable_name(sample: Sample, criterion: str) -> str:
    """Return the name of the favourable decision, or "favourable" if labels have another name."""
    decision = sample.outcomes["y_pred"].name
    if needs_no_label(sample, criterion) or sample.outcomes["y_true"].name == decision:
        return decision
    return "favourable"


def named_events(sample: Sample, criterion: str) -> list[Rate]:
    """Return the rates of a criterion, described by the name of the favourable decision."""
    name = favourable_name(sample, criterion)
    other = f"not {name}"
    words = f" a label other than {name!r}", f" label {other!r}"  # one name of a cell
    events = PARITIES[criterion]([other, name], [1])
    return [event._replace(condition=event.condition.replace(*words)) for event in events]

"""The rows of an audit, counted by group, label and decision: rates are computed from these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.audit.sample import Grouping, Sample
from fairconstrained.inputs.labels import Classes
from fairconstrained.metrics.inputs import Counts, GroupedRows
from fairconstrained.metrics.metric import standing_weights
from fairconstrained.rate_definitions import PARITIES, Rate

_TWO = Classes([0, 1], [1], True)


class Cells(NamedTuple):
    """Rows by group and by label x decision, (n_groups, 4): their number and their weights."""

    rows: Ints  # without rows of weight zero
    weight: Floats
    squares: Floats  # of the weights

    @classmethod
    def of(cls, by: Grouping, label: Floats, decision: Floats, weight: Floats | None) -> Cells:
        """Count rows whose group, label and decision are known; decisions and labels are 0 or 1."""
        known = (by.codes >= 0) & ~np.isnan(label + decision)
        place = 4 * by.codes[known] + (2 * label[known] + decision[known]).astype(np.int64)
        weight = np.ones(len(place)) if weight is None else weight[known]
        sums: Iterator[Array] = (
            np.bincount(place, values, 4 * len(by.groups)).reshape(-1, 4)
            for values in (weight > 0, weight, weight**2)
        )
        rows, total, squares = sums
        return cls(rows.astype(np.int64), total, squares)

    def counts(self) -> Counts:
        """Return the table that metrics are computed from."""
        total, squares = self.weight.sum(axis=1), self.squares.sum(axis=1)
        effective = total**2 / np.where(squares > 0, squares, 1.0)
        groups = [str(g) for g in range(len(total))]
        return Counts(self.weight.reshape(-1, 2, 2), groups, _TWO, effective)

    def row_counts(self) -> Counts:
        """Return the table of the rows, whatever their weights."""
        return self.counts()._replace(table=self.rows.reshape(-1, 2, 2))

    def weighted_counts(self) -> tuple[Counts, Counts]:
        """Return the tables of the weights and of their squares, which intervals are made of."""
        counts = self.counts()
        return counts, counts._replace(table=self.squares.reshape(-1, 2, 2))

    def where(self, counts: Array) -> Cells:
        """Return the groups that have rows in cells (n_groups, 4) that count, with these rows."""
        rows, weight, squares = (np.where(counts, values, 0) for values in self)
        has = rows.any(axis=1)
        return Cells(rows[has], weight[has], squares[has])


@dataclass(frozen=True, eq=False)
class Counted:
    """The rows of a sample in groups by one attribute, or in groups that are `listed` only."""

    sample: Sample
    by: Grouping

    def cells(self, criterion: str) -> Cells:
        """Return the rows that a criterion is about."""
        return self.decided if needs_no_label(self.sample, criterion) else self.labelled

    def earlier(self, criterion: str) -> Cells | None:
        """Return the same with the earlier decisions, if there are any."""
        sample = self.sample
        if sample.before is None or np.isnan(sample.before).all():
            return None
        label = labels_for(sample, criterion)
        return Cells.of(self.by, label, sample.before, sample.weight)

    def standing(self, criterion: str) -> Cells | None:
        """Return the same with known rows for all of their label; None if that changes nothing."""
        sample, events = self.sample, event_cells(criterion)
        known = sample.known(self.by)
        if (
            sample.label is None
            or known.all()
            or not (events[:, :2].any(axis=1) & events[:, 2:].any(axis=1)).any()
        ):
            return None
        weight = np.ones(len(known)) if sample.weight is None else sample.weight
        weight = standing_weights(known, sample.label, weight)
        return Cells.of(self.by, labels_for(sample, criterion), sample.decision + 0.0, weight)

    @cached_property
    def decided(self) -> Cells:
        """Return all rows; their decisions stand for the labels."""
        decision = self.sample.decision.astype(float)
        return Cells.of(self.by, decision, decision, self.sample.weight)

    @cached_property
    def labelled(self) -> Cells:
        """Return the rows with a label."""
        label, decision = labels_for(self.sample, ""), self.sample.decision.astype(float)
        return Cells.of(self.by, label, decision, self.sample.weight)

    def sizes(self, rows: Array) -> Ints:
        """Return the number of these rows in each group."""
        return np.bincount(self.by.codes[rows], minlength=len(self.by.groups))

    def members(self, criterion: str, where: Array) -> Array:
        """Return which rows are in cells, (n_groups, 4), that count."""
        label = labels_for(self.sample, criterion)
        known = (self.by.codes >= 0) & ~np.isnan(label)
        cells = 2 * np.nan_to_num(label).astype(int) + self.sample.decision
        return np.asarray(known & where[self.by.codes, cells])

    def rows(self, known: Array) -> GroupedRows:
        """Return rows of known group, as metrics of scores take them."""
        weight = np.ones(len(known)) if self.sample.weight is None else self.sample.weight
        return GroupedRows(
            np.flatnonzero(known), 1.0, self.by.codes[known], self.by.groups, weight[known]
        )


def needs_no_label(sample: Sample, criterion: str) -> bool:
    """Return whether a criterion is about all rows with a decision."""
    return criterion == "demographic_parity" or sample.label is None


def labels_for(sample: Sample, criterion: str) -> Floats:
    """Return the labels of a criterion; decisions where it needs no others."""
    if needs_no_label(sample, criterion) or sample.label is None:
        return sample.decision.astype(float)
    return sample.label


def event_cells(criterion: str) -> Array:
    """Return whether the rate of each event is about each cell, (n_events, 4)."""
    events = PARITIES[criterion](_TWO.labels, _TWO.targets)
    return np.array([rate.possible.ravel() for rate in events]) > 0


def favourable_name(sample: Sample, criterion: str) -> str:
    """Return the name of the favourable decision, or a word for both where labels have another."""
    decision = sample.outcomes["y_pred"].name
    if needs_no_label(sample, criterion) or sample.outcomes["y_true"].name == decision:
        return decision
    return "favourable"


def named_events(sample: Sample, criterion: str) -> list[Rate]:
    """Return the rates of a criterion, with the name of the favourable decision in their words."""
    name = favourable_name(sample, criterion)
    return list(PARITIES[criterion]([f"not {name}", name], [1]))

"""The rows of an audit: decisions, labels, scores and groups, checked and encoded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairconstrained.arrays import Array, Floats, Ints, computed, in_rows
from fairconstrained.exceptions import InputWarning, ignoring
from fairconstrained.inputs.groups import (
    encode_groups,
    free_name,
    group_name,
    named_columns,
    recoded,
)
from fairconstrained.inputs.labels import label_array, one_column, order_of
from fairconstrained.inputs.outcomes import Outcomes, read_outcomes
from fairconstrained.inputs.samples import check_length, check_weights
from fairconstrained.inputs.values import in_words, listed, notes_on, whole_numbers
from fairconstrained.metrics import Weights
from fairconstrained.metrics.claims import lacking
from fairconstrained.metrics.inputs import check_scores, known_groups

EVERYBODY = "everybody"
UNKNOWN = "(unknown)"
_ALL = "all rows"
# Rows: rates of fewer are counted and hidden, because they may describe a person that a reader
# knows.
MIN_CELL = 10
_DOWNWARDS = re.compile(r"less|under|below|younger|up to|<", re.IGNORECASE)
_UPWARDS = re.compile(r"greater|more|over|above|older|>|\+", re.IGNORECASE)
_NAMES = {"y_pred": "decision", "y_true": "label", "before": "earlier decision"}


class Grouping(NamedTuple):
    """Groups by one attribute, or by several together; small ones are hidden."""

    attribute: str
    family: str  # the attribute, without the stratum
    codes: Ints  # of each row; -1 where its group is not known or hidden
    groups: list[str]
    ranked: bool = False  # whether the groups have an order, as ages have
    others: Mapping[str, Array] = MappingProxyType({})  # the rows in no group, by the reason
    noun: str = "group"  # the word for each of the groups

    @property
    def listed(self) -> Grouping:
        """Return the grouping with the rows in no group as further groups."""
        codes = self.codes.copy()
        for i, rows in enumerate(self.others.values(), start=len(self.groups)):
            codes[rows] = i
        names = [free_name(why, self.groups, "no group") for why in self.others]
        return self._replace(codes=codes, groups=[*self.groups, *names], others={})

    def within(self, rows: Array, name: str, min_cell: int) -> Grouping:
        """Return the groups among some of the rows, with small ones hidden."""
        sizes = np.bincount(self.codes[rows & (self.codes >= 0)], minlength=len(self.groups))
        large, few = sizes >= min_cell, (sizes > 0) & (sizes < min_cell)
        hidden = rows & (self.codes >= 0) & few[self.codes]
        unknown = {why: rows & mask for why, mask in self.others.items()}
        n_few = int(few.sum())
        why_hidden = f"({n_few} {self.noun}{'s' * (n_few > 1)} with fewer than {min_cell} rows)"
        return self._replace(
            attribute=name,
            codes=np.where(rows, recoded(self.codes, np.where(large, large.cumsum() - 1, -1)), -1),
            groups=[group for group, is_large in zip(self.groups, large, strict=True) if is_large],
            others={
                why: mask for why, mask in {**unknown, why_hidden: hidden}.items() if mask.any()
            },
        )

    def hiding(self, min_cell: int) -> Grouping:
        """Return the groups with at least `min_cell` rows, and hide the others."""
        return self.within(np.ones(len(self.codes), dtype=bool), self.attribute, min_cell)

    @property
    def hidden(self) -> list[str]:
        """Return notes on the groups that are too small to show."""
        words = (why.strip("()") for why in self.others if why != UNKNOWN)
        return [f"{self.attribute}: {why}, neither shown nor compared" for why in words]


@dataclass(frozen=True)
class Sample:
    """The rows with a decision."""

    decision: Array  # bool: whether it is favourable
    label: Floats | None  # 1 favourable, 0 not, nan unknown
    score: Floats | None
    before: Floats | None  # an earlier decision, as a label
    weight: Floats | None
    people: pd.DataFrame  # the attributes, nan where not known
    control: pd.DataFrame | None  # the control features
    most: float | None  # a bound on the weights that was known before
    outcomes: Mapping[str, Outcomes]  # of decision, label and before
    left_out: list[str]
    min_cell: int = MIN_CELL  # rows: rates of fewer are counted and hidden
    reference: tuple[str, ...] = ()  # a group of each attribute, with which others are compared
    absent_labels: tuple[str, ...] = ()  # of the label's categories and the model's
    model_groups: Mapping[str, list[Any]] = field(default_factory=dict)  # by each attribute

    @cached_property
    def weights(self) -> Floats:
        """Return the weight of each row, one where none are given."""
        return np.ones(len(self.decision)) if self.weight is None else self.weight

    @cached_property
    def groupings(self) -> list[Grouping]:
        """Return the groupings by each attribute and, if there are several, by all together."""
        return [by.hiding(self.min_cell) for by in self._with_small_ones]

    @cached_property
    def _with_small_ones(self) -> list[Grouping]:
        single = [_grouping(self.people[[name]]) for name in self.people]
        if len(single) == 1 or not self.people.notna().all(axis=1).any():
            return single
        return [*single, _grouping(self.people)]

    @cached_property
    def strata(self) -> Grouping | None:
        """Return the strata of the control features."""
        if self.control is None:
            return None
        return _grouping(self.control)._replace(noun="value").hiding(self.min_cell)

    @property
    def hidden_strata(self) -> list[str]:
        """Return notes on the strata that are too small to show, or have no row."""
        if self.control is None or self.strata is None:
            return []
        absent = lacking(self.control, encode_groups(self.control).labels.tolist(), ())
        name = self.strata.attribute
        return [*self.strata.hidden, *(f"{name}: {group_name(one)} (0 rows)" for one in absent)]

    def compared(self, attributes: str, within: bool = True) -> list[Grouping]:
        """Return the groupings to compare: all or the single attributes, in each stratum."""
        last, strata = len(self.people.columns) if attributes == "parallel" else None, self.strata
        if strata is None or not within:
            return self.groupings[:last]
        where = f"where {strata.attribute} is"
        return [
            by.within(strata.codes == i, f"{by.attribute} {where} {name}", self.min_cell)
            for by in self._with_small_ones[:last]
            for i, name in enumerate(strata.groups)
        ]

    def known(self, grouping: Grouping) -> Array:
        """Return whether the group, and the stratum, of each row are known, (n_samples,)."""
        known = self._attributes(grouping).notna().all(axis=1)
        if self.control is not None:
            known &= self.control.notna().all(axis=1)
        return np.asarray(known)

    def absent(self, grouping: Grouping) -> list[str]:
        """Return the groups of the categories and of the model that no row has."""
        columns = self._attributes(grouping)
        seen = encode_groups(columns).labels.tolist()
        known = self.model_groups.get(grouping.family, ())
        return [group_name(group) for group in lacking(columns, seen, known)]

    def _attributes(self, grouping: Grouping) -> pd.DataFrame:
        """Return the column of a grouping's attribute, or the columns of all attributes."""
        alone = grouping.family in self.people
        return self.people[[grouping.family]] if alone else self.people

    def reference_of(self, grouping: Grouping) -> str | None:
        """Return the user's reference group for a grouping, or None."""
        names = dict(zip(self.people, self.reference, strict=bool(self.reference)))
        group = names.get(grouping.family, group_name(self.reference)) if names else None
        return group if group in grouping.groups else None

    @property
    def notes(self) -> list[str]:
        """Return sentences about spellings that count as one value or as different groups."""
        notes = [
            f"{listed(outcome.spelled)} in {outcome.column} count as one value."
            for outcome in self.outcomes.values()
            if outcome.spelled
        ]
        for name in self.people:
            notes += notes_on(self.people[name].dropna().unique().tolist(), name, "group")
        return notes

    @property
    def everybody(self) -> Grouping:
        """Return all rows as one group, under names that no other group and no column has."""
        codes = np.zeros(len(self.decision), dtype=np.int64)
        attribute = free_name(EVERYBODY, list(self.people), _ALL)
        names = [group for by in self.groupings for group in by.groups]
        return Grouping(attribute, attribute, codes, [free_name(EVERYBODY, names, _ALL)])


def read_sample(
    inputs: Mapping[str, Any],
    pos_label: Any,
    *,
    min_cell: int = MIN_CELL,
    reference: Any = None,
    parameter: str = "pos_label",
    model: Any = None,
) -> Sample:
    """Check and encode the inputs of `report`; a model may know more groups and labels."""
    people, control = _people(inputs["sensitive_features"], "group"), None
    if (strata := inputs["control_features"]) is not None:
        control = _people(strata, "stratum", "control_features")
    for name, column in pd.concat([people, control], axis=1).items():
        if len(column) and column.isna().all():
            raise ValueError(f"{name} is missing in every row.")
    columns = {n: _column(n, inputs[n]) for n in _NAMES if inputs[n] is not None}
    n_rows = len(people)
    for name, column in columns.items():  # lazy columns are counted here first
        check_length(name, len(column), n_rows, "sensitive_features")
    outcomes = read_outcomes(columns, pos_label, parameter)
    codes = {name: outcome.favourable.astype(float) for name, outcome in outcomes.items()}
    score = None if inputs["y_score"] is None else check_scores(inputs["y_score"])
    weight, most = (weights := inputs["sample_weight"]), None
    if isinstance(weights, Weights):
        weight, most = weights.of_rows(n_rows), float(weights.most)
    elif weights is not None:
        weight = check_weights(weights, n_rows)
    decision = codes["y_pred"]
    places = [*enumerate(people), (None, " & ".join(people))]
    sample = Sample(
        *(decision == 1.0, codes.get("y_true"), score, codes.get("before"), weight, people),
        *(control, most, outcomes, [], min_cell, _reference(reference, people)),
        _absent_labels(columns.get("y_true"), model),
        {n: known_groups(model, inputs["sensitive_features"], place=i) for i, n in places},
    )
    return _decided(sample, ~np.isnan(decision))


def _decided(sample: Sample, known: Array) -> Sample:
    """Drop rows without a decision; note in how many rows something else is unknown."""
    if not known.any():
        raise ValueError("y_pred has no decisions.")
    rows: dict[str, Any] = {
        name: None if (values := getattr(sample, name)) is None else values[known]
        for name in ("decision", "label", "score", "before", "weight", "people", "control")
    }
    left_out = [(~known, "no decision: in no figure")]
    if rows["weight"] is not None:
        left_out.append((rows["weight"] == 0, "a weight of zero: in no rate and no comparison"))
    if rows["label"] is not None:
        left_out.append((np.isnan(rows["label"]), "no label: in no error rate"))
        rows["label"] = None if np.isnan(rows["label"]).all() else rows["label"]
    if rows["before"] is not None:
        left_out.append((np.isnan(rows["before"]), "no earlier decision: in no change"))
    for people in (rows["people"], rows["control"]):
        for name in [] if people is None else people:
            missing = people[name].isna().to_numpy()
            left_out.append((missing, f"an unknown {name}: in none of its groups"))
    sentences = [f"{in_rows(mask.sum(), ',')} with {why}." for mask, why in left_out if mask.any()]
    return replace(sample, **rows, left_out=sentences)


def _column(name: str, values: Any) -> pd.Series[Any]:
    """Return a Series with the user's or a default name, and with codes as whole numbers."""
    if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
        values = pd.Series(values)
    if not isinstance(values, pd.Series):
        values = computed(values)
        array, order = one_column(label_array(values), name), order_of(values)
        ordered: Any = array if order is None else pd.Categorical(array, order, ordered=True)
        values = pd.Series(ordered, name=getattr(values, "name", None))
    label = _NAMES[name] if values.name in (None, "") else values.name  # "": of polars
    codes = whole_numbers(values, name) if values.dtype.kind == "f" else values
    return pd.Series(codes, name=label).reset_index(drop=True)


def _people(values: Any, word: str, parameter: str = "sensitive_features") -> pd.DataFrame:
    """Return a column for each attribute, named `word` if it has no name."""
    columns = named_columns(values, parameter, word)
    return pd.DataFrame({name: whole_numbers(column, name) for name, column in columns.items()})


def _absent_labels(column: pd.Series[Any] | None, model: Any) -> tuple[str, ...]:
    """List the labels of the column's categories and of the model that no row has."""
    if column is None:
        return ()
    seen = column.dropna().unique().tolist()
    absent = lacking(
        column, seen, np.ravel(getattr(model, "classes_", ())).tolist(), str(column.name)
    )
    return tuple(f"{column.name} {label!r} (0 rows)" for label in absent)


def _reference(reference: Any, people: pd.DataFrame) -> tuple[str, ...]:
    """Return the groups to compare with, one for each attribute, after checks."""
    if reference is None:
        return ()
    listed_groups = isinstance(reference, (list, tuple))
    groups = tuple(map(in_words, reference if listed_groups else [reference]))
    if len(groups) != len(people.columns):
        raise ValueError(f"reference must have a group for each of {list(people)}; got {groups}.")
    for name, group in zip(people, groups, strict=True):
        values = [in_words(value) for value in people[name].dropna().unique()]
        if group not in values:
            raise ValueError(f"reference {group!r} is not a group of {name}: {listed(values)}.")
    return groups


def _grouping(people: pd.DataFrame) -> Grouping:
    """Return the grouping by the combinations of values that occur in the columns."""
    with ignoring(InputWarning):  # the notes of an audit say it
        codes, labels = encode_groups(people)
    known = codes >= 0
    names = [group_name(label) for label in labels.tolist()]
    ranked = len(people.columns) == 1 and (order := _order(people.iloc[:, 0], names)) is not None
    if ranked:
        codes, names = recoded(codes, np.argsort(order)), [names[i] for i in order]
    attribute = " & ".join(people)
    return Grouping(attribute, attribute, codes, names, ranked, {UNKNOWN: ~known})


def _order(column: pd.Series, names: list[str]) -> Any:
    """Return the order of the groups if they have one: of categories, or of numbers in names."""
    categories = getattr(column.dtype, "categories", None)
    if categories is not None and column.dtype.ordered:
        place = {in_words(category): i for i, category in enumerate(categories)}
        return np.argsort([place[name] for name in names])
    numbers = [re.search(r"\d+(\.\d+)?", name) for name in names]
    if len(names) < 2 or not all(numbers):
        return None
    # "under 25" stands before "25 to 45", and "over 45" behind it.
    side = [
        (_UPWARDS.search(name) is not None) - (_DOWNWARDS.search(name) is not None)
        for name in names
    ]
    return np.lexsort((side, [float(number.group()) for number in numbers if number]))

"""Claims for certificates to prove, and the rows that may prove them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fairconstrained.arrays import Array, check_number, rows_of
from fairconstrained.comparison import SIZES, Compared, compared, is_size
from fairconstrained.exact_auc import COMPARISONS
from fairconstrained.inputs.groups import columns_of, named_columns
from fairconstrained.inputs.labels import UNSEEN, check_labels, classes_of, encode_labels
from fairconstrained.inputs.values import declared_values, kind_of, warn_of_spellings
from fairconstrained.metrics.bounds import (
    AGAINST_ALL,
    DIFFERENCE,
    DISTRIBUTIONS,
    SHORTFALL,
    Comparison,
)
from fairconstrained.metrics.inputs import check_scores, predicted, scores_of
from fairconstrained.metrics.metric import choose
from fairconstrained.rate_definitions import CAPS, CRITERIA, PARITIES, Rate, needs_labels

OVERALL = "all"
# Parameters that hold the bound of a constraint object, and functions to units of the violation.
BOUNDS: Mapping[str, Callable[[Any], Any]] = {
    "slack": lambda slack: slack,
    "max": lambda cap: cap,
    "ratio": lambda ratio: round(1.0 - ratio, 12),  # 0.2 for 0.8
}


def constraint_bound(constraint: Any) -> float | None:
    """Return the bound of a constraint object, in units of the violation, or None."""
    bounds = ((getattr(constraint, name, None), convert) for name, convert in BOUNDS.items())
    return next((convert(bound) for bound, convert in bounds if bound is not None), None)


def slacks_of(estimator: Any) -> list[Any]:
    """Return the slack of each criterion of an estimator, in units of the violation."""
    bounds = map(constraint_bound, estimator._notions())
    return [estimator.slack if bound is None else bound for bound in bounds]


class Claim(NamedTuple):
    """A criterion within a slack, and how it is certified."""

    notion: str
    slack: float
    interval: Any
    min_group_size: int | str
    per_group: bool  # of the constraint, as the next three
    ratio: float | None
    attributes: str
    pos_label: Any  # None: not known
    alpha: float = 0.05
    threshold: float = 0.0
    label_names: Mapping[Any, str] | None = None
    labels: Sequence[Any] = ()  # that it is about, whether or not the rows have them
    groups: Sequence[Any] = ()  # that the model knows, by each attribute
    in_strata: bool = False  # whether groups are compared within strata

    @property
    def words(self) -> str:
        """Return the criterion in the words of the statement."""
        if self.interval is not None:
            return f"partial {self.notion} in {self.interval}"
        words = self.notion
        if self.ratio is not None:
            words = f"one minus the smallest ratio of {words}"
        words += " by each attribute" if self.attributes == "parallel" else ""
        return words + (" in each stratum" if self.in_strata else "")

    @property
    def decides(self) -> bool:
        """Whether the claim is about predicted labels; other claims are about scores."""
        return self.interval is None and (self.is_cap or self.notion in PARITIES)

    @property
    def is_cap(self) -> bool:
        """Whether each rate is compared with a cap, and not with another group's rate."""
        return self.notion in CAPS

    @property
    def comparison(self) -> Comparison | None:
        """Return how the rates of two groups are compared; None for a cap."""
        if self.is_cap:
            return None
        return DIFFERENCE if self.ratio is None else SHORTFALL

    @property
    def rates(self) -> list[Rate]:
        """Return the rates of decisions, perhaps inside an interval, that the claim is about."""
        return self.rates_of([0, 1])

    def rates_of(self, labels: Sequence[Any]) -> list[Rate]:
        """Return the claim's rates for two labels, the second of them favourable."""
        rates = CRITERIA.get(self.notion)
        return [] if rates is None else list(rates(labels, [1]))

    @property
    def pooled(self) -> bool:
        """Whether the claim is a cap on all rows together."""
        return self.is_cap and not self.per_group

    @property
    def depends_on_groups(self) -> bool:
        """Whether the claim depends on the fractions of groups, beyond rates within groups."""
        return self.pooled or (self.interval is None and self.notion in AGAINST_ALL)

    @property
    def depends_on_labels(self) -> bool:
        """Whether the claim depends on the fractions of labels within groups."""
        if self.depends_on_groups or self.notion in DISTRIBUTIONS:
            return True
        return any(rate.possible.all(axis=0).any() for rate in self.rates)

    @property
    def at_corners(self) -> bool:
        """Whether the violation is largest at a corner of intervals of fractions."""
        inside = self.interval is not None and self.notion in ("rank_parity", "group_auc")
        return not inside and self.notion != "bpsn_bnsp"

    @property
    def needs_labels(self) -> bool:
        """Whether the claim needs true labels."""
        if self.notion in DISTRIBUTIONS:
            return False
        rates = CRITERIA.get(self.notion)
        return rates is None or needs_labels(rates)

    @property
    def conditions(self) -> Array:
        """Return a mask of the labels that each event of a ranking compares, negative first."""
        if self.compares_rates_inside:
            return np.array([rate.possible.max(axis=1) for rate in self.rates])
        if self.notion in DISTRIBUTIONS:
            return np.ones((1, 2))
        sets = COMPARISONS[self.notion](2).reshape(-1, 2, 2)  # labels by groups
        return np.unique([pair.max(axis=1) for pair in sets if pair.any(axis=0).sum() == 1], axis=0)

    @property
    def compares_rates_inside(self) -> bool:
        """Whether the claim compares rates of decisions inside an interval of ranks."""
        return self.interval is not None and self.notion not in DISTRIBUTIONS

    def compared(self, rows: Array, attributes: Any = 0, sets: Any = None) -> Compared:
        """Decide which rates are compared, from the numbers of rows by group and event."""
        sets = None if self.is_cap else sets
        return compared(rows, self.slack, self.min_group_size, families=attributes, sets=sets)

    def about(self, rows: Rows, *columns: Any) -> Claim:
        """Return the claim with the labels of all rows, and the known labels of the same type.

        Samples of the rows may lack some. The favourable label is set if it is known; in rankings
        the label on top. Ordered `columns` may determine it.
        """
        seen = [labels for labels in (rows.y_true, rows.y_pred) if labels is not None]
        kinds = {kind_of(labels[0]) for labels in seen}
        more = [label for label in self.labels if not kinds or kind_of(label) in kinds]
        seen += [np.asarray(more)] if more else []
        labels = encode_labels(*seen)[1] if seen else []
        claim = self._replace(labels=labels)
        if self.pos_label is not None or not 0 < len(labels) <= 2:
            return claim
        classes = classes_of(labels, None, *columns)
        label = classes.labels[classes.targets[0]] if self.decides else classes.labels[1]
        # Rankings have a label on top by order; for decisions it has to be known.
        unknown = label == UNSEEN or (self.decides and not classes.known)
        return claim._replace(pos_label=None if unknown else label)


def read_claim(
    constraint: Any,
    slack: Any,
    pos_label: Any,
    *,
    interval: Any,
    min_group_size: Any,
    known: Sequence[str] = (*CRITERIA, *COMPARISONS),
    **how: Any,
) -> Claim:
    """Check parameters and return a claim on one of the `known` criteria."""
    # An argument overrides the slack of the constraint object.
    slack = constraint_bound(constraint) if slack is None else slack
    check_number("slack", slack, "a number >= 0", lambda s: s >= 0)
    if not is_size(min_group_size):
        raise ValueError(f"min_group_size must be {SIZES}; got {min_group_size!r}.")
    notion = constraint if isinstance(constraint, str) else getattr(constraint, "name", constraint)
    if interval is not None:
        known = [*DISTRIBUTIONS, "demographic_parity", "equal_opportunity", "equalized_odds"]
    if isinstance(constraint, type) or not isinstance(notion, str) or notion not in known:
        kind = "" if interval is None else " with interval"
        raise ValueError(f"constraint must be one of {sorted(known)}{kind}; got {constraint!r}.")
    if getattr(constraint, "reference", "pairwise") != "pairwise":
        raise ValueError(
            "constraint must be on the largest difference between groups (reference='pairwise'); "
            f"got {constraint!r}."
        )
    defaults = {"per_group": False, "ratio": None, "attributes": "crossed", "pos_label": None}
    options: Any = {name: getattr(constraint, name, default) for name, default in defaults.items()}
    choose({"crossed": 0, "parallel": 0}, "attributes", options["attributes"])
    if pos_label is not None:
        options["pos_label"] = pos_label
    claim = Claim(notion, float(slack), interval, min_group_size, **options, **how)
    if claim.in_strata and (claim.notion not in PARITIES or not claim.decides):
        raise ValueError(
            f"control_features must be None for {notion!r}: parity of rates is certified in strata."
        )
    return claim


def lacking(
    columns: Any, seen: Sequence[Any], known: Sequence[Any], name: str = "sensitive_features"
) -> list[Any]:
    """Return the groups `known` to a model, and declared categories, that the rows lack.

    Where all columns are categorical, combinations of their values count too. A model whose groups
    are of other columns has none in common with the groups `seen` here.
    """
    warn_of_spellings(seen, known, name)
    same = set(known) & set(seen)
    # Without a group in common the model's groups are by other columns.
    absent = [group for group in known if same and group not in seen]
    # Categories are part of a claim, whether or not they occur.
    declared = [declared_values(column) or [] for column in columns_of(columns).values()]
    values = list(zip(*seen, strict=True)) if len(declared) > 1 else [seen]
    if len(values) > 1 and all(declared):
        named = {*seen, *absent}
        absent += [group for group in product(*map(dict.fromkeys, values)) if group not in named]
    for categories, present in zip(declared, values, strict=True):
        named = {value for group in absent for value in np.atleast_1d(np.array(group, object))}
        absent += [value for value in categories if value not in named.union(present)]
    return absent


class Rows(NamedTuple):
    """Inputs that a certificate is computed from."""

    y_true: Any
    y_pred: Any
    y_score: Any
    sensitive_features: Any
    control_features: Any = None
    label: Any = None  # if known, of criteria that depend on how many rows have each label

    @property
    def size(self) -> int:
        return len(self.y_score if self.y_pred is None else self.y_pred)

    def attributes(self, claim: Claim) -> dict[str, Any]:
        """Return columns of groups to compare, by the prefix of their groups' names."""
        if claim.attributes != "parallel":
            return {"": self.sensitive_features}
        columns = named_columns(self.sensitive_features)
        return {f"{name}=": column for name, column in columns.items()}

    def take(self, chosen: Array) -> Rows:
        """Select rows by positions or a mask."""
        return Rows(*(None if values is None else rows_of(values, chosen) for values in self))


def predict_rows(estimator: Any, X: Any, y: Any, rows: Rows, claim: Claim) -> Rows:
    """Add the labels that an estimator predicts, or its scores for criteria of rankings."""
    if any(values is not None for values in rows[:3]):
        raise ValueError(
            "certify takes an estimator with X and y, or y_pred or y_score with y_true; got both."
        )
    groups = rows.sensitive_features
    true = None if y is None else check_labels(y, "y")
    if claim.decides:
        return rows._replace(y_true=true, y_pred=predicted(estimator, X, groups))
    return rows._replace(y_true=true, y_score=scores_of(estimator, X, groups))


def check_rows(rows: Rows, claim: Claim, labelled: bool) -> Rows:
    """Check the columns that the claim needs, and drop all others."""
    true, labels, scores, groups, control, _ = rows
    notion, labelled = claim.notion, labelled or claim.needs_labels
    name, kind, values = "y_score", "score", scores
    if claim.decides:
        name, kind, values = "y_pred", "label", labels
    if values is None:
        raise ValueError(
            f"{name} must hold one {kind} per row for {notion!r}, or give an estimator with X and "
            "y; got None."
        )
    if true is None and labelled:
        raise ValueError(f"y_true must hold the true labels for {notion!r}; got None.")
    values = check_labels(values, name) if claim.decides else check_scores(values)
    true = None if true is None else check_labels(true, "y_true")
    label = true if claim.depends_on_labels else None
    true = true if labelled else None
    if groups is None and claim.pooled:
        groups = [OVERALL] * len(values)
    if claim.decides:
        return Rows(values if true is None else true, values, None, groups, control, label)
    return Rows(true, None, values, groups, label=label)

"""Comparisons of rates, strata and attributes, and the docstrings that metrics share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, SupportsFloat, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained.arrays import Array, Floats, as_numpy, rows_of
from fairconstrained.comparison import compared
from fairconstrained.exceptions import (
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.inputs.groups import CROSSED, encode_groups, group_name, named_columns
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import listed

T = TypeVar("T")
Metric = TypeVar("Metric", bound=Callable[..., float])
Arguments = ParamSpec("Arguments")
#: For each metric the function that reads its arguments, for the value and for its interval.
READERS: dict[Callable[..., float], Callable[..., Any]] = {}


class GroupRates(NamedTuple):
    """Fractions of rows, by group (rows of the arrays) and by event (columns)."""

    hits: Array  # (n_groups, n_events): weight of the rows where the event happened
    rows: Array  # the same, or one column: weight of the rows where it could
    conditions: list[str]  # of each column of `rows`, for messages
    groups: list[str]
    events: Sequence[str] = ()  # of each column of `hits`

    def values(self) -> Array:
        """Return the fractions; cells without rows are nan, and a warning names them."""
        empty = self.rows <= 0
        if empty.any():
            cells = np.argwhere(empty)
            # Named once, though several events share a condition.
            absent = (f"group {self.groups[g]} has no rows{self.conditions[e]}" for g, e in cells)
            warn_absent(dict.fromkeys(absent))
        return np.asarray(self.hits / np.where(empty, np.nan, self.rows))


def gap(rates: GroupRates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Return the largest difference between groups, in the worst event or averaged over events."""
    low, high = _bounds(rates, method)
    summaries: dict[str, Callable[[Array], Any]] = {"worst_case": np.max, "mean": np.mean}
    return float(choose(summaries, "agg", agg)((high - low).max(axis=0)))


def summed_gap(rates: GroupRates) -> float:
    """Return the sum over conditions of the largest gap among the (adjacent) events of each."""
    low, high = _bounds(rates, "between_groups")
    gaps = (high - low).max(axis=0).reshape(len(set(rates.conditions)), -1)
    return float(gaps.max(axis=1).sum())


def ratio(rates: GroupRates, method: str = "between_groups", agg: str = "worst_case") -> float:
    """Return the smallest ratio between groups, in the worst event or averaged over events."""
    low, high = _bounds(rates, method)
    summaries: dict[str, Callable[[Array], Any]] = {"worst_case": np.min, "mean": np.mean}
    summary = choose(summaries, "agg", agg)
    defined = high.max(axis=0) != 0
    if not defined.all():
        zero = listed(np.array(rates.events)[~defined], between="; ")
        rest = "" if defined.any() else ", and the metric is nan"
        warn_caller(
            f"{zero}: rates of zero in every group have no ratio; they are left out{rest}.",
            UndefinedMetricWarning,
        )
    ratios = (low[:, defined] / high[:, defined]).min(axis=0)
    return float(summary(ratios)) if ratios.size else float("nan")


def highest(rates: GroupRates) -> float:
    """Return the largest rate of any group and event."""
    return float(rates.values().max())


def zero_or_nan(weight: Array, groups: list[str]) -> float:
    """Return zero, or nan with a warning if a group has no weight or is the only one."""
    rows = weight[:, None]
    return gap(GroupRates(np.zeros_like(rows), rows, [""], groups))


def _bounds(rates: GroupRates, method: str) -> tuple[Array, Array]:
    """Return the lower and the higher rate of each comparison, (n_comparisons, n_events)."""
    to_overall = choose({"between_groups": False, "to_overall": True}, "method", method)
    if len(rates.groups) == 1:
        warn_single_group(rates.groups[0])
        nothing = np.full((1, rates.hits.shape[1]), np.nan)
        return nothing, nothing
    by_group = rates.values()
    if not to_overall:
        return by_group.min(axis=0, keepdims=True), by_group.max(axis=0, keepdims=True)
    with np.errstate(invalid="ignore"):  # no rows at all: nan, as announced for each group
        # All rows together, and not the mean over groups: fairlearn's definition.
        overall = rates.hits.sum(axis=0) / rates.rows.sum(axis=0)
    return np.minimum(by_group, overall), np.maximum(by_group, overall)


def choose(table: Mapping[str, T], parameter: str, value: Any) -> T:
    """Return the entry `value` of a table of options; an error lists them."""
    if not isinstance(value, str) or value not in table:
        raise ValueError(f"{parameter} must be one of {list(table)}; got {value!r}.")
    return table[value]


def warn_single_group(group: str) -> None:
    """Warn that a single group leaves nothing to compare."""
    warn_caller(
        f"sensitive_features has the single group {group}: there is nothing to compare it with, "
        "and the metric is nan.",
        SmallGroupWarning,
    )


def warn_absent(cells: Iterable[str]) -> None:
    """Warn of cells without rows, which make the metric nan."""
    warn_caller(
        f"{listed(cells, between='; ')} (or rows of zero weight only): the metric is nan.",
        SmallGroupWarning,
    )


# --- strata, and attributes side by side ----------------------------------------------------------

PARTS = {"control_features": None, "attributes": "crossed"}  # parameters, and their defaults
_BY_ROW = ("y_true", "y_pred", "y_score", "y_proba", "sensitive_features", "sample_weight")


def parts_of(
    arguments: dict[str, Any], control_features: Any, attributes: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a description and a metric's arguments for each stratum and each attribute."""
    groups = arguments["sensitive_features"]
    in_parallel = choose({"crossed": False, "parallel": True}, "attributes", attributes)
    columns: dict[str, Any] = {"": groups}
    if in_parallel:
        columns = {f" by {name}": column for name, column in named_columns(groups).items()}
    for words, column in columns.items():
        part = arguments if groups is None else {**arguments, "sensitive_features": column}
        if control_features is None:
            yield words, _with_intervals(part, columns.values())
            continue
        rows = {name: part[name] for name in _BY_ROW if part.get(name) is not None}
        check_samples(**rows, control_features=control_features)
        strata = encode_groups(control_features, name="control_features")
        n_rows = len(strata.codes)
        if not strata.known.any():
            raise ValueError("control_features is missing in every row.")
        known = strata.known if groups is None else strata.known & encode_groups(column).known
        # Before strata are cut out: rows of unknown group are represented within labels of all
        # strata.
        if not known.all() and "sample_weight" in part:
            label = np.zeros(n_rows) if part["y_true"] is None else as_numpy(part["y_true"])
            weight = rows.get("sample_weight", np.ones(n_rows))
            standing = known, np.asarray(label), np.asarray(weight)
            rows["sample_weight"] = standing_for_all(*standing, CROSSED)
        for stratum in range(len(strata.labels)):
            inside = np.flatnonzero(known & (strata.codes == stratum))
            selected = {name: rows_of(values, inside) for name, values in rows.items()}
            chosen = _with_intervals(part | selected, columns.values())
            yield f"{words} in stratum {group_name(strata.labels[stratum])}", chosen


def _with_intervals(part: dict[str, Any], columns: Iterable[Any]) -> dict[str, Any]:
    """Drop the intervals of groups that this part lacks but that others have."""
    interval = part.get("interval")
    if not isinstance(interval, Mapping):
        return part
    known = set[Any]().union(*map(_group_names, columns))
    lacks = known - _group_names(part["sensitive_features"])
    return part | {"interval": {key: value for key, value in interval.items() if key not in lacks}}


def _group_names(groups: Any) -> set[Any]:
    """Return the groups by their labels and by their names in messages."""
    labels = encode_groups(groups).labels.tolist()
    return {*labels, *map(group_name, labels)}


def compared_parts(parts: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the parts in which at least two groups have rows; warn of the groups of others."""
    names: list[str] = []
    rows, sets = list[int](), list[int]()
    for place, (words, part) in enumerate(parts):
        codes, labels = encode_groups(part["sensitive_features"])
        sizes = np.bincount(codes[codes >= 0], minlength=len(labels)) if codes.ndim == 1 else None
        rows += [1] * len(labels) if sizes is None else sizes.tolist() or [0]
        names += [f"group {group_name(label)}{words}" for label in labels] or [f"all groups{words}"]
        sets += [place] * (len(names) - len(sets))
    comparison = compared(np.array(rows)[:, None], 0.0, 1, sets=sets)
    if left_out := comparison.left_out(lambda row, _: names[row]):
        rest = "" if comparison.kept.any() else "; nothing is left, and the metric is nan"
        warn_caller(
            f"The metric leaves out {listed(left_out, between='; ')}{rest}.", SmallGroupWarning
        )
    places = set(np.array(sets)[comparison.kept[:, 0]].tolist())
    return [part for place, (_, part) in enumerate(parts) if place in places]


def standing_for_all(
    known: NDArray[np.bool_], label: Array, weight: Floats, name: str = "sensitive_features"
) -> Floats:
    """Return weights by which the rows of known group represent all rows of their label."""
    if not known.any():
        raise ValueError(f"{name} is missing in every row.")
    warn_caller(
        f"{name} is missing for {(~known).sum():,} of {len(known):,} rows: the other rows of a "
        "label stand for all of it. That is right if groups are missing at random within each "
        "label.",
        MissingSensitiveFeaturesWarning,
    )
    return standing_weights(known, label, weight)


def standing_weights(known: NDArray[np.bool_], label: Array, weight: Floats) -> Floats:
    """Compute the weights of :func:`standing_for_all` without a warning."""
    code = pd.factorize(label, use_na_sentinel=False)[0]
    represented, total = (np.bincount(code, w) for w in (weight * known, weight))
    factor = np.where(represented > 0, total / np.where(represented > 0, represented, 1.0), 1.0)
    return np.asarray(weight * factor[code])


# --- signatures and docstrings --------------------------------------------------------------------

PARAMETERS = {
    "y_true": """array-like of shape (n_samples,)
    True labels: numbers, booleans or strings.""",
    "y_pred": """array-like of shape (n_samples,)
    Predicted labels.""",
    "y_proba": """array-like of shape (n_samples,) or (n_samples, n_classes)
    Predicted probabilities: of the positive class, or of every class.""",
    "y_score": """array-like of shape (n_samples,)
    Scores that grow with the chance of the positive class. The Wasserstein distance also takes
    a column for every class.""",
    "constraint": """{"demographic_parity", "equalized_odds", "equal_opportunity"}
    Whether predictions should be independent of groups overall, given the label, or given a
    positive label.""",
    "order": """float, default=1.0
    The power p to which differences are raised, at least 1.""",
    "interval": """pair of float, list of pairs, or dict
    Ranks ``(alpha, beta)`` in [0, 1], counted from the top; a list of such pairs that do not
    overlap; or a dict with one of these for every group.""",
    "costs": """array-like of shape (n_classes, n_classes) or "balanced", optional
    Costs of at least 0, true label by predicted label, in sorted order; by default 1 for every
    error. "balanced": the mean over labels of the error rate within each.""",
    "threshold": """float, default=0.0
    Scores above it are positive decisions.""",
    "sensitive_features": """array-like of shape (n_samples,) or (n_samples, n_columns)
    One group per combination of values that occurs; or an object of
    ``fairconstrained.groups``, where groups are uncertain. Where values are missing, the other
    rows of a label stand for all of it.""",
    "method": """{"between_groups", "to_overall"}, default="between_groups"
    Compare the groups with each other, or each group with all samples together.""",
    "agg": """{"worst_case", "mean"}, default="worst_case"
    The worst of the rates that the metric compares, or the mean over them.""",
    "loss": """{"log", "brier"}, default="log"
    Minus the log of the probability of the true label, or half the squared distance of the
    probabilities to the one-hot label.""",
    "sample_weight": """array-like of shape (n_samples,), optional
    Non-negative weights of the rows.""",
    "pos_label": """label, optional
    The favourable one of two labels, whose rates are compared: by default 1 of 0 and 1 (or -1 and
    1), True, and the last of ordered categories. Of other labels it must be given where the value
    depends on it; differences of selection rates and odds do not. Scores and probabilities are by
    default those of the larger label, as in scikit-learn. The worst of more than two classes counts
    unless one is named.""",
    "control_features": """array-like of shape (n_samples,) or (n_samples, n_columns), optional
    Strata, such as age or kind of job: the value is that of the worst stratum.""",
    "attributes": """{"crossed", "parallel"}, default="crossed"
    Several sensitive columns are crossed, or each is compared by itself, and the worst counts.""",
    "labels": """sequence of labels, optional
    The classes in the order of the columns of `y_proba`, as in ``classes_``; by default the sorted
    labels of `y_true`. Needed where some class does not occur in `y_true`.""",
}

_RAISES = """Raises
------
ValueError
    Lengths that differ, missing values, negative weights, an unknown option, two labels of which
    either may be the favourable one.

Warns
-----
SmallGroupWarning
    Names each group without rows (or without rows of a label) that the metric needs, or the
    only group where there is nothing to compare: the metric is nan then. Strata and attributes
    with a single group are left out by name. Every cell with a row counts, however few they are;
    fits, certificates, audits and monitors leave out cells with too few rows by name.
UndefinedMetricWarning
    Names rates that are zero in every group: they have no ratio, and are left out.

"""


def documented(metric: Metric) -> Metric:
    """Insert the sections that metrics share into the docstring of `metric`.

    "Parameters" (the names in the signature, described in ``PARAMETERS``) goes before "Returns",
    "Raises" and "Warns" before "Examples".
    """
    doc = inspect.getdoc(metric) or ""
    entries = [f"{name} : {PARAMETERS[name]}" for name in inspect.signature(metric).parameters]
    section = "\n".join(["Parameters", "----------", *entries])
    doc = doc.replace("Returns\n---", f"{section}\n\nReturns\n---", 1)
    metric.__doc__ = doc.replace("Examples\n---", f"{_RAISES}Examples\n---", 1)
    return metric


def metric(measure: Callable[Arguments, SupportsFloat]) -> Callable[Arguments, float]:
    """Let a metric take strata and parallel attributes, and complete its docstring.

    The function measures one stratum by one attribute, and ignores its parameters
    `control_features` and `attributes`: the decorator reads them, and returns the worst value. A
    function may return an object with the value as its ``float``: it is in `READERS` then.
    """
    signature = inspect.signature(measure).replace(return_annotation="float")
    # A metric that can do without groups, such as an error rate, has nothing to leave out.
    compares = signature.parameters["sensitive_features"].default is inspect.Parameter.empty

    @functools.wraps(measure)
    def measured(*args: Arguments.args, **kwargs: Arguments.kwargs) -> float:
        places: dict[str, Any] = {name: kwargs.pop(name, value) for name, value in PARTS.items()}
        # The usual call has neither, and binding arguments takes longer than small metrics.
        if places["control_features"] is None and places["attributes"] == "crossed":
            return float(measure(*args, **kwargs))
        bound = signature.bind(*args, **kwargs)  # raises TypeError
        bound.apply_defaults()
        arguments = {n: value for n, value in bound.arguments.items() if n not in PARTS}
        worst = np.min if measure.__name__.endswith("_ratio") else np.max
        parts = list(parts_of(arguments, **places))
        chosen = compared_parts(parts) if compares else [part for _, part in parts]
        one_part: Callable[..., SupportsFloat] = measure
        return float(worst([float(one_part(**part)) for part in chosen] or [np.nan]))

    vars(measured)["__signature__"] = signature
    if inspect.signature(measure).return_annotation != "float":
        READERS[measured] = measure
    return documented(measured)

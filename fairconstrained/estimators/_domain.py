"""Public domains of labels and groups: what may occur, whether or not it does."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from fairconstrained.arrays import Array
from fairconstrained.estimators._rows import TrainingRows


def categories(values: Any, name: str) -> list[Any] | None:
    """Return the categories that pandas categoricals declare, in order, several columns crossed.

    None for anything else.

    Raises
    ------
    ValueError
        If they are of different types, or labels that are no classes. Rows alone would be read
        otherwise where only some of them occur, and that would tell which.
    """
    # In tables of other libraries columns are not names.
    names = getattr(values, "columns", None) if hasattr(values, "iloc") else None
    columns = [values] if names is None else [values[name] for name in names]
    declared = [getattr(getattr(column, "dtype", None), "categories", None) for column in columns]
    if any(own is None for own in declared):
        return None
    try:
        own = [sorted(column) for column in declared]
    except TypeError as error:
        raise ValueError(
            f"the categories of {name} must be of one type, such as texts, because those that "
            f"occur are read as numbers or texts; got {[list(column) for column in declared]}."
        ) from error
    if name == "y" and type_of_target(np.asarray(declared[0])) == "continuous":
        raise ValueError(f"the categories of y must be classes; got the numbers {own[0]}.")
    return own[0] if names is None or len(own) == 1 else list(itertools.product(*own))


def in_domains(
    rows: TrainingRows, classes: list[Any] | None, groups: list[Any] | None
) -> TrainingRows:
    """Rows with the labels and groups that public domains declare, whether or not they occur."""
    if classes is not None:
        y, labels = _recoded(rows.y, rows.classes, classes)
        rows = replace(rows, y=y, classes=labels)
    if groups is not None and rows.groups is not None:
        group, labels = _recoded(rows.group, rows.groups, groups)
        rows = replace(rows, group=group, groups=labels)
    return rows


def _recoded(codes: Array, labels: Array, domain: list[Any]) -> tuple[Array, Array]:
    """Codes of labels as codes in a domain that holds them, and the domain as an array."""
    place = {label: i for i, label in enumerate(domain)}
    places = np.array([place[label] for label in labels.tolist()], dtype=np.int64)
    array = np.empty(len(domain), dtype=object)  # labels of crossed columns are tuples
    array[:] = domain
    return places[codes], array if isinstance(domain[0], tuple) else np.array(domain)

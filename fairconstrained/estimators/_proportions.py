"""Validation of public proportions of groups."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fairconstrained.groups import group_name

__all__ = ["public_cells"]

_SUM_TOL = 1e-6


def public_cells(given, space, per_label):
    """Fractions of all rows by label and group, (n_classes, n_groups), as a user gives them.

    Parameters
    ----------
    given : mapping or sequence
        Proportions by group; with `per_label`, one such mapping or sequence by label.
    space : Space
    per_label : bool
        Whether the notion conditions on labels.

    Raises
    ------
    ValueError
        If a group or label is missing or unknown, a proportion is not positive, or the sum is not
        1.
    """
    n_classes = len(space.classes)
    if per_label:
        cells = _in_order(given, space.classes, "label", lambda label: str(label))
        cells = [_fractions(of_label, space) for of_label in cells]
    else:  # the labels of the rows do not matter, so they are split evenly
        cells = [_fractions(given, space) / n_classes] * n_classes
    cells = np.stack(cells)
    if not abs(cells.sum() - 1.0) <= _SUM_TOL:
        raise ValueError(
            f"DPFermiClassifier.group_proportions must add up to 1; they add up to {cells.sum():g}."
        )
    return cells


def _fractions(given, space):
    fractions = np.array(_in_order(given, space.groups, "group", group_name), dtype=float)
    if fractions.ndim != 1 or not (fractions > 0).all():
        raise ValueError(
            f"DPFermiClassifier.group_proportions must be positive numbers; got {given!r}."
        )
    return fractions


def _in_order(given, keys, what, name):
    """Values of a mapping by known keys, or of a sequence of the right length."""
    keys = [key.item() if isinstance(key, np.generic) else key for key in keys]
    if isinstance(given, Mapping):
        missing = [name(key) for key in keys if key not in given]
        unknown = [str(key) for key in given if key not in keys]
        if missing or unknown:
            raise ValueError(
                f"DPFermiClassifier.group_proportions misses the {what}s {missing} of the data and "
                f"has {unknown}, which the data do not have; got {given!r}."
            )
        return [given[key] for key in keys]
    try:
        values = list(given)
    except TypeError:
        values = []
    if len(values) != len(keys):
        raise ValueError(
            f"DPFermiClassifier.group_proportions must have one entry for each {what} "
            f"({', '.join(map(name, keys))}); got {given!r}."
        )
    return values

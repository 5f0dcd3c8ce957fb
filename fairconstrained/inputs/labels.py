"""Labels and decisions: their codes, and which of two is the favourable one.

The favourable label is never guessed: 1 of 0 and 1 (or -1 and 1), True, and the last of ordered
categories are known, and of all others the user names it. Rankings keep the order of scikit-learn,
in which the larger of two labels is on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array, Ints, as_numpy, check_array
from fairconstrained.inputs.values import (
    Description,
    factorized,
    kind_of,
    listed,
    plain,
    spelling,
    warn_of_values,
)

UNSEEN = "another label"  # stands for the second class where only one label was seen


class Classes(NamedTuple):
    """The labels, and the indices of the labels that a criterion is about.

    Of two labels that is the favourable one, or the second if it is not known.
    """

    labels: list[Any]
    targets: list[int]
    known: bool  # whether the favourable one of two labels is known; True if there are more

    def require_known(self, parameter: str = "pos_label") -> None:
        """Raise ValueError unless the favourable one of two labels is known."""
        if not self.known:
            refuse_unknown(self.labels, parameter)

    def require_top(self) -> None:
        """Raise ValueError if only one label was seen, and its rank is unknown."""
        if UNSEEN in self.labels:
            self.require_known()


def label_array(values: Any) -> Array:
    """Return labels as an array, in which numbers and missing values beside texts stay as such."""
    array = np.asarray(as_numpy(values))
    array = array.astype(object) if array.dtype.kind in "TS" else array  # texts of numpy 2, bytes
    mixed = isinstance(values, (list, tuple)) and array.dtype.kind == "U"
    return np.asarray(values, dtype=object) if mixed else array


def plain_labels(values: Any, name: str = "y") -> Any:
    """Return labels of one type, none missing, as an array; leave other shapes unchanged."""
    array = label_array(values)
    if array.dtype.kind == "V":  # complex numbers scikit-learn refuses, X first
        _refuse_other_types(array.reshape(-1), name)
    if array.ndim not in (1, 2) or array.size != len(array):
        return array if array.ndim else values
    column = array.reshape(-1)
    if pd.isna(column).any():
        raise ValueError(
            f"{name} has missing values (NaN, None): leave these rows out, such as "
            f"X[{name}.notna()] and {name}[{name}.notna()] of pandas."
        )
    if array.dtype != object:
        return array
    labels = plain(column, name)
    _refuse_other_types(labels, name)
    is_list = isinstance(values, (list, tuple))
    return (np.asarray(labels.tolist()) if is_list else labels).reshape(array.shape)


def check_labels(values: ArrayLike, name: str) -> Array:
    """Return one-dimensional class labels without missing values; errors mention `name`."""
    values = values if order_of(values) is None else np.asarray(values, dtype=object)
    labels = check_array(plain_labels(values, name), ensure_2d=False, dtype=None, input_name=name)
    labels = one_column(labels, name)
    _refuse_other_types(labels, name)
    return labels


def one_column(labels: Array, name: str) -> Array:
    """Return labels in one dimension; raise ValueError for more than one column."""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise ValueError(f"{name} must have one label per row; got shape {labels.shape}.")
    return labels


def _refuse_other_types(labels: Array, name: str) -> None:
    """Raise ValueError for labels of several types, and for values that cannot be labels."""
    if pd.api.types.infer_dtype(labels).startswith("mixed"):
        kinds = {kind_of(label) for label in labels}
        if len(kinds) > 1:
            raise ValueError(
                f"{name} must hold labels of one type, numbers or text; got "
                f"{' and '.join(sorted(kinds))}."
            )
    refuse_other_values(labels, name)


def refuse_other_values(labels: Array, name: str) -> None:
    """Raise ValueError for fractions, and for objects that cannot be labels."""
    # Texts are the usual case, and need no look at each of them.
    if labels.dtype.kind in "OcV" and pd.api.types.infer_dtype(labels) != "string":
        others = {type(v).__name__ for v in labels if kind_of(v) not in ("text", "numbers")}
        if others:
            raise ValueError(
                f"{name} must hold labels: numbers, booleans, texts or dates without a time zone; "
                f"got {listed(sorted(others))}."
            )
    if labels.dtype.kind == "f" and (fractions := labels[labels != np.floor(labels)]).size:
        raise ValueError(
            f"{name} must hold class labels; got {fractions[0]}. Turn scores or probabilities "
            "into labels first (scores > 0, probabilities > 0.5)."
        )


def encode_labels(*arrays: Array) -> tuple[list[Ints], list[Any]]:
    """Return the codes of each array's labels in the sorted union of labels, and this union."""
    if len({kind_of(array[0]) for array in arrays}) > 1:
        raise ValueError(
            f"y_true and y_pred must hold the same kind of labels; got {arrays[0][0]!r} and "
            f"{arrays[-1][0]!r} in their first rows."
        )
    codes, seen = pd.factorize(np.concatenate(arrays), sort=True)
    warn_of_values(seen.tolist(), "the labels", "label")
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return np.split(codes.astype(np.int64), ends), seen.tolist()


def classes_of(
    seen: Sequence[Any], pos_label: Any, *columns: Any, parameter: str = "pos_label"
) -> Classes:
    """Return all classes, given the labels `seen`, and the classes that a criterion is about.

    Of two classes that is the favourable one, of more it is each. If only one label was seen, a
    second class without rows is added. Ordered `columns` say which label is the favourable one.
    """
    seen = list(seen)
    check_favourable(pos_label, seen, parameter)
    best = best_of(seen, *map(order_of, columns)) if pos_label is None else pos_label
    if best is None:
        if len(seen) > 2:
            return Classes(seen, list(range(len(seen))), True)
        known = is_known(seen)
        if len(seen) == 2:
            return Classes(seen, [1], known)
        return Classes([*seen, UNSEEN], [int(seen[0] in (0, -1))], known)
    if len(seen) == 1:
        other = UNSEEN if seen[0] == best else best
        return Classes([*seen, other], [int(seen[0] != best)], True)
    if best not in seen:
        raise ValueError(f"{parameter} must be one of the labels {seen}; got {best!r}.")
    return Classes(seen, [seen.index(best)], True)


def check_favourable(label: Any, seen: Sequence[Any], parameter: str = "pos_label") -> None:
    """Raise ValueError unless the favourable label is a single value or None."""
    if not pd.api.types.is_scalar(label) or (label is not None and pd.isna(label)):
        labels = sorted(seen, key=str)
        raise ValueError(f"{parameter} must be one of the labels {labels}; got {label!r}.")


def two_labels(y_true: ArrayLike, name: str, pos_label: Any) -> tuple[Ints, Classes]:
    """Return the code of each row's label, and the two labels; the target is the one on top."""
    (codes,), seen = encode_labels(check_labels(y_true, name))
    classes = classes_of(seen, pos_label)
    if len(classes.labels) > 2:
        raise ValueError(f"{name} must have two labels; got {classes.labels}.")
    return codes, classes


def read_decisions(
    values: Any,
    name: str,
    before: Description,
    pos_label: Any,
    orders: Sequence[list[Any] | None] = (),
    missing: bool = False,
) -> tuple[Ints, Description]:
    """Return 1 for the favourable label, 0 for the other and -1 for missing; and a description.

    The description extends `before`. Raises ValueError for a third label, labels of another kind, a
    favourable label that is unknown or not the best of the `orders`, and missing values.
    """
    codes, seen = factorized(one_column(label_array(values), name), name)
    seen = plain(np.asarray(seen), name)
    _refuse_other_types(seen, name)
    if not missing and (codes < 0).any():
        raise ValueError(f"{name} has missing values.")
    after = before.with_labels(seen.tolist(), name)
    check_favourable(pos_label, after.labels)
    if pos_label is None:
        after = after.with_favourable(best_of(after.labels, *orders))
        if after.favourable is None and len(after.labels) <= 2 and not is_known(after.labels):
            refuse_unknown(after.labels, f"{name} holds {after.labels[-1]!r}: pos_label")
    best = after.favourable if pos_label is None else pos_label
    if best is None:  # 1, or "1" of texts; it may come later
        best = next((label for label in after.labels if spelling(label) == 1.0), None)
    if len({*after.labels, best} - {None}) > 2:
        raise ValueError(
            f"{name} must hold two labels, of which {best!r} is the favourable one; got "
            f"{list(after.labels)}."
        )
    warn_of_values(after.labels, name, "label")
    good = np.array([label == best for label in seen.tolist()], dtype=np.int64)
    return np.append(good, -1)[codes], replace(after, favourable=best)


def is_known(labels: Sequence[Any]) -> bool:
    """Return whether the labels show the favourable one: 1 of 0 and 1 (or -1 and 1), or True."""
    keys = set(map(spelling, labels))
    return keys <= {0.0, 1.0} or keys <= {-1.0, 1.0}


def refuse_unknown(labels: Sequence[Any], parameter: str = "pos_label") -> None:
    """Raise a ValueError that asks the user to name the favourable label."""
    seen = sorted((one for one in np.asarray(labels).tolist() if one != UNSEEN), key=str)
    raise ValueError(
        f"{parameter} must say which of the labels {seen} is the favourable one; got None. Only 1 "
        "of 0 and 1 (or -1 and 1), True, and the last of ordered categories are known."
    )


def top_of_words(labels: Sequence[Any]) -> str:
    """Return a note that names the label on top of a ranking; "" if the labels show it."""
    if len(labels) != 2 or is_known(labels):
        return ""
    return f"the label on top of the ranking is {labels[1]!r}"


def order_of(values: Any) -> list[Any] | None:
    """Return the categories of an ordered column of pandas, polars or Arrow, the best one last."""
    if getattr(getattr(values, "type", None), "ordered", False) is True:  # of Arrow
        values = values.to_pandas()
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "ordered", False) is True or type(dtype).__name__ == "Enum":
        return list(dtype.categories)  # type: ignore[union-attr]
    return None


def best_of(seen: Sequence[Any], *orders: list[Any] | None) -> Any:
    """Return the best of two labels by the orders that contain them, or None if none does.

    If only one label was seen, the best is the last of the order. Raises ValueError if orders
    disagree.
    """
    some = set(seen) if 0 < len(seen) <= 2 else {None}
    having = [order for order in orders if order and some <= set(order)]
    best = {max(seen, key=order.index) if len(seen) == 2 else order[-1] for order in having}
    if len(best) > 1:
        raise ValueError(
            f"pos_label must say which label is the favourable one: the orders of categories, "
            f"{listed(having)}, disagree."
        )
    return next(iter(best), None)

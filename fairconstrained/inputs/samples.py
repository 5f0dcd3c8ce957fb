"""Whether inputs have the same samples in the same order, and the weights of the samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np

from fairconstrained.arrays import Array, Floats, as_numpy, check_array, in_rows
from fairconstrained.exceptions import InputWarning, warn_caller

_LEAST = 1e-100  # of positive weights


def check_samples(**inputs: Any) -> None:
    """Refuse other numbers of rows, masked values, and the same samples in different orders.

    Every input that a user has handed in is checked, whether or not it will be needed. Inputs are
    taken by position, as in scikit-learn, and pandas aligns by index: where the same labels stand
    in another order, either reading would be a guess. Where some labels do, a warning says so.
    """
    first, known = "", None  # the first input with an index
    counted, n_samples = "", None  # the first input whose rows can be counted
    for name, values in inputs.items():
        for column in values.values() if isinstance(values, dict) else [values]:
            if (n_rows := _n_rows(column)) is not None:
                if n_samples is None:
                    counted, n_samples = name, n_rows
                check_length(name, n_rows, n_samples, counted, isinstance(values, dict))
            if np.ma.is_masked(column):
                raise ValueError(
                    f"{name} has masked values, whose data would be used as if they were not "
                    "masked. Drop these samples or fill the values (numpy.ma.filled)."
                )
            index: Any = getattr(column, "index", None)
            if not hasattr(index, "equals"):  # not from pandas; lists have a method `index`
                continue
            if known is None:
                first, known = name, index
            elif len(index) == len(known) and not index.equals(known):
                _compare_orders(name, index, first, known)


@contextmanager
def positions_noted() -> Iterator[None]:
    """Say no more about the positions of inputs, of which parts are passed on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are matched by position", InputWarning)
        yield


def check_length(name: str, n_rows: int, n_samples: int, other: str, is_dict: bool = False) -> None:
    """Raise ValueError unless an input has as many rows as an `other` one."""
    if n_rows != n_samples:
        whole = " Searches and cross_validate do not split a dict: give a DataFrame of its columns."
        raise ValueError(
            f"{name} has {in_rows(n_rows)}, but {other} has {n_samples}. Give one row per sample, "
            "in the same order (resampling steps of a pipeline break it)."
            f"{whole if is_dict else ''}"
        )


def _n_rows(values: Any) -> int | None:
    """Return the number of rows; None of a text or number, and of rows that are lazy or blocks."""
    if hasattr(values, "shape"):  # of lazy tables it holds no number
        shape = values.shape
        n_rows = shape[0] if isinstance(shape, tuple) and shape else None
        return int(n_rows) if isinstance(n_rows, Integral) else None
    is_text = isinstance(values, (str, bytes))
    return None if is_text or not hasattr(type(values), "__len__") else len(values)


def _compare_orders(name: str, index: Any, first: str, known: Any) -> None:
    """Raise or warn where labels of one index stand at other positions in the other one."""
    if index.isin(known).all() and known.isin(index).all():
        raise ValueError(
            f"{name} has the samples of {first} in another order: both indices hold the "
            f"same labels. Inputs are taken by position: give {name}.loc[{first}.index], "
            "or arrays without indices (to_numpy()) if the positions are right."
        )
    words = index.map(str), known.map(str)  # numbers that became texts are the same labels
    apart = np.asarray(words[0] != words[1])
    moved = words[0][apart].isin(words[1]) | words[1][apart].isin(words[0])
    if moved.any():  # a label may be the name of a person: its position says as much
        place = np.flatnonzero(apart)[moved].tolist()[0]
        warn_caller(
            f"{name} and {first} are matched by position, but their indices share labels at other "
            f"positions, such as the label at position {place} of {name}. If rows of one label are "
            f"one sample, give {name}.loc[{first}.index]; if the positions are right, as after "
            "reset_index on one side, give arrays without indices (to_numpy()).",
            InputWarning,
        )


def check_weights(sample_weight: Any, n_samples: int) -> Floats:
    """Return non-negative weights, one per row; ones for None."""
    if sample_weight is None:
        return np.ones(n_samples)
    shape = np.asarray(as_numpy(sample_weight)).shape
    if shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per row; got {shape}."
        )
    options = {"dtype": np.float64, "input_name": "sample_weight", "force_writeable": True}
    weight: Array = check_array(sample_weight, ensure_2d=False, **options)
    if (weight < 0).any():
        raise ValueError(f"sample_weight must not be negative; got {weight.min()}.")
    some = weight[weight > 0]
    if some.size and not _LEAST <= some.min() <= some.max() <= 1 / _LEAST:
        raise ValueError(
            f"sample_weight must be zero or between {_LEAST} and {1 / _LEAST}, since squares of "
            f"others are no numbers; got {some.min()} to {some.max()}."
        )
    return weight

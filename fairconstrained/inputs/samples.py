"""Whether inputs have the same samples in the same order, and the weights of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairconstrained.arrays import Array, Floats, as_numpy, check_array
from fairconstrained.exceptions import InputWarning, warn_caller


def check_samples(**inputs: Any) -> None:
    """Refuse masked values, and indices that put the same samples into different orders.

    Inputs are taken by position, as in scikit-learn, and pandas aligns by index: where the same
    labels stand in another order, either reading would be a guess. Where some labels do, a warning
    says so.
    """
    first, known = "", None  # the first input with an index
    for name, values in inputs.items():
        for column in values.values() if isinstance(values, dict) else [values]:
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
    moved = words[0][apart].isin(words[1])
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
    return weight

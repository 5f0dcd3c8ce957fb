"""Checks of inputs that hold one entry for each sample, before they become arrays."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np

# The workers of torch.distributed that have the other samples; None if these are all samples.
CHOSEN_WORKERS: ContextVar[Any] = ContextVar("chosen_workers", default=None)


def check_all_samples(method: str, instead: str) -> None:
    """Raise ValueError where the samples given are one worker's part of them.

    Examples
    --------
    >>> from fairconstrained.samples import check_all_samples
    >>> check_all_samples("Search.fit", "search on one worker.")
    """
    workers = CHOSEN_WORKERS.get()
    if workers is not None and workers.size > 1:
        raise ValueError(f"{method} must be called outside of sharded_rows: {instead}")


def check_samples(**inputs: Any) -> None:
    """Refuse masked values, and indices that put the same samples into different orders.

    Inputs are taken by position, as in scikit-learn. pandas aligns by index instead, so an input
    whose index holds the labels of another one in a different order means other samples than those
    at its positions. It is refused, because either reading would be a guess. Indices with
    different labels say nothing about the order.

    Parameters
    ----------
    **inputs : array-like or dict of array-like
        By the names that the user knows. None is allowed.

    Raises
    ------
    ValueError
        The message names the input.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairconstrained.samples import check_samples
    >>> y = pd.Series([0, 1, 1])
    >>> check_samples(y=y, sensitive_features=pd.Series(["a", "b", "b"], index=[7, 8, 9]))
    >>> try:
    ...     check_samples(y=y, sensitive_features=pd.Series(["a", "b", "b"], index=[2, 1, 0]))
    ... except ValueError as error:
    ...     print(str(error).split(":")[0])
    sensitive_features has the samples of y in another order
    """
    first: tuple[str, Any] | None = None
    columns = [
        (name, column)
        for name, values in inputs.items()
        for column in (values.values() if isinstance(values, dict) else [values])
    ]
    for name, values in columns:
        if np.ma.is_masked(values):
            raise ValueError(
                f"{name} has masked values, whose data would be used as if they were not masked. "
                "Drop these samples or fill the values (numpy.ma.filled)."
            )
        index = getattr(values, "index", None)
        if not hasattr(index, "equals"):  # not from pandas; lists have a method `index`
            continue
        first = first or (name, index)
        if _another_order(index, first[1]):
            raise ValueError(
                f"{name} has the samples of {first[0]} in another order: both indices hold the "
                f"same labels. Inputs are taken by position: give {name}.loc[{first[0]}.index], "
                "or arrays without indices (to_numpy()) if the positions are right."
            )


def _another_order(index: Any, known: Any) -> bool:
    if len(index) != len(known) or index.equals(known):
        return False
    return bool(index.isin(known).all() and known.isin(index).all())

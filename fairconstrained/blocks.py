"""Rows of X in blocks, which every pass over the data reads again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

__all__ = ["Blocks"]


class Blocks:
    """Rows of X in blocks, for tables that do not fit into memory.

    Pass it to ``fit`` as X: all estimators take it with a linear model and without `epsilon`.
    Labels, sensitive features and weights are ordinary arrays, for the rows of all blocks in order.
    Predictions take the rows of one block as X. Every pass over the rows calls `read` again: once
    for the values at a point and once for the gradient, tens to hundreds of times in a fit.
    AUCs and gaps at all thresholds of more than 400,000 rows are measured as on shards
    (:func:`~fairconstrained.distributed.sharded_rows`).

    Parameters
    ----------
    read : callable
        ``read()`` returns an iterable of blocks: arrays, sparse matrices, DataFrames or record
        batches of Arrow, with numbers in the same columns, and the same blocks each time. A few
        blocks must fit into memory: ten thousand to a million rows are a good size.

    Examples
    --------
    Ten blocks, which a program would read from files:

    >>> import numpy as np
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.blocks import Blocks
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(500, random_state=0)
    >>> X = Blocks(lambda: np.array_split(data.data, 10))
    >>> clf = RateConstrainedClassifier()
    >>> clf.fit(X, data.target, sensitive_features=data.sensitive_features).feasible_
    True
    """

    def __init__(self, read: Callable[[], Iterable[Any]]):
        if not callable(read):
            raise ValueError(
                "Blocks.read must be a function that returns an iterable of blocks, since every "
                f"pass reads them again; got a {type(read).__name__}. For a list: lambda: the_list."
            )
        self.read = read

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("X must be the rows of one block here: only fit reads Blocks.")

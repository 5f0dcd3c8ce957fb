"""Tables of Dask, with any of its schedulers: threads as well as ``dask.distributed``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import call
from typing import Any

import numpy as np
import pandas as pd
from dask import compute, persist
from dask.delayed import Delayed, delayed

from fairconstrained.engines import Parts, Table, added, total


class DaskTable(Table):
    """A DataFrame of Dask."""

    engine = "Dask"

    def __init__(self, frame: Any):
        self.frame = frame
        self.columns = list(frame.columns)

    def parts(self, make: Callable[[Any], Any]) -> Parts:
        made = DaskParts(_applied(make, self.frame.to_delayed()))
        present = made.gather(lambda part: part is not None)
        return DaskParts(compress(made.persisted, present))

    def mapped(self, function: Callable[[Any], Any], like: Any, names: Sequence[str]) -> Any:
        def framed(values: Any, index: Any) -> Any:
            if like.ndim == 1:
                return pd.Series(values, index=index)
            return pd.DataFrame(values, index=index, columns=list(names))

        def apply(frame: Any) -> Any:
            return framed(function(frame) if len(frame) else like, frame.index)

        return self.frame.map_partitions(apply, meta=framed(like, self.frame._meta.index))

    def column_names(self, values: Any) -> list[str]:
        whole = values.name if values.ndim == 1 else list(values.columns)
        same = self.frame[whole]._name == values._name  # of the expressions, which are lazy
        return list(np.ravel(whole)) if same else []


class DaskParts(Parts):
    """Objects persisted by Dask."""

    def __init__(self, made: Iterable[Delayed]):
        self.persisted = list(persist(*made))

    def map_parts(self, function: Callable[[Any, Any], Any], each: Sequence[Any]) -> Parts:
        return DaskParts(_applied(function, self.persisted, each))

    def sum(self, function: Callable[[Any], Any]) -> Any:
        some = delayed(total)
        return added(_applied(function, self.persisted), lambda values: some(*values)).compute()

    def gather(self, function: Callable[[Any], Any]) -> list[Any]:
        return list(compute(*_applied(function, self.persisted)))


def _applied(function: Callable[..., Any], *lists: Sequence[Any]) -> list[Delayed]:
    """Create tasks that apply a function, sent once to each worker, to the entries of lists."""
    sent, applied = delayed(lambda itself: itself)(function), delayed(call)
    return [applied(sent, *entries) for entries in zip(*lists, strict=True)]


table = DaskTable

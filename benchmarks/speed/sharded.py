"""A fit on the rows of one worker and of several: processor time, messages, and a plan for many.

    python -m benchmarks.speed.sharded --rows 1000000
    torchrun --standalone --nproc-per-node 2 -m benchmarks.speed.sharded --rows 1000000
    python -m benchmarks.speed.sharded --constraint inter_group_auc

Two groups, 20 columns in double precision, default settings, one thread a worker: demographic
parity within 0.02, or another constraint, of which the gap of all rows is measured as well. One
worker fits on all rows in memory, several each on their part of the same rows. The first worker
prints the model, so that the fits can be compared, and what a pass costs: with it, and with an
assumed network, the time of 1,000 workers with 1e11 rows follows, for sums along a tree:

    passes * (rows / workers * seconds a row and pass + 2 log2(workers) * latency)
    + bytes / bandwidth * 2 log2(workers).
"""

from __future__ import annotations

import json
import math
import pickle
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from benchmarks.command import command
from benchmarks.results import append
from benchmarks.speed import as_worker
from fairconstrained import (
    AUCFairClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    metrics,
)
from fairconstrained.distributed import sharded_rows

N_COLUMNS = 20
# An estimator, and the gap of scores that it bounds.
CONSTRAINTS: dict[str, tuple[Any, Any]] = {
    "demographic_parity": (RateConstrainedClassifier(slack=0.02), None),
    "inter_group_auc": (AUCFairClassifier("inter_group", slack=0.02), metrics.inter_group_auc_gap),
    "statistical_parity": (
        PartialParityClassifier(interval=(0.0, 0.3), slack=0.1),
        partial(metrics.partial_statistical_parity, interval=(0.0, 0.3)),
    ),
}
_WORKERS, _ROWS = 1_000, 1e11  # of the plan
_LATENCY, _BANDWIDTH = 50e-6, 1e9  # seconds of one hop, bytes per second
_BLOCK = 10_000
_FEW = 2_000


def rows(n_rows: int, rank: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X, labels and groups of one worker: its blocks of those that all have together."""
    weights = np.random.default_rng(0).normal(size=N_COLUMNS)
    blocks = []
    for block in np.array_split(np.arange(n_rows // _BLOCK), size)[rank]:
        rng = np.random.default_rng((1, block))
        group = rng.integers(2, size=_BLOCK)
        X = rng.normal(size=(_BLOCK, N_COLUMNS))
        X[:, 0] += group
        blocks.append((X, X @ weights + 2 * rng.logistic(size=_BLOCK) + group > 0, group))
    X, y, group = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return X, y.astype(np.int64), group


class Counted:
    """Sums and gathers over workers while it is entered."""

    def __init__(self) -> None:
        self.sums = self.bytes = self.gathers = self.gathered = 0

    def __enter__(self) -> Counted:
        self._honest = dist.all_reduce, dist.all_gather_object
        dist.all_reduce, dist.all_gather_object = self._reduce, self._gather
        return self

    def __exit__(self, *error: object) -> None:
        dist.all_reduce, dist.all_gather_object = self._honest

    def _reduce(self, tensor: Tensor, *args: Any, **options: Any) -> Any:
        self.sums += 1
        self.bytes += tensor.numel() * tensor.element_size()
        return self._honest[0](tensor, *args, **options)

    def _gather(self, found: list[Any], mine: Any, *args: Any, **options: Any) -> Any:
        self.gathers += 1
        self.gathered += len(pickle.dumps(mine))
        return self._honest[1](found, mine, *args, **options)


def measured(constraint: str, n_rows: int, rank: int, size: int) -> dict[str, Any]:
    """One fit, after one on a few rows, which loads libraries."""
    X, y, group = rows(n_rows, rank, size)
    clf, gap = CONSTRAINTS[constraint]
    with nullcontext() if size == 1 else sharded_rows():
        clf.fit(X[:_FEW], y[:_FEW], sensitive_features=group[:_FEW])
        with Counted() as counted:
            start = time.process_time()
            clf.fit(X, y, sensitive_features=group)
            processor = time.process_time() - start
    exact = clf.violation_
    if rank == 0 and gap is not None:
        X, y, group = rows(n_rows, 0, 1)
        exact = gap(y, clf.decision_function(X), sensitive_features=group)
    return {
        "constraint": constraint,
        "workers": size,
        "rows of all": n_rows,
        "processor seconds of a worker": round(processor, 2),
        "sums": counted.sums,
        "bytes of sums": counted.bytes,
        "gathers": counted.gathers,
        "bytes of gathers": counted.gathered * size,
        "violation": round(clf.violation_, 9),
        "violation of all rows": round(exact, 9),
        "coef": np.round(clf.coef_[0, :3], 9).tolist(),
    }


def planned(found: dict[str, Any]) -> dict[str, float]:
    """Seconds of arithmetic and of network of many workers, from what one of these has measured."""
    of_worker = found["rows of all"] / found["workers"]
    a_row = found["processor seconds of a worker"] / of_worker
    hops = 2 * math.log2(_WORKERS)
    arithmetic = _ROWS / _WORKERS * a_row
    messages = found["sums"] + found["gathers"]
    n_bytes = found["bytes of sums"] + found["bytes of gathers"]
    network = hops * (messages * _LATENCY + n_bytes / _BANDWIDTH)
    asked = {"planned workers": _WORKERS, "planned rows": _ROWS}
    return {**asked, "seconds of arithmetic": arithmetic, "seconds of network": network}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, alone or with the others that torchrun has started."""
    parser = command(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--constraint", choices=list(CONSTRAINTS), default="demographic_parity")
    options = parser.parse_args(argv)
    with as_worker() as (rank, size):
        found = measured(options.constraint, options.rows, rank, size)
        if rank == 0:
            found |= planned(found)
            print(json.dumps(found))
            key = ["constraint", "workers", "rows of all"]
            append(options.output / "sharded.csv", found, list(found), key)


if __name__ == "__main__":
    main()

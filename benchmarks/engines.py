"""A fit to Parquet files by blocks, and on Dask, Ray and Spark with two workers each, side by side.

    python -m benchmarks.engines
    python -m benchmarks.engines --rows 100000000 --on dask --folder <disk with 8 GB>
    python -m benchmarks.engines --kill

Two groups, 20 columns of single precision, demographic parity within 0.02, default settings. Each
engine has a process of its own, which first fits a few rows, so that libraries are loaded on its
workers. Measured are, of this process and all that it has started, seconds, processor seconds, and
the peak of the memory that they use together (shared pages once). A pass is a sum or a list of
values over all rows: blocks are read from the files in each, engines keep them in memory. Kilobytes
that a pass sends to each partition are those of the pickled function, with all that it refers to.
Milliseconds of a task are those of a pass over 100 partitions with next to no rows, by 100.

With `--kill` a worker is killed at the third iteration. Spark then has two executors, each with a
process of its own; Ray's store of objects survives its workers. A further column is the largest
difference of a coefficient from those of the first engine in the table.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import psutil

from benchmarks import results
from benchmarks.command import command
from benchmarks.scaling import apart

WORKERS = 2
KEY = ["engine", "rows", "killed"]
COLUMNS = [
    *(*KEY, "seconds", "processor seconds", "passes", "peak MB", "violation"),
    *("kB sent, median", "kB sent, largest", "ms of a task"),
    *("coefficients differ by", "coefficients"),
]
_FEATURES = [f"x{i}" for i in range(20)]
_FILE, _LEAST_FILES = 250_000, 8  # rows of a file
_FEW, _PARTITIONS = 20_000, 100
_TRIM = 2**28  # bytes; Dask's 2**16 makes every temporary array new pages, several times as slow


def generate(folder: Path, n_rows: int) -> None:
    """Write the files that are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(0).normal(size=len(_FEATURES))
    of_file = min(_FILE, -(-n_rows // _LEAST_FILES))
    for start in range(0, n_rows, of_file):
        path, size = folder / f"{start // of_file:05d}.parquet", min(of_file, n_rows - start)
        if path.exists():
            continue
        rng = np.random.default_rng((1, start))
        sex = rng.integers(2, size=size)
        X = rng.normal(size=(size, len(weights)))
        X[:, 0] += sex
        label = X @ weights + 2 * rng.logistic(size=size) + sex > 0
        rows = pd.DataFrame(X.astype(np.float32), columns=_FEATURES)
        rows = rows.assign(label=label.astype(np.int8), sex=sex.astype(np.int8))
        rows.to_parquet(path.with_suffix(".part"), index=False)
        path.with_suffix(".part").rename(path)


# ---------------------------------------------------------------------- engines
#
# Each gives a function from a folder to the arguments of fit, one that divides a table into so many
# partitions, and a word in its workers' commands.

Reader = Callable[[Path], tuple[Any, Any, Any]]
Engine = Iterator[tuple[Reader, Callable[[Any, int], Any], str]]


@contextmanager
def in_blocks(kill: bool) -> Engine:
    """One process, which reads the files in every pass."""
    import pyarrow.dataset as ds

    from fairconstrained.blocks import Blocks

    def read(folder: Path) -> tuple[Any, Any, Any]:
        rows = ds.dataset(sorted(map(str, folder.glob("*.parquet"))))
        known = rows.to_table(columns=["label", "sex"]).to_pandas()
        X = Blocks(lambda: rows.to_batches(columns=_FEATURES, batch_size=65_536))
        return X, known["label"].to_numpy(), known["sex"].to_numpy()

    yield read, lambda X, n: X, ""


@contextmanager
def on_dask(kill: bool) -> Engine:
    """Two processes of one thread."""
    import dask
    import dask.dataframe as dd
    from dask.distributed import Client

    dask.config.set({"distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": _TRIM})
    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    with Client(n_workers=WORKERS, **options):
        yield (
            lambda folder: (dd.read_parquet(folder / "*.parquet"), "label", "sex"),
            lambda X, n: X.repartition(npartitions=n),
            "spawn_main",
        )


@contextmanager
def on_ray(kill: bool) -> Engine:
    """Two workers."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    yield (
        lambda folder: (ray.data.read_parquet(str(folder)), "label", "sex"),
        lambda X, n: X.repartition(n),
        "ray::",
    )
    ray.shutdown()


@contextmanager
def on_spark(kill: bool) -> Engine:
    """Two threads of one Java, each with a Python; executors apart, where one is to be killed."""
    from pyspark.sql import SparkSession

    master = f"local-cluster[{WORKERS},1,8192]" if kill else f"local[{WORKERS}]"
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", False)
    memory = {"spark.driver.memory": "8g", "spark.executor.memory": "8g"}
    session = builder.config(map=memory).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield (
        lambda folder: (session.read.parquet(str(folder)), "label", "sex"),
        lambda X, n: X.repartition(n),
        "CoarseGrainedExecutorBackend",
    )
    session.stop()


ENGINES = {"blocks": in_blocks, "dask": on_dask, "ray": on_ray, "spark": on_spark}


# ---------------------------------------------------------------------- measures


class Processes:
    """Processor seconds, and the peak of memory, of this process and its descendants."""

    def __enter__(self) -> Processes:
        self.peak, self._used = 0.0, {}
        self._look()
        self._before = sum(self._used.values())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        self.seconds = sum(self._used.values()) - self._before

    def _watch(self) -> None:
        while not self._ended.wait(1.0):
            self._look()

    def _look(self) -> None:
        memory = 0
        for process in descendants():
            try:
                times = process.cpu_times()
                self._used[process] = times.user + times.system
                memory += process.memory_full_info().pss
            except psutil.Error:  # it has just ended; the last look counts
                continue
        self.peak = max(self.peak, memory / 2**20)


def descendants() -> list[psutil.Process]:
    """List this process and all that it has started."""
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


class Killer:
    """A callback that kills a worker at the third iteration."""

    def __init__(self, name: str):
        self.name, self.n_seen, self.killed = name, 0, ""

    def __call__(self, iterate: Any) -> None:
        self.n_seen += 1
        if self.n_seen != 3:
            return
        alive = [p for p in descendants()[1:] if p.status() != psutil.STATUS_ZOMBIE]
        workers = [p for p in alive if self.name in " ".join(p.cmdline())]
        most = max(workers, key=lambda process: sum(process.cpu_times()[:2]))
        self.killed = most.name()
        most.kill()


@contextmanager
def passes_over(X: Any) -> Iterator[list[int]]:
    """Bytes that each pass over the rows of blocks, or of the parts of a table, sends to each."""
    from fairconstrained.engines import Parts

    sent: list[int] = []
    owners = [(X, "read")] if hasattr(X, "read") else []
    owners += [(kind, name) for kind in Parts.__subclasses__() for name in ("sum", "gather")]
    given = [(owner, name, getattr(owner, name)) for owner, name in owners]
    for owner, name, method in given:
        setattr(owner, name, _noting(method, sent))
    yield sent
    for owner, name, method in given:
        setattr(owner, name, method)


def _noting(method: Callable[..., Any], sent: list[int]) -> Callable[..., Any]:
    def noting(*args: Any) -> Any:
        sent.append(len(cloudpickle.dumps(args[1])) if len(args) > 1 else 0)
        return method(*args)

    return noting


def task_milliseconds(X: Any) -> float:
    """Median over passes in which no rows are read, by partition."""
    from fairconstrained.engines import as_table

    parts, seconds = as_table(X).parts(len), []
    for _ in range(5):
        start = time.perf_counter()
        n_parts = len(parts.gather(type))
        seconds.append((time.perf_counter() - start) / n_parts)
    return round(1000 * float(np.median(seconds)), 2)


def measure(engine: str, folder: Path, few: Path, kill: bool) -> dict[str, Any]:
    """One fit, after one to a few rows."""
    from fairconstrained import RateConstrainedClassifier

    warnings.simplefilter("ignore")
    with ENGINES[engine](kill) as (read, divided, name):
        X, y, sex = read(few)
        RateConstrainedClassifier(slack=0.02).fit(X, y, sensitive_features=sex)
        ms_of_task = None if engine == "blocks" else task_milliseconds(divided(X, _PARTITIONS))
        X, y, sex = read(folder)
        killer = Killer(name)
        clf = RateConstrainedClassifier(slack=0.02, callbacks=[killer] if kill else None)
        start = time.perf_counter()
        with Processes() as used, passes_over(X) as sent:
            clf.fit(X, y, sensitive_features=sex)
        seconds = time.perf_counter() - start
    return {
        "killed": killer.killed,
        "seconds": round(seconds, 1),
        "processor seconds": round(used.seconds, 1),
        "passes": len(sent),
        "kB sent, median": round(float(np.median(sent)) / 1000, 1),
        "kB sent, largest": round(max(sent) / 1000, 1),
        "ms of a task": ms_of_task,
        "peak MB": round(used.peak),
        "violation": round(clf.violation_, 6),
        "coefficients": np.round([*clf.coef_[0], clf.intercept_[0]], 9).tolist(),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure one engine after another, and print the table."""
    parser = command(__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--on", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--kill", action="store_true", help="a worker, in mid-fit")
    parser.add_argument("--folder", type=Path, help="of the files; stays, unlike a temporary one")
    options = parser.parse_args(argv)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        few = Path(temporary, "few")
        folder = (options.folder or Path(temporary)) / f"{options.rows}"
        apart(generate, few, _FEW)
        apart(generate, folder, options.rows)
        for engine in options.on:
            kill = options.kill and engine != "blocks"
            row = {"engine": engine, "rows": options.rows}
            row |= apart(measure, engine, folder, few, kill)
            first = np.array((found or [row])[0]["coefficients"])
            row["coefficients differ by"] = float(np.abs(row["coefficients"] - first).max())
            found.append(row)
            results.append(options.output / "engines.csv", row, COLUMNS, KEY)
    print(results.markdown(pd.DataFrame(found)[COLUMNS[:-1]]))


if __name__ == "__main__":
    main()

"""Fit time and peak memory of RateConstrainedClassifier against the number of rows.

    python -m benchmarks.scaling
    python -m benchmarks.scaling --rows 10000 100000 --kinds sparse1000
    python -m benchmarks.scaling --report

Data of `make_biased_classification`, default settings, demographic parity within 0.05; the kind
"private100" with epsilon = 1. Each fit has
a process of its own that loads the data from a file, so its peak memory is that of a training job:
the interpreter with its libraries, the data, and what the fit needs. A second call skips what
<output>/scaling.csv has.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from tqdm.auto import tqdm

from benchmarks import results

# Of the data, and of the estimator.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense20": ({"n_features": 20}, {}),
    "dense100": ({"n_features": 100}, {}),
    "sparse1000": ({"n_features": 1_000, "density": 0.02}, {}),
    "private100": ({"n_features": 100}, {"epsilon": 1.0, "delta": 1e-7, "feature_range": (-4, 4)}),
}
ROWS = [10_000, 30_000, 100_000, 300_000, 1_000_000]
SLACK = 0.05
KEY = ["kind", "n_rows", "seed"]
COLUMNS = [
    *(*KEY, "fit_time", "n_iter", "data_mb", "loaded_mb", "peak_mb"),
    *("error", "violation", "converged", "versions"),
]
# ru_maxrss is in kilobytes, on macOS in bytes.
_MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10


def generate(kind: str, n_rows: int, seed: int, folder: Path) -> None:
    """Write X, y and the groups into `folder`."""
    from fairconstrained.datasets import make_biased_classification

    data = make_biased_classification(n_rows, random_state=seed, **KINDS[kind][0])
    if sparse.issparse(data.data):
        sparse.save_npz(folder / "X.npz", data.data, compressed=False)
    else:
        np.save(folder / "X.npy", data.data)
    np.save(folder / "y.npy", data.target)
    np.save(folder / "groups.npy", data.sensitive_features)


def measure(kind: str, folder: Path) -> dict[str, Any]:
    """Fit once on the data in `folder`."""
    from fairconstrained import RateConstrainedClassifier

    npz = folder / "X.npz"
    X = sparse.load_npz(npz) if npz.exists() else np.load(folder / "X.npy")
    y, groups = np.load(folder / "y.npy"), np.load(folder / "groups.npy")
    size = X.data.nbytes + X.indices.nbytes if sparse.issparse(X) else X.nbytes
    few = slice(0, 1_000)  # first calls load libraries: not what is measured
    parameters = KINDS[kind][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a thousand rows are few for private training
        warm_up = RateConstrainedClassifier(slack=1.0, **parameters)
        warm_up.fit(X[few, :10], y[few], sensitive_features=groups[few])
    loaded = _peak()
    start = time.perf_counter()
    model = RateConstrainedClassifier(slack=SLACK, **parameters)
    model.fit(X, y, sensitive_features=groups)
    return {
        "fit_time": time.perf_counter() - start,
        "n_iter": model.n_iter_,
        "data_mb": size / 2**20,
        "loaded_mb": loaded,
        "peak_mb": _peak(),
        "error": 1 - model.score(X, y),
        "violation": model.violation_,
        "converged": model.converged_,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE


def apart(function: Callable[..., Any], *args: Any) -> Any:
    """Call in a fresh process: a forked one would start with the peak of its parent."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def slope(n_rows: Sequence[float], seconds: Sequence[float]) -> float:
    """Exponent p of the fit time = constant * n^p, by least squares in logarithms."""
    return float(np.polyfit(np.log(n_rows), np.log(seconds), 1)[0])


def report(path: Path) -> str:
    """Print exponents and save a picture beside the table."""
    import matplotlib.pyplot as plt

    runs = results.table(path, KEY, COLUMNS)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    lines = ["| data | rows | fit time (s) | peak memory (MB) | of it data (MB) | iterations |"]
    lines += ["| --- " * 6 + "|"]
    exponents = []
    columns = ["fit_time", "peak_mb", "data_mb", "n_iter"]
    for kind, of_kind in runs.groupby("kind"):
        mean = of_kind.groupby("n_rows")[columns].mean()
        lines += [
            f"| {kind} | {n} | {t:.2f} | {peak:.0f} | {size:.0f} | {n_iter:.0f} |"
            for n, (t, peak, size, n_iter) in zip(mean.index, mean.to_numpy(), strict=True)
        ]
        axes[0].loglog(mean.index, mean["fit_time"], "o-", label=kind)
        axes[1].loglog(mean.index, mean["peak_mb"], "o-", label=kind)
        if len(mean) > 1:
            p = slope(mean.index.to_numpy(), mean["fit_time"].to_numpy())
            exponents.append(f"{kind}: fit time grows as n^{p:.2f}")
    axes[0].set(xlabel="rows", ylabel="fit time (s)")
    axes[1].set(xlabel="rows", ylabel="peak memory (MB)")
    for ax in axes:
        ax.legend()
    figure.savefig(path.with_suffix(".png"), dpi=120)
    plt.close(figure)
    return "\n".join([*lines, "", *exponents])


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is missing, then report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args(argv)
    path = options.output / "scaling.csv"
    done = results.finished(path, KEY)
    asked = [(k, n, s) for n in options.rows for k in options.kinds for s in options.seeds]
    todo = [] if options.report else [run for run in asked if tuple(map(str, run)) not in done]
    with tqdm(todo, unit="fit", disable=not todo) as bar:
        for run in bar:
            bar.set_postfix_str(" ".join(map(str, run)))
            with tempfile.TemporaryDirectory() as folder:
                apart(generate, *run, Path(folder))
                measured = apart(measure, run[0], Path(folder))
            row = {**dict(zip(KEY, run, strict=True)), **measured}
            results.append(path, {**row, "versions": results.versions()}, COLUMNS, KEY)
    print(report(path))


if __name__ == "__main__":
    main()

"""Objective and infeasibility against full passes and seconds: Figures 10 and 11 of the paper.

    python -m benchmarks.partial_convergence --dataset law_school --slack 0.1 --passes 3000

IDCA, the switching subgradient method and the default solve one surrogate problem from the same
data, the first two at the sharpness where the default starts. A pass is one evaluation or one
gradient over all rows, also where several gradients are taken at once. Infeasibility is that of the
soft constraints for the first two, which look at nothing else, and that of the true gap for all.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks import results
from benchmarks.objectives.partial_parity import prepare
from benchmarks.run import component
from fairconstrained import PartialParityClassifier
from fairconstrained.problems import FairERM, Linearization
from fairconstrained.solvers import IDCA, DirectSwitching, Iterate, Solver
from fairconstrained.solvers.base import violation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["method", "passes", "seconds", "objective", "error", "soft", "true"]


class Meter:
    """Counts passes through problems, and keeps what iterates report."""

    def __init__(self) -> None:
        self.passes = 0
        self.rows: list[dict[str, Any]] = []
        self._start = time.process_time()

    def watch(self, linearized: Linearization) -> Linearization:
        """The same terms; this pass and each gradient count."""
        self.passes += 1

        def pullback(weights: Any) -> Any:
            self.passes += 1
            return linearized.pullback(weights)

        def together(weights: Any) -> Any:
            self.passes += len(weights)
            return linearized.pullbacks(weights)

        return linearized._replace(pullback=pullback, together=together)

    def record(self, method: str, iterate: Iterate) -> None:
        """Add a row."""
        values = (
            *(method, self.passes, round(time.process_time() - self._start, 2)),
            *(float(iterate.soft[0]), float(iterate.hard[0])),
            *(violation(iterate.soft), violation(iterate.hard)),
        )
        self.rows.append(dict(zip(COLUMNS, values, strict=True)))


def run(method: str, solver: Solver | None, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Fit once with counted passes; seconds are those of the processor."""
    split = prepare(component("datasets", options.dataset).load(), options.seed)
    train, meter = split.parts[0], Meter()
    originals = FairERM.linearize, FairERM.convex_parts
    FairERM.linearize = lambda *args: meter.watch(originals[0](*args))  # type: ignore[method-assign]
    FairERM.convex_parts = lambda *args: meter.watch(originals[1](*args))  # type: ignore[method-assign]
    try:
        model = PartialParityClassifier(
            options.notion,
            interval=split.task.interval,
            slack=options.slack,
            group_features=True,
            solver=solver,
            callbacks=lambda iterate: meter.record(method, iterate),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train.X, train.y, sensitive_features=train.groups)
    finally:
        FairERM.linearize, FairERM.convex_parts = originals  # type: ignore[method-assign]
    return meter.rows


def main() -> None:
    """Run the three methods, write the table and draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="law_school")
    parser.add_argument("--notion", default="statistical_parity")
    parser.add_argument("--slack", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", type=int, default=3000, help="about, of the first two")
    parser.add_argument("--epsilon", type=float, default=1e-3, help="of the first two")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    half = options.passes // 2  # a step is an evaluation and a pullback
    inner = 150
    methods = {
        "IDCA": IDCA(epsilon=options.epsilon, inner_steps=inner, max_outer=max(1, half // inner)),
        "switching subgradient": DirectSwitching(epsilon=options.epsilon, n_steps=half),
        "default": None,
    }
    rows = [row for name, solver in methods.items() for row in run(name, solver, options)]
    path = options.output / "partial_convergence.csv"
    runs = results.save(path, rows)
    drawn(runs).savefig(path.with_suffix(".png"), dpi=90)
    print(runs.groupby("method", sort=False).last().to_string())


def drawn(runs: pd.DataFrame) -> Figure:
    """Objective and infeasibility against passes and seconds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 6), sharex="col", layout="constrained")
    for method, of in runs.groupby("method", sort=False):
        # The correction of the default aims at the true gap, the others at the surrogate's.
        measure = "true" if method == "default" else "soft"
        for column, x in enumerate(("passes", "seconds")):
            for line, y in enumerate(("objective", measure)):
                axes[line, column].plot(of[x], of[y], label=method)
            axes[1, column].set(xlabel=x, xscale="log")
    axes[0, 0].set(ylabel="objective")
    axes[1, 0].set(ylabel="infeasibility")
    lines, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names))
    return figure


if __name__ == "__main__":
    main()

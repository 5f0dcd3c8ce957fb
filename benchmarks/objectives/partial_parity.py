"""Scores that are fair on an interval of percentiles: accuracy against fairness on test rows.

A data set's file gives, beside the data, ``task``, one of :mod:`benchmarks.partial_tasks`. A
solver's file gives

* ``METHOD`` and ``OBJECTIVES``;
* ``levels(notion, asked)``: the positions in its own list of slacks that are run, or ``[]``;
* ``fit(train, task, *, notion, level, seed)``: ``scores(X, groups)`` of rows; the call is timed.

All models are linear in the features, the groups and their products, as in the paper. Fairness of
distributions is measured twice: Definition 4.2, and what the paper's tables report, which is one
minus the gap of the unconditional distributions (:func:`fairconstrained.metrics.ccdf_gap`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import Bunch

from benchmarks.frontier import error_at
from benchmarks.partial_tasks import Task
from fairconstrained import metrics
from fairconstrained.groups import encode_groups

PARAMETERS: dict[str, list[Any]] = {
    "notion": ["statistical_parity", "demographic_parity"],
    "level": [1, 2, 3, 4, 5],
}
COLUMNS = [
    f"{part}_{name}"
    for part in ("train", "validation", "test")
    for name in ("accuracy", "table", "definition", "rates")
] + ["fit_time", "cpu_time", "warnings"]
ALPHA = 1e-4
OURS = ["partial parity", "partial parity, loose", "rank parity"]
WITHOUT_NOTION = ["group AUC", "inter-group pairs", "intra-group pairs", "no constraint"]
MEASURES = {"statistical_parity": ["table", "definition"], "demographic_parity": ["rates"]}
_SHOWN = ["splits", "test", "least", "points", "training", "least", "points"]
Scores = Callable[[Any, Any], NDArray[np.float64]]


class Rows(NamedTuple):
    """One part of a split."""

    X: Any
    y: NDArray[np.int64]
    groups: NDArray[np.int64]


class Split(NamedTuple):
    """What a solver is given and measured on."""

    task: Task
    parts: tuple[Rows, ...]  # training, validation, test


def prepare(data: Bunch, seed: int) -> Split:
    """Random parts as in G.1 of the paper."""
    y, groups = np.asarray(data.target), encode_groups(data.sensitive_features).codes
    task, rows = data.task, np.arange(len(y))
    _, validation, test = task.shares
    given = data.get("split")
    if given is None:
        train, last = train_test_split(rows, test_size=test, random_state=seed)
        validation /= 1.0 - test
    else:
        train, last = rows[given == "train"], rows[given == "test"]
    train, middle = train_test_split(train, test_size=validation, random_state=seed)
    parts = (Rows(data.data[index], y[index], groups[index]) for index in (train, middle, last))
    return Split(task, tuple(parts))


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"notion": notion, "level": level}
        for notion in asked["notion"]
        for level in solver.levels(notion, asked["level"])
    ]


def measure(
    solver: ModuleType, split: Split, seed: int, *, notion: str, level: int
) -> dict[str, Any]:
    """Train and test once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start, cpu = time.perf_counter(), time.process_time()
        scores = solver.fit(split.parts[0], split.task, notion=notion, level=level, seed=seed)
        taken = time.perf_counter() - start, time.process_time() - cpu
    row: dict[str, Any] = {}
    for part, rows in zip(("train", "validation", "test"), split.parts, strict=True):
        row |= {f"{part}_{name}": value for name, value in _quality(scores, rows, split).items()}
    return row | {
        "fit_time": taken[0],
        "cpu_time": taken[1],
        "warnings": " ".join(sorted({w.category.__name__ for w in caught})),
    }


def _quality(scores: Scores, rows: Rows, split: Split) -> dict[str, float]:
    found = scores(rows.X, rows.groups)
    options = {"sensitive_features": rows.groups, "interval": split.task.interval}
    return {
        "accuracy": float(np.mean((found > 0) == rows.y)),
        "table": 1.0 - metrics.ccdf_gap(None, found, **options),
        "definition": 1.0 - metrics.partial_statistical_parity(None, found, **options),
        "rates": 1.0 - metrics.partial_demographic_parity(None, found, **options),
    }


def report(results: pd.DataFrame, output: Path) -> str:
    """Tables as markdown, and pictures of accuracy against fairness in `output`."""
    _pictures(results, output)
    keys = ["dataset", "notion", "method", "level"]
    shown = ["test_accuracy", "test_table", "test_definition", "test_rates", "cpu_time"]
    groups = results.groupby(keys)[shown]
    mean, std = groups.mean(), groups.std()
    lines = [[*keys, "seeds", *shown]] + [
        [*map(str, key), str(n), *_pairs(mean.loc[key], std.loc[key])]
        for key, n in groups.size().items()
    ]
    return "\n\n".join(
        [
            "## Accuracy at the fairness of the paper's tables (Table 3), minus the paper's",
            _markdown(_against_the_paper(results)),
            "## Ours minus the others' accuracy at their fairness: mean and deviation of splits",
            _markdown(_against_others(results)),
            "## All runs, test rows: mean and deviation",
            _markdown(lines),
        ]
    )


def _against_the_paper(results: pd.DataFrame) -> list[list[str]]:
    """Of each method's mean frontier, with the unconstrained model as its loose end."""
    from benchmarks.run import component, names

    lines = [["dataset", "fairness", "paper", "method", "ours minus paper"]]
    known = results["dataset"].isin(names("datasets"))
    chosen = results[known & (results["notion"] == "statistical_parity")]
    for dataset, runs in chosen.groupby("dataset"):
        task = component("datasets", str(dataset)).load().task
        means = runs.groupby(["method", "level"])[["test_accuracy", "test_table"]].mean()
        for method in sorted(set(runs["method"]) - {"no constraint"}):
            front = means.loc[[m for m in (method, "no constraint") if m in means.index]]
            for fairness, accuracy in task.paper:
                error = error_at(
                    1.0 - front["test_table"], 1.0 - front["test_accuracy"], [1.0 - fairness]
                )
                value = 1.0 - error[0] - accuracy
                text = "beyond" if np.isnan(value) else f"{value:+.4f}"
                lines.append([str(dataset), f"{fairness:.4f}", f"{accuracy:.4f}", method, text])
    return lines


def _against_others(results: pd.DataFrame) -> list[list[str]]:
    """Of the frontiers of single splits; accuracy and fairness on test and on training rows."""
    lines = [["dataset", "notion", "measure", "method", *_SHOWN]]
    for dataset, runs in results.groupby("dataset"):
        for notion, measures in MEASURES.items():
            own = runs[(runs["notion"] == notion) & runs["method"].isin(OURS)]
            for method in sorted(set(runs["method"]) - {*OURS, "no constraint"}):
                others = _of_notion(runs[runs["method"] == method], notion)
                ours = pd.concat((own, _of_notion(runs[runs["method"] == "no constraint"], notion)))
                lines += [
                    [str(dataset), notion, measure, method, *_compared(ours, others, measure)]
                    for measure in measures
                    if len(own)
                ]
    return lines


def _of_notion(runs: pd.DataFrame, notion: str) -> pd.DataFrame:
    """Those of this notion; of a method that knows none, and was run under the other, these."""
    own = runs[runs["notion"] == notion]
    return runs if own.empty and runs["method"].isin(WITHOUT_NOTION).all() else own


def _compared(ours: pd.DataFrame, others: pd.DataFrame, measure: str) -> list[str]:
    """Cells under `_SHOWN`."""
    cells = []
    for part in ("test", "train"):
        names = f"{part}_{measure}", f"{part}_accuracy"
        gains = []
        for seed, runs in others.groupby("seed"):
            front = ours[ours["seed"] == seed]
            if (front["method"] != "no constraint").any():
                unfair, error = (1.0 - front[name] for name in names)
                found = 1.0 - error_at(unfair, error, 1.0 - runs[names[0]]) - runs[names[1]]
                gains.append(found.dropna())
        means = [gain.mean() for gain in gains if len(gain)]
        points = pd.concat(gains) if gains else pd.Series(dtype=float)
        shown = f"{np.mean(means):+.4f} ± {np.std(means):.4f}" if means else ""
        cells += [shown, f"{points.min():+.4f}" if len(points) else "", str(len(points))]
    return [str(len(means)), *cells]


def _pictures(results: pd.DataFrame, output: Path) -> None:
    import matplotlib.pyplot as plt

    for (dataset, notion), runs in results.groupby(["dataset", "notion"]):
        x = "test_table" if notion == "statistical_parity" else "test_rates"
        figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        for method, of_method in runs.groupby("method"):
            points = of_method.groupby("level")[[x, "test_accuracy"]].mean()
            ax.plot(points[x], points["test_accuracy"], marker="o", label=str(method))
        ax.set(xlabel=f"fairness on test rows ({notion})", ylabel="accuracy", title=str(dataset))
        ax.legend(fontsize="small")
        figure.savefig(output / f"{dataset}-{notion}.png", dpi=120)
        plt.close(figure)


def _pairs(mean: pd.Series, std: pd.Series) -> list[str]:
    both = zip(mean, std.fillna(0.0), strict=True)
    return [f"{m:.4f} ± {s:.4f}" for m, s in both]


def _markdown(lines: list[list[str]]) -> str:
    head, *rest = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rest))

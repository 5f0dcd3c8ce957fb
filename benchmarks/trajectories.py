"""Tables and pictures of repeated runs: means, courses over time, distributions, radar charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import results

__all__ = ["course", "mean_table", "pictures"]

_TIMES = 50
_BINS = np.linspace(0.0, 1.0, 51)
Array = NDArray[np.float64]


def mean_table(runs: pd.DataFrame, columns: Mapping[str, str]) -> str:
    """Markdown: a line for each method, mean and deviation over its runs of each column."""
    lines = [["method", *columns], ["---"] * (1 + len(columns))]
    for method, own in runs.groupby("method"):
        values = (own[column] for column in columns.values())
        pairs = ((v.mean(skipna=False), v.std(ddof=0, skipna=False)) for v in values)
        lines.append([str(method), *(f"{mean:.4f} ± {std:.4f}" for mean, std in pairs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def course(runs: Sequence[Mapping[str, Array]], name: str) -> tuple[Array, dict[str, Array]]:
    """A quantity over the time that all runs have seen: mean, median and quartiles.

    Between evaluations it is the value of the last one.

    Parameters
    ----------
    runs : sequence of mappings
        With ``time`` and `name`, both of shape (n_evaluations,).
    name : str

    Returns
    -------
    times : ndarray of shape (n_times,)
    values : dict of ndarray
        ``mean``, ``median``, ``low`` and ``high``.
    """
    first = max(run["time"][0] for run in runs)
    times = np.linspace(first, max(first, min(run["time"][-1] for run in runs)), _TIMES)
    table = np.array(
        [run[name][np.searchsorted(run["time"], times, side="right") - 1] for run in runs]
    )
    low, median, high = np.quantile(table, [0.25, 0.5, 0.75], axis=0)
    return times, {"mean": table.mean(axis=0), "median": median, "low": low, "high": high}


def pictures(
    runs: pd.DataFrame, output: Path, name: str, measures: Sequence[str], slack: float
) -> list[Path]:
    """``<name>-{course,groups,radar}.png`` in `output`."""
    import matplotlib.pyplot as plt

    of_method = {
        str(method): [results.arrays(output, row) for row in own.to_dict("records")]
        for method, own in runs.groupby("method")
    }
    figures = {
        "course": _courses(of_method, slack),
        "groups": _distributions(of_method),
        "radar": _radar(runs, measures),
    }
    paths = []
    for kind, figure in figures.items():
        paths.append(output / f"{name}-{kind}.png")
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths


def _courses(of_method: Mapping[str, Sequence[Mapping[str, Array]]], slack: float) -> Any:
    """Loss and violation against time: median, quartiles as a band, the mean dotted."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for ax, quantity in zip(axes, ("loss", "violation"), strict=True):
        for method, runs in of_method.items():
            told = [run for run in runs if len(run["time"])]
            if not told:
                continue
            times, values = course(told, quantity)
            (line,) = ax.plot(times, values["median"], label=method)
            ax.fill_between(times, values["low"], values["high"], color=line.get_color(), alpha=0.2)
            ax.plot(times, values["mean"], ":", color=line.get_color())
        ax.set(xlabel="seconds", ylabel=f"training {quantity}", xscale="log")
    axes[1].axhline(slack, color="black", linewidth=0.8)
    axes[1].set_yscale("symlog", linthresh=max(slack, 1e-3))
    axes[0].legend(fontsize="small")
    return figure


def _distributions(of_method: Mapping[str, Sequence[Mapping[str, Array]]]) -> Any:
    """Histograms of test scores by group, all runs of a method together."""
    import matplotlib.pyplot as plt

    size = (4 * len(of_method), 3)
    figure, axes = plt.subplots(1, len(of_method), figsize=size, layout="constrained", sharey=True)
    for ax, (method, runs) in zip(np.atleast_1d(axes), of_method.items(), strict=True):
        scores = np.concatenate([run["scores"] for run in runs])
        groups = np.concatenate([run["groups"] for run in runs])
        for group in np.unique(groups):
            ax.hist(scores[groups == group], _BINS, density=True, alpha=0.5, label=f"group {group}")
        ax.set(title=method, xlabel="probability of label 1")
    np.atleast_1d(axes)[0].legend(fontsize="small")
    return figure


def _radar(runs: pd.DataFrame, measures: Sequence[str]) -> Any:
    """Test means of all measures, each divided by its largest over the methods: small is good."""
    import matplotlib.pyplot as plt

    means = runs.groupby("method")[[f"test_{measure}" for measure in measures]].mean()
    scaled = means / means.max().where(means.max() > 0, 1.0)
    angles = np.linspace(0.0, 2.0 * np.pi, len(measures), endpoint=False)
    figure, ax = plt.subplots(
        figsize=(6, 5), layout="constrained", subplot_kw={"projection": "polar"}
    )
    for method, values in scaled.iterrows():
        ax.plot(np.append(angles, angles[0]), np.append(values, values.iloc[0]), label=str(method))
    ax.set_xticks(angles, [str(measure) for measure in measures])
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return figure

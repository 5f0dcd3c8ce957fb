"""Parity on an interval of percentiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks import frontier
from benchmarks.evidence.aggregates.cells import Cells, name, number, summary, table
from benchmarks.objectives.partial_parity import MEASURES, OURS
from benchmarks.partial_tasks import A9A, BANK, LAW_SCHOOL
from benchmarks.solvers.partial_parity import RANKS

_TASKS = {"a9a": A9A, "bank": BANK, "bank_duration": BANK, "law_school": LAW_SCHOOL}
_FREE = "no constraint"
_METHODS = {"rank parity": "`rank_parity`", "partial parity": "default"}
_BASELINES = ["group AUC", "inter-group pairs", "intra-group pairs", "penalty"]


def _by_data(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give data, its name with the number of splits, and its runs under statistical parity."""
    runs = runs[runs["notion"] == "statistical_parity"]
    for data, of in runs.groupby("dataset", sort=False):
        yield str(data), f"{name(data)} ({of['seed'].nunique()})", of


@table("partial_published", "partial_parity")
def _partial_published(runs: pd.DataFrame) -> Cells:
    for data, row, of in _by_data(runs):
        means = of.groupby(["method", "level"])[["test_accuracy", "test_table"]].mean()
        for fairness, accuracy in _TASKS[data].paper if data in _TASKS else ():
            yield f"{row} / {fairness:.3f}", "published accuracy", *number(accuracy)
            for method, words in _METHODS.items():
                front = 1.0 - means.loc[[method, _FREE]]
                (error,) = frontier.error_at(
                    front["test_table"], front["test_accuracy"], [1.0 - fairness]
                )
                if np.isfinite(error):
                    difference = number(1.0 - error - accuracy, "+.4f")
                    yield f"{row} / {fairness:.3f}", f"{words}: difference", *difference


@table("partial_definition", "partial_parity")
def _partial_definition(runs: pd.DataFrame) -> Cells:
    for _, row, of in _by_data(runs):
        for level, found in of[of["method"] == "rank parity"].groupby("level"):
            mean = found["test_definition"].mean()
            yield row, f"slack {RANKS[level - 1]:g}", *number(mean, ".2f")


@table("partial_accuracies", "partial_parity")
def _partial_accuracies(runs: pd.DataFrame) -> Cells:
    for _, row, of in _by_data(runs):
        for measure, words in {"test_accuracy": "test accuracy", "test_table": "fairness"}.items():
            values = of.loc[of["method"] == _FREE, measure]
            yield row, f"no constraint, {words}", *summary(values)
            tightest = of[(of["method"] == "rank parity") & (of["level"] == of["level"].max())]
            yield row, f"`rank_parity` {RANKS[-1]:g}, {words}", *summary(tightest[measure])


@table("partial_baselines", "partial_parity")
def _partial_baselines(runs: pd.DataFrame) -> Cells:
    own = runs["method"].isin(OURS)
    runs = runs.assign(method=runs["method"].mask(own, "ours"))
    for data, of_data in runs.groupby("dataset", sort=False):
        for notion in of_data.loc[of_data["method"] == "ours", "notion"].unique():
            measure = MEASURES[notion][0]
            # Only these two depend on the notion.
            of_notion = (of_data["notion"] == notion) & of_data["method"].isin(["ours", "penalty"])
            compared = of_data[of_notion | of_data["method"].isin([_FREE, *_BASELINES[:3]])]
            errors = {
                f"{part}_{column}": 1.0 - compared[f"{part}_{of}"]
                for part in ("train", "test")
                for column, of in (("error", "accuracy"), ("violation", measure))
            }
            row = f"{name(data)} / `{notion}`"
            yield from _gains(compared.assign(**errors), row)


def _gains(runs: pd.DataFrame, row: str) -> Cells:
    """Give the accuracy of ours minus that of each baseline that was run, at its fairness."""
    for baseline in sorted(set(_BASELINES) & set(runs["method"])):
        found = pd.DataFrame(frontier.differences(runs, "ours", baseline, _FREE))
        for part in ("test", "train"):
            gains = -found.groupby("seed")[part].mean().dropna()
            yield f"{row} / {name(part)}", baseline, *summary(gains, "+.4f")


@table("partial_seconds", "partial_parity")
def _partial_seconds(runs: pd.DataFrame) -> Cells:
    names = {
        ("rank parity", "statistical_parity"): "`rank_parity`",
        ("partial parity", "statistical_parity"): "default",
        ("partial parity", "demographic_parity"): "rates",
    }
    for (data, method, notion), of in runs.groupby(["dataset", "method", "notion"], sort=False):
        if (method, notion) in names:
            words = names[method, notion]
            yield name(data), f"{words}, mean", *number(of["cpu_time"].mean(), ".1f")
            yield name(data), f"{words}, longest", *number(of["cpu_time"].max(), ".1f")


@table("partial_against_full", "partial_against_full")
def _partial_against_full(runs: pd.DataFrame) -> Cells:
    measures = {
        "loss saved": ("training loss saved", ".4f"),
        "train accuracy gained": ("training accuracy", "+.4f"),
        "test accuracy gained": ("test accuracy", "+.4f"),
    }
    for data, of_data in runs.groupby("dataset", sort=False):
        row = f"{name(data)} ({of_data['seed'].nunique()})"
        for slack, of in of_data.groupby("slack", sort=False):
            for column, (words, digits) in measures.items():
                yield f"{row} / {slack:g}", words, *summary(of[column], digits)


@table("partial_convergence", "partial_convergence")
def _partial_convergence(runs: pd.DataFrame) -> Cells:
    for method in ("default", "IDCA", "switching subgradient"):
        last = runs[runs["method"] == method].iloc[-1]
        yield method, "passes", *number(last["passes"], ".0f")
        yield method, "processor seconds", *number(last["seconds"], ".1f")
        yield method, "objective", *number(last["objective"])
        yield method, "training error", *number(last["error"])
        excess = last["true" if method == "default" else "soft"]
        yield method, "exceeds its slack by", *number(max(excess, 0.0))


@table("partial_rows", "partial_scaling")
def _partial_rows(runs: pd.DataFrame) -> Cells:
    for _, run in runs.iterrows():
        row = f"{run['rows']:,.0f}"
        yield row, "processor seconds", *number(run["processor seconds"], ".0f")
        yield row, "peak GB", *number(run["peak GB"], ".2f")
        yield row, f"gap at slack {run['slack']:g}", *number(run["gap"])

"""Parity on an interval of percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from benchmarks import frontier
from benchmarks.evidence.aggregates.cells import Cells, name, number, summary, table
from benchmarks.partial_tasks import TASKS
from benchmarks.published import published
from benchmarks.solvers.partial_parity import RANKS

_PAPER = published("partial_parity").set_index(["dataset", "points"]).sort_index()
_FREE = "no constraint"
_METHODS = {"rank parity": "`rank_parity`", "partial parity": "default"}
_BASELINES = ["group AUC", "inter-group pairs", "intra-group pairs"]
_OURS = ["partial parity", "partial parity, loose", "rank parity"]
_MEASURES = {"statistical_parity": "table", "demographic_parity": "rates"}


def _by_data(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Give data, its name with the number of splits, and its runs under statistical parity."""
    runs = runs[(runs["constraint"] == "statistical_parity") & (runs["interval"] == 0)]
    for data, of in runs.groupby("dataset", sort=False):
        yield str(data), f"{name(data)} ({of['seed'].nunique()})", of


@table("partial_published", "partial_parity")
def _partial_published(runs: pd.DataFrame) -> Cells:
    yield from _against_the_paper(runs, 10, _METHODS)


@table("partial_published_20", "partial_parity")
def _partial_published_20(runs: pd.DataFrame) -> Cells:
    yield from _against_the_paper(runs, 20, {"partial parity, 20 points": "default, 20 points"})


def _against_the_paper(runs: pd.DataFrame, points: int, methods: Mapping[str, str]) -> Cells:
    """Give our accuracy minus the published one at each published fairness, of these methods."""
    splits = runs.loc[runs["method"].isin(methods), ["dataset", "seed"]].drop_duplicates()
    for data, row, of in _by_data(runs.merge(splits)):
        means = of.groupby(["method", "level"])[["test_accuracy", "test_table"]].mean()
        paper = _PAPER.loc[data.removesuffix("_duration"), points]
        for fairness, accuracy in paper[["fairness", "accuracy"]].itertuples(index=False):
            yield f"{row} / {fairness:.3f}", "published accuracy", *number(accuracy)
            for method, words in methods.items():
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
            ranks = of[of["method"] == "rank parity"]
            tightest = ranks[ranks["level"] == ranks["level"].max()]
            yield row, f"tightest `rank_parity`, {words}", *summary(tightest[measure])


@table("partial_baselines", "partial_parity")
def _partial_baselines(runs: pd.DataFrame) -> Cells:
    own, runs = runs["method"].isin(_OURS), runs[runs["interval"] == 0]
    runs = runs.assign(method=runs["method"].mask(own, "ours"))
    for data, of_data in runs.groupby("dataset", sort=False):
        for notion in of_data.loc[of_data["method"] == "ours", "constraint"].unique():
            measure = _MEASURES[notion]
            # Only ours depends on the notion.
            ours = (of_data["constraint"] == notion) & (of_data["method"] == "ours")
            compared = of_data[ours | of_data["method"].isin([_FREE, *_BASELINES])]
            yield from _gains(compared, measure, f"{name(data)} / `{notion}`")


@table("partial_intervals", "partial_parity")
def _partial_intervals(runs: pd.DataFrame) -> Cells:
    runs = runs.replace({"method": {"partial parity": "ours"}})
    for (data, chosen), of in runs[runs["interval"] > 0].groupby(["dataset", "interval"]):
        low, high = TASKS[data].intervals[chosen]
        yield from _gains(of, "table", f"{name(data)} / {low:g} to {high:g}")


def _gains(runs: pd.DataFrame, measure: str, row: str) -> Cells:
    """Give the lead of our accuracy over each baseline that was run, at its fairness."""
    errors = {
        f"{part}_{column}": 1.0 - runs[f"{part}_{of}"]
        for part in ("train", "test")
        for column, of in (("error", "accuracy"), ("violation", measure))
    }
    runs = runs.assign(**errors)
    for baseline in sorted(set(_BASELINES) & set(runs["method"])):
        found = pd.DataFrame(frontier.differences(runs, "ours", baseline, _FREE))
        for part in ("test", "train"):
            gains = -found.groupby("seed")[part].mean().dropna()
            yield f"{row} / {name(part)}", baseline, *summary(gains, "+.4f")


@table("partial_solvers", "partial_parity")
def _partial_solvers(runs: pd.DataFrame) -> Cells:
    """Give the algorithms of the paper beside the default, at the middle slack of one split."""
    first = ["constraint", "level", "interval", "seed"]
    runs = runs[(runs[first] == ["statistical_parity", 3, 0, 0]).all(axis=1)]
    names = {"IDCA": "`IDCA`", "switching": "`DirectSwitching`", "partial parity": "default"}
    for (data, method), of in runs.groupby(["dataset", "method"], sort=False):
        if method in names and "IDCA" in set(runs.loc[runs["dataset"] == data, "method"]):
            row = f"{name(data)} / {names[method]}"
            yield row, "training accuracy", *number(of["train_accuracy"].iloc[0])
            yield row, "training gap", *number(1.0 - of["train_definition"].iloc[0], ".3f")
            yield row, "test accuracy", *number(of["test_accuracy"].iloc[0])
            yield row, "test gap", *number(1.0 - of["test_definition"].iloc[0], ".3f")
            yield row, "processor seconds", *number(of["cpu_time"].iloc[0], ".1f")


@table("partial_seconds", "partial_parity")
def _partial_seconds(runs: pd.DataFrame) -> Cells:
    names = {
        ("rank parity", "statistical_parity"): "`rank_parity`",
        ("partial parity", "statistical_parity"): "default",
        ("partial parity", "demographic_parity"): "rates",
    }
    runs = runs[runs["interval"] == 0]
    for (data, method, notion), of in runs.groupby(["dataset", "method", "constraint"], sort=False):
        if (method, notion) in names:
            words = names[method, notion]
            yield name(data), f"{words}, mean", *number(of["cpu_time"].mean(), ".1f")
            yield name(data), f"{words}, longest", *number(of["cpu_time"].max(), ".1f")

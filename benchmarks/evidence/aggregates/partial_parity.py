"""Parity on an interval of percentiles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from benchmarks import frontier
from benchmarks.evidence.aggregates.cells import Cells, name, number, summary, table
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
    for data, row, of in _by_data(runs):
        means = of.groupby(["method", "level"])[["test_accuracy", "test_table"]].mean()
        paper = _PAPER.loc[data.removesuffix("_duration"), 10]
        for fairness, accuracy in paper[["fairness", "accuracy"]].itertuples(index=False):
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
            errors = {
                f"{part}_{column}": 1.0 - compared[f"{part}_{of}"]
                for part in ("train", "test")
                for column, of in (("error", "accuracy"), ("violation", measure))
            }
            row = f"{name(data)} / `{notion}`"
            yield from _gains(compared.assign(**errors), row)


def _gains(runs: pd.DataFrame, row: str) -> Cells:
    """Give the lead of our accuracy over each baseline that was run, at its fairness."""
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
    runs = runs[runs["interval"] == 0]
    for (data, method, notion), of in runs.groupby(["dataset", "method", "constraint"], sort=False):
        if (method, notion) in names:
            words = names[method, notion]
            yield name(data), f"{words}, mean", *number(of["cpu_time"].mean(), ".1f")
            yield name(data), f"{words}, longest", *number(of["cpu_time"].max(), ".1f")

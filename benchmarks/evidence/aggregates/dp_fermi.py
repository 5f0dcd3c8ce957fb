"""DP-FERMI, beside the published points of its paper."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.evidence.aggregates.cells import (
    Cells,
    budgets,
    by_budget,
    name,
    number,
    summary,
    table,
)
from benchmarks.published import published

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_CASE = ["dataset", "constraint", "epsilon"]
_POINTS = {0.5: "published, wide gap", 0.75: "published, middle", 1.0: "published, fairest"}


def _ours(runs: pd.DataFrame, data: str, unit: str) -> Cells:
    """Give test error and gap of each penalty and budget."""
    chosen = runs[(runs["dataset"] == data) & (runs["unit"] == unit)]
    chosen = chosen[chosen["constraint"] == "demographic_parity"]
    for penalty, of in chosen.groupby("penalty"):
        yield from by_budget(of, f"ours, penalty {penalty:g}", _TEST)


def _published(data: str, epsilons: set[str]) -> Cells:
    """Give the published points at these budgets."""
    points = published("dp_fermi")
    points = points[(points["dataset"] == data) & (points["method"] == "DP-FERMI")]
    points = points[points["constraint"] == "demographic_parity"]
    for penalty, words in _POINTS.items():
        for budget, of in budgets(points[points["penalty"] == penalty]):
            if budget in epsilons:
                yield f"{words} / test error", budget, *number(of["error"].item())
                yield f"{words} / test gap", budget, *number(of["gap"].item())


def _beside_published(runs: pd.DataFrame, data: str) -> Cells:
    ours = list(_ours(runs, data, "sensitive_features"))
    yield from ours
    yield from _published(data, {budget for _, budget, _, _ in ours})


@table("fermi_sensitive", "dp_fermi")
def _fermi_sensitive(runs: pd.DataFrame) -> Cells:
    yield from _beside_published(runs, "adult")


@table("fermi_record", "dp_fermi")
def _fermi_record(runs: pd.DataFrame) -> Cells:
    yield from _ours(runs, "adult", "record")


@table("fermi_parkinsons", "dp_fermi")
def _fermi_parkinsons(runs: pd.DataFrame) -> Cells:
    yield from _beside_published(runs, "parkinsons")


@table("fermi_pictures", "dp_fermi")
def _fermi_pictures(runs: pd.DataFrame) -> Cells:
    for penalty, of in runs[runs["dataset"] == "digits"].groupby("penalty"):
        yield from by_budget(of, f"penalty {penalty:g}", _TEST)


@table("fermi_points", "dp_fermi")
def _fermi_points(runs: pd.DataFrame) -> Cells:
    for (data, notion, epsilon), of, method, points in _points(runs):
        if (method, epsilon) != ("DP-FERMI", 1.0):
            continue
        means = of.groupby("penalty")[list(_TEST)].mean()
        for i, (_, point) in enumerate(points.iterrows(), start=1):
            row = name(data, notion, i)
            penalty, is_beaten = _answer(means, point)
            chosen = of[of["penalty"] == penalty]
            yield row, "published error", *number(point["test_error"])
            yield row, "published gap", *number(point["test_violation"])
            yield row, "our error", *summary(chosen["test_error"])
            yield row, "our gap", *summary(chosen["test_violation"])
            yield row, "our penalty", *number(penalty, "g")
            yield row, "splits", str(len(chosen)), ""
            yield row, "beaten", "yes" if is_beaten else "no", ""


def _points(runs: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame, str, pd.DataFrame]]:
    """Give data, criterion and budget, our runs there, and the published points of each method."""
    curves = published("dp_fermi").rename(columns={"error": "test_error", "gap": "test_violation"})
    points = dict(iter(curves.query("not penalty <= 0").groupby(_CASE)))  # nan: not told
    ours = runs[runs["unit"] == "sensitive_features"].fillna({"epsilon": np.inf})
    for case, of in ours.groupby(_CASE):
        for method, of_method in points[case].groupby("method") if case in points else ():
            yield case, of, method, of_method[list(_TEST)]


@table("fermi_beaten", "dp_fermi")
def _fermi_beaten(runs: pd.DataFrame) -> Cells:
    for (data, notion, epsilon), of, method, points in _points(runs):
        means = of.groupby("penalty")[list(_TEST)].mean()
        row = name(data, notion, "not private" if np.isinf(epsilon) else f"epsilon {epsilon:g}")
        words = method.replace("_", " et al. ")
        answers = points.apply(partial(_answer, means), axis=1)
        yield row, f"{words}, points", str(len(points)), ""
        yield row, f"{words}, beaten", str(sum(is_beaten for _, is_beaten in answers)), ""


def _answer(means: pd.DataFrame, point: pd.Series) -> tuple[float, bool]:
    """Give the penalty of least error among all that beat a point in both, or the nearest."""
    excess = (means - point).clip(lower=0.0).sum(axis=1)
    beating = means[excess == 0.0]
    if len(beating):
        return float(beating["test_error"].idxmin()), True
    return float(excess.idxmin()), False

"""DP-FERMI, beside the published points of its paper."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, budgets, by_budget, number, summary, table
from benchmarks.published import published

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_POINTS = {0.5: "published, wide gap", 0.75: "published, middle", 1.0: "published, fairest"}


def _ours(runs: pd.DataFrame, data: str, unit: str) -> Cells:
    """Give test error and gap of each penalty and budget."""
    chosen = runs[(runs["dataset"] == data) & (runs["unit"] == unit)]
    for (method, penalty), of in chosen.groupby(["method", "penalty"]):
        setting = method.removeprefix("DPFermiClassifier")
        yield from by_budget(of, f"ours, penalty {penalty:g}{setting}", _TEST)


def _published(data: str, epsilons: set[str]) -> Cells:
    """Give the published points at these budgets."""
    points = published("dp_fermi")
    points = points[(points["dataset"] == data) & (points["method"] == "DP-FERMI")]
    points = points[points["notion"] == "demographic_parity"]
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


@table("fermi_pictures", "fermi_pictures")
def _fermi_pictures(runs: pd.DataFrame) -> Cells:
    measures = {"test_error": "error", "test_violation": "gap", "test_information": "ERMI"}
    for penalty, of_penalty in runs.groupby("penalty"):
        for budget, of in budgets(of_penalty):
            for measure, words in measures.items():
                yield f"{penalty:g}", f"{words}, {budget}", *summary(of[measure], ".3f")
        least = of_penalty["least_share"].min()
        yield f"{penalty:g}", "rarest label, percent of the rows", *number(100 * least, ".1f")


@table("fermi_convergence", "fermi_convergence")
def _fermi_convergence(runs: pd.DataFrame) -> Cells:
    for (n_rows, method), of in runs.groupby(["n", "method"], sort=False):
        yield f"{n_rows:,}", method, *number(of["squared norm"].median(), ".2g")

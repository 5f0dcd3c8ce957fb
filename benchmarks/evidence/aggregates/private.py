"""Private training under rate constraints, and what a budget costs."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import (
    Cells,
    budgets,
    by_budget,
    means,
    name,
    table,
)

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_SMALL_GROUPS = ["acs_income_race", "acs_income_20"]


def _linear(runs: pd.DataFrame, small_groups: bool = False) -> pd.DataFrame:
    """Runs of linear models on data with large groups only, or with small ones."""
    linear = runs["method"] == "fairconstrained, private"
    return runs[linear & (runs["dataset"].isin(_SMALL_GROUPS) == small_groups)]


@table("private_rates", "private_rates")
def _private_rates(runs: pd.DataFrame) -> Cells:
    runs = _linear(runs)
    runs = runs[runs["epsilon"].isna() | (runs["epsilon"] == 1.0)]
    runs = runs[runs["constraint"] != "false_negative_rate"]
    for (data, notion, slack), of in runs.groupby(["dataset", "constraint", "slack"], sort=False):
        for budget, of_budget in budgets(of):
            yield from means(of_budget, name(data, notion, slack), _TEST, budget)


@table("private_budgets", "private_rates")
def _private_budgets(runs: pd.DataFrame) -> Cells:
    runs = _linear(runs)
    runs = runs[(runs["constraint"] == "demographic_parity") & (runs["slack"] == 0.05)]
    for data, of in runs.groupby("dataset", sort=False):
        if of["epsilon"].nunique() > 1:
            yield from by_budget(of, name(data), _TEST)


@table("private_small_groups", "private_rates")
def _private_small_groups(runs: pd.DataFrame) -> Cells:
    measures = {"train_violation": "training gap", **_TEST}
    for data, of in _linear(runs, small_groups=True).groupby("dataset", sort=False):
        yield from by_budget(of, name(data), measures)


@table("private_heart", "private_rates")
def _private_heart(runs: pd.DataFrame) -> Cells:
    measures = {"test_error": "test error", "test_violation": "test false negative rate"}
    yield from by_budget(runs[runs["dataset"] == "heart"], "", measures)

"""Private training under rate constraints, and what a budget costs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmarks.evidence.aggregates.cells import (
    Cells,
    budgets,
    by_budget,
    name,
    summary,
    table,
)

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_SMALL_GROUPS = ["acs_income_race", "acs_income_20"]
_MANY_COLUMNS = ["acs_income_sex"]


def _linear(runs: pd.DataFrame, datasets: Sequence[str] = ()) -> pd.DataFrame:
    """Runs of linear models on these data, or on those without a table of their own."""
    linear = runs["method"] == "fairconstrained, private"
    chosen = runs["dataset"].isin(datasets or [*_SMALL_GROUPS, *_MANY_COLUMNS])
    return runs[linear & (chosen if datasets else ~chosen)]


def _by_slack(runs: pd.DataFrame, keys: list[str]) -> Cells:
    """Parity at epsilon 1 and without privacy."""
    runs = runs[runs["epsilon"].isna() | (runs["epsilon"] == 1.0)]
    runs = runs[runs["notion"] != "false_negative_rate"]
    for row, of in runs.groupby([*keys, "notion", "slack"], sort=False):
        for budget, of_budget in budgets(of):
            for measure, words in _TEST.items():
                yield name(*row), f"{words}, {budget}", *summary(of_budget[measure])


def _middle(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of which there are other budgets."""
    return runs[(runs["notion"] == "demographic_parity") & (runs["slack"] == 0.05)]


@table("private_rates", "private_rates")
def _private_rates(runs: pd.DataFrame) -> Cells:
    yield from _by_slack(_linear(runs), ["dataset"])


@table("private_many_columns", "private_rates")
def _private_many_columns(runs: pd.DataFrame) -> Cells:
    yield from _by_slack(_linear(runs, _MANY_COLUMNS), [])


@table("private_budgets", "private_rates")
def _private_budgets(runs: pd.DataFrame) -> Cells:
    for data, of in _middle(_linear(runs)).groupby("dataset", sort=False):
        if of["epsilon"].nunique() > 1:
            yield from by_budget(of, name(data), _TEST)


@table("private_many_columns_budgets", "private_rates")
def _private_many_columns_budgets(runs: pd.DataFrame) -> Cells:
    yield from by_budget(_middle(_linear(runs, _MANY_COLUMNS)), "", _TEST)


@table("private_small_groups", "private_rates")
def _private_small_groups(runs: pd.DataFrame) -> Cells:
    measures = {"train_violation": "training gap", **_TEST}
    for data, of in _linear(runs, _SMALL_GROUPS).groupby("dataset", sort=False):
        yield from by_budget(of, name(data), measures)


@table("private_heart", "private_rates")
def _private_heart(runs: pd.DataFrame) -> Cells:
    measures = {"test_error": "test error", "test_violation": "test false negative rate"}
    yield from by_budget(runs[runs["dataset"] == "heart"], "", measures)

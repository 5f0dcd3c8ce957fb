"""Rates of predicted labels: slacks kept, fairlearn, random problems."""

from __future__ import annotations

import pandas as pd

from benchmarks import frontier, stress
from benchmarks.evidence.aggregates.cells import Cells, name, number, summary, table


@table("slacks_kept", "rate_constrained")
def _slacks_kept(runs: pd.DataFrame) -> Cells:
    for (data, notion, slack), of in runs.groupby(["dataset", "constraint", "slack"], sort=False):
        yield name(data, notion), f"slack {slack}", f"{of['train_violation'].max():.4f}", ""


@table("slacks_kept_counts", "rate_constrained")
def _slacks_kept_counts(runs: pd.DataFrame) -> Cells:
    kept = runs["feasible"].astype(bool)
    exceed = runs[~kept]
    yield "fits", "number", str(len(runs)), ""
    yield "fits within the slack + 0.001", "number", str(kept.sum()), ""
    told = exceed["warnings"].notna()
    yield "fits above it, all with a warning that names small groups", "number", str(told.sum()), ""
    yield "fits above it without a warning", "number", str((~told).sum()), ""


@table("ten_groups_errors", "rate_constrained")
def _ten_groups_errors(runs: pd.DataFrame) -> Cells:
    chosen = runs["dataset"].eq("acs_income_race_sex") & runs["constraint"].eq("equalized_odds")
    for slack, of in runs[chosen].groupby("slack"):
        yield "training error", f"slack {slack}", *summary(of["train_error"])


@table("reductions", "reductions")
def _reductions(runs: pd.DataFrame) -> Cells:
    for (data, notion), of in runs.groupby(["dataset", "constraint"], sort=False):
        found = pd.DataFrame(frontier.differences(of, "fairconstrained", "reductions"))
        for part in ("train", "test"):
            means = found.groupby("seed")[part].mean()
            yield name(data, notion), f"{part} rows", *summary(means, "+.4f")
        own = of[of["method"] == "reductions"].groupby("slack")["test_error"].std().mean()
        yield name(data, notion), "standard deviation of fairlearn's test error", f"{own:.4f}", ""


@table("reductions_seconds", "reductions_seconds")
def _reductions_seconds(runs: pd.DataFrame) -> Cells:
    for case, of in runs.groupby(["dataset", "constraint", "slack"], sort=False):
        for method in ("fairconstrained", "reductions"):
            seconds = of.loc[of["method"] == method, "fit_time"].median()
            yield name(*case), method, f"{seconds:.2f}", ""


@table("random_problems", "stress")
def _random_problems(runs: pd.DataFrame) -> Cells:
    words = {"partial": "partial parity", "auc": "AUC", "fermi": "DP-FERMI without privacy"}
    for estimator, of in runs.groupby("estimator", sort=False):
        for column, value in stress.summary(of).items():
            yield words.get(estimator, estimator), column, value, ""


@table("times_faster_than_reductions", "reductions_seconds")
def _times_faster_than_reductions(runs: pd.DataFrame) -> Cells:
    case = ["dataset", "constraint", "slack"]
    seconds = runs.pivot_table(index=[*case, "seed"], columns="method", values="fit_time")
    ratios = seconds["reductions"] / seconds["fairconstrained"]
    for key, of in ratios.dropna().groupby(level=case):
        for column, value in (("median", of.median()), ("least", of.min()), ("most", of.max())):
            yield name(*key), column, *number(value, ".1f")

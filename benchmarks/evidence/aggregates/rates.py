"""Rates of predicted labels: slacks kept, fairlearn, random problems, privacy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks import frontier, stress
from benchmarks.evidence.aggregates.cells import (
    Cells,
    budgets,
    by_budget,
    means,
    name,
    number,
    summary,
    table,
)

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_EQUAL = 0.01  # training gaps that are at most so far apart are compared
_SMALL_GROUPS = ["acs_income_race", "acs_income_20"]


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
            of_seeds = found.groupby("seed")[part].mean()
            yield name(data, notion), f"{part} rows", *summary(of_seeds, "+.4f")
        own = of[of["method"] == "reductions"].groupby("slack")["test_error"].std().mean()
        yield name(data, notion), "standard deviation of fairlearn's test error", f"{own:.4f}", ""


def _at_equal_gap(runs: pd.DataFrame) -> pd.DataFrame:
    """Give each run of reductions our run on the same split whose training gap is nearest.

    Runs without one that is near are left out.
    """
    split, ours = ["dataset", "constraint", "seed"], runs["method"] == "fairconstrained"
    pairs = runs[~ours].merge(runs[ours], on=split, suffixes=("", "_ours"))
    apart = (pairs["train_violation"] - pairs["train_violation_ours"]).abs()
    nearest = pairs.loc[apart.groupby([pairs[name] for name in (*split, "slack")]).idxmin()]
    return nearest[apart[nearest.index] <= _EQUAL]


@table("reductions_seconds", "reductions_seconds")
def _reductions_seconds(runs: pd.DataFrame) -> Cells:
    columns = {"training gap": ("train_violation", ".4f"), "processor seconds": ("cpu_time", ".3g")}
    for case, of in _at_equal_gap(runs).groupby(["dataset", "constraint"], sort=False):
        for words, (column, digits) in columns.items():
            for end, method in (("_ours", "ours"), ("", "reductions")):
                value = of[f"{column}{end}"].median()
                yield name(*case), f"{method}: {words}", *number(value, digits)


@table("random_problems", "stress")
def _random_problems(runs: pd.DataFrame) -> Cells:
    words = {"partial": "partial parity", "auc": "AUC", "fermi": "DP-FERMI without privacy"}
    for estimator, of in runs.groupby("estimator", sort=False):
        for column, value in stress.summary(of).items():
            yield words.get(estimator, estimator), column, value, ""


@table("times_faster_than_reductions", "reductions_seconds")
def _times_faster_than_reductions(runs: pd.DataFrame) -> Cells:
    pairs = _at_equal_gap(runs)
    pairs["ratio"] = pairs["cpu_time"] / pairs["cpu_time_ours"]
    for key, of in pairs.groupby(["dataset", "constraint"])["ratio"]:
        for column, value in (("median", of.median()), ("least", of.min()), ("most", of.max())):
            yield name(*key), column, *number(value, ".2g")


@table("private_rates", "private_rates")
def _private_rates(runs: pd.DataFrame) -> Cells:
    runs = runs[~runs["dataset"].isin(_SMALL_GROUPS)]
    runs = runs[runs["epsilon"].isna() | (runs["epsilon"] == 1.0)]
    runs = runs[runs["constraint"] != "false_negative_rate"]
    for (data, notion, slack), of in runs.groupby(["dataset", "constraint", "slack"], sort=False):
        for budget, of_budget in budgets(of):
            yield from means(of_budget, name(data, notion, slack), _TEST, budget)


@table("private_budgets", "private_rates")
def _private_budgets(runs: pd.DataFrame) -> Cells:
    runs = runs[~runs["dataset"].isin(_SMALL_GROUPS)]
    runs = runs[(runs["constraint"] == "demographic_parity") & (runs["slack"] == 0.05)]
    for data, of in runs.groupby("dataset", sort=False):
        if of["epsilon"].nunique() > 1:
            yield from by_budget(of, name(data), _TEST)


@table("private_small_groups", "private_rates")
def _private_small_groups(runs: pd.DataFrame) -> Cells:
    measures = {"train_violation": "training gap", **_TEST}
    for data, of in runs[runs["dataset"].isin(_SMALL_GROUPS)].groupby("dataset", sort=False):
        yield from by_budget(of, name(data), measures)


@table("private_caps", "private_rates")
def _private_caps(runs: pd.DataFrame) -> Cells:
    runs = runs[(runs["constraint"] == "false_negative_rate") & (runs["slack"] == 0.3)]
    measures = {"test_error": "test error", "test_violation": "test false negative rate"}
    for data, caps in runs.groupby("dataset"):
        yield from by_budget(caps, name(data), measures)


@table("private_clips", "private_rates")
def _private_clips(runs: pd.DataFrame) -> Cells:
    runs = runs[(runs["constraint"] == "false_negative_rate") & (runs["slack"] == 0.0)]
    measures = {"train_violation": "training false negative rate", "test_error": "test error"}
    clips = runs["method"].str.extract(r"clip (\S+)$", expand=False).astype(float)
    for clip, of in runs.groupby(clips):
        yield from means(of, f"{clip:g}", measures)


@table("private_heads", "private_heads")
def _private_heads(runs: pd.DataFrame) -> Cells:
    methods = {"head": "head on public trees", "records": "linear"}
    runs = runs[runs["method"].isin(methods)]
    for (data, notion, method), of in runs.groupby(["dataset", "constraint", "method"]):
        for budget, of_budget in budgets(of):
            yield from means(of_budget, name(data, notion, methods[method]), _TEST, budget)


@table("dp_ebm", "dp_ebm")
def _dp_ebm(runs: pd.DataFrame) -> Cells:
    for (data, method), of in runs.groupby(["dataset", "method"], sort=False):
        for budget, of_budget in budgets(of):
            yield from means(of_budget, name(data, method), _TEST, budget)


@table("secret_groups", "private_heads")
def _secret_groups(runs: pd.DataFrame) -> Cells:
    groups = runs[runs["method"] == "groups"]
    for (data, notion), of in groups.groupby(["dataset", "constraint"]):
        yield from by_budget(of, name(data, notion), _TEST)
        for column, words in _TEST.items():
            wide = of.pivot(index="seed", columns="epsilon", values=column)
            for epsilon, own in wide.drop(columns=np.inf).items():
                row = name(data, notion, f"{words} less that without privacy")
                yield row, f"epsilon {epsilon:g}", *summary(own - wide[np.inf], "+.4f")

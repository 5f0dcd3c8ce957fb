"""Rates of predicted labels: slacks kept, fairlearn, boosted trees."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from benchmarks import ablation, frontier, stress
from benchmarks.equal_violation import advantage_kept, at_equal_violation
from benchmarks.evidence.aggregates.cells import Cells, means, name, number, summary, table


@table("slacks_kept", "rate_constrained")
def _slacks_kept(runs: pd.DataFrame) -> Cells:
    for (data, notion, slack), of in runs.groupby(["dataset", "notion", "slack"], sort=False):
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
    chosen = runs["dataset"].eq("acs_income_race_sex") & runs["notion"].eq("equalized_odds")
    for slack, of in runs[chosen].groupby("slack"):
        yield "training error", f"slack {slack}", *summary(of["train_error"])


@table("reductions", "reductions")
def _reductions(runs: pd.DataFrame) -> Cells:
    for (data, notion), of in runs.groupby(["dataset", "notion"], sort=False):
        found = pd.DataFrame(frontier.differences(of, "fairconstrained", "reductions"))
        for part in ("train", "test"):
            means = found.groupby("seed")[part].mean()
            yield name(data, notion), f"{part} rows", *summary(means, "+.4f")
        own = of[of["method"] == "reductions"].groupby("slack")["test_error"].std().mean()
        yield name(data, notion), "standard deviation of fairlearn's test error", f"{own:.4f}", ""


@table("reductions_seconds", "reductions_seconds")
def _reductions_seconds(runs: pd.DataFrame) -> Cells:
    for case, of in runs.groupby(["dataset", "notion", "slack"], sort=False):
        for method in ("fairconstrained", "reductions"):
            seconds = of.loc[of["method"] == method, "fit_time"].median()
            yield name(*case), method, f"{seconds:.2f}", ""


@table("boosted_trees", "any_classifier")
def _boosted_trees(runs: pd.DataFrame) -> Cells:
    methods = ["trees, constrained", "trees, linear program", "linear, constrained"]
    runs = runs[runs["dataset"].eq("adult") & ~runs["without_group"] & runs["method"].isin(methods)]
    for (notion, slack), case in runs.groupby(["notion", "slack"], sort=False):
        for measure in ("test_error", "test_violation", "train_violation"):
            for method in methods:
                values = case.loc[case["method"] == method, measure]
                words = measure.replace("violation", "gap").replace("train_", "training ")
                row = name(notion, slack, words)
                yield row, method, *summary(values)


@table("boosted_trees_seconds", "any_classifier")
def _boosted_trees_seconds(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["dataset"].eq("adult") & ~runs["without_group"]]
    runs = runs[runs["method"] == "trees, constrained"]
    for notion, of in runs.groupby("notion", sort=False):
        yield name(notion), "classifiers of label and group", *summary(of["base_cpu"], ".1f")
        yield name(notion), "constrained training", *summary(of["cpu"], ".1f")


@table("boosted_trees_advantage", "any_classifier")
def _boosted_trees_advantage(runs: pd.DataFrame) -> Cells:
    for found in advantage_kept(runs).to_dict("records"):
        left_out = ", sex left out" if found["without_group"] else ""
        row = name(f"{name(found['dataset'])}{left_out}", found["notion"])
        for column in ("unconstrained", "constrained", "kept"):
            if found[column]:
                words = "kept, fraction" if column == "kept" else column
                yield row, words, found[column], ""


@table("boosted_trees_reductions", "any_classifier")
def _boosted_trees_reductions(runs: pd.DataFrame) -> Cells:
    measures = {"test_error": "test error", "test_violation": "test gap"}
    for case, ours, theirs in _beside_reductions(runs):
        for words, of in (("ours", ours), ("reductions", theirs)):
            yield from means(of, name(*case), measures, words)
        yield name(*case), "splits", str(len(ours)), ""


@table("boosted_trees_times_faster", "any_classifier")
def _boosted_trees_times_faster(runs: pd.DataFrame) -> Cells:
    for case, ours, theirs in _beside_reductions(runs):
        whole = ours["cpu"] + ours["base_cpu"]
        yield name(*case), "processor seconds, ours", *number(whole.median(), ".1f")
        yield name(*case), "processor seconds, reductions", *number(theirs["cpu"].median(), ".1f")
        times = theirs["cpu"] / whole
        for words, value in (("least", times.min()), ("most", times.max())):
            yield name(*case), f"times faster, {words}", *number(value, ".1f")


def _beside_reductions(
    runs: pd.DataFrame,
) -> Iterator[tuple[tuple[str, str], pd.DataFrame, pd.DataFrame]]:
    """Give data and notion, and the runs of both on the splits of reductions, at their slack."""
    runs = runs[~runs["without_group"]].set_index(["seed", "slack"]).sort_index()
    for case, of in runs.groupby(["dataset", "notion"]):
        theirs = of[of["method"] == "trees, reductions"]
        ours = of[of["method"] == "trees, constrained"]
        if len(theirs):
            yield case, ours.loc[theirs.index], theirs


@table("boosted_trees_at_equal_gap", "any_classifier")
def _boosted_trees_at_equal_gap(runs: pd.DataFrame) -> Cells:
    peers = ("linear program", "reductions", "thresholds by group")
    words = {f"trees, {peer}": peer for peer in peers}
    words["linear, constrained"] = "constrained linear model"
    found = at_equal_violation(runs[~runs["without_group"]])
    found = found[found["compared"].astype(bool) & found["peer"].isin(words)]
    for row in found.to_dict("records"):
        cell = row["mean"], row["standard deviation"].replace("nan", "")
        yield name(row["dataset"], row["notion"]), words[row["peer"]], *cell


@table("random_problems", "stress")
def _random_problems(runs: pd.DataFrame) -> Cells:
    words = {"partial": "partial parity", "auc": "AUC", "fermi": "DP-FERMI without privacy"}
    for estimator, of in runs.groupby("estimator", sort=False):
        for column, value in stress.summary(of).items():
            yield words.get(estimator, estimator), column, value, ""


@table("ablation_made", "ablation_made")
@table("ablation_groups", "ablation_groups")
@table("ablation", "ablation")
def _ablation(runs: pd.DataFrame) -> Cells:
    found = ablation.summary(runs)
    for variant, of in found.iterrows():
        yield variant, "hard objective", *number(of["hard objective"])
        yield variant, "excess over the slack", *number(of["excess"], ".5f")
        yield variant, "infeasible results", *number(of["infeasible"], ".0f")
        known = of["known point instead"]
        yield variant, "problems where a known point is the result", *number(known, ".0f")
        yield variant, "processor time, as a ratio", *number(of["cpu"], ".2f")


@table("times_faster_than_reductions", "reductions_seconds")
def _times_faster_than_reductions(runs: pd.DataFrame) -> Cells:
    case = ["dataset", "notion", "slack"]
    seconds = runs.pivot_table(index=[*case, "seed"], columns="method", values="fit_time")
    ratios = seconds["reductions"] / seconds["fairconstrained"]
    for key, of in ratios.dropna().groupby(level=case):
        for column, value in (("median", of.median()), ("least", of.min()), ("most", of.max())):
            yield name(*key), column, *number(value, ".1f")


@table("frozen_model", "frozen_model")
def _frozen_model(runs: pd.DataFrame) -> Cells:
    words = {"full path": "trees fitted for the constraint", "frozen": "frozen trees, 5,000 rows"}
    for (notion, method), of in runs.groupby(["notion", "method"], sort=False):
        for column, measure in {"test_error": "test error", "test_violation": "test gap"}.items():
            row = words.get(method, method)
            yield row, f"{measure}, {name(notion)}", *summary(of[column])

"""Boosted trees beside other methods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import frontier
from benchmarks.any_classifier import UNCONSTRAINED
from benchmarks.evidence.aggregates.cells import Cells, means, name, number, summary, table

_TEST = {"test_error": "test error", "test_violation": "test gap"}
_PEERS = {
    "linear, constrained": "constrained linear model",
    "trees, linear program": "linear program",
    "trees, reductions": "reductions",
    "trees, thresholds by group": "thresholds by group",
}
Floats = NDArray[np.float64]
_RUNS = Path(__file__).parents[1] / "runs"


@table("boosted_trees", "any_classifier")
def _boosted_trees(runs: pd.DataFrame) -> Cells:
    methods = ["trees, constrained", "trees, linear program", "linear, constrained"]
    runs = runs[runs["dataset"].eq("adult") & ~runs["without_group"] & runs["method"].isin(methods)]
    for (notion, slack), case in runs.groupby(["constraint", "slack"], sort=False):
        for measure in ("test_error", "test_violation", "train_violation"):
            for method in methods:
                values = case.loc[case["method"] == method, measure]
                words = measure.replace("violation", "gap").replace("train_", "training ")
                row = name(notion, slack, words)
                yield row, method, *summary(values)


@table("boosted_trees_reductions", "any_classifier")
def _boosted_trees_reductions(runs: pd.DataFrame) -> Cells:
    for case, ours, theirs in _beside_reductions(runs):
        for words, of in (("ours", ours), ("reductions", theirs)):
            yield from means(of, name(*case), _TEST, words)
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
    for case, of in runs.groupby(["dataset", "constraint"]):
        theirs = of[of["method"] == "trees, reductions"]
        ours = of[of["method"] == "trees, constrained"]
        if len(theirs):
            yield case, ours.loc[theirs.index], theirs


@table("boosted_trees_at_equal_gap", "any_classifier")
def _boosted_trees_at_equal_gap(runs: pd.DataFrame) -> Cells:
    """Give our test error minus each peer's at the peer's mean test violation.

    The standard deviation is that of the peer's test error over the splits, mean over slacks.
    """
    for case, of in runs[~runs["without_group"]].groupby(["dataset", "constraint"]):
        for peer, words in _PEERS.items():
            gained = _gained(of, peer)
            if np.isfinite(gained).any():
                own = of[of["method"] == peer].groupby("slack", dropna=False)["test_error"]
                std = own.std().mean()
                text = "" if np.isnan(std) else f"{std:.4f}"
                yield name(*case), words, f"{np.nanmean(gained):+.4f}", text


@table("boosted_trees_advantage", "any_classifier")
def _boosted_trees_advantage(runs: pd.DataFrame) -> Cells:
    """By how much trees are better than a linear model on test rows, without and with constraint.

    With constraint: at the violation of the linear model.
    """
    for (data, without_group, notion), of in runs.groupby(
        ["dataset", "without_group", "constraint"]
    ):
        free = of[of["method"].isin(UNCONSTRAINED)].pivot_table(
            index="seed", columns="method", values="test_error"
        )
        gained = _gained(of, "linear, constrained") if len(free.columns) == 2 else np.empty(0)
        if np.isfinite(gained).any():
            of_trees, of_linear = (free.dropna()[method].mean() for method in UNCONSTRAINED)
            without, within = of_linear - of_trees, -float(np.nanmean(gained))
            row = name(f"{name(data)}{', sex left out' if without_group else ''}", notion)
            yield row, "unconstrained", *number(without, "+.4f")
            yield row, "constrained", *number(within, "+.4f")
            if without > 0:
                yield row, "kept, fraction", *number(within / without, ".2f")


def _gained(runs: pd.DataFrame, peer: str) -> Floats:
    """Return our test error minus a peer's, at its violation for each slack.

    Frontiers are those of the means over the splits that both have; ours has the unconstrained
    trees at its end.
    """
    seeds = set(runs.loc[runs["method"] == peer, "seed"])
    seeds &= set(runs.loc[runs["method"] == "trees, constrained", "seed"])
    both = runs[runs["seed"].isin(seeds)]
    columns = ["test_error", "test_violation"]
    averaged = both.groupby(["method", "slack"], dropna=False)[columns].mean().reset_index()
    ours = averaged[averaged["method"].isin(["trees, constrained", "trees, unconstrained"])]
    theirs = averaged[averaged["method"] == peer]
    if ours.empty:
        return np.empty(0)
    at = frontier.error_at(ours["test_violation"], ours["test_error"], theirs["test_violation"])
    return at - theirs["test_error"].to_numpy()


@table("frozen_model", "any_classifier")
def _frozen_model(runs: pd.DataFrame) -> Cells:
    words = {
        "trees, unconstrained": "trees, unconstrained",
        "trees, constrained": "trees fitted for the constraint",
        "trees, frozen": "frozen trees, 5,000 rows",
    }
    runs = runs[~runs["without_group"] & (runs["slack"].isna() | (runs["slack"] == 0.05))]
    runs = runs.set_index(["dataset", "constraint", "seed"]).sort_index()
    splits = runs.index[runs["method"] == "trees, frozen"]
    for method, row in words.items():
        chosen = runs.loc[splits]
        for notion, of in chosen[chosen["method"] == method].groupby(level="constraint"):
            for column, measure in _TEST.items():
                yield row, f"{measure}, {name(notion)}", *summary(of[column])


@table("relaxed_thresholds", "relaxed_thresholds")
def _relaxed_thresholds(runs: pd.DataFrame) -> Cells:
    """Give our errors minus peers': of test rows at their gaps, of training rows at a slack.

    The standard deviation is that of the difference over the splits, each with its frontier.
    """
    peers = {"trees, relaxed thresholds": "error-parity", "trees, linear program": "LinearPost"}
    for case, of in runs.groupby(["dataset", "constraint"]):
        for peer, words in peers.items():
            gained = f"{np.nanmean(_gained(of, peer)):+.4f}"
            of_splits = [_gained(split, peer) for _, split in of.groupby("seed")]
            reached = [np.nanmean(own) for own in of_splits if np.isfinite(own).any()]
            yield name(*case), f"{words}, test", gained, f"{np.std(reached, ddof=1):.4f}"
        errors = of.pivot_table(index="slack", columns="method", values="train_error")
        more = errors["trees, constrained"] - errors["trees, relaxed thresholds"]
        yield name(*case), "error-parity, training", *number(more.mean(), "+.4f")
        yield name(*case), "worst slack, training", *number(more.max(), "+.4f")


@table("single_fit", "single_fit")
def _single_fit(runs: pd.DataFrame) -> Cells:
    runs = runs.assign(fits=runs["cpu"] / runs["head_cpu"])
    measures = {
        "error": "test error",
        "gap": "test gap",
        "head_error": "test error, posteriors",
        "head_gap": "test gap, posteriors",
        "violation": "training gap",
    }
    for case, of in runs.groupby(["dataset", "constraint"], sort=False):
        yield from means(of, name(*case), measures)
        yield name(*case), "fits, times as long", *number(of["fits"].median(), ".1f")


@table("single_fit_differences", "single_fit")
def _single_fit_differences(runs: pd.DataFrame) -> Cells:
    """Give the error less the head's at equal gap, and how many times as long, over all runs."""
    runs = runs.assign(
        more=runs["error"] - runs["equal_error"],
        fits=runs["cpu"] / runs["head_cpu"],
        predictions=runs["predict_cpu"] / runs["plain_predict_cpu"],
        of_head=runs["head_predict_cpu"] / runs["plain_predict_cpu"],
    )
    for notion, of in runs.groupby("constraint", sort=False):
        by_table = of.groupby("dataset")["more"].mean()
        yield name(notion), "more error at equal gap, mean", *number(of["more"].mean(), "+.4f")
        yield name(notion), "on the worst table", *number(by_table.max(), "+.4f")
        yield name(notion), "fits, times as long", *number(of["fits"].median(), ".1f")
        yield name(notion), "at most", *number(of["fits"].max(), ".1f")
        yield name(notion), "predictions, times as long", *number(of["predictions"].median(), ".2f")
        yield name(notion), "of posteriors", *number(of["of_head"].median(), ".1f")
        yield name(notion), "fits", str(len(of)), ""
        yield name(notion), "fits that keep the slack", str(int(of["feasible"].sum())), ""
        yield name(notion), "fits at a gap that posteriors reach", str(of["more"].count()), ""


@table("boosting", "boosting")
def _boosting(runs: pd.DataFrame) -> Cells:
    """Give a constrained booster on test rows, and its error less the head's at equal gap."""
    for case, of in runs.groupby(["dataset", "constraint"], sort=False):
        row, own = name(*case), _with_heads(of)
        yield from means(of, row, {"error": "test error", "gap": "test gap"})
        yield from means(of, row, {"bare_error": "test error, bare", "bare_gap": "test gap, bare"})
        more = -np.nanmean(_gained(own, "boosting")) if len(own) else np.nan
        yield row, "more error than posteriors", *number(more, "+.4f")
        yield row, "fits, times as long", *number((of["cpu"] / of["bare_cpu"]).mean(), ".2f")


@table("boosting_differences", "boosting")
def _boosting_differences(runs: pd.DataFrame) -> Cells:
    """Over all tables: errors at equal gap, times as long as the bare booster, slacks kept."""
    for notion, of in runs.groupby("constraint", sort=False):
        row, tables = name(notion), [_with_heads(own) for _, own in of.groupby("dataset")]
        more = [-np.nanmean(_gained(own, "boosting")) for own in tables]
        times, heads = of["cpu"] / of["bare_cpu"], pd.concat(tables)
        heads = heads[heads["method"].eq("trees, constrained") & heads["slack"].isin(of["slack"])]
        yield row, "more error at equal gap, mean", *number(np.nanmean(more), "+.4f")
        yield row, "on the worst table", *number(np.nanmax(more), "+.4f")
        yield row, "fits, times a bare booster", *number(times.mean(), ".2f")
        yield row, "on the slowest table", *number(times.groupby(of["dataset"]).mean().max(), ".2f")
        yield row, "fits", str(len(of)), ""
        yield row, "that keep the slack on rows held out", str(int(of["feasible"].sum())), ""
        yield row, "on test rows", str(int((of["gap"] <= of["slack"]).sum())), ""
        kept = (heads["test_violation"] <= heads["slack"]).sum()
        yield row, "posteriors on test rows", str(int(kept)), ""


def _with_heads(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs of boosters with runs of the head on the same splits, which were kept before."""
    heads = pd.read_csv(_RUNS / "any_classifier.csv.gz")
    case = ["dataset", "constraint", "seed"]
    heads = heads[~heads["without_group"]].merge(runs[case].drop_duplicates(), on=case)
    own = runs.rename(columns={"error": "test_error", "gap": "test_violation"})
    return pd.concat([heads, own.assign(method="boosting")])

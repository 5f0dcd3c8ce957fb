"""Networks: beside the linear model, private, and under equal mean losses."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, means, name, number, summary, table


@table("networks", "networks")
def _networks(runs: pd.DataFrame) -> Cells:
    measures = {"error": "test_error", "gap": "test_violation"}
    runs = (
        runs[runs["method"].isin(["linear", "network"])]
        .assign(free=lambda of: of["slack"] >= 1)
        .sort_values(["dataset", "free"], ascending=[1, 0])
    )
    for (data, free, slack), of in runs.groupby(["dataset", "free", "slack"], sort=False):
        row = name(data, "no constraint" if free else f"slack {slack}")
        pair = of.pivot(index="seed", columns="method", values="test_error").dropna()
        for words, measure in measures.items():
            for method, own in of[of["seed"].isin(pair.index)].groupby("method"):
                yield row, f"{method}, {words}", *summary(own[measure])
        yield row, "network less linear, error", *summary(pair["network"] - pair["linear"], "+.4f")
        longest = of.loc[of["method"] == "network", "cpu"].max()
        yield row, "network, processor seconds, most", *number(longest, ".0f")
        yield row, "splits", str(len(pair)), ""


@table("networks_on_new_rows", "networks")
def _networks_on_new_rows(runs: pd.DataFrame) -> Cells:
    """Give the excess of gaps on test rows over gaps on training rows, over all tables."""
    bound = runs[runs["method"].isin(["linear", "network"]) & (runs["slack"] < 1)]
    grown = bound.assign(by=bound["test_violation"] - bound["train_violation"])
    pairs = grown.pivot(index=["dataset", "seed"], columns="method", values="by").dropna()
    pairs["difference"] = pairs["network"] - pairs["linear"]
    row = "gap on test rows less that on training rows"
    for method, by in pairs.items():
        yield row, str(method), f"{by.mean():+.3f}", ""
    yield row, "standard error of the difference", f"{pairs['difference'].sem():.3f}", ""


@table("private_networks", "private_networks")
def _private_networks(runs: pd.DataFrame) -> Cells:
    measures = {"test_error": "test error", "train_violation": "training gap"}
    measures["test_violation"] = "test gap"
    for (epsilon, method), of in runs.groupby(["epsilon", "method"], sort=False):
        yield from means(of, name(f"epsilon {epsilon:g}", method), measures)


@table("loss_parity_again", "loss_parity")
def _loss_parity_again(runs: pd.DataFrame) -> Cells:
    measures = {
        "train_gap": "training gap",
        "train_Ina": "training error",
        "test_Ina": "test error",
    }
    names = {"LossParityClassifier": "default (`EarlyStoppedSGDA`)", "SGDA": "`SGDA`"}
    names["ALM, tuned"] = "`ALM`, tuned"
    runs = runs[runs["method"].isin(names)]
    seeds = runs.loc[runs["method"] == "LossParityClassifier", "seed"]
    for method, of in runs[runs["seed"].isin(seeds)].groupby("method"):
        yield from means(of, names[method], measures)


_TABLE_3 = {"gap": "gap of losses", "Ina": "error", "Ind": "independence gap"}
_TABLE_3 |= {"Sp": "separation gap", "Sf": "sufficiency gap", "Wd": "Wasserstein distance"}


@table("loss_parity", "loss_parity")
def _loss_parity(runs: pd.DataFrame) -> Cells:
    ours = runs[runs["method"] != "LossParityClassifier"]
    for method, of in ours.groupby("method", sort=False):
        for rows in ("train", "test"):
            measures = {f"{rows}_{short}": words for short, words in _TABLE_3.items()}
            # Sufficiency is undefined where one label is never predicted.
            measures = {m: words for m, words in measures.items() if of[m].notna().all()}
            yield from means(of, name(f"{method} ({len(of)})", rows), measures)

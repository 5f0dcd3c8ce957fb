"""Tables of runs: each function takes the runs of a file and gives the cells of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import frontier
from benchmarks.equal_violation import advantage_kept, at_equal_violation
from fairconstrained.metrics.bounds import clopper_pearson

__all__ = ["AGGREGATES"]

Cells = Iterator[tuple[str, str, str, str]]
_NAMES = {
    "adult": "Adult",
    "compas": "COMPAS",
    "compas_scores": "COMPAS",
    "law_school": "law school",
    "acs_income_sex": "ACSIncome by sex",
    "acs_income_race": "ACSIncome, 5 races",
    "acs_income_race_sex": "ACSIncome, 10 groups by race and sex",
    "group_auc": "group",
    "false_negative_rate": "cap on false negatives",
    "quasi_seldonian": "quasi-Seldonian",
    "certified": "CertifiedClassifier",
    "inter_group": "inter-group",
    "intra_group": "intra-group",
    "one": "five groups, one of them shifted",
    "fair": "two groups, fair",
}
_TEST = {"test_error": "test error", "test_violation": "test gap"}
_BUDGETS = {1.0: "epsilon 1", np.inf: "not private"}

AGGREGATES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {}


def _table(name: str) -> Callable[[Callable[[pd.DataFrame], Cells]], None]:
    """Register a generator of cells as the table of that name."""

    def register(cells: Callable[[pd.DataFrame], Cells]) -> None:
        AGGREGATES[name] = lambda runs: pd.DataFrame(
            cells(runs), columns=["row", "column", "value", "std"]
        )

    return register


def _name(*parts: Any) -> str:
    return " / ".join(_NAMES.get(str(part), str(part).replace("_", " ")) for part in parts)


def _summary(values: Iterable[float], digits: str = ".4f") -> tuple[str, str]:
    """Mean and standard deviation, as text."""
    values = np.asarray(list(values), dtype=float)
    std = f"{values.std(ddof=1):{digits.removeprefix('+')}}" if len(values) > 1 else ""
    return f"{values.mean():{digits}}", std


@_table("slacks_kept")
def _slacks_kept(runs: pd.DataFrame) -> Cells:
    for (data, notion, slack), of in runs.groupby(["dataset", "notion", "slack"], sort=False):
        yield _name(data, notion), f"slack {slack}", f"{of['train_violation'].max():.4f}", ""


@_table("slacks_kept_counts")
def _slacks_kept_counts(runs: pd.DataFrame) -> Cells:
    kept = runs["feasible"].astype(bool)
    exceed = runs[~kept]
    yield "fits", "number", str(len(runs)), ""
    yield "fits within the slack + 0.001", "number", str(kept.sum()), ""
    told = exceed["warnings"].notna()
    yield "fits above it, all with a warning that names small groups", "number", str(told.sum()), ""
    yield "fits above it without a warning", "number", str((~told).sum()), ""


@_table("ten_groups_errors")
def _ten_groups_errors(runs: pd.DataFrame) -> Cells:
    chosen = runs["dataset"].eq("acs_income_race_sex") & runs["notion"].eq("equalized_odds")
    for slack, of in runs[chosen].groupby("slack"):
        yield "training error", f"slack {slack}", *_summary(of["train_error"])


@_table("reductions")
def _reductions(runs: pd.DataFrame) -> Cells:
    for (data, notion), of in runs.groupby(["dataset", "notion"], sort=False):
        found = pd.DataFrame(frontier.differences(of, "fairconstrained", "reductions"))
        for part in ("train", "test"):
            means = found.groupby("seed")[part].mean()
            yield _name(data, notion), f"{part} rows", *_summary(means, "+.4f")
        own = of[of["method"] == "reductions"].groupby("slack")["test_error"].std().mean()
        yield _name(data, notion), "standard deviation of fairlearn's test error", f"{own:.4f}", ""


@_table("reductions_seconds")
def _reductions_seconds(runs: pd.DataFrame) -> Cells:
    chosen = runs["slack"].isin([0.02, 0.05]) & (runs["method"] != "unconstrained")
    for case, of in runs[chosen].groupby(["dataset", "notion", "slack"], sort=False):
        for method in ("fairconstrained", "reductions"):
            seconds = of.loc[of["method"] == method, "fit_time"].median()
            yield _name(*case), method, f"{seconds:.2f}", ""


@_table("boosted_trees")
def _boosted_trees(runs: pd.DataFrame) -> Cells:
    methods = ["trees, constrained", "trees, linear program", "linear, constrained"]
    runs = runs[runs["dataset"].eq("adult") & ~runs["without_group"] & runs["method"].isin(methods)]
    for (notion, slack), case in runs.groupby(["notion", "slack"], sort=False):
        for measure in ("test_error", "test_violation", "train_violation"):
            for method in methods:
                values = case.loc[case["method"] == method, measure]
                name = measure.replace("violation", "gap").replace("train_", "training ")
                row = _name(notion, slack, name)
                yield row, method, *_summary(values)


@_table("boosted_trees_seconds")
def _boosted_trees_seconds(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["dataset"].eq("adult") & ~runs["without_group"]]
    runs = runs[runs["method"] == "trees, constrained"]
    for notion, of in runs.groupby("notion", sort=False):
        yield _name(notion), "classifiers of label and group", *_summary(of["base_cpu"], ".1f")
        yield _name(notion), "constrained training", *_summary(of["cpu"], ".1f")


@_table("boosted_trees_advantage")
def _boosted_trees_advantage(runs: pd.DataFrame) -> Cells:
    for row in advantage_kept(runs[runs["dataset"].eq("adult")]).to_dict("records"):
        name = _name("sex left out" if row["without_group"] else "all columns", row["notion"])
        for column in ("unconstrained", "constrained", "kept"):
            yield name, f"{column}, fraction" if column == "kept" else column, row[column], ""


@_table("boosted_trees_small_tables")
def _boosted_trees_small_tables(runs: pd.DataFrame) -> Cells:
    peers = {f"trees, {name}": name for name in ("linear program", "thresholds by group")}
    peers["linear, constrained"] = "constrained linear model"
    small = runs[runs["dataset"].isin(["compas", "law_school"])]
    for row in at_equal_violation(small).to_dict("records"):
        if row["peer"] in peers and row["compared"]:
            name = _name(row["dataset"], row["notion"])
            yield name, peers[row["peer"]], row["mean"], row["standard deviation"]


@_table("networks")
def _networks(runs: pd.DataFrame) -> Cells:
    measures = {"error": "test_error", "gap": "test_violation"}
    runs = runs.assign(free=runs["slack"] >= 1).sort_values(["dataset", "free"], ascending=[1, 0])
    for (data, free, slack), of in runs.groupby(["dataset", "free", "slack"], sort=False):
        row = _name(data, "no constraint" if free else f"slack {slack}")
        for words, measure in measures.items():
            for method, own in of.groupby("method"):
                yield row, f"{method}, {words}", *_summary(own[measure])
        pair = of.pivot(index="seed", columns="method", values="test_error")
        yield row, "network less linear, error", *_summary(pair["network"] - pair["linear"], "+.4f")
        yield row, "splits", str(len(pair)), ""


def _trials(runs: pd.DataFrame) -> int:
    """Every draw of rows that certify is one; without a certificate every training is."""
    return int(runs["draws"].where(runs["method"] != "uncertified", 1).sum())


@_table("certificates")
def _certificates(runs: pd.DataFrame) -> Cells:
    training = ["population", "constraint", "n_rows", "training", "draws"]
    promised = runs.loc[runs["certified"].gt(0) & (runs["method"] != "uncertified"), training]
    both = promised.value_counts().eq(2).rename("both")
    runs = runs.join(both, on=training)
    runs["both"] = runs["both"].eq(True)
    for (n_rows, method), of in runs.groupby(["n_rows", "method"]):
        row, trials = _name(f"{n_rows:,}", method), _trials(of)
        yield row, "trials", str(trials), ""
        if method != "uncertified":
            yield row, "with a certificate", f"{of['certified'].sum() / trials:.2f}", ""
        yield row, "of these above the slack", str(of["violating"].sum()), ""
        yield row, "error where both have one", f"{of.loc[of['both'], 'error'].mean():.3f}", ""


@_table("certificates_wrong")
def _certificates_wrong(runs: pd.DataFrame) -> Cells:
    for method, of in runs.groupby("method"):
        certificates, wrong, trials = of["certified"].sum(), of["violating"].sum(), _trials(of)
        low, high = clopper_pearson(wrong, trials, 0.025)
        yield _name(method), "trials", str(trials), ""
        yield _name(method), "certificates", str(certificates), ""
        yield _name(method), "wrong", str(wrong), ""
        yield _name(method), "fraction of the trials", f"{wrong / trials:.4f}", ""
        yield _name(method), "at least", f"{low:.4f}", ""
        yield _name(method), "at most", f"{high:.4f}", ""


@_table("intervals")
def _intervals(runs: pd.DataFrame) -> Cells:
    for (metric, n_rows), of in runs.groupby(
        ["metric", runs["n_rows"].map("{:,}".format)], sort=False
    ):
        for _, run in of.iterrows():
            yield f"`{metric}` / {n_rows}", _name(run["population"]), f"{run['covered']:.3f}", ""


@_table("fermi_default")
def _fermi_default(runs: pd.DataFrame) -> Cells:
    for penalty, of in runs.groupby("penalty"):
        for measure, words in _TEST.items():
            for budget, name in _BUDGETS.items():
                chosen = of.loc[of["epsilon"].fillna(np.inf) == budget, measure]
                yield f"{penalty:g} / {words}", name, *_summary(chosen)


@_table("private_rates_again")
def _private_rates_again(runs: pd.DataFrame) -> Cells:
    for (data, notion, slack), of in runs.groupby(["dataset", "notion", "slack"], sort=False):
        for budget, name in _BUDGETS.items():
            for measure, words in _TEST.items():
                chosen = of.loc[of["epsilon"].fillna(np.inf) == budget, measure]
                yield _name(data, notion, slack), f"{words}, {name}", *_summary(chosen)


@_table("ranking_default_again")
def _ranking_default_again(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["slack"] == 0.01].assign(auc=1 - runs["test_error"])
    for data, of_data in runs.groupby("dataset"):
        for measure, words in (("auc", "test AUC"), ("test_violation", "test gap")):
            for notion, of in of_data.groupby("notion"):
                yield _name(data, words), _name(notion), *_summary(of[measure])


@_table("loss_parity_again")
def _loss_parity_again(runs: pd.DataFrame) -> Cells:
    measures = {
        "train_gap": "training gap",
        "train_Ina": "training error",
        "test_Ina": "test error",
    }
    names = {"LossParityClassifier": "default (`EarlyStoppedSGDA`)", "SGDA": "`SGDA`"}
    for measure, words in measures.items():
        for method, of in runs.groupby("method"):
            yield names[method], words, *_summary(of[measure])


@_table("partial_again")
def _partial_again(runs: pd.DataFrame) -> Cells:
    of = runs[runs["seed"].eq(0) & runs["notion"].eq("statistical_parity")]
    methods = {"no constraint": "no constraint", "rank parity": "`rank_parity`, level "}
    for method, words in methods.items():
        for _, run in of[of["method"] == method].iterrows():
            row = words + (str(run["level"]) if words.endswith(" ") else "")
            yield row, "fairness", f"{run['test_table']:.4f}", ""
            yield row, "test accuracy", f"{run['test_accuracy']:.4f}", ""

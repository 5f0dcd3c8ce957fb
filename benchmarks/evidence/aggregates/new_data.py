"""Intervals, certificates and what slacks are worth on new rows."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, table
from fairconstrained.metrics.bounds import clopper_pearson


def _trials(runs: pd.DataFrame) -> int:
    """Count every draw of rows that certify, or every training without a certificate."""
    return int(runs["draws"].where(runs["method"] != "uncertified", 1).sum())


# Measured when their intervals were made of distributions or tables; now rows are resampled.
RESAMPLED = ["ccdf_gap", "exponential_renyi_mutual_information", "partial_statistical_parity"]


@table("intervals", "intervals")
def _intervals(runs: pd.DataFrame) -> Cells:
    runs = runs[~runs["metric"].isin(RESAMPLED) & runs["method"].eq("auto")]
    for (metric, n_rows), of in runs.groupby(
        ["metric", runs["n_rows"].map("{:,}".format)], sort=False
    ):
        for _, run in of.iterrows():
            yield f"`{metric}` / {n_rows}", name(run["population"]), f"{run['covered']:.3f}", ""


@table("intervals_groups", "intervals")
def _intervals_groups(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["method"] == "inversion"].iterrows():
        column = run["metric"].replace("_", " ").replace("demographic parity ", "")
        yield run["population"], column, f"{run['covered']:.3f}", ""


TRAINING = ["population", "constraint", "n_rows", "training", "draws"]


def _compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Give the runs, each with our error on the same samples, which is nan without certificate."""
    ours = runs[runs["method"] == "certified"].set_index(TRAINING)["error"].rename("ours")
    return runs.join(ours, on=TRAINING)


def _certified(row: str, of: pd.DataFrame) -> Cells:
    trials, both = _trials(of), of.dropna(subset=["ours", "error"])
    trainings = of.groupby(["population", "constraint"])["training"].nunique()
    yield row, "trials", str(trials), ""
    yield row, "trainings of each case", str(trainings.min()), ""
    if (of["method"] != "uncertified").all():
        yield row, "with a certificate", f"{of['certified'].sum() / trials:.3f}", ""
        yield row, "and better than a constant", f"{of['better'].sum() / trials:.3f}", ""
    yield row, "of these above the slack", str(of["violating"].sum()), ""
    if len(both):
        yield row, "error where both have one", f"{both['error'].mean():.3f}", ""
        yield row, "error of CertifiedClassifier there", f"{both['ours'].mean():.3f}", ""


@table("certificates", "certificates")
def _certificates(runs: pd.DataFrame) -> Cells:
    for (n_rows, method), of in _compared(runs).groupby(["n_rows", "method"]):
        yield from _certified(name(f"{n_rows:,}", method), of)


@table("certificates_of_gaps", "certificates")
def _certificates_of_gaps(runs: pd.DataFrame) -> Cells:
    runs = _compared(runs)
    gaps = runs["constraint"].isin(["demographic_parity", "equalized_odds"])
    chosen = runs[
        gaps & runs["n_rows"].isin([1_000, 2_000, 10_000]) & runs["method"].ne("uncertified")
    ]
    for case, of in chosen.groupby(["population", "constraint", "n_rows", "method"]):
        population, constraint, n_rows, method = case
        yield from _certified(name(population, constraint, f"{n_rows:,}", method), of)


@table("certificates_wrong", "certificates")
def _certificates_wrong(runs: pd.DataFrame) -> Cells:
    for method, of in runs.groupby("method"):
        certificates, wrong, trials = of["certified"].sum(), of["violating"].sum(), _trials(of)
        low, high = clopper_pearson(wrong, trials, 0.025)
        yield name(method), "trials", str(trials), ""
        yield name(method), "certificates", str(certificates), ""
        yield name(method), "wrong", str(wrong), ""
        yield name(method), "fraction of the trials", f"{wrong / trials:.4f}", ""
        yield name(method), "at least", f"{low:.4f}", ""
        yield name(method), "at most", f"{high:.4f}", ""


@table("certificate_draws", "certificate_draws")
def _certificate_draws(runs: pd.DataFrame) -> Cells:
    for case, of in runs.groupby("case", sort=False):
        wrong, draws = of["wrong"].sum(), of["draws"].sum()
        low, high = clopper_pearson(wrong, draws, 0.025)
        yield case, "certificates", f"{draws}", ""
        yield case, "wrong", f"{wrong}", ""
        yield case, "fraction", f"{wrong / draws:.3f}", ""
        yield case, "at least", f"{low:.3f}", ""
        yield case, "at most", f"{high:.3f}", ""


@table("certificate_rows", "certificate_rows")
def _certificate_rows(runs: pd.DataFrame) -> Cells:
    for _, run in runs.iterrows():
        column = f"a gap of {run['gap']:g}" if run["gap"] else "no gap at all"
        yield f"{run['rate']:g}", column, f"{run['rows']:.0f}", ""


CASES = {"slack": "at the slack", "twice": "at twice the slack", "later": "kept, then twice"}


@table("monitoring", "monitoring")
def _monitoring(runs: pd.DataFrame) -> Cells:
    for case, title in CASES.items():
        for _, run in runs[runs["case"] == case].iterrows():
            row = f"{title} / {run['rate']:g} / {run['share']:g}"
            yield row, "streams", f"{run['streams']}", ""
            yield row, "alarms", f"{run['alarms']:.3f}", ""
            if case != "slack" and run["alarms"] > 0.5:
                yield row, "median rows to the alarm", f"{run['median']:.0f}", ""
                for power in ("80", "95"):
                    rows = run[f"rows_{power}"]
                    yield row, f"fixed sample, power {power} %", f"{rows:.0f}", ""
                yield row, "median / power 80 %", f"{run['median'] / run['rows_80']:.2f}", ""


@table("monitoring_drift", "monitoring")
def _monitoring_drift(runs: pd.DataFrame) -> Cells:
    others = [*CASES, "speed", "published bets", "monitor"]
    drift = runs[(runs["chunk"] <= 20) & ~runs["case"].isin(others)]
    for _, run in drift.iterrows():
        yield f"{run['case']} / {run['gap']:g}", f"{run['share']:g}", f"{run['alarms']:.3f}", ""


@table("monitoring_rules", "monitoring")
def _monitoring_rules(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["chunk"] > 20].iterrows():
        row = f"{run['criterion'].replace('_', ' ')} / {run['chunk']:,}"
        yield row, "alarms", f"{run['alarms']:.3f}", ""


@table("monitoring_reference", "monitoring")
def _monitoring_reference(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["case"].isin(["published bets", "monitor"])].iterrows():
        row = f"{run['rate']:g} and {run['rate'] + run['gap']:g}"
        median = "" if run["median"] == float("inf") else f"{run['median']:.0f}"
        yield row, f"{run['case']}: rejections", f"{run['alarms']:.3f}", ""
        if median:
            yield row, f"{run['case']}: median pairs", median, ""


@table("monitoring_speed", "monitoring")
def _monitoring_speed(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["case"] == "speed"].iterrows():
        yield "100,000 updates of one row", "processor seconds", f"{run['seconds']:.1f}", ""

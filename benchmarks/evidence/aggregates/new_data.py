"""Intervals, certificates and what slacks are worth on new rows."""

from __future__ import annotations

import pandas as pd

from benchmarks import promises
from benchmarks.evidence.aggregates.cells import Cells, name, number, table
from fairconstrained.metrics.bounds import clopper_pearson


def _trials(runs: pd.DataFrame) -> int:
    """Every draw of rows that certify is one; without a certificate every training is."""
    return int(runs["draws"].where(runs["method"] != "uncertified", 1).sum())


@table("intervals", "intervals")
def _intervals(runs: pd.DataFrame) -> Cells:
    for (metric, n_rows), of in runs.groupby(
        ["metric", runs["n_rows"].map("{:,}".format)], sort=False
    ):
        for _, run in of.iterrows():
            yield f"`{metric}` / {n_rows}", name(run["population"]), f"{run['covered']:.3f}", ""


@table("certificates", "certificates")
def _certificates(runs: pd.DataFrame) -> Cells:
    training = ["population", "constraint", "n_rows", "training", "draws"]
    promised = runs.loc[runs["certified"].gt(0) & (runs["method"] != "uncertified"), training]
    both = promised.value_counts().eq(2).rename("both")
    runs = runs.join(both, on=training)
    runs["both"] = runs["both"].eq(True)
    for (n_rows, method), of in runs.groupby(["n_rows", "method"]):
        row, trials = name(f"{n_rows:,}", method), _trials(of)
        yield row, "trials", str(trials), ""
        if method != "uncertified":
            yield row, "with a certificate", f"{of['certified'].sum() / trials:.2f}", ""
        yield row, "of these above the slack", str(of["violating"].sum()), ""
        yield row, "error where both have one", f"{of.loc[of['both'], 'error'].mean():.3f}", ""


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


@table("promises", "promises")
def _promises(runs: pd.DataFrame) -> Cells:
    words = {"margin=0": "no margin", promises.CERTIFIED: "certified"}
    for n_rows, of in promises.summary(runs).iterrows():
        for model, above in of.dropna().items():
            yield f"{n_rows:,}", words.get(model, f"`{model}`"), *number(100 * above, ".0f")
    certificates = runs[runs["model"] == promises.CERTIFIED].groupby("rows")["certified"].sum()
    for n_rows, of in certificates.items():
        yield f"{n_rows:,}", "certificates", str(of), ""


@table("certificate_rows", "certificate_rows")
def _certificate_rows(runs: pd.DataFrame) -> Cells:
    for _, run in runs.iterrows():
        column = f"a gap of {run['gap']:g}" if run["gap"] else "no gap at all"
        yield f"{run['rate']:g}", column, f"{run['rows']:.0f}", ""

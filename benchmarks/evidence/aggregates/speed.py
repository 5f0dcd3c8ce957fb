"""Seconds, memory, steps and workers."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, number, table

_KINDS = {
    "dense20": "dense, 20 columns",
    "dense100": "dense, 100 columns",
    "sparse1000": "sparse, 1,000 columns (2 %)",
}


@table("scaling", "scaling")
def _scaling(runs: pd.DataFrame) -> Cells:
    for kind, words in _KINDS.items():
        for n_rows, of in runs[runs["kind"] == kind].groupby("n_rows"):
            column = f"{n_rows:,} rows"
            yield f"{words} / seconds", column, *number(of["fit_time"].mean(), ".2f")
            yield f"{words} / peak MB", column, *number(of["peak_mb"].max(), ".0f")


@table("million_rows", "scaling")
def _million_rows(runs: pd.DataFrame) -> Cells:
    for n_rows, of in runs[runs["kind"] == "private100"].groupby("n_rows"):
        yield f"{n_rows:,}", "seconds", *number(of["fit_time"].mean(), ".1f")
        yield f"{n_rows:,}", "peak MB", *number(of["peak_mb"].max(), ".0f")


def _milliseconds(runs: pd.DataFrame, method: str, row: str, of: str = "") -> Cells:
    """Give the least and the median time of a step."""
    ms = runs.loc[runs["method"] == method, "ms"]
    if len(ms):
        for words, value in (("least", ms.min()), ("median", ms.median())):
            column = f"milliseconds, {of}, {words}" if of else f"milliseconds, {words}"
            yield row, column, *number(value, ".2f")


@table("steps", "steps")
def _steps(runs: pd.DataFrame) -> Cells:
    rows = {
        "plain torch": ("plain torch", "ours"),
        "ALM": ("ALM", "ours"),
        "SSLALM": ("SSL-ALM", "ours"),
        "public SSLALM": ("SSL-ALM", "public code"),
        "SwitchingSubgradient": ("switching subgradient", "ours"),
        "public SSG": ("switching subgradient", "public code"),
        "StochasticGhost": ("stochastic ghost", "ours"),
    }
    for method, (row, whose) in rows.items():
        yield from _milliseconds(runs[runs["problem"] == "network"], method, row, whose)


@table("module_steps", "steps")
def _module_steps(runs: pd.DataFrame) -> Cells:
    words = {"by hand": "plain torch by hand", "train": "`training.train`"}
    for method, row in words.items():
        yield from _milliseconds(runs[runs["problem"] == "module"], method, row)


@table("private_steps", "steps")
def _private_steps(runs: pd.DataFrame) -> Cells:
    words = {
        "plain SGD": "plain SGD",
        "DPSGDA": "`DPSGDA`, records, demographic parity",
        "DPFERMI, record": "`DPFERMI`, records",
        "DPFERMI, sensitive_features": "`DPFERMI`, sensitive features",
    }
    for method, row in words.items():
        yield from _milliseconds(runs[runs["problem"] == "private"], method, row)


@table("sharded", "sharded")
def _sharded(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["constraint"] == "demographic_parity"]
    alone = runs[runs["workers"] == 1].set_index("rows of all")["processor seconds of a worker"]
    for _, run in runs.sort_values(["rows of all", "workers"]).iterrows():
        row = f"{run['rows of all']:,} / {run['workers']}"
        seconds = run["processor seconds of a worker"]
        yield row, "processor seconds of a worker", *number(seconds, ".2f")
        yield row, "speed-up", *number(alone[run["rows of all"]] / seconds, ".2f")
        yield row, "sums", str(run["sums"]), ""
        travelled = run["bytes of sums"] + run["bytes of gathers"]
        yield row, "MB that travelled", *number(travelled / 1e6, ".1f")
        yield row, "violation", *number(run["violation"], ".6f")


@table("sharded_scores", "sharded")
def _sharded_scores(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["constraint"] != "demographic_parity"]
    for _, run in runs.sort_values(["constraint", "workers"]).iterrows():
        row = f"{run['constraint'].replace('_', ' ')} / {run['workers']}"
        seconds = run["processor seconds of a worker"]
        yield row, "processor seconds of a worker", *number(seconds, ".2f")
        travelled = run["bytes of sums"] + run["bytes of gathers"]
        yield row, "MB that travelled", *number(travelled / 1e6, ".1f")
        yield row, "violation", *number(run["violation"], ".6f")
        error = abs(run["violation"] - run["violation of all rows"])
        yield row, "error of the violation", *number(error, ".1e")


@table("blocks", "scaling")
def _blocks(runs: pd.DataFrame) -> Cells:
    columns = {
        "data_mb": "table MB",
        "peak_mb": "peak MB",
        "loaded_mb": "peak MB before the fit",
        "passes": "passes",
        "cpu": "processor seconds",
    }
    for _, run in runs[runs["kind"] == "blocks20"].iterrows():
        for column, words in columns.items():
            yield f"{run['n_rows']:,.0f}", words, f"{run[column]:g}", ""


_BESIDE = 10_000_000  # rows of the runs that are shown side by side


@table("engines", "engines")
def _engines(runs: pd.DataFrame) -> Cells:
    blocks = runs[runs["engine"] == "blocks"].set_index("rows")["processor seconds"]
    for _, run in runs[runs["rows"] >= _BESIDE].sort_values(["rows", "engine"]).iterrows():
        row = f"{run['rows']:,} / {run['engine'].capitalize()}"
        yield row, "seconds", *number(run["seconds"], ".0f")
        yield row, "processor seconds", *number(run["processor seconds"], ".0f")
        if run["rows"] in blocks:
            ratio = run["processor seconds"] / blocks[run["rows"]]
            yield row, "times those of blocks", *number(ratio, ".2f")
            yield row, "coefficients differ by", *number(run["coefficients differ by"], ".0e")
        yield row, "passes", str(run["passes"]), ""
        yield row, "peak MB", *number(run["peak MB"], ".0f")
        if pd.notna(run["ms of a task"]):
            yield row, "milliseconds to start a task", *number(run["ms of a task"], ".1f")


@table("engines_lost", "engines")
def _engines_lost(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["killed"].notna()].sort_values("engine").iterrows():
        row = f"{run['engine'].capitalize()}, {run['rows']:,} rows"
        yield row, "seconds", *number(run["seconds"], ".0f")
        yield row, "processor seconds", *number(run["processor seconds"], ".0f")
        yield row, "coefficients differ by", *number(run["coefficients differ by"], ".0e")


@table("heads", "heads")
def _heads(runs: pd.DataFrame) -> Cells:
    """Give processor seconds of heads as multiples of bare trees'; of one row, how many more."""
    for _, run in runs.iterrows():
        row = f"{run['rows']:,} rows at most / {name(run['dataset'], run['constraint'])}"
        for column in ("fit", "predict"):
            yield row, f"{column}, times", *number(run[column] / run[f"bare_{column}"], ".1f")
        yield row, "one row, ms more", *number(1e3 * (run["row"] - run["bare_row"]), "+.1f")
        if run["curve"] > 0:
            yield row, "eight slacks, times one", *number(run["curve"] / run["bare_curve"], ".2f")
            yield row, "fits of trees for eight", str(int(run["fits"])), ""
            yield row, "for one", str(int(run["fits_of_one"])), ""

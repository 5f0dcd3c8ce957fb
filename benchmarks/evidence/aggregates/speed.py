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


@table("ranking_rows", "auc_rows")
def _ranking_rows(runs: pd.DataFrame) -> Cells:
    words = {"moments": "from moments", "log loss": "log loss", "default": "default"}
    for _, run in runs.iterrows():
        yield f"{run['rows']:,}", f"{words[run['fit']]}, s", *number(run["seconds"], ".1f")


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


@table("workers", "workers")
def _workers(runs: pd.DataFrame) -> Cells:
    for _, run in runs.sort_values(["batch", "workers"]).iterrows():
        row = f"{run['batch']:,} / {run['workers']}"
        yield row, "processor milliseconds of a worker", *number(run["processor ms"], ".0f")


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


@table("sharded_plan", "sharded")
def _sharded_plan(runs: pd.DataFrame) -> Cells:
    several = runs[(runs["workers"] > 1) & (runs["constraint"] == "demographic_parity")]
    run = several.loc[several["rows of all"].idxmax()]
    row = f"{run['planned rows']:.0e} rows, {run['planned workers']:,} workers".replace("+", "")
    yield row, "seconds of arithmetic", *number(run["seconds of arithmetic"], ".0f")
    yield row, "seconds of network", *number(run["seconds of network"], ".1f")


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
_MANY = {"workers": 1_000, "rows of a worker": 10_000_000}


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


@table("engines_lost", "engines")
def _engines_lost(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["killed"].notna()].sort_values("engine").iterrows():
        row = f"{run['engine'].capitalize()}, {run['rows']:,} rows"
        yield row, "seconds", *number(run["seconds"], ".0f")
        yield row, "processor seconds", *number(run["processor seconds"], ".0f")
        yield row, "coefficients differ by", *number(run["coefficients differ by"], ".0e")


@table("engines_plan", "engines")
def _engines_plan(runs: pd.DataFrame) -> Cells:
    """One partition for each worker: tasks start one after another, and rows work side by side."""
    for engine, own in runs[runs["ms of a task"].notna()].groupby("engine"):
        run, row = own.loc[own["rows"].idxmax()], str(engine).capitalize()
        each = run["processor seconds"] / run["rows"] * _MANY["rows of a worker"]
        yield row, "kB to a worker in a pass, median", *number(run["kB sent, median"], ".0f")
        yield row, "kB to a worker in a pass, most", *number(run["kB sent, largest"], ".0f")
        yield row, "milliseconds of a task", *number(run["ms of a task"], ".1f")
        yield row, "seconds of arithmetic", *number(each, ".0f")
        starting = run["passes"] * _MANY["workers"] * run["ms of a task"] / 1000
        yield row, "seconds of starting tasks", *number(starting, ".0f")


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

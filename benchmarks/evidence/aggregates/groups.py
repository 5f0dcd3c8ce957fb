"""Groups that are hidden or guessed."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, table

LIMIT = 0.06  # slack plus 0.01
TITLES = {"known": "known groups", "probabilities": "probabilities", "guesses": "guesses"}


def _compared(runs: pd.DataFrame) -> pd.DataFrame:
    """The fits, each with the error of the fit that sees all groups of the same table."""
    fits = runs[runs["case"] == "fits"]
    of_all = fits[fits["given"] == "all"].set_index(["data", "seed"])["error"].rename("of_all")
    return fits[fits["given"] != "all"].join(of_all, on=["data", "seed"])


def _gaps(row: str, title: str, of: pd.DataFrame) -> Cells:
    yield row, f"{title}mean gap", f"{of['gap'].mean():.3f}", ""
    yield row, f"{title}within 0.06", f"{int((of['gap'] <= LIMIT).sum())}", ""
    more = (of["error"] - of["of_all"]).mean()
    yield row, f"{title}error, less that with all groups", f"{more:+.4f}", ""


@table("groups", "groups")
def _groups(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    for (data, hidden, how), of in fits[fits["how"] != "by group"].groupby(
        ["data", "hidden", "how"], sort=False
    ):
        row = f"{name(data)} / {hidden:.0%} / {how}"
        yield row, "fits", f"{of['seed'].nunique()}", ""
        yield row, "AUC of the group model", f"{of['auc'].mean():.2f}", ""
        for way, title in TITLES.items():
            yield from _gaps(row, f"{title}: ", of[of["given"] == way])


@table("groups_margin", "groups")
def _groups_margin(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    seeds = fits[fits["given"].str.startswith("known, margin")][["data", "seed"]].drop_duplicates()
    few = fits[fits["hidden"] > 0.5].merge(seeds)
    for (data, how), of in few.groupby(["data", "how"], sort=False):
        row = f"{name(data)} / {how}"
        yield row, "fits", f"{of['seed'].nunique()}", ""
        for way, title in (
            ("", "no margin"),
            (", margin 1", "margin 1"),
            (", margin 2", "margin 2"),
        ):
            yield from _gaps(row, f"{title}: ", of[of["given"] == f"known{way}"])


@table("groups_false", "groups")
def _groups_false(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    words = {"by group": "hidden by the group", "at random": "probabilities from a name alone"}
    false = fits[(fits["how"] == "by group") | (fits["given"] == "name")]
    for (data, hidden, how, given), of in false.groupby(
        ["data", "hidden", "how", "given"], sort=False
    ):
        row = f"{name(data)} / {words[how]}, {hidden:.0%} / {TITLES.get(given, given)}"
        yield row, "fits", f"{len(of)}", ""
        yield from _gaps(row, "", of)


@table("groups_intervals", "groups")
def _groups_intervals(runs: pd.DataFrame) -> Cells:
    for _, run in runs[runs["case"] == "intervals"].iterrows():
        row = f"{run['given']} / {run['data']}"
        yield row, "draws", f"{run['seed']:.0f}", ""
        yield row, "covered", f"{run['covered']:.3f}", ""
        yield row, "wholly below", f"{run['below']:.3f}", ""
        yield row, "wholly above", f"{run['above']:.3f}", ""
        if pd.notna(run["certified"]):
            yield row, "bounds of certify below the truth", f"{run['certified']:.3f}", ""

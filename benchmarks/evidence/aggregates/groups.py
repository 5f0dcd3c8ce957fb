"""Groups that are hidden or guessed."""

from __future__ import annotations

import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, table

LIMIT = 0.06  # slack plus 0.01
RECIPE = "estimated, few columns, margin"
TITLES = {
    "known": "known groups",
    "probabilities": "probabilities",
    "guesses": "guesses",
    RECIPE: "corrected, few columns, margin",
}
STEPS = {
    "known": "known groups",
    "known, margin": "known groups, margin",
    "estimated": "corrected",
    "estimated, margin": "corrected, margin",
    "estimated, few columns": "corrected, few columns",
    RECIPE: "all three",
    "known, few columns, margin": "known groups, few columns, margin",
}
FALSE = {"name": "name", "name, few columns, margin": "name, corrected, few columns, margin"}


def _compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Give the fits, each with the error of the fit that sees all groups of the same table."""
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
    true = fits[fits["how"].isin(["at random", "by label"])]
    for (data, hidden, how), of in true.groupby(["data", "hidden", "how"], sort=False):
        row = f"{name(data)} / {hidden:.0%} / {how}"
        yield row, "fits", f"{of['seed'].nunique()}", ""
        yield row, "AUC of the group model", f"{of['auc'].mean():.2f}", ""
        for way, title in TITLES.items():
            yield from _gaps(row, f"{title}: ", of[of["given"] == way])


@table("groups_missed", "groups")
def _groups_missed(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    true = fits[fits["how"].isin(["at random", "by label"]) & fits["given"].isin(TITLES)]
    for hidden, of in true.groupby("hidden", sort=False):
        gaps = of.pivot(index=["data", "how", "seed"], columns="given", values="gap")
        missed = gaps[gaps["guesses"] > LIMIT]
        row = f"{hidden:.0%} hidden, guesses miss 0.06"
        yield row, "fits", f"{len(missed)}", ""
        for way, title in TITLES.items():
            yield row, f"{title}: within 0.06", f"{int((missed[way] <= LIMIT).sum())}", ""


@table("groups_few", "groups")
def _groups_few(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    for (data, how), of in fits[fits["hidden"] > 0.5].groupby(["data", "how"], sort=False):
        for way, title in STEPS.items():
            row, own = f"{name(data)} / {how} / {title}", of[of["given"] == way]
            if len(own):
                yield row, "fits", f"{len(own)}", ""
                yield from _gaps(row, "", own)


@table("groups_recorded", "groups")
def _groups_recorded(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    recorded = fits[fits["how"] == "recorded"]
    for (data, given), of in recorded.groupby(["data", "given"], sort=False):
        row = f"{name(data)} / {given}"
        yield row, "fits", f"{len(of)}", ""
        yield from _gaps(row, "", of)


@table("groups_false", "groups")
def _groups_false(runs: pd.DataFrame) -> Cells:
    fits = _compared(runs)
    words = {"by group": "hidden by the group", "at random": "probabilities from a name alone"}
    false = fits[(fits["how"] == "by group") | fits["given"].isin(FALSE)]
    for (data, hidden, how, given), of in false.groupby(
        ["data", "hidden", "how", "given"], sort=False
    ):
        row = f"{name(data)} / {words[how]}, {hidden:.0%} / {(TITLES | FALSE)[given]}"
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

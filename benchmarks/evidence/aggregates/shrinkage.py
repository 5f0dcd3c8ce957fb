"""Shrunken rates of small groups, beside other remedies."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.evidence.aggregates.cells import Cells, name, number, table

WAYS = {
    "measured": "measured",
    "groups of 100": "groups of 100 rows",
    "margin": "margin",
    "shrunken": "shrunken",
}
GROUPS = {
    "sex": "2 by sex",
    "race": "5 by race",
    "race, sex": "10 by race and sex",
    "race, sex, marriage": "20 by race, sex and marriage",
    "sex, schooling, age": "40 by sex, schooling and age",
    "chance": "20 by chance",
}
SIZES = {  # rows of the second table
    "5 and 10 groups": ("race", "race, sex"),
    "20 and 40 groups": ("race, sex, marriage", "sex, schooling, age"),
    "20 groups by chance": ("chance",),
}
SLACK = 0.05
SPLIT = ["data", "criterion", "groups", "seed"]


@table("shrinkage", "shrinkage")
def _shrinkage(runs: pd.DataFrame) -> Cells:
    runs = runs[runs["slack"].isin((SLACK, 1.0))]
    for data, criterion in runs[["data", "criterion"]].drop_duplicates().itertuples(index=False):
        for groups, words in GROUPS.items():
            of = runs[
                (runs[["data", "criterion", "groups"]] == [data, criterion, groups]).all(axis=1)
            ]
            row = f"{name(data, criterion)} / {words}"
            for way, title in {"none": "no constraint", **WAYS}.items():
                own = of[of["way"] == way]
                if len(own):
                    yield row, f"{title}: error", *number(own["error"].mean())
                    yield row, f"{title}: true gap", *number(_gap(own), ".3f")


@table("shrinkage_compared", "shrinkage")
def _compared(runs: pd.DataFrame) -> Cells:
    for size, groups in SIZES.items():
        for criterion, of in runs[runs["groups"].isin(groups)].groupby("criterion", sort=False):
            measured = of[of["way"] == "measured"].set_index([*SPLIT, "slack"])
            measured = measured[["error", "squared"]].add_suffix("_m")
            curves = dict(list(of[of["way"].isin(("none", "measured"))].groupby(SPLIT)))
            for way, title in WAYS.items():
                own = of[of["way"] == way]
                both = own.join(measured, on=[*SPLIT, "slack"], how="inner")
                if way == "measured" or not len(both):
                    continue
                row = f"{size} / {name(criterion)} / {title}"
                yield row, "fits", f"{len(both)}", ""
                yield row, "error", *number((both["error"] - both["error_m"]).mean(), "+.4f")
                yield row, "true gap", *number(_gap(both) - _gap(both, "squared_m"), "+.3f")
                less = [_less(fit, curves[tuple(fit[SPLIT])]) for _, fit in both.iterrows()]
                known = [gap for gap in less if np.isfinite(gap)]
                if known:
                    yield row, "true gap at equal error", *number(np.mean(known), "+.3f")
                    yield row, "of fits", f"{len(known)}", ""


def _gap(runs: pd.DataFrame, squared: str = "squared") -> float:
    """Root of the mean squared gap; estimates without bias may be negative."""
    return float(np.sqrt(max(runs[squared].mean(), 0.0)))


def _less(fit: pd.Series, measured: pd.DataFrame) -> float:
    """The gap less that of fits to measured rates at the same error, on lines between these.

    nan where they have larger or smaller errors only.
    """
    ordered = measured.sort_values("error")
    gap = np.sqrt(np.maximum(ordered["squared"], 0.0))
    other = np.interp(fit["error"], ordered["error"], gap, left=np.nan, right=np.nan)
    return float(np.sqrt(max(fit["squared"], 0.0)) - other)

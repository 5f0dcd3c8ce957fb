"""What all tables of runs share: the registry, names for readers, numbers as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Cells = Iterator[tuple[str, str, str, str]]
_NAMES = {
    "adult": "Adult",
    "bank": "bank",
    "bank_duration": "bank with `duration`",
    "compas": "COMPAS",
    "compas_scores": "COMPAS",
    "credit_card": "Credit Card",
    "heart": "Heart",
    "law_school": "law school",
    "parkinsons": "Parkinsons",
    "acs_income_20": "ACSIncome, 20 groups by race, sex and marriage",
    "acs_income_race": "ACSIncome, 5 races",
    "acs_income_race_sex": "ACSIncome, 10 groups by race and sex",
    "acs_income_sex": "ACSIncome by sex",
    "acs_income_white": "ACSIncome, white or not",
    "group_auc": "group",
    "false_negative_rate": "cap on false negatives",
    "acs_income_ok": "ACSIncome",
    "engine": "seldonian-engine, drawn labels",
    "engine_powell": "seldonian-engine",
    "certified": "CertifiedClassifier",
    "inter_group": "inter-group",
    "intra_group": "intra-group",
    "train": "training",
    "one": "five groups, one of them shifted",
    "fair": "two groups, fair",
}


class Aggregate(NamedTuple):
    """The runs that a table is made of, by the name of their file, and how."""

    runs: str
    cells: Callable[[pd.DataFrame], Cells]

    def table(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Give the cells of the table."""
        return pd.DataFrame(self.cells(runs), columns=["row", "column", "value", "std"])


AGGREGATES: dict[str, Aggregate] = {}


Generator = Callable[[pd.DataFrame], Cells]


def table(name: str, runs: str) -> Callable[[Generator], Generator]:
    """Register a generator of cells as the table of that name, made of these runs."""

    def register(cells: Generator) -> Generator:
        AGGREGATES[name] = Aggregate(runs, cells)
        return cells

    return register


def name(*parts: Any) -> str:
    """Give the name of a row: its parts in the words of the pages."""
    return " / ".join(_NAMES.get(str(part), str(part).replace("_", " ")) for part in parts)


def number(value: float, digits: str = ".4f") -> tuple[str, str]:
    """Give a number without a standard deviation, as text."""
    return f"{value:{digits}}", ""


def summary(values: Iterable[float], digits: str = ".4f") -> tuple[str, str]:
    """Give mean and standard deviation, as text."""
    values = np.asarray(list(values), dtype=float)
    std = f"{values.std(ddof=1):{digits.removeprefix('+')}}" if len(values) > 1 else ""
    return f"{values.mean():{digits}}", std


def means(runs: pd.DataFrame, row: str, measures: Mapping[str, str], of: str = "") -> Cells:
    """Give a column for each measure, a column of the runs that has these words, `of` something."""
    for measure, words in measures.items():
        yield row, f"{words}, {of}".removesuffix(", "), *summary(runs[measure])


def budgets(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the runs of each epsilon by its name, in their order, and runs without privacy last."""
    for epsilon, of in runs.groupby(runs["epsilon"].fillna(np.inf)):
        yield "not private" if np.isinf(epsilon) else f"epsilon {epsilon:g}", of


def by_budget(runs: pd.DataFrame, row: str, measures: Mapping[str, str]) -> Cells:
    """Give a row for each measure (a column of the runs, and its words) and a column a budget."""
    for column, words in measures.items():
        for budget, of in budgets(runs):
            yield f"{row} / {words}".removeprefix(" / "), budget, *summary(of[column])


@table("loss_parity_published", "published")
@table("raco_published", "published")
@table("step_times_published", "published")
def _as_published(points: pd.DataFrame) -> Cells:
    """Give the lines of a published file: the parts of a name, measure, value and deviation."""
    for *parts, measure, value, std in points.itertuples(index=False):
        yield name(*parts), measure, f"{value:g}", "" if np.isnan(std) else f"{std:g}"

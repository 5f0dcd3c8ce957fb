"""The table that the quick start works on: generated, a benchmark, or a user's CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from fairconstrained.datasets import load_dataset, make_loan_applications
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.groups import encode_groups

MISSING = "missing"
# A sensitive column with more values than this is a measurement, not a set of groups.
_MOST_GROUPS = 30
# Words that differ on more than this fraction of the rows are names or identifiers.
_IDENTIFYING = 0.5


class Table(NamedTuple):
    """Features, labels and groups."""

    name: str
    X: pd.DataFrame
    y: NDArray[np.int64]  # 0 or 1
    groups: Any  # Series or DataFrame
    words: list[str]  # columns of X that are no numbers
    positive: str  # the meaning of 1
    notes: list[str]  # messages to the user about changes of the table

    def rows(self, index: Any) -> Table:
        """Some of the rows, given by positions."""
        return self._replace(X=self.X.iloc[index], y=self.y[index], groups=self.groups.iloc[index])


def generated(seed: int) -> Table:
    """8,000 loan applications, judged by sex."""
    loans = make_loan_applications(random_state=seed)
    y = (loans.target == "granted").astype(np.int64)
    sex = loans.sensitive_features["sex"]
    words = ["occupation", "housing"]
    return Table("loan applications", loans.data, y, sex, words, "decision = granted", [])


def dataset(name: str) -> Table:
    """A benchmark data set with its usual sensitive feature."""
    try:
        bunch = load_dataset(name)
    except OSError as error:
        raise SystemExit(str(error)) from error
    X, codes = bunch.data, DATASETS[name].codes.split()
    numeric = X.select_dtypes("number").columns
    words = [column for column in X if column in codes or column not in numeric]
    groups = pd.Series(np.asarray(bunch.sensitive_features), name="group")
    return Table(name, X, bunch.target, groups, words, bunch.target_names[1], [])


def from_csv(
    path: Path, label: str, sensitive: Sequence[str], positive: str | None, drop: Sequence[str]
) -> Table:
    """Read a user's file, or exit with a message if it cannot be used.

    Rows without a label are left out. The sensitive columns are no features, so that the model can
    be used where they are not known. Without `positive`, the larger of two numbers is favourable.
    """
    frame = _read(path)
    for column in (label, *sensitive, *drop):
        if column not in frame:
            raise SystemExit(f"{path} has no column {column!r}; it has {_listed(frame.columns)}.")
    if label in sensitive:
        raise SystemExit(f"{label!r} is the label; it cannot be sensitive as well.")
    notes = []
    labelled = frame[label].notna()
    if not labelled.all():
        notes.append(f"{(~labelled).sum()} rows without {label} are left out.")
        frame = frame[labelled].reset_index(drop=True)
    y, meaning = _labels(frame[label], positive, path)
    groups = _groups(frame[list(sensitive)], path)
    X, words, said = _features(frame.drop(columns={label, *sensitive, *drop}), path)
    return Table(path.stem, X, y, groups, words, meaning, notes + said)


def held_out(table: Table, seed: int) -> tuple[Table, Table]:
    """Hold out a quarter of the rows of each label in each group."""
    strata = 2 * encode_groups(table.groups).codes + table.y
    count = np.bincount(strata)
    strata = np.where(count[strata] < 2, count.argmax(), strata)  # lone rows go anywhere
    train, test = train_test_split(
        np.arange(len(table.y)), test_size=0.25, stratify=strata, random_state=seed
    )
    return table.rows(train), table.rows(test)


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except FileNotFoundError as error:
        raise SystemExit(f"There is no file {path}.") from error
    except pd.errors.EmptyDataError as error:
        raise SystemExit(f"{path} is empty.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path} is not UTF-8 text ({error}). Save it as CSV in UTF-8.") from error
    except (pd.errors.ParserError, OSError) as error:
        raise SystemExit(f"{path} cannot be read as CSV: {error}") from error
    if frame.empty:
        raise SystemExit(f"{path} has a header and no rows.")
    return frame


def _labels(column: Any, positive: str | None, path: Path) -> tuple[NDArray[np.int64], str]:
    values = sorted(column.unique().tolist(), key=str)
    words = [str(value) for value in values]
    if len(values) < 2:
        raise SystemExit(
            f"{column.name} has the same value in all rows of {path}: {words[0] if words else ''}. "
            "There is nothing to learn."
        )
    if positive is None:
        if len(values) > 2:
            raise SystemExit(
                f"{column.name} has {len(values)} values, {_listed(words)}. Name the favourable "
                "one with --positive; it is told apart from all others."
            )
        if not pd.api.types.is_numeric_dtype(column):
            raise SystemExit(
                f"{column.name} is {words[0]!r} or {words[1]!r}. Name the favourable one with "
                "--positive."
            )
        positive = str(max(values))
    if positive not in words:
        raise SystemExit(
            f"--positive is {positive!r}, but {column.name} has the values {_listed(words)}."
        )
    y = (column.astype(str) == positive).to_numpy().astype(np.int64)
    return y, f"{column.name} = {positive}"


def _groups(columns: pd.DataFrame, path: Path) -> Any:
    for name in columns:
        count = columns[name].nunique()
        if count > _MOST_GROUPS:
            raise SystemExit(
                f"{name} has {count} values, too many for groups of people. Add a column with a "
                f"few ranges of it to {path}, for example with pandas.cut, and name that one."
            )
    groups = columns.astype(object).where(columns.notna(), MISSING).astype(str)
    if len(groups.drop_duplicates()) < 2:
        raise SystemExit(
            f"All rows of {path} have the same {' and '.join(groups)}: there are no groups to "
            "compare."
        )
    return groups.iloc[:, 0] if groups.shape[1] == 1 else groups


def _features(X: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, list[str], list[str]]:
    numeric = X.select_dtypes("number").columns
    constant = [c for c in X if X[c].nunique(dropna=False) < 2]
    naming = [c for c in X if c not in numeric and X[c].nunique() > _IDENTIFYING * len(X)]
    notes = [
        f"{_listed(columns)}: left out, {why}."
        for columns, why in (
            (constant, "the same in all rows"),
            (naming, "different in most rows, as names and identifiers are"),
        )
        if columns
    ]
    X = X.drop(columns={*constant, *naming})
    if X.shape[1] == 0:
        raise SystemExit(f"{path} has no features beside the label and the sensitive columns.")
    words = [c for c in X if c not in numeric]
    X = X.astype(dict.fromkeys(words, object))
    X[words] = X[words].where(X[words].isna(), X[words].astype(str))
    return X, words, notes


def _listed(values: Any, most: int = 12) -> str:
    values = [str(value) for value in values]
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(values[:most]) + more

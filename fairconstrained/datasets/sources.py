"""Conversion of downloads from the public sources to the text of the packed files.

Each converter takes the bytes of a download and returns comma-separated text with one header row
(LIBSVM text for a9a). Values keep their spelling. The caller checks the result.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_files

Rows = list[list[str]]

# The files have no header; these names are from adult.names.
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]

# Names, birthdays and case numbers of people, which no model should use.
COMPAS_PRIVATE = {"name", "first", "last", "dob"}
COMPAS_PRIVATE |= {"c_case_number", "r_case_number", "vr_case_number"}

ACS_FEATURES = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
# The packed file is coarser than the census: married or not, and five groups of RAC1P (American
# Indian and Alaska Native are 3, 4 and 5; Pacific Islander, other, two or more are 7, 8 and 9).
ACS_COARSER = {
    "MAR": dict(zip("12345", "12222", strict=True)),
    "RAC1P": dict(zip("123456789", "124443555", strict=True)),
}

# J. Platt made the 123 binary features of a9a from the rows of Adult in their order. LIBSVM's files
# leave their names out: the groups have Adult's names here, and the others their numbers.
_A9A_RACES = ["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"]
A9A_FEATURES = [
    *(f"x{j}" for j in range(1, 67)),
    *(f"race={race}" for race in _A9A_RACES),
    *("sex=Female", "sex=Male"),
    *(f"x{j}" for j in range(74, 124)),
]


def plain_csv(source: bytes) -> str:
    """Convert a file that already has the layout of the packed one."""
    return _text(_rows(source))


def adult(source: bytes) -> str:
    """Join both parts in the UCI archive; the test labels end with a full stop."""
    rows = [[*ADULT_COLUMNS, "split"]]
    for member, split in (("adult.data", "train"), ("adult.test", "test")):
        lines = _rows(_member(source, member), skipinitialspace=True)
        # The test part begins with a comment, and both end with an empty line.
        rows += [[*line[:-1], line[-1].rstrip("."), split] for line in lines if len(line) > 1]
    return _text(rows)


def a9a(source: bytes) -> str:
    """Return LIBSVM text without blanks at the ends of lines and without explicit zeros."""
    lines = source.decode("ascii").splitlines()
    cleaned = (" ".join(f for f in line.split() if not f.endswith(":0")) for line in lines)
    return "".join(f"{line}\n" for line in cleaned)


def bank(source: bytes) -> str:
    """Convert the table in the inner archive of the UCI archive, which has semicolons."""
    inner = _member(source, "bank-additional.zip")
    return _text(_rows(_member(inner, "bank-additional-full.csv"), delimiter=";"))


def compas(source: bytes) -> str:
    """Return ProPublica's table without the columns that name a person or a case."""
    header, *rows = _rows(source)
    public = [i for i, name in enumerate(header) if name not in COMPAS_PRIVATE]
    return _text([[row[i] for i in public] for row in [header, *rows]])


def table_in(member: str) -> Callable[[bytes], str]:
    """Return a function that converts one table in an archive."""
    return lambda source: plain_csv(_member(source, member))


def acs_income_ok(source: bytes) -> str:
    """Convert the persons of Oklahoma in the census archive, filtered as for ACSIncome."""
    table = csv.DictReader(io.StringIO(_member(source, "psam_p40.csv").decode()))
    # The filter of Ding et al. (2021), modelled on Adult; an empty field fails it.
    least = {"AGEP": 17, "PINCP": 101, "WKHP": 1, "PWGTP": 1}
    rows = [[*ACS_FEATURES, "PINCP"]]
    for person in table:
        if all(person[name] and int(person[name]) >= bound for name, bound in least.items()):
            codes = {name: str(int(person[name])) for name in ACS_FEATURES}  # "0040" is 40
            codes |= {name: coarser[codes[name]] for name, coarser in ACS_COARSER.items()}
            decimals = [f"{codes[name]}.0" for name in ACS_FEATURES]
            rows.append([*decimals, str(int(person["PINCP"]) > 50_000)])
    return _text(rows)


def _member(archive: bytes, name: str) -> bytes:
    """Return the bytes of the file with this name in a zip archive, in any folder."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        path = next(p for p in members.namelist() if PurePosixPath(p).name == name)
        return members.read(path)


def _rows(source: bytes, **options: Any) -> Rows:
    return list(csv.reader(io.StringIO(source.decode("utf-8-sig"), newline=""), **options))


def _text(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def a9a_frame(texts: Sequence[str]) -> pd.DataFrame:
    """Join both files to one table of 123 indicators, ``label`` (-1 or 1) and ``split``."""
    # The last column of the test file is empty.
    files = [io.BytesIO(text.encode()) for text in texts]
    parts = load_svmlight_files(files, n_features=len(A9A_FEATURES), zero_based=False)
    frames = [
        pd.DataFrame(X.toarray().astype(np.int8), columns=A9A_FEATURES).assign(
            label=y.astype(np.int8), split=split
        )
        for X, y, split in zip(parts[::2], parts[1::2], ("train", "test"), strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def active_category(frame: pd.DataFrame, name: str) -> pd.Series:
    """Recover a variable without missing values from its indicators ``name=value``."""
    indicators = frame[[column for column in A9A_FEATURES if column.startswith(f"{name}=")]]
    return indicators.idxmax(axis=1).str.removeprefix(f"{name}=")

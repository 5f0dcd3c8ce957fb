"""Checks of a user's table, each with a sentence that says how to mend it."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

import pandas as pd

from fairconstrained.audit.files import File, Unusable, load, refuse_twice
from fairconstrained.inputs.values import listed

# A sensitive column with more values than this is no set of groups.
_MOST_GROUPS = 30
# Amounts and percentages: a sign, a currency before or behind, blanks and marks of thousands.
_AMOUNT = re.compile(r"(?:[A-Z]{3}|[€$£¥₹])?\s*([+-]?[\d.,'’\s]*\d)\s*(?:[A-Z]{3}|[€$£¥₹%])?")
_GROUPED = r"[+-]?[1-9]\d{{0,2}}(?:{mark}\d{{3}})+(?:{other}\d+)?"  # 1,050.20 and 1.050,20
_DATES = ["ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y"]


def exit_with_message(
    run: Callable[[argparse.Namespace], None], options: argparse.Namespace
) -> None:
    """Run a command; exit with code 2 and a sentence if its table or a folder cannot be used."""
    if hasattr(sys.stdout, "reconfigure"):  # it may have no letters for names of groups
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        run(options)
    except (Unusable, OSError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def read_table(options: argparse.Namespace, columns: Sequence[str]) -> File:
    """Read a table with the wanted columns; if one is lacking, `Unusable` names similar ones."""
    file = load(options.csv, options, columns)
    frame = file.frame
    bare_names = [str(name).strip() for name in frame.columns]
    refuse_twice(bare_names, columns, file.name)
    count = Counter(bare_names)  # other columns, such as "age" and "age ", stay apart
    frame.columns = [
        bare if count[bare] == 1 else str(name)
        for bare, name in zip(bare_names, frame.columns, strict=True)
    ]
    words = frame.select_dtypes(exclude=["number", "bool", "datetime"])
    bare = words.apply(lambda c: c.map(lambda v: v.strip() if isinstance(v, str) else v))
    frame[words.columns] = bare.where(bare != "")
    blank = [name for name in words if not bare[name].equals(words[name])]
    for column in columns:
        if column not in frame:
            like = {n: SequenceMatcher(None, n.casefold(), column.casefold()) for n in frame}
            near = sorted(frame, key=lambda name: like[name].ratio(), reverse=True)
            raise Unusable(f"{file.name} has no column {column!r}; it has {listed(near)}.")
    notes = [f"{listed(blank)}: blanks around words are removed."] if blank else []
    empty = (name for name in dict.fromkeys(columns) if name in bare and (bare[name] == "").any())
    notes += [f"'' in {name}: these count as missing." for name in empty]
    return file._replace(frame=frame, notes=file.notes + notes)


def numbers(column: pd.Series, decimal: str) -> pd.Series | None:
    """Return amounts ("€ 1,050.20") and percentages as numbers, or None for other texts.

    The mark that is not decimal must separate thousands; where it cannot, as in 0,5 and 1.050,20,
    the two marks have changed places.
    """
    text = column.dropna().astype(str)
    if text.empty or not text.str.fullmatch(_AMOUNT).all():
        return None
    bare = text.str.extract(_AMOUNT, expand=False).str.replace(r"['’\s]", "", regex=True)
    for point in (decimal, "," if decimal == "." else "."):
        comma = "," if point == "." else "."
        grouped = _GROUPED.format(mark=re.escape(comma), other=re.escape(point))
        fits = bare.str.count(re.escape(point)) <= 1
        fits &= ~bare.str.contains(comma, regex=False) | bare.str.fullmatch(grouped)
        if fits.all():
            plain = bare.str.replace(comma, "").str.replace(point, ".")
            return pd.to_numeric(plain, errors="coerce").reindex(column.index)
    return None


def dates(column: pd.Series) -> pd.Series | None:
    """Return a column as dates, or None for other values."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.dt.tz_localize(None)
    known = column.dropna().astype(str)
    if known.empty or not known.str.match(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}").all():
        return None
    for form in _DATES:
        days = pd.to_datetime(column.astype("string"), format=form, errors="coerce", utc=True)
        if days.notna().sum() == len(known):
            return days.dt.tz_localize(None)
    return None


def check_groups(columns: pd.DataFrame) -> None:
    """Raise `Unusable` for a column that has too many values to be groups, with a way out."""
    for name in columns:
        values = columns[name].dropna()
        count = values.nunique()
        if count <= _MOST_GROUPS:
            continue
        if dates(values) is not None:
            way = f"Turn dates into ranges: table['{name} group'] = pandas.to_datetime("
            way += f"table['{name}']).dt.year // 10 * 10"
        elif count > 0.5 * len(values) and not pd.api.types.is_numeric_dtype(values):
            way = "Names and identifiers are no groups: name another column"
        elif pd.api.types.is_numeric_dtype(values):
            way = f"Add a column of ranges: table['{name} group'] = pandas.cut(table['{name}'], 5)"
        else:
            way = "Join rare values into one, or name a coarser column, such as regions for towns"
        raise Unusable(f"{name} has {count} values, too many for groups of people. {way}.")

"""Tables in CSV, Excel and Parquet files, whose kind is recognised by their first bytes."""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fairconstrained.inputs.values import as_written, listed

_SEPARATORS = (",", ";", "\t", "|")
# Separator and decimal mark are guessed from so many rows.
_N_ROWS = 200
_NEEDS = "{name} is {kind}. Reading it needs {library}: pip install 'fairconstrained[files]'"
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_MARKUP = re.compile(r"\s*(\[\s*\{|\{\s*\"|<[!?a-z])", re.IGNORECASE)
_CONVERT = "pandas.read_json, read_html or read_xml may read it, and to_csv writes a table."
# Files that are no text, by their first bytes; options that say how files of one kind are read.
_KINDS = {b"PK\x03\x04": "an Excel file", b"PAR1": "a Parquet file"}
_ONLY_FOR = {"sheet": "an Excel file", "sep": "text", "encoding": "text"}
# Numbers with decimal commas, such as 1.234,5 and 0,125; 1,234 may be anything.
_COMMAS = re.compile(r"[^\w,.-]*-?((\d{1,3}([. ']\d{3})+|\d+),(\d{1,2}|\d{4,})|0,\d+)\D*")
_POINTS = re.compile(r"[^\w,.-]*-?((\d{1,3}([, ']\d{3})+|\d+)\.(\d{1,2}|\d{4,})|0\.\d+)\D*")


class Unusable(ValueError):
    """A table that cannot be used; the message says why, and the remedy."""


class File(NamedTuple):
    """A table as it was read."""

    name: str
    frame: pd.DataFrame
    decimal: str  # the mark in numbers among words
    notes: list[str]
    sha256: str


def load(path: Path, options: argparse.Namespace, columns: Sequence[str]) -> File:
    """Read a table of any kind; contents and wanted columns decide options that are None."""
    name = "standard input" if str(path) == "-" else path.name
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    digest, notes = hashlib.sha256(data).hexdigest(), list[str]()
    try:
        while data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Unusable(f"{name} is a gzip file that cannot be unpacked: {error}.") from error
    decimal = options.decimal or "."
    kind = next((kind for mark, kind in _KINDS.items() if data.startswith(mark)), "text")
    for option, other in _ONLY_FOR.items():
        if kind != other and getattr(options, option) is not None:
            raise Unusable(f"--{option} is for {other}, and {name} is {kind}.")
    if kind == "an Excel file":
        frame, notes = _excel(data, name, options.sheet, columns)
    elif kind == "a Parquet file":
        frame = _parquet(data, name)
    elif data.startswith(b"\xd0\xcf\x11\xe0"):
        raise Unusable(f"{name} is an Excel file of the old kind. Save it as .xlsx or .csv.")
    else:
        text, encoding = _decoded(data, name, options.encoding)
        if not text.strip():
            raise Unusable(f"{name} is empty.")
        if _MARKUP.match(text):
            raise Unusable(f"{name} is JSON, HTML or XML and no table. {_CONVERT}")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        frame, decimal, notes = _text(text, name, options, columns, encoding)
        if encoding == "cp1252":
            notes.append(
                "The text is not UTF-8 and was read as cp1252 (Latin-1). --encoding names another."
            )
    return File(name, frame, decimal, notes, digest)


def _excel(
    data: bytes, name: str, sheet: str | None, columns: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Read the named sheet, or else the first with the wanted columns; also return notes."""
    try:
        book = pd.ExcelFile(io.BytesIO(data), engine="openpyxl")
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        remedy = "Unpack the archive, or save the table again"
        raise Unusable(f"{name} cannot be read as an Excel file. {remedy}.") from error
    except ImportError:
        raise Unusable(_NEEDS.format(name=name, kind="an Excel file", library="openpyxl")) from None
    sheets = [str(other) for other in book.sheet_names]
    if sheet is None:
        has = (
            s
            for s in sheets
            if set(columns) <= {str(c).strip() for c in pd.read_excel(book, sheet_name=s, nrows=0)}
        )
        place = sheets.index(next(has, sheets[0]))
    elif sheet in sheets:
        place = sheets.index(sheet)
    elif sheet.isdecimal() and 1 <= int(sheet) <= len(sheets):
        place = int(sheet) - 1
    else:
        raise Unusable(f"{name} has no sheet {sheet!r}; it has {listed(sheets)}.")
    frame = pd.read_excel(book, sheet_name=sheets[place])
    if frame.empty and not len(frame.columns):
        raise Unusable(f"{name} is empty.")
    options: Any = {"sheet_name": sheets[place]}
    refuse_twice(pd.read_excel(book, header=None, nrows=1, **options).iloc[0], columns, name)
    notes = _keep_as_written(
        frame, pd.read_excel(book, dtype=str, keep_default_na=False, **options), columns
    )
    others = [other for other in sheets if other != sheets[place]]
    note = f"The sheet {sheets[place]!r} was read; --sheet names another: {listed(others)}."
    return frame, notes + ([note] if others and sheet is None else [])


def _parquet(data: bytes, name: str) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(io.BytesIO(data))
    except ImportError:
        raise Unusable(_NEEDS.format(name=name, kind="a Parquet file", library="pyarrow")) from None
    except (ValueError, OSError) as error:
        why = str(error).rstrip(".")
        raise Unusable(f"{name} is a Parquet file that cannot be read: {why}.") from error
    for column in frame:  # as text and numbers, which CSV would have
        first = frame[column].dropna().head(1).tolist()
        if pd.api.types.is_timedelta64_dtype(frame[column]):
            frame[column] = frame[column].dt.total_seconds()
        elif any(map(pd.api.types.is_list_like, first)):
            frame[column] = frame[column].map(str, na_action="ignore")
    named = [level for level in frame.index.names if level is not None]
    return frame.reset_index(level=named).reset_index(drop=True)


def _decoded(data: bytes, name: str, encoding: str | None) -> tuple[str, str]:
    """Decode text by the option, the byte-order mark, UTF-16, UTF-8 or else Latin-1."""
    guess = next((code for mark, code in _MARKS.items() if data.startswith(mark)), None)
    head = data[:2000]
    if guess is None and b"\x00" in head:
        zeros = head[0::2].count(0), head[1::2].count(0)
        guess = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    try:
        text = data.decode(encoding or guess or "utf-8")
        if "\x00" in text[:2000]:
            raise Unusable(f"{name} cannot be read as a table: give CSV, Excel or Parquet.")
        return text.removeprefix("\ufeff"), encoding or guess or "utf-8"
    except LookupError:
        raise Unusable(f"--encoding must be one that Python knows; got {encoding!r}.") from None
    except UnicodeDecodeError as error:
        if encoding is None and guess is None:
            return data.decode("cp1252", errors="replace"), "cp1252"
        remedy = f"without --encoding {encoding}" if encoding else "with another --encoding"
        raise Unusable(f"{name} cannot be read: {error}. Try it {remedy}.") from None


def _text(
    text: str, name: str, options: argparse.Namespace, columns: Sequence[str], encoding: str
) -> tuple[pd.DataFrame, str, list[str]]:
    """Read text with separators; guess options that are None, and return notes."""
    chosen, (first, _, rest) = options.sep, text.partition("\n")
    if re.fullmatch(r"sep=.\s*", first, re.IGNORECASE):  # as Excel writes it
        chosen, text = chosen or first[4], rest
    guess = _separator(text, columns)
    sep = {"tab": "\t", "\\t": "\t", None: guess}.get(chosen, chosen)
    if sep is not None and len(sep) != 1:
        raise Unusable(f"--sep must be one character, or tab; got {sep!r}.")
    if sep is None or len(next(csv.reader(io.StringIO(text), delimiter=sep), [])) < 2:
        other = f"--sep {guess!r}" if guess and chosen else "--sep"
        raise Unusable(
            f"{name} has one column, {text.splitlines()[0][:60]!r}: nothing separates others. "
            f"Name the character between columns by {other}."
        )
    decimal = options.decimal or _decimal_mark(text, sep)
    how: Any = {"sep": sep, "skipinitialspace": True, "low_memory": False}
    way = f"--sep {sep!r} --decimal {decimal!r} --encoding {encoding}"
    try:
        frame = pd.read_csv(io.StringIO(text), decimal=decimal, **how)
    except ValueError as error:
        raise Unusable(
            f"{name} cannot be read with {way}: {str(error).strip()}. Give the options that fit."
        ) from error
    if not frame.index.equals(pd.RangeIndex(len(frame))):  # pandas takes columns for an index
        raise Unusable(
            f"{name}, read with {way}, has rows with more columns than its header: "
            f"{listed(list(frame))}."
        )
    refuse_twice(_rows(text, sep)[0], columns, name)
    # Blanks after a separator stay, for the notes, unless a quotation mark follows somewhere.
    how["skipinitialspace"] = (
        sep == " " or re.search(rf'(?m)(^|{re.escape(sep)})[^\S\n]+"', text) is not None
    )
    written = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, **how)
    written.columns = frame.columns
    return frame, decimal, _keep_as_written(frame, written, columns, decimal)


def refuse_twice(header: Iterable[Any], columns: Sequence[str], name: str) -> None:
    """Raise `Unusable` if several columns of a header have the name of a wanted one."""
    names = [str(column).strip() for column in header]
    if twice := [column for column in dict.fromkeys(columns) if names.count(column) > 1]:
        raise Unusable(f"{name} has several columns of the name {listed(map(repr, twice))}.")


def _keep_as_written(
    frame: Any, written: pd.DataFrame, columns: Sequence[str], decimal: str = "."
) -> list[str]:
    """Restore texts that numbers would merge, in the wanted columns; return notes."""
    notes: list[str] = []
    for column in [column for column in frame if str(column).strip() in columns]:
        frame[column], more = as_written(frame[column], written[column], decimal)
        notes += more
    return notes


def _separator(text: str, columns: Sequence[str]) -> str | None:
    """Return the separator that finds the wanted columns, and rows as long as the header."""
    scores = {}
    for sep in _SEPARATORS:
        rows = _rows(text, sep)
        if rows and len(rows[0]) > 1:
            names = {name.strip() for name in rows[0]}
            alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            scores[sep] = (names.issuperset(columns), alike, len(rows[0]))
    return max(scores, key=scores.__getitem__) if scores else None


def _decimal_mark(text: str, sep: str) -> str:
    """Return the decimal mark of most numbers; without any, a comma if semicolons separate."""
    cells = [cell.strip() for row in _rows(text, sep) for cell in row]
    commas = sum(_COMMAS.fullmatch(cell) is not None for cell in cells)
    marked = sum(_POINTS.fullmatch(cell) is not None for cell in cells)
    return "," if commas > marked or (commas == marked == 0 and sep == ";") else "."


def _rows(text: str, sep: str) -> list[list[str]]:
    try:
        rows: Any = csv.reader(io.StringIO(text, newline=""), delimiter=sep)
        return [row for row in islice(rows, _N_ROWS) if row]
    except csv.Error:
        return []

"""Files of every kind are recognised by what is in them, and say the same."""

import gzip
import io
import json
import sys

import numpy as np
import pandas as pd
import pytest

from fairconstrained import audit
from fairconstrained.audit.tables import numbers
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.arguments import read

N = 240


def table():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 4000, N) / 4
    return pd.DataFrame(
        {
            "Geschlecht": np.where(rng.random(N) < 0.5, "männlich", "weiblich"),
            "Beschäftigung": rng.choice(["Büro", "Straße"], N),
            "Betrag": score,
            "Entscheidung": np.where(score > 480, "ja", "nein"),
        }
    )


def csv(encoding="utf-8", **options):
    return table().to_csv(index=False, **options).encode(encoding)


def excel(*sheets):
    pytest.importorskip("openpyxl")
    file = io.BytesIO()
    with pd.ExcelWriter(file, engine="openpyxl") as writer:
        for name in sheets:
            frame = table() if name == "Daten" else pd.DataFrame({"Notiz": ["siehe Daten"]})
            frame.to_excel(writer, sheet_name=name, index=False)
    return file.getvalue()


def parquet(**columns):
    pytest.importorskip("pyarrow")
    return table().assign(**columns).to_parquet(index=False)


def words(of_number):
    return table().assign(Betrag=[of_number(x) for x in table()["Betrag"]])


def in_thousands(number):
    return f"{number:_.2f}".replace(".", ",").replace("_", ".")


GERMAN = {"sep": ";", "decimal": ","}
# The contents of a file, and the options that it needs.
FILES = {
    "commas": (csv, []),
    "semicolons": (lambda: csv(sep=";"), []),
    "decimal commas": (lambda: csv(**GERMAN), []),
    "tabs": (lambda: csv(sep="\t"), []),
    "tabs, decimal commas": (lambda: csv(sep="\t", decimal=","), []),
    "bars": (lambda: csv(sep="|"), []),
    "a mark of UTF-8": (lambda: csv("utf-8-sig", **GERMAN), []),
    "UTF-16": (lambda: csv("utf-16", sep="\t"), []),
    "UTF-16 without a mark": (lambda: csv("utf-16-le", **GERMAN), []),
    "UTF-16, the other end first": (lambda: csv("utf-16-be"), []),
    "Latin-1": (lambda: csv("latin-1", **GERMAN), []),
    "Latin-1, named": (lambda: csv("latin-1"), ["--encoding", "latin-1"]),
    "Mac": (lambda: csv("mac-roman"), ["--encoding", "mac-roman"]),
    "Excel's first line": (lambda: b"sep=;\r\n" + csv(sep=";"), []),
    "lines of old Macs": (lambda: csv(lineterminator="\r"), []),
    "lines of Windows": (lambda: csv(lineterminator="\r\n"), []),
    "gzip": (lambda: gzip.compress(csv(**GERMAN)), []),
    "everything in quotes": (lambda: csv(quoting=1, sep=";"), []),
    "a separator of its own": (lambda: csv(sep="~"), ["--sep", "~"]),
    "options": (lambda: csv(**GERMAN), ["--sep", ";", "--decimal", ","]),
    "thousands": (lambda: words(in_thousands).to_csv(index=False, sep=";").encode(), []),
    "amounts": (lambda: words(lambda x: f"€ {x:,.2f}").to_csv(index=False).encode(), []),
    "Excel": (lambda: excel("Daten"), []),
    "the sheet that has the columns": (lambda: excel("Info", "Daten", "Rest"), []),
    "a sheet by number": (lambda: excel("Info", "Daten"), ["--sheet", "2"]),
    "Parquet": (parquet, []),
    "Parquet with nested values and durations": (
        lambda: parquet(list=[[1, 2]] * N, dict=[{"a": 1}] * N, time=pd.to_timedelta(N * [1])),
        [],
    ),
    "Parquet category": (
        lambda: parquet(Geschlecht=table()["Geschlecht"].astype("category")),
        [],
    ),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    def command(data, *argv, standard_input=False):
        path = tmp_path / "file"  # without an ending
        path.write_bytes(data)
        if standard_input:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        columns = ["--decision", "Entscheidung", "--sensitive", "Geschlecht", "Beschäftigung"]
        columns += ["--score", "Betrag", "--label", "Entscheidung", "--positive", "ja"]
        place = "-" if standard_input else str(path)
        audit.main(["--csv", place, *columns, "--output", str(tmp_path / "out"), *argv])
        facts = json.loads((tmp_path / "out" / "audit.json").read_text("utf-8"))
        return [facts[name] for name in ("groups", "intersections", "calibration")]

    return command


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_recognised(run, name):
    contents, argv = FILES[name]
    assert run(contents(), *argv) == run(csv())


@pytest.mark.parametrize(
    ("words", "decimal", "expected"),
    [
        (["€ 1,050.20", "3"], ",", [1050.2, 3]),
        (["1.050,20 EUR", "-7"], ".", [1050.2, -7]),
        (["0,523", "12"], ".", [0.523, 12]),  # no thousand begins with a zero
        (["1,5 %", "37%"], ".", [1.5, 37]),
        (["1,050", "2,000"], ".", [1050, 2000]),
        (["1,050", "2,000"], ",", [1.05, 2]),
        (["1 050 200", "CHF 1’050"], ".", [1050200, 1050]),
        (["0,5", "0.5"], ".", None),
        (["12 Main Street", "3"], ".", None),
    ],
)
def test_amounts_are_read_with_the_mark_that_can_be_one(words, decimal, expected):
    read_as = numbers(pd.Series(words), decimal)
    assert (None if read_as is None else read_as.tolist()) == expected


@pytest.mark.parametrize("data", [csv("latin-1", **GERMAN), gzip.compress(csv("utf-16"))])
def test_standard_input_is_a_file_like_others(run, data):
    assert run(data, standard_input=True) == run(csv())


def test_the_quick_start_reads_the_same(tmp_path):
    path = tmp_path / "kredite.txt"
    argv = ["--csv", str(path), "--label", "Entscheidung", "--sensitive", "Geschlecht"]
    tables = []
    for data in (csv(), csv("latin-1", **GERMAN)):
        path.write_bytes(data)
        tables.append(steps.from_file(read([*argv, "--positive", "ja"], None)))
    pd.testing.assert_frame_equal(tables[0].X, tables[1].X, check_dtype=False)
    assert "read as cp1252" in tables[1].notes[0]


@pytest.mark.parametrize(("library", "data"), [("openpyxl", excel), ("pyarrow", parquet)])
def test_a_library_that_is_missing_is_named_with_its_extra(run, capsys, monkeypatch, library, data):
    contents = data("Daten") if data is excel else data()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit, match="2"):
        run(contents)
    error = capsys.readouterr().err
    assert f"needs {library}: pip install 'fairconstrained[files]'" in error


@pytest.mark.parametrize(
    ("contents", "argv", "words"),
    [
        (csv, ["--sheet", "2"], "--sheet is for an Excel file, and file is text."),
        (parquet, ["--sheet", "2"], "--sheet is for an Excel file, and file is a Parquet file."),
        (parquet, ["--encoding", "utf-8"], "--encoding is for text, and file is a Parquet file."),
        (lambda: excel("Daten"), ["--sep", ";"], "--sep is for text, and file is an Excel file."),
        (lambda: excel("Info", "Daten"), ["--sheet", "Werte"], "'Werte'; it has Info, Daten."),
    ],
)
def test_an_option_that_is_not_for_the_file_is_refused(run, capsys, contents, argv, words):
    with pytest.raises(SystemExit, match="2"):
        run(contents(), *argv)
    assert words in capsys.readouterr().err

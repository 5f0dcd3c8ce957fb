"""The evidence shows what the results files hold: each table on one page, no number typed twice.

The build of the site makes the tables, and ends where a page names a cell that none has.
"""

import gzip
import re

import pandas as pd
import pytest

from tests.helpers.repository import ROOT

FOLDER = ROOT / "benchmarks" / "evidence"
SOURCES = pd.read_csv(FOLDER / "sources.csv", dtype=str, keep_default_na=False).set_index("table")
PAGES = sorted((ROOT / "docs" / "evidence").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OTHERS = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
WHOLE_SITE = TEXT + "".join(page.read_text(encoding="utf-8") for page in OTHERS)
# What stands in code, in a role or in a formula is no figure that was measured.
NOT_PROSE = re.compile(r"```.*?```|\{\w+\}`[^`]+`|`[^`]+`|\$[^$]+\$", re.DOTALL)
NUMBER = r"(?:\d*\.\d+|1e-\d+|\d+)"
# A setting is typed after its name: "slacks 0.01 and 0.02", "epsilon 0.5", "within 0.05".
SETTING = re.compile(
    r"\b(?:slacks?|epsilon|within|margins?|temperatures?|alpha|confidence|size|Definition)"
    rf"(?:\s(?:of|from|\+|at most))*\s{NUMBER}(?:(?:,|\sand|\sto|\sor)\s{NUMBER})*"
)


def test_each_table_is_shown_once_and_its_numbers_are_referred_to():
    shown = re.findall(r"^```\{measured\} (\w+)$", WHOLE_SITE, re.MULTILINE)
    assert sorted(shown) == sorted(SOURCES.index)
    references = re.findall(r"\{measured\}`(\w+)\s+::", WHOLE_SITE)
    assert len(references) > 10
    assert set(references) <= set(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_types_a_figure_or_a_table_of_numbers(page):
    """Figures come from tables by ``{measured}``; settings are typed after their names."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"^\|.*\d", text, re.MULTILINE)
    prose = SETTING.sub("", NOT_PROSE.sub("", text))
    assert not re.findall(r".{0,40}\d*\.\d.{0,10}", prose)


def test_every_source_has_a_command_a_day_and_a_results_file_and_every_file_a_source():
    assert SOURCES.index.is_unique
    assert SOURCES["date"].str.fullmatch(r"2026-\d\d-\d\d").all()
    assert SOURCES["commit"].str.fullmatch(r"|[0-9a-f]{8}").all()
    assert all((FOLDER / results).is_file() for results in SOURCES["results"])
    assert SOURCES["results"].str.match(r"runs/\w+\.csv\.gz$|\.\./published/").all()
    runs = {f"runs/{path.name}" for path in (FOLDER / "runs").iterdir()}
    assert runs == {file for file in SOURCES["results"] if file.startswith("runs/")}
    here = SOURCES.loc[SOURCES["commit"] == "", "command"]
    modules = {m for command in here for m in re.findall(r"-m benchmarks([\w.]+)", command)}
    assert all((ROOT / f"benchmarks{m.replace('.', '/')}.py").is_file() for m in modules)


def test_runs_name_no_path_of_a_machine():
    for path in (FOLDER / "runs").glob("*.csv.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r"/(home|tmp|work|root)/", text)

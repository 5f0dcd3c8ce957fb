"""The evidence shows what the results files hold: each table on one page, no number typed twice."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest

from benchmarks import evidence
from benchmarks.evidence import pages
from benchmarks.evidence.aggregates import AGGREGATES
from benchmarks.evidence.keep import keep
from benchmarks.published import published
from tests.helpers.repository import ROOT

PAGES = sorted((ROOT / "docs" / "evidence").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OTHERS = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
WHOLE_SITE = TEXT + "".join(page.read_text(encoding="utf-8") for page in OTHERS)
TABLES = list(evidence.sources().index)
# What stands in code, in a role or in a formula is no figure that was measured.
NOT_PROSE = re.compile(r"```.*?```|\{\w+\}`[^`]+`|`[^`]+`|\$[^$]+\$", re.DOTALL)
NUMBER = r"(?:\d*\.\d+|1e-\d+|\d+)"
# A setting is typed after its name: "slacks 0.01 and 0.02", "epsilon 0.5", "within 0.05".
SETTING = re.compile(
    r"\b(?:slacks?|epsilon|within|margins?|temperatures?|alpha|confidence|size|Definition)"
    rf"(?:\s(?:of|from|\+|at most))*\s{NUMBER}(?:(?:,|\sand|\sto|\sor)\s{NUMBER})*"
)
WORDS = {"setting", "beaten"}  # columns that hold words


def parsed(markdown):
    """The cells of a markdown table, line by line."""
    lines = [line.strip("|").split("|") for line in markdown.splitlines()]
    return [[cell.strip() for cell in line] for line in lines]


def test_each_table_is_shown_once():
    shown = re.findall(r"^```\{measured\} (\w+)$", WHOLE_SITE, re.MULTILINE)
    assert sorted(shown) == sorted(TABLES)


def test_no_page_types_a_table_of_numbers():
    typed = [line for line in TEXT.splitlines() if re.match(r"\|.*\d", line)]
    assert not typed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_types_a_figure(page):
    """Figures come from tables by ``{measured}``; settings are typed after their names."""
    prose = SETTING.sub("", NOT_PROSE.sub("", page.read_text(encoding="utf-8")))
    assert not re.findall(r".{0,40}\d*\.\d.{0,10}", prose)


def test_every_number_that_a_page_takes_from_a_table_is_there():
    references = re.findall(r"\{measured\}`([^`]+)`", WHOLE_SITE)
    references = [" ".join(reference.split()) for reference in references]
    assert len(references) > 10
    assert all(evidence.cell(reference).value for reference in references)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_number_a_cell_and_a_page_shows_each(name):
    cells = evidence.table(name)
    assert len(cells)
    assert not cells.duplicated(["row", "column"]).any()
    numbers = cells[~cells["column"].isin(WORDS)]
    assert np.isfinite(numbers["value"].astype(float)).all()
    assert (numbers.loc[numbers["std"] != "", "std"].astype(float) >= 0).all()
    head, _, *lines = parsed(pages.table_markdown(name))
    n_parts = len(evidence.sources().loc[name, "head"].split(" / "))
    assert all(len(line) == len(head) for line in lines)
    rows, above = {}, [""] * n_parts
    for line in lines:
        new = next(i for i, part in enumerate(line[:n_parts]) if part)
        above = [*above[:new], *line[new:n_parts]]
        rows[" / ".join(above)] = dict(zip(head[n_parts:], line[n_parts:], strict=True))
    assert list(rows) == list(dict.fromkeys(cells["row"]))
    shown = {(r, c): text for r, line in rows.items() for c, text in line.items() if text}
    assert shown == {
        (row, column): str(evidence.Cell(value, std))
        for row, column, value, std in cells.itertuples(index=False)
    }


def test_every_source_has_a_command_a_day_and_a_results_file():
    sources = evidence.sources()
    assert sources.index.is_unique
    assert sources["date"].str.fullmatch(r"2026-\d\d-\d\d").all()
    assert all((evidence.FOLDER / results).is_file() for results in sources["results"])
    assert sources["commit"].str.fullmatch(r"|[0-9a-f]{8}").all()
    here = sources.loc[sources["commit"] == "", "command"]
    modules = {m for command in here for m in re.findall(r"-m benchmarks([\w.]+)", command)}
    assert all((ROOT / f"benchmarks{m.replace('.', '/')}.py").is_file() for m in modules)


def test_every_results_file_is_shown():
    runs = {f"runs/{path.name}" for path in (evidence.FOLDER / "runs").iterdir()}
    assert runs == {file for file in evidence.sources()["results"] if file.startswith("runs/")}


def test_a_table_is_made_of_finished_runs_or_of_a_published_file():
    """None is transcribed: each has a function that makes it of the file that its source names."""
    results = evidence.sources()["results"]
    of_runs = results.str.extract(r"^runs/(\w+)\.csv\.gz$")[0].dropna()
    assert dict(of_runs) == {name: AGGREGATES[name].runs for name in of_runs.index}
    others = results[~results.index.isin(of_runs.index)]
    assert others.str.startswith("../published/").all()
    assert set(results.index) == set(AGGREGATES)


def test_what_is_kept_replaces_earlier_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    sources = "table,results,head,command,commit,date\n"
    sources += "steps,runs/a.csv,algorithm,command,,2000-01-01\n"
    (tmp_path / "sources.csv").write_text(sources)
    (tmp_path / "steps.csv").write_text(
        "problem,round,method,ms\nnetwork,0,plain torch,2.0\nnetwork,1,plain torch,4.0\n"
    )
    assert keep(tmp_path / "steps.csv", "2026-11-22", tmp_path) == ["steps"]
    (source,) = pd.read_csv(tmp_path / "sources.csv").to_dict("records")
    assert (source["results"], source["date"]) == ("runs/steps.csv.gz", "2026-11-22")
    cells = AGGREGATES["steps"].table(pd.read_csv(tmp_path / source["results"]))
    assert list(cells["value"]) == ["2.00", "3.00"]
    (tmp_path / "unknown.csv").write_text("a\n1\n")
    with pytest.raises(SystemExit, match="unknown"):
        keep(tmp_path / "unknown.csv", "2026-11-22", tmp_path)


def test_runs_name_no_path_of_a_machine():
    for path in (evidence.FOLDER / "runs").glob("*.csv.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r"/(home|tmp|work|root)/", text)


def test_first_page_and_evidence_name_one_ratio_to_reductions():
    claim = next(pages.compared())
    case = "Adult / demographic parity"
    least, most = (
        float(evidence.cell(f"times_faster_than_reductions :: {case} :: {end}").value)
        for end in ("least", "most")
    )
    ours = evidence.cell(f"reductions_seconds :: {case} :: ours: processor seconds")
    assert claim["ours"] == ours
    assert least <= claim["ratio"] <= most


def test_slacks_kept_are_the_largest_violations_of_the_runs():
    runs = pd.read_csv(evidence.FOLDER / "runs" / "rate_constrained.csv.gz")
    of = runs.query("dataset == 'adult' and constraint == 'equalized_odds' and slack == 0.05")
    assert len(of) == 3
    shown = evidence.cell("slacks_kept :: Adult / equalized odds :: slack 0.05")
    assert float(shown.value) == pytest.approx(of["train_violation"].max(), abs=5e-5)


def test_a_mean_stands_with_the_standard_deviation_of_its_splits():
    runs = pd.read_csv(evidence.FOLDER / "runs" / "any_classifier.csv.gz")
    of = runs.query(
        "dataset == 'adult' and not without_group and constraint == 'demographic_parity'"
        " and slack == 0.05 and method == 'trees, constrained'"
    )["test_error"]
    name = "boosted_trees :: demographic parity / 0.05 / test error :: trees, constrained"
    assert evidence.cell(name) == (f"{np.mean(of):.4f}", f"{np.std(of, ddof=1):.4f}")


def test_a_published_point_is_beaten_by_an_error_and_a_gap_that_are_no_larger():
    curves = published("dp_fermi")
    points = set(zip(curves["error"].round(4), curves["gap"].round(4), strict=True))
    shown = evidence.table("fermi_points").pivot(index="row", columns="column", values="value")
    beaten = shown.pop("beaten").eq("yes")
    shown = shown.astype(float)
    assert set(zip(shown["published error"], shown["published gap"], strict=True)) <= points
    smaller = shown["our error"].le(shown["published error"])
    smaller &= shown["our gap"].le(shown["published gap"])
    assert beaten.any()
    assert (smaller | ~beaten).all()


def test_a_missing_cell_is_an_error():
    with pytest.raises(KeyError):
        evidence.cell("slacks_kept :: Adult / equalized odds :: slack 7")
    with pytest.raises(KeyError):
        evidence.table("no_table")

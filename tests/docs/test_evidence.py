"""The evidence shows what the results files hold: each table on one page, no number typed twice."""

import re

import numpy as np
import pandas as pd
import pytest

from benchmarks import evidence
from benchmarks.evidence import pages
from benchmarks.published import published
from tests.helpers.repository import ROOT

PAGES = sorted((ROOT / "docs" / "evidence").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
TABLES = list(evidence.sources().index)
WORDS = {"setting", "beaten"}  # columns that hold words


def parsed(markdown):
    """The cells of a markdown table, line by line."""
    lines = [line.strip("|").split("|") for line in markdown.splitlines()]
    return [[cell.strip() for cell in line] for line in lines]


def test_each_table_is_shown_once():
    shown = re.findall(r"^```\{measured\} (\w+)$", TEXT, re.MULTILINE)
    assert sorted(shown) == sorted(TABLES)


def test_no_page_types_a_table_of_numbers():
    typed = [line for line in TEXT.splitlines() if re.match(r"\|.*\d", line)]
    assert not typed


def test_every_number_that_a_page_takes_from_a_table_is_there():
    references = re.findall(r"\{measured\}`([^`]+)`", TEXT)
    assert len(references) > 10
    assert all(evidence.cell(reference).value for reference in references)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_one_number_a_cell(name):
    cells = evidence.table(name)
    assert len(cells)
    assert not cells.duplicated(["row", "column"]).any()
    numbers = cells[~cells["column"].isin(WORDS)]
    assert np.isfinite(numbers["value"].astype(float)).all()
    assert (numbers.loc[numbers["std"] != "", "std"].astype(float) >= 0).all()


@pytest.mark.parametrize("name", TABLES)
def test_a_page_shows_each_cell_of_a_table(name):
    cells = evidence.table(name)
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
    modules = {
        m for command in sources["command"] for m in re.findall(r"-m benchmarks([\w.]+)", command)
    }
    assert all((ROOT / f"benchmarks{m.replace('.', '/')}.py").is_file() for m in modules)


def test_every_results_file_is_shown():
    files = {
        path.relative_to(evidence.FOLDER).as_posix() for path in evidence.FOLDER.glob("*/*.csv*")
    }
    assert files == set(evidence.sources()["results"])


def test_runs_name_no_path_of_a_machine():
    for path in (evidence.FOLDER / "runs").glob("*.csv.gz"):
        text = pd.read_csv(path, dtype=str, keep_default_na=False).to_csv()
        assert not re.search(r"/(home|tmp|work|root)/", text)


def test_a_ratio_is_the_other_number_by_ours():
    for claim in pages.compared():
        expected = float(claim["other"].value) / float(claim["ours"].value)
        assert claim["ratio"] == expected
        assert f"> {pages.ratio_text(expected)} |" in pages.claims_markdown()


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.996, "1.00"), (1.05, "1.05"), (7.64, "7.6"), (23.4, "23")]
)
def test_ratios_are_rounded_to_what_they_are_worth(ratio, text):
    assert pages.ratio_text(ratio) == text


def test_slacks_kept_are_the_largest_violations_of_the_runs():
    runs = pd.read_csv(evidence.FOLDER / "runs" / "rate_constrained.csv.gz")
    of = runs.query("dataset == 'adult' and notion == 'equalized_odds' and slack == 0.05")
    assert len(of) == 3
    shown = evidence.cell("slacks_kept :: Adult / equalized odds :: slack 0.05")
    assert float(shown.value) == pytest.approx(of["train_violation"].max(), abs=5e-5)


def test_a_mean_stands_with_the_standard_deviation_of_its_splits():
    runs = pd.read_csv(evidence.FOLDER / "runs" / "any_classifier.csv.gz")
    of = runs.query(
        "dataset == 'adult' and not without_group and notion == 'demographic_parity'"
        " and slack == 0.05 and method == 'trees, constrained'"
    )["test_error"]
    name = "boosted_trees :: demographic parity / 0.05 / test error :: trees, constrained"
    assert evidence.cell(name) == (f"{np.mean(of):.4f}", f"{np.std(of, ddof=1):.4f}")


@pytest.mark.parametrize(
    ("name", "dataset", "notion"),
    [
        ("fermi_adult_equalized_odds", "adult", "equalized_odds"),
        ("fermi_credit_card_equalized_odds", "credit_card", "equalized_odds"),
        ("fermi_credit_card_demographic_parity", "credit_card", "demographic_parity"),
    ],
)
def test_published_points_are_those_of_the_published_file(name, dataset, notion):
    curves = published("dp_fermi")
    chosen = curves["dataset"].eq(dataset) & curves["notion"].eq(notion)
    points = set(zip(curves[chosen]["error"].round(4), curves[chosen]["gap"].round(4), strict=True))
    shown = evidence.table(name).pivot(index="row", columns="column", values="value")
    found = zip(
        shown["published error"].astype(float), shown["published gap"].astype(float), strict=True
    )
    assert set(found) <= points


def test_a_missing_cell_is_an_error():
    with pytest.raises(KeyError):
        evidence.cell("slacks_kept :: Adult / equalized odds :: slack 7")
    with pytest.raises(KeyError):
        evidence.table("no_table")

"""The runner: it resumes, keeps one table, and leaves foreign files alone."""

import importlib
import subprocess
import sys

import pandas as pd
import pytest

from benchmarks import results
from tests.helpers.repository import ROOT
from tests.helpers.results import rows_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("from_root"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fairlearn's, about pandas
]

TINY = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(400, 6, random_state=0)
"""
BROKEN = """
METHOD, OBJECTIVES = "broken", ["rate_constrained"]

def fit(*args, **options):
    raise ArithmeticError("of mine")
"""
MENDED = """
from benchmarks.solvers.rates import unconstrained as fit

METHOD, OBJECTIVES = "broken", ["rate_constrained"]
"""
ARGUMENTS = ["--constraint", "demographic_parity", "false_negative_rate", "--slack", "0.1"]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY)
    fixed = ["--datasets", str(tmp_path / "tiny.py"), "--output", str(tmp_path / "results")]
    main = importlib.import_module("benchmarks.run").main
    return lambda *argv: main([*fixed, *argv])


@pytest.fixture
def table(tmp_path):
    return lambda: rows_of(tmp_path / "results" / "rate_constrained.csv")


def test_a_second_call_adds_only_what_is_missing(run, table):
    solvers = ["--solvers", "fairconstrained_default", "unconstrained"]
    assert run(*ARGUMENTS, *solvers) == 0
    first = table()
    assert run(*ARGUMENTS, *solvers) == 0
    assert table() == first
    assert run(*ARGUMENTS, *solvers, "--seeds", "0", "1") == 0
    assert table()[: len(first)] == first
    assert [row["seed"] for row in table()] == ["0"] * 4 + ["1"] * 4
    assert {row["dataset"] for row in table()} == {"tiny"}


def test_a_failure_is_told_and_tried_again(run, table, tmp_path, capsys):
    solver = tmp_path / "mine.py"
    solver.write_text(BROKEN)
    arguments = ["--constraint", "demographic_parity", "--slack", "0.2", "--solvers"]
    arguments += ["fairconstrained_default", str(solver)]
    assert run(*arguments) == 1
    assert "of mine" in capsys.readouterr().err
    assert [row["method"] for row in table()] == ["fairconstrained"]
    solver.write_text(MENDED)
    assert run(*arguments) == 0
    assert [row["method"] for row in table()] == ["fairconstrained", "broken"]


def test_results_of_other_columns_are_not_mixed(tmp_path):
    path = tmp_path / "new" / "table.csv"
    results.append(path, {"a": 1, "b": 0.1}, ["a", "b"], ["a"])
    assert results.finished(path, ["b"]) == {("0.1",)}
    with pytest.raises(SystemExit, match=r"columns \['a', 'b'\], .* Move it away"):
        results.append(path, {"a": 1, "c": 2}, ["a", "c"], ["a"])
    with pytest.raises(SystemExit, match=r"lacks the columns \['c'\]. Move it away"):
        results.finished(path, ["a", "c"])


def test_a_torn_last_line_is_no_run_and_is_cut_off(tmp_path):
    path = tmp_path / "table.csv"
    results.append(path, {"a": 1, "b": 2}, ["a", "b"], ["a"])
    with path.open("a") as file:
        file.write("3,")  # an interruption
    assert results.finished(path, ["a"]) == {("1",)}
    results.append(path, {"a": 3, "b": 4}, ["a", "b"], ["a"])
    assert pd.read_csv(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_a_full_disk_leaves_the_rows_that_are_there(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    results.append(path, {"a": 1}, ["a"], ["a"])

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        results.append(path, {"a": 2}, ["a"], ["a"])
    assert path.read_text() == "a\n1\n"


APPEND = """
import sys
from pathlib import Path
from benchmarks.results import append
for i in range(40):
    append(Path(sys.argv[1]), {"a": i, "b": sys.argv[2]}, ["a", "b"], ["a"])
"""


def test_processes_that_share_a_file_store_each_run_once(tmp_path):
    """Rows of both, none torn or twice, one header: the first to end a run stores it."""
    path = tmp_path / "table.csv"
    processes = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(path), name], cwd=ROOT)
        for name in ("first", "second")
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(pd.read_csv(path)["a"]) == list(range(40))


@pytest.mark.parametrize("content", [b"a,b\nx,y\n", b"\xff\xfe\x00PNG\n"], ids=["columns", "bytes"])
def test_foreign_tables_are_told_in_one_sentence_and_kept(run, tmp_path, content):
    path = tmp_path / "rate_constrained.csv"
    path.write_bytes(content)
    with pytest.raises(SystemExit, match=r"is no table of these runs: .* Move it away"):
        run("--output", str(tmp_path))
    assert path.read_bytes() == content


def test_results_that_cannot_be_written_are_told_before_any_run(run, tmp_path):
    (tmp_path / "results").write_text("a file where the folder should be")
    with pytest.raises(FileExistsError, match="results"):
        run("--solvers", "unconstrained", *ARGUMENTS)


def test_unknown_component_is_named(run):
    with pytest.raises(SystemExit, match=r"'nothing' is neither one of .*'reductions'"):
        run("--solvers", "nothing")

"""Benchmarks as users start them: commands that write tables, resume, and refuse foreign files."""

import subprocess
import sys

import pandas as pd
import pytest

from tests.helpers.clients import run_python
from tests.helpers.repository import ROOT

pytestmark = pytest.mark.slow
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("[a-z]*.py")
    if "def main(" in path.read_text(encoding="utf-8")
)
SMALL = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(600, 6, random_state=0)
"""
BROKEN = """
METHOD, OBJECTIVES = "mine", ["rate_constrained"]

def fit(*args, **options):
    raise ArithmeticError("of mine")
"""
MENDED = """
from benchmarks.solvers.rates import unconstrained as fit

METHOD, OBJECTIVES = "mine", ["rate_constrained"]
"""


def command(module, *arguments):
    line = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def run(tmp_path):
    """The runner on a small data set of the user's own; gives the process and the table."""
    (tmp_path / "small.py").write_text(SMALL)
    fixed = ["--datasets", tmp_path / "small.py", "--output", tmp_path / "results"]

    def runner(*arguments, objective="rate_constrained"):
        done = command("benchmarks.run", *fixed, "--objective", objective, *arguments)
        path = tmp_path / "results" / f"{objective}.csv"
        return done, pd.read_csv(path, dtype=str) if path.exists() else None

    return runner


def test_every_command_can_be_started():
    imports = "; ".join(f"import {name}; assert callable({name}.main)" for name in MODULES)
    assert len(MODULES) > 10
    run_python("-c", imports)


@pytest.mark.parametrize(
    ("objective", "n_methods", "asked"),
    [
        ("rate_constrained", 3, "--constraint demographic_parity --slack 0.1"),
        ("auc_fair", 7, "--constraint inter_group --slack 0.05"),
        ("dp_fermi", 1, "--constraint demographic_parity --penalty 1 --epsilon 9"),
    ],
)
def test_every_method_fills_its_row_and_keeps_the_slack(run, objective, n_methods, asked):
    done, table = run(*asked.split(), objective=objective)
    assert done.returncode == 0, done.stderr
    assert table["method"].nunique() == n_methods
    ours = table[table["method"].str.startswith("fairconstrained")]
    for _, row in ours.iterrows():
        assert float(row["train_violation"]) <= float(row["slack"]) + 0.002


def test_a_second_call_adds_what_is_missing_and_repeats_what_failed(run, tmp_path):
    solver = tmp_path / "mine.py"
    solver.write_text(BROKEN)
    asked = ["--constraint", "demographic_parity", "--slack", "0.2", "--solvers"]
    asked += ["fairconstrained_default", solver]
    done, first = run(*asked)
    assert done.returncode == 1
    assert "of mine" in done.stderr
    assert list(first["method"]) == ["fairconstrained"]
    solver.write_text(MENDED)
    path = tmp_path / "results" / "rate_constrained.csv"
    on_windows = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(on_windows + b"rate_con")  # of an interruption
    done, second = run(*asked)
    assert done.returncode == 0, done.stderr
    assert list(second["method"]) == ["fairconstrained", "mine"]
    pd.testing.assert_frame_equal(second[:1], first)


def test_foreign_tables_and_unknown_parts_are_told_in_one_sentence(run, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "rate_constrained.csv").write_text("a,b\nx,y\n")
    done, table = run("--solvers", "unconstrained")
    assert "is no table of these runs" in done.stderr
    assert list(table.columns) == ["a", "b"]
    done, _ = run("--solvers", "nothing", "--output", tmp_path)
    assert "'nothing' is neither one of" in done.stderr

"""Benchmarks that run as a whole: each can be started, and writes a row for each measurement."""

import importlib
import os

import pandas as pd
import pytest

from benchmarks import results
from tests.helpers.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("from_root")]

FILES = [*(ROOT / "benchmarks").glob("[a-z]*.py"), *(ROOT / "benchmarks/speed").glob("[a-z]*.py")]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in FILES
    if "def main(" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_a_benchmark_can_be_imported(module):
    """What it takes from the package is still there."""
    assert callable(importlib.import_module(module).main)


def test_what_is_saved_replaces_an_earlier_call(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    for n_rows in (3, 2):
        rows = ({"i": i, "square": i**2} for i in range(n_rows))
        found = results.save(path, rows)
        pd.testing.assert_frame_equal(found, pd.read_csv(path))
        assert found["square"].tolist() == [0, 1, 4][:n_rows]


def test_scaling_resumes(tmp_path, monkeypatch):
    scaling = importlib.import_module("benchmarks.scaling")
    monkeypatch.setattr(scaling, "apart", lambda function, *args: function(*args))
    arguments = ["--rows", "1000", "2000", "--kinds", "dense20", "--output", str(tmp_path)]
    scaling.main(arguments)
    scaling.main(arguments)
    table = pd.read_csv(tmp_path / "scaling.csv")
    assert table["n_rows"].tolist() == [1000, 2000]
    assert (table["peak_mb"] >= table["loaded_mb"]).all()
    assert (table["violation"] <= scaling.SLACK + 1e-3).all()


def test_scaling_measures_in_processes_of_their_own():
    scaling = importlib.import_module("benchmarks.scaling")
    processes = {os.getpid(), scaling.apart(os.getpid), scaling.apart(os.getpid)}
    assert len(processes) == 3


def test_steps_are_timed_in_turns(tmp_path, monkeypatch):
    steps = importlib.import_module("benchmarks.speed.steps")
    monkeypatch.setattr(steps, "FEW", 2)
    monkeypatch.setattr(steps, "MANY", 4)
    steps.main(["--problems", "module", "--rounds", "2", "--output", str(tmp_path)])
    runs = pd.read_csv(tmp_path / "steps.csv")
    assert list(runs["method"]) == ["by hand", "train"] * 2
    assert set(runs["problem"]) == {"module"}


def test_the_stochastic_method_ends_above_the_exact_solution(monkeypatch):
    speed = importlib.import_module("benchmarks.speed.auc")
    monkeypatch.setattr(speed, "PASSES_ROWS", 1_000)
    exact, short, long, stream = speed.passes([30, 200], n_columns=4)
    assert exact["passes"] == stream["passes"] == 1.0
    assert short["passes"] < long["passes"]
    assert exact["objective"] < long["objective"] < short["objective"] < 0.5
    assert exact["objective"] < stream["objective"] < 0.5
    assert all(found["gap"] <= 0.4 + 0.02 for found in (exact, short, long))

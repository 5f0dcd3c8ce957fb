"""Benchmarks that run as a whole: each can be started, and writes a row for each measurement."""

import importlib

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
    and path.name != "seldonian.py"  # for an interpreter of its own, on Python 3.9
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


def test_the_audit_writes_its_bounds(tmp_path):
    audit = importlib.import_module("benchmarks.audit")
    audit.main(["--trainings", "20", "--cases", "gaussian", "--output", str(tmp_path)])
    found = pd.read_csv(tmp_path / "audit.csv")
    assert found["case"].tolist() == ["gaussian"]
    assert (found["bound"] <= found["claim"]).all()  # so few trainings show nothing


def test_choices_write_every_fit(tmp_path):
    choices = importlib.import_module("benchmarks.choices")
    (tmp_path / "tiny.py").write_text(
        "from fairconstrained.datasets import make_biased_classification as make\n"
        "def load():\n    return make(400, 6, random_state=0)\n"
    )
    given = ["--datasets", str(tmp_path / "tiny.py"), "--seeds", "0", "1"]
    choices.main(["temperature", *given, "--output", str(tmp_path)])
    found = pd.read_csv(tmp_path / "temperature.csv")
    assert len(found) == 2 * 3  # seeds, temperatures
    assert len(choices.summary(found)) == 3

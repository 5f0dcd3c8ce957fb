"""Importing the package is quiet and takes no extra; how long it takes is for benchmarks."""

import subprocess
import sys

import pytest

CODE = """
import sys
import fairconstrained
costly = {"matplotlib", "fairlearn", "dp_accounting", "polars", "cvxpy", "hypothesis"}
costly |= {"sympy", "torch._dynamo"}  # seconds more
assert not costly & set(sys.modules), costly & set(sys.modules)
"""


@pytest.mark.slow
def test_import_is_quiet_and_takes_no_extra():
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

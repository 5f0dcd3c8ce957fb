"""Importing the package is quiet, and quick beside torch, which it cannot do without."""

import subprocess
import sys

CODE = """
import sys, time
import torch
start = time.process_time()
import fairconstrained
assert time.process_time() - start < 2.0, time.process_time() - start
extras = {"matplotlib", "fairlearn", "dp_accounting", "polars", "cvxpy", "hypothesis"}
assert not extras & set(sys.modules), extras & set(sys.modules)
"""


def test_import_takes_less_than_two_seconds_beyond_torch_without_a_warning_or_an_extra():
    command = [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

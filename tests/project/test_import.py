"""Importing the package is quiet and takes no extra; how long it takes is for benchmarks."""

import subprocess
import sys

import pytest

import fairconstrained

CODE = """
import sys
import fairconstrained.estimators
costly = {"matplotlib", "fairlearn", "dp_accounting", "polars", "cvxpy", "hypothesis"}
costly |= {"sympy", "torch._dynamo"}  # seconds more
assert not costly & set(sys.modules), costly & set(sys.modules)
"""
WITHOUT_TORCH = """
import sys
import {module}
assert "torch" not in sys.modules
from fairconstrained import RateConstrainedClassifier
assert "torch" in sys.modules
"""


def in_a_new_process(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_import_is_quiet_and_takes_no_extra():
    in_a_new_process(CODE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "fairconstrained",
        *(
            f"fairconstrained.{name}"
            for name in ("datasets", "display", "metrics", "model_selection", "privacy")
        ),
    ],
)
def test_torch_is_imported_with_the_first_estimator(module):
    in_a_new_process(WITHOUT_TORCH.format(module=module))


def test_estimators_are_seen_before_they_are_imported():
    assert set(fairconstrained.__all__) <= set(dir(fairconstrained))
    with pytest.raises(AttributeError, match="'fairconstrained' has no attribute 'Nothing'"):
        fairconstrained.Nothing  # noqa: B018

"""What a new process pays for its first fit."""

import subprocess
import sys

import pytest

FIRST_FIT = """
import sys
import numpy as np
from fairconstrained import RateConstrainedClassifier
rng = np.random.default_rng(0)
X, groups = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
RateConstrainedClassifier(slack=0.2).fit(X, X[:, 0] > 0, sensitive_features=groups)
print(sorted({"sympy", "torch._dynamo"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_first_linear_fit_does_not_import_torchs_compiler():
    """`sympy` and `torch._dynamo` are over two seconds of imports, which some torch calls cause."""
    printed = subprocess.run(
        [sys.executable, "-c", FIRST_FIT], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split("\n")[-2] == "[]"

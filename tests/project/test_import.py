"""Importing the package is quiet and takes no extra; how long it takes is for benchmarks."""

import pytest

import fairconstrained
from tests.helpers.clients import run_python

WITHOUT_TORCH = """
import sys
import fairconstrained.datasets, fairconstrained.display, fairconstrained.metrics
import fairconstrained.model_selection, fairconstrained.privacy
assert "torch" not in sys.modules
from fairconstrained import RateConstrainedClassifier
assert "torch" in sys.modules
import fairconstrained.estimators
costly = {"matplotlib", "fairlearn", "dp_accounting", "polars", "cvxpy", "hypothesis"}
compiler = {"sympy", "torch._dynamo"}  # over two seconds more, which some calls of torch cause
assert not (costly | compiler) & set(sys.modules)
import numpy as np
rng = np.random.default_rng(0)
X, groups = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
RateConstrainedClassifier(slack=0.2).fit(X, X[:, 0] > 0, sensitive_features=groups)
assert not compiler & set(sys.modules)
"""


@pytest.mark.slow
def test_torch_comes_with_the_first_estimator_and_its_compiler_not_with_the_first_fit():
    run_python("-W", "error", "-c", WITHOUT_TORCH)


def test_estimators_are_seen_before_they_are_imported():
    assert set(fairconstrained.__all__) <= set(dir(fairconstrained))
    with pytest.raises(AttributeError, match="'fairconstrained' has no attribute 'Nothing'"):
        fairconstrained.Nothing  # noqa: B018

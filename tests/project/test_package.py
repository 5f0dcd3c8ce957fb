"""Importing the package is quiet and takes no extra; how long it takes is for benchmarks."""

import ast
import re
import runpy
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import matplotlib as mpl
import pytest

import fairconstrained
from tests.helpers.clients import run_python
from tests.helpers.repository import ROOT

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


SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
STEPS = set(re.search(r"set -- (.*)", SCRIPT)[1].split())
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_step_of_the_script_runs_on_the_forge():
    together = re.search(r"step: \[(.*)\]", WORKFLOW)[1].split(", ")
    assert {*together, *re.findall(r"step: (\w+)", WORKFLOW)} == STEPS


def test_tests_run_on_every_python_of_the_classifiers():
    named = "Programming Language :: Python :: 3."
    classifiers = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(named)}
    tested = re.findall(r'step: tests, python: "(.*)", constraints: constraints.txt', WORKFLOW)
    assert sorted(tested) == sorted(classifiers)
    assert PROJECT["requires-python"] == f">={min(classifiers)}"


def test_contributors_are_told_of_every_step():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert set(re.search(r"some of its steps: (.*)", text)[1].split(", ")) == STEPS


def test_every_package_that_is_installed_is_pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    extras = PROJECT["optional-dependencies"].values()
    asked = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in asked} - {"fairconstrained"}
    assert names == pinned


def requirements(*extras):
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    named = [re.fullmatch(r"fairconstrained\[(.*)\]", line) for line in lines]
    inner = [extra for match in named if match for extra in match[1].split(",")]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in [*PROJECT["dependencies"], *lines]}
    return names | requirements(*inner) if inner else names


def test_tests_load_with_the_extra_of_the_readmes_command():
    """What other extras bring is imported by importorskip."""
    others = requirements("docs", "clients", "cluster") - requirements("test")
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if others & {name.lower() for name in distributions}
    }
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in getattr(node, "names", [])]
            if isinstance(node, ast.ImportFrom):
                names = [node.module]
            assert modules.isdisjoint(name.partition(".")[0] for name in names), path


def test_the_script_runs():
    mpl.use("agg")
    script = Path(__file__).parent / "user_script.py"
    assert runpy.run_path(str(script))["main"]() > 0

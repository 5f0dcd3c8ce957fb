"""Tables of the pages are complete, their links exist, and the blocks of the README run."""

import importlib
import inspect
import re
import sys
import tomllib
from functools import reduce

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import fairconstrained
from fairconstrained import exceptions, metrics, models
from tests.helpers.repository import ROOT

DOCS = ROOT / "docs"
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(DOCS))
    from blocks import blocks_of, running

    del sys.modules["blocks"]

NAMES = (
    *("blocks", "constraints", "datasets", "display", "distributed", "exceptions", "export"),
    *("groups", "metrics", "model_selection", "monitoring", "privacy", "privacy.audit", "solvers"),
    "training",
)
MODULES = ["fairconstrained", *(f"fairconstrained.{name}" for name in NAMES)]


def public(kind):
    """Full names and objects of that kind in the `__all__` of public modules, each once."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if kind(value) and value not in found.values():
                found[f"{module.__name__}.{name}"] = value
    return found


# Of the models users name what `model=` may be; the rest is for solvers.
SPECIFICATIONS = (
    *(models.Boosting, models.Linear, models.Network, models.Posteriors, models.SingleFit),
)
CLASSES = public(inspect.isclass) | {
    f"fairconstrained.models.{kind.__name__}": kind for kind in SPECIFICATIONS
}
ESTIMATES = "fairconstrained.models.estimate_group_probabilities"
FUNCTIONS = public(inspect.isfunction) | {ESTIMATES: models.estimate_group_probabilities}


@pytest.mark.slow
def test_the_examples_of_the_readme_run_in_their_order():
    """The build of the site runs those of its pages, and an error there ends it."""
    pytest.importorskip("matplotlib")
    with running(ROOT / "README.md") as run:
        for _, code in blocks_of((ROOT / "README.md").read_text(encoding="utf-8")):
            run(code)


def test_the_readme_reads_the_figures_of_its_picture_from_the_same_run():
    runs = pd.read_csv(DOCS / "images" / "adult_tradeoff.csv")
    held_out = runs[runs["rows"] == "held out"].set_index(["method", "slack"])
    read = [
        f"{held_out.loc[cell, 'error']:.3f} at .. {held_out.loc[cell, 'violation']:.3f}"
        for cell in (("trees", 0.05), ("linear", 0.05), ("reductions", 0.02))
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"(\.\d{3}) at (?:a gap of )?(\.\d{3})", text)
    assert [f"0{error} at .. 0{gap}" for error, gap in said] == read


def test_the_table_of_metrics_names_every_metric_and_scorer():
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"fairconstrained\.metrics\.(\w+)`", text))
    named |= set(re.findall(r"`(\w+_scorer)`", text))
    assert named == set(metrics.__all__) - {"METRICS"}


def test_every_public_name_has_a_page_in_the_reference():
    groups = re.findall(r"^   (\w+)$", (DOCS / "api" / "index.rst").read_text(), re.MULTILINE)
    text = "\n".join((DOCS / "api" / f"{group}.rst").read_text() for group in groups)
    listed, module = [], None
    for line in text.splitlines():
        if found := re.match(r"\.\. (?:current)?module:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"   (\w+)$", line):
            listed.append(f"{module}.{found[1]}")
    assert sorted(listed) == sorted({*CLASSES, *FUNCTIONS})
    others = [
        name
        for module in map(importlib.import_module, MODULES)
        for name in module.__all__
        if not inspect.isclass(getattr(module, name))
        and not inspect.isfunction(getattr(module, name))
        and not name.startswith("__")
    ]
    assert all(f"``{name}``" in text for name in others)


def test_every_public_docstring_has_an_example():
    """Those of exceptions have one together, in their module."""
    example = re.compile(r"^Examples\n-+$.*^>>> ", re.DOTALL | re.MULTILINE)
    documented = {name: kind for name, kind in CLASSES.items() if "exceptions" not in name}
    documented |= {**FUNCTIONS, "exceptions": exceptions}
    assert not [name for name in documented if not example.search(inspect.getdoc(documented[name]))]


def parameters(function):
    given = inspect.signature(function).parameters.values()
    return [p.name for p in given if p.name not in {"self", "args", "kwargs"}]


def in_order(function):
    """Whether numpydoc's section describes all parameters, in their order."""
    doc = inspect.getdoc(function)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", doc, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^\*{0,2}(\w[\w, ]*?)(?: : .*|)$", section[1], re.MULTILINE)
    names = [name for entry in entries for name in entry.split(", ")]
    return [name for name in names if name in parameters(function)] == parameters(function)


def test_every_parameter_of_a_public_function_is_described():
    """In the order of the signature."""
    assert not [name for name, f in FUNCTIONS.items() if parameters(f) and not in_order(f)]


@pytest.mark.parametrize("name", [n for n in fairconstrained.__all__ if n.endswith("Classifier")])
def test_the_html_representation_links_to_the_page_of_the_estimator(name):
    estimator = getattr(fairconstrained, name)()
    site = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Documentation"]
    link = f"{site}/en/latest/api/fairconstrained.{name}.html"
    assert link in estimator._repr_html_()


def test_the_oldest_versions_are_the_bounds_of_the_package():
    """Torch apart: see the file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = [
        *project["dependencies"],
        *(line for e in ("privacy", "plot", "bench") for line in extras[e]),
    ]
    bounds = {}
    for requirement in map(Requirement, ours):
        if requirement.name not in {"fairconstrained", "torch"}:
            (bound,) = requirement.specifier
            assert bound.operator == ">="
            bounds[requirement.name] = Version(bound.version)
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert bounds == {name: Version(pinned[name]) for name in bounds}


def test_the_version_is_said_in_one_place():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fairconstrained.__version__}\n" in citation
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]


# --- docs/papers.md: the code and the tests that it names exist -----------------------------------

PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")
ROWS = [line for line in PAPERS.splitlines() if line.startswith("| ") and "`" in line]
CODE = sorted(set(re.findall(r"`(fairconstrained\.[\w.]+)`", PAPERS)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAPERS)))


def found(name):
    """The object of a dotted name: the longest module in it, then attributes."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[n:], module)
    raise AssertionError(name)


@pytest.mark.parametrize("name", CODE)
def test_named_code_exists(name):
    assert callable(found(name))


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_named_tests_exist(path, name):
    assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_every_row_names_code_and_a_test():
    assert len(ROWS) >= 30
    for row in ROWS:
        assert row.count("|") == 6, row
        assert "`fairconstrained." in row, row
        assert "`tests/" in row, row

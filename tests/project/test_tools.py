"""What contributors are told is what the tools do: steps, versions of Python, pins."""

import re
import tomllib

from tests.helpers.repository import ROOT

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

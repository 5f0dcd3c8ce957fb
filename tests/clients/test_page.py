"""The blocks of the page on other libraries run, each after the first."""

import re

import pytest

from tests.helpers.clients import array_api, run_program
from tests.helpers.pages import BLOCK, missing
from tests.helpers.repository import ROOT

TEXT = (ROOT / "docs" / "guide" / "works_with.md").read_text(encoding="utf-8")
START, *SECTIONS = re.split(r"^## (?=.)", TEXT, flags=re.MULTILINE)
BLOCKS = {section.partition("\n")[0]: BLOCK.findall(section) for section in SECTIONS}


def test_every_section_has_a_block():
    assert len(BLOCKS) >= 11
    assert all(BLOCKS.values())


@pytest.mark.slow
@pytest.mark.parametrize("section", BLOCKS)
def test_the_blocks_of_a_section_run(section, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    code = "\n".join(BLOCK.findall(START) + BLOCKS[section])
    if absent := missing(code):
        pytest.skip(f"not installed: {absent}")
    if "array_api_dispatch" in code and not array_api():
        pytest.skip("scikit-learn before 1.9 needs more packages for its array API")
    # Each in a process of its own: mlflow keeps its experiment, scikit-learn its settings, and
    # scipy has to be asked for the array API before it is imported.
    quiet = "import warnings\nwarnings.simplefilter('ignore')\n"
    environment = {"SCIPY_ARRAY_API": "1"} if "array_api_dispatch" in code else {}
    run_program(quiet + code, **environment)


def test_the_versions_are_those_of_the_constraints():
    """The table names what `constraints.txt` pins, which `.ci/run` installs."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    named = {
        "scikit-learn callbacks": ["scikit-learn"],
        "scikit-learn array API": ["scikit-learn"],
        "scikit-learn wrappers": ["scikit-learn"],
        "mlflow": ["mlflow-skinny"],
        "skl2onnx, onnxruntime": ["skl2onnx", "onnxruntime"],
        "xgboost, lightgbm": ["xgboost-cpu", "lightgbm"],
        "polars, pandas": ["polars", "pandas"],
        "pyarrow, dask": ["pyarrow", "dask"],
    }
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", START, re.MULTILINE)[1:]
    assert len(rows) >= 11
    for library, versions in rows:
        for package in named.get(library, [library]):
            assert pinned[package] in versions, package

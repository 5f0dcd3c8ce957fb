"""docs/papers.md: what it names in the code and in the tests exists."""

import importlib
import re
from functools import reduce

import pytest

from tests.helpers.repository import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
CODE = sorted(set(re.findall(r"`(fairconstrained\.[\w.]+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAGE)))


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

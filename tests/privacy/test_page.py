"""The page of promises names tests that exist."""

import re

from tests.helpers.repository import ROOT

PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    functions = set(re.findall(r"^def (test_\w+)", "\n".join(sources), flags=re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) >= 15
    assert named <= functions
    files = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert all((ROOT / name).exists() for name in files)

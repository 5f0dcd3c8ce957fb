"""What all tests share: no property test has a deadline, as machines are shared and noisy."""

import pytest
from hypothesis import settings

from tests.helpers.repository import ROOT

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture
def from_root(monkeypatch):
    """The benchmarks can be imported, and draw without a screen."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "Agg")

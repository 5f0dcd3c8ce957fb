"""Marks of some of a test's parameters."""

import pytest


def slow_where(names, *slow):
    """The names as parameters of a test, of which some are left out of the short run."""
    assert set(slow) <= set(names)
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]

"""Marks of some of a test's parameters."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks


def slow_where(names, *slow):
    assert set(slow) <= set(names)
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in names]


def with_checks(expected_to_fail):
    """parametrize_with_checks with a list: of scikit-learn 1.6, pytest 9 refuses its generator."""
    mark = parametrize_with_checks(
        list(expected_to_fail), expected_failed_checks=expected_to_fail.__getitem__
    )
    names, pairs = mark.args
    return pytest.mark.parametrize(names, list(pairs), **mark.kwargs)

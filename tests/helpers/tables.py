"""Rows as a table of named columns, and fits to them in memory and on an engine."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fairconstrained.datasets import make_biased_classification


def table(n=1500, n_groups=3, seed=0):
    data = make_biased_classification(n, random_state=seed)
    rng = np.random.default_rng(seed)
    binary = rng.random(n) < 0.1
    X = np.column_stack((data.data, 1e3 * data.data[:, 0] ** 2, binary, np.full(n, 3.0)))
    y = np.where(data.target == 1, "yes", "no")
    group = np.where(rng.random(n) < 0.2, "c", np.asarray(data.sensitive_features).astype(str))
    return X, y, group, rng.integers(1, 4, size=n).astype(float)


def frame(n=600):
    X, y, group, weight = table(n)
    columns = pd.DataFrame(X).add_prefix("x")
    return columns.assign(label=y, sex=group, weight=weight)


def in_partitions(rows, n=2):
    """The rows as a lazy table or column of dask, which is not in the extra `test`."""
    dask = pytest.importorskip("dask.dataframe", reason="dask is in no extra but clients")
    return dask.from_pandas(rows, npartitions=n)


def features(rows):
    return rows.filter(regex="^x")


def in_memory(clf, rows):
    with warnings.catch_warnings(action="ignore"):
        given = {"sensitive_features": rows.sex, "sample_weight": rows.weight}
        return clf.fit(features(rows), rows.label, **given)


def elsewhere(clf, lazy, y="label", sex="sex", weight="weight"):
    with warnings.catch_warnings(action="ignore"):
        return clf.fit(lazy, y, sensitive_features=sex, sample_weight=weight)


def assert_same(found, whole):
    for name in ("coef_", "intercept_", "multipliers_"):
        own, other = getattr(found, name), getattr(whole, name)
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-6)
    assert found.classes_.tolist() == whole.classes_.tolist()
    assert list(found.groups_) == list(whole.groups_)
    assert found.violation_ == pytest.approx(whole.violation_, abs=1e-6, nan_ok=True)
    assert (found.n_features_in_, found.status_) == (whole.n_features_in_, whole.status_)
    assert found.feature_names_in_.tolist() == whole.feature_names_in_.tolist()

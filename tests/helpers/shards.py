"""Fits on shards, and what all workers must agree in."""

import warnings

import numpy as np

from fairconstrained.datasets import make_biased_classification


def table(n=1500, n_groups=3, seed=0):
    """Columns of several kinds, text labels and uneven groups."""
    data = make_biased_classification(n, random_state=seed)
    rng = np.random.default_rng(seed)
    binary = rng.random(n) < 0.1
    X = np.column_stack((data.data, 1e3 * data.data[:, 0] ** 2, binary, np.full(n, 3.0)))
    y = np.where(data.target == 1, "yes", "no")
    group = np.where(rng.random(n) < 0.2, "c", np.asarray(data.sensitive_features).astype(str))
    return X, y, group, rng.integers(1, 4, size=n).astype(float)


def shard(data, rank, size):
    """Sorted by group, so that workers lack groups and labels that others have."""
    X, y, group, weight = data
    order = np.lexsort((y, *np.asarray(group).reshape(len(y), -1).T.astype(str)))
    own = np.array_split(order, size)[rank]
    return X[own], y[own], group[own], weight[own]


def fitted(clf, data):
    X, y, group, weight = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y, sensitive_features=group, sample_weight=weight)
    return {
        "coef": clf.coef_,
        "intercept": clf.intercept_,
        "multipliers": clf.multipliers_,
        "violation": clf.violation_,
        "classes": clf.classes_,
        "groups": clf.groups_,
        "status": clf.status_,
        "history": clf.history_["objective"],
    }


def same_on_all(found, case):
    """What the first worker has found, and all others to the last bit."""
    first, *others = (own[case] for own in found)
    for other in others:
        for name, value in first.items():
            np.testing.assert_array_equal(other[name], value)
    return first

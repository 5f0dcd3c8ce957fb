"""A small table for AUC constraints, fits of AUCFairClassifier on it, and what they achieve."""

import numpy as np
from sklearn.metrics import roc_auc_score

from fairconstrained import AUCFairClassifier, metrics
from fairconstrained.constraints import AUCParity

METRIC_OF = {
    "group_auc": metrics.group_auc_gap,
    "inter_group": metrics.inter_group_auc_gap,
    "intra_group": metrics.intra_group_auc_gap,
    "positive_equality_gap": metrics.positive_equality_gap,
    "negative_equality_gap": metrics.negative_equality_gap,
    "bpsn_bnsp": metrics.bpsn_bnsp_gap,
}


def table(n_groups=2, n=400, seed=0):
    rng = np.random.default_rng(seed)
    y, group = np.indices((2, n_groups)).reshape(2, -1)
    y = np.append(np.tile(y, 3), rng.integers(2, size=n - 6 * n_groups))
    group = np.append(np.tile(group, 3), rng.integers(n_groups, size=n - 6 * n_groups))
    X = rng.normal(size=(n, 5))
    X[:, 0] += 1.5 * y
    X[:, 1] += 1.2 * (group == 0) - 0.6 * (group == 1) + 0.8 * y
    X[:, 2] += 2.0 * y * (group == 0)
    for array in (X, y, group):
        array.flags.writeable = False
    return X, y, group


def fitted(comparison="inter_group", data=None, sample_weight=None, **params):
    X, y, group = table() if data is None else data
    if "surrogate" in params:
        comparison = AUCParity(comparison, surrogate=params.pop("surrogate"))
    clf = AUCFairClassifier(comparison, **params)
    return clf.fit(X, y, sensitive_features=group, sample_weight=sample_weight)


def measured(clf, data):
    X, y, group = data
    metric = METRIC_OF[getattr(clf.constraint, "comparison", clf.constraint)]
    return metric(y, clf.decision_function(X), sensitive_features=group)


def auc(clf, data):
    return roc_auc_score(data[1], clf.decision_function(data[0]))

"""AUCFairClassifier with columns for the second group: what it reaches if groups may be used.

Beside the columns as given it gets each of them a second time, zero outside of the second group,
and that group's indicator: the scores of one group can then be rescaled, as by the post-processing.
Like that method it needs everybody's group to predict.
"""

from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, AUC, with groups"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with default settings on the wider table."""
    model = AUCFairClassifier(notion, slack=slack, alpha=ALPHA)
    model.fit(_with_groups(X, sensitive_features), y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(_with_groups(X, groups)))


def _with_groups(X: Any, groups: Any) -> Any:
    second = np.asarray(groups == 1, dtype=float)[:, None]
    if sparse.issparse(X):
        return sparse.csr_array(sparse.hstack([X, X.multiply(second), second]))
    return np.hstack([X, X * second, second])

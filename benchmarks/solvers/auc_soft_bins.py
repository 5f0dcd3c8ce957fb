"""AUCFairClassifier on AUCs themselves: soft bins of scores for the objective and the constraints.

Slower than the default by about a factor of ten, and ahead of it where columns have heavy tails.
"""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier

METHOD = "fairconstrained, AUC, soft bins"
OBJECTIVES = ["auc_fair"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Every notion at every slack."""
    return asked


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with the objective and the surrogate that tend to true AUCs."""
    model = AUCFairClassifier(
        notion, slack=slack, objective="auc", surrogate="soft_bins", alpha=ALPHA
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))

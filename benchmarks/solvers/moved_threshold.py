"""Unconstrained LogisticRegression, its threshold moved until the training rows keep the cap.

The best that one threshold can do for a cap on the overall false negative rate, and the yardstick
where fairlearn has no method.
"""

from typing import Any

import numpy as np

from benchmarks.objectives.rate_constrained import Fitted, base_model

METHOD = "moved threshold"
OBJECTIVES = ["rate_constrained"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """For caps on the false negative rate only."""
    return asked if notion == "false_negative_rate" else []


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Leave at most the share `slack` of the training positives below the threshold."""
    model = base_model(len(y)).fit(X, y)
    positives = np.sort(model.decision_function(X[y == 1]))
    below = min(int(slack * len(positives)), len(positives) - 1)
    threshold = min(0.0, positives[below])
    return Fitted(lambda X, groups: (model.decision_function(X) >= threshold).astype(float))

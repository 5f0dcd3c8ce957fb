"""AUCFairClassifier(epsilon=...) as a user gets it, and its moments without privacy beside it.

Columns are scaled by their publicly known range, here taken for that of the training rows, which a
user must know or bound otherwise.
"""

import math
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from benchmarks.objectives.private_rates import DELTA
from benchmarks.solvers.dpsgda import epsilons
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "fairconstrained, AUC, private"
OBJECTIVES = ["private_auc"]


def fit(
    X: Any,
    y: Any,
    sensitive_features: Any,
    *,
    notion: str,
    slack: float,
    epsilon: float,
    seed: int,
) -> Fitted:
    """Train with default settings."""
    model = AUCFairClassifier(
        AUCParity(notion, surrogate="binormal"),
        slack=slack,
        epsilon=None if math.isnan(epsilon) else epsilon,
        delta=DELTA,
        feature_range=_range(X),
        alpha=ALPHA,
        random_state=seed,
    )
    model.fit(X, y, sensitive_features=sensitive_features)
    return Fitted(lambda X, groups: model.decision_function(X))


def _range(X: Any) -> tuple[Any, Any]:
    low, high = (end.toarray()[0] if sparse.issparse(end) else end for end in (X.min(0), X.max(0)))
    return np.asarray(low), np.where(high > low, high, low + 1.0)

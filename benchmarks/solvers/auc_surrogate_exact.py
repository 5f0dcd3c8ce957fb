"""The paper's formulation solved exactly: quadratic surrogates of all AUCs (Yao, Lin, Yang 2023).

The slack is that of the surrogate, from 0.01 to where it no longer binds.
"""

from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier
from fairconstrained.solvers import QCQP, Solver

METHOD = "quadratic surrogate, exact"
OBJECTIVES = ["auc_fair"]
SURROGATE_SLACKS = [0.01, 0.1, 0.3, 0.6, 1.0]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Enough to draw the frontier: true gaps do not follow this slack."""
    return SURROGATE_SLACKS


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Solve the quadratic program from group moments."""
    return fit_with(QCQP(), X, y, sensitive_features, notion=notion, slack=slack, seed=seed)


def fit_with(
    solver: Solver, X: Any, y: Any, groups: Any, *, notion: str, slack: float, seed: int
) -> Fitted:
    """Solve the paper's formulation with a solver for it."""
    model = AUCFairClassifier(
        notion,
        slack=slack,
        surrogate="quadratic",
        solver=solver,
        alpha=ALPHA,
        random_state=seed,
    )
    model.fit(X, y, sensitive_features=groups)
    return Fitted(lambda X, groups: model.decision_function(X))

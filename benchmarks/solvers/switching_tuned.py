"""The switching subgradient with equal steps, larger batches and a cosine."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import SwitchingSubgradient, cosine

METHOD = "SSw, tuned"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = SwitchingSubgradient(
        step_size=0.2,
        constraint_step_size=0.2,
        tolerance=0.002,
        batch_size=512,
        record_from=0.9,
        n_steps=3000,
        schedule=cosine,
    )
    return train_network(X, y, sensitive_features, solver=solver, **asked)

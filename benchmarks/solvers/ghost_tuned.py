"""Stochastic ghost with batches and fewer levels."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import StochasticGhost

METHOD = "ghost, tuned"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = StochasticGhost(
        step_size=0.3, step_decay=0.002, batch_size=32, max_level=4, n_steps=1500
    )
    return train_network(X, y, sensitive_features, solver=solver, **asked)

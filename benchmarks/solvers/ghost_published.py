"""Stochastic ghost with the hyperparameters of paper 5."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import StochasticGhost

METHOD = "ghost, published"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = StochasticGhost(step_size=0.4, n_steps=700)
    return train_network(X, y, sensitive_features, solver=solver, **asked)

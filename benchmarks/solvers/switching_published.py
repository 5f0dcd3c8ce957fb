"""The switching subgradient with the hyperparameters of paper 5."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import SwitchingSubgradient

METHOD = "SSw, published"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = SwitchingSubgradient(batch_size=8, n_steps=15_000)
    return train_network(X, y, sensitive_features, solver=solver, **asked)

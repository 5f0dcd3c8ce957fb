"""A fairret-style penalty, batch and weight as in paper 5 (there on accuracies, here on losses)."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import PenaltySGD

METHOD = "fairret-style, published"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = PenaltySGD(step_size=0.05, penalty=0.5, batch_size=24, n_steps=15_000)
    return train_network(X, y, sensitive_features, solver=solver, **asked)

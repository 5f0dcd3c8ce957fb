"""SGD without constraints, batches as in paper 5, which does not tell the step size."""

from typing import Any

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import SGD

METHOD = "SGD, published"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = SGD(step_size=0.05, batch_size=8, n_steps=15_000)
    return train_network(X, y, sensitive_features, solver=solver, **asked)

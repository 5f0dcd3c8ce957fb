"""ALM with Adam, larger batches and a cosine."""

from typing import Any

import torch

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import ALM, cosine

METHOD = "ALM, tuned"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = ALM(
        step_size=0.01,
        dual_step_size=0.2,
        batch_size=512,
        n_steps=1500,
        optimizer=torch.optim.Adam,
        schedule=cosine,
    )
    return train_network(X, y, sensitive_features, solver=solver, **asked)

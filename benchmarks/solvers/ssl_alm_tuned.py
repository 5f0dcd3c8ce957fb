"""SSL-ALM with Adam, weaker smoothing, larger batches and a cosine."""

from typing import Any

import torch

from benchmarks.objectives.loss_parity import Fitted, train_network
from fairconstrained.solvers import SSLALM, cosine

METHOD = "SSL-ALM, tuned"
OBJECTIVES = ["loss_parity"]


def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
    """Train once."""
    solver = SSLALM(
        step_size=0.01,
        dual_step_size=0.2,
        smoothing=0.1,
        batch_size=512,
        n_steps=1500,
        optimizer=torch.optim.Adam,
        schedule=cosine,
    )
    return train_network(X, y, sensitive_features, solver=solver, **asked)

"""Equal losses for a network: the algorithms of paper 5, as published and tuned by us."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.objectives.loss_parity import train_network
from benchmarks.solvers import Method
from fairconstrained.models import Network
from fairconstrained.solvers import (
    ALM,
    SGDA,
    SSLALM,
    Solver,
    StochasticGhost,
    SwitchingSubgradient,
    cosine,
)


def method(name: str, solver: Solver | None, **options: Any) -> Method:
    """Return the network of the paper, or with other options, trained by `solver`."""
    return Method(name, ["loss_parity"], partial(train_network, solver=solver, **options))


# The paper's batches and steps; step sizes where not given are the solvers' defaults.
PAPER = {"batch_size": 8, "n_steps": 15_000}
# Ours: larger batches, Adam, and steps that shrink to zero along a cosine.
ADAM = {"batch_size": 512, "n_steps": 1500, "optimizer": torch.optim.Adam, "schedule": cosine}
# With equal steps, over twice as many.
SWITCHING = {
    **{"step_size": 0.2, "constraint_step_size": 0.2, "tolerance": 0.002, "batch_size": 512},
    **{"record_from": 0.9, "n_steps": 3000, "schedule": cosine},
}

SOLVERS = {
    "alm_published": method("ALM, published", ALM(**PAPER)),
    "alm_tuned": method("ALM, tuned", ALM(step_size=0.01, dual_step_size=0.2, **ADAM)),
    "ssl_alm_published": method("SSL-ALM, published", SSLALM(**PAPER)),
    "ssl_alm_tuned": method(  # with weaker smoothing
        "SSL-ALM, tuned", SSLALM(step_size=0.01, dual_step_size=0.2, smoothing=0.1, **ADAM)
    ),
    "switching_published": method("SSw, published", SwitchingSubgradient(**PAPER)),
    "switching_tuned": method("SSw, tuned", SwitchingSubgradient(**SWITCHING)),
    "ghost_published": method("ghost, published", StochasticGhost(step_size=0.4, n_steps=700)),
    "ghost_tuned": method(  # with batches and fewer levels
        "ghost, tuned",
        StochasticGhost(step_size=0.3, step_decay=0.002, batch_size=32, max_level=4, n_steps=1500),
    ),
    # The solver of networks in estimators before EarlyStoppedSGDA.
    "sgda": method("SGDA", SGDA(), alpha=1e-4),
    # The estimator as a user gets it.
    "loss_parity_default": method(
        "LossParityClassifier", None, alpha=1e-4, model=Network((64, 32))
    ),
}

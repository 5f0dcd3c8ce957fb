"""Equal losses for a network: the algorithms of paper 5, as published and tuned by us."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.baselines import SGD, PenaltySGD
from benchmarks.objectives.loss_parity import Fitted, train_network
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


def method(name: str, solver: Solver) -> SimpleNamespace:
    """The network trained by `solver`, without an l2 penalty, as in the paper."""

    def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Fitted:
        return train_network(X, y, sensitive_features, solver=solver, **asked)

    return SimpleNamespace(METHOD=name, OBJECTIVES=["loss_parity"], fit=fit)


# The paper's batches and steps; step sizes where not given are the solvers' defaults.
PAPER = {"batch_size": 8, "n_steps": 15_000}
# Ours: larger batches, Adam, and steps that shrink to zero along a cosine.
ADAM = {"batch_size": 512, "n_steps": 1500, "optimizer": torch.optim.Adam, "schedule": cosine}

SOLVERS = {
    "alm_published": method("ALM, published", ALM(**PAPER)),
    "alm_tuned": method("ALM, tuned", ALM(step_size=0.01, dual_step_size=0.2, **ADAM)),
    "ssl_alm_published": method("SSL-ALM, published", SSLALM(**PAPER)),
    "ssl_alm_tuned": method(  # with weaker smoothing
        "SSL-ALM, tuned", SSLALM(step_size=0.01, dual_step_size=0.2, smoothing=0.1, **ADAM)
    ),
    "switching_published": method("SSw, published", SwitchingSubgradient(**PAPER)),
    "switching_tuned": method(  # with equal steps, over twice as many
        "SSw, tuned",
        SwitchingSubgradient(
            step_size=0.2,
            constraint_step_size=0.2,
            tolerance=0.002,
            batch_size=512,
            record_from=0.9,
            n_steps=3000,
            schedule=cosine,
        ),
    ),
    "ghost_published": method("ghost, published", StochasticGhost(step_size=0.4, n_steps=700)),
    "ghost_tuned": method(  # with batches and fewer levels
        "ghost, tuned",
        StochasticGhost(step_size=0.3, step_decay=0.002, batch_size=32, max_level=4, n_steps=1500),
    ),
    # The paper does not give its step size.
    "sgd_published": method("SGD, published", SGD(step_size=0.05, **PAPER)),
    # Batch and weight as in the paper, whose penalty is on accuracies; here it is on losses.
    "fairret_published": method(
        "fairret-style, published",
        PenaltySGD(step_size=0.05, penalty=0.5, batch_size=24, n_steps=15_000),
    ),
    # What estimators did with networks before EarlyStoppedSGDA.
    "sgda": SimpleNamespace(
        METHOD="SGDA",
        OBJECTIVES=["loss_parity"],
        fit=partial(train_network, alpha=1e-4, solver=SGDA()),
    ),
    # The estimator as a user gets it.
    "loss_parity_default": SimpleNamespace(
        METHOD="LossParityClassifier",
        OBJECTIVES=["loss_parity"],
        fit=partial(train_network, alpha=1e-4, network=Network((64, 32))),
    ),
}

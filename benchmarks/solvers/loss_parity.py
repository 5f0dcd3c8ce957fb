"""Equal losses for a network: the algorithms of Kliachkin et al., as published and tuned by us."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.objectives.rate_constrained import Rows
from benchmarks.solvers import Method
from fairconstrained import LossParityClassifier
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
from fairconstrained.solvers.stochastic import Balanced, shuffled

LAYERS = (64, 32)
NO_PENALTY: dict[str, Any] = {"model": Network(LAYERS, n_bins=None), "alpha": 0.0}


def classifier(name: str, solver: Solver | None, **options: Any) -> Method:
    """Return our classifier with the network of the paper, or with other options."""

    def fit(train: Rows, *, constraint: str, slack: float, seed: int) -> Any:
        parameters = {"solver": solver, "random_state": seed, **NO_PENALTY, **options}
        model = LossParityClassifier(constraint, slack=slack, **parameters)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        return lambda X: model.predict_proba(X)[:, 1]

    return Method(name, ["loss_parity"], fit)


def alone(solver: type[Solver], **parameters: Any) -> Solver:
    """Return a solver that keeps its own result, though constant predictions may be better."""
    return type(solver.__name__, (solver,), {"takes_known": False})(**parameters)


def plain(name: str, draws: Callable[..., Any], penalty: Any, step_size: float, n: int) -> Method:
    """Return a method of plain steps on the log loss plus a penalty, as in the public code."""

    def fit(train: Rows, *, seed: int, **asked: Any) -> Any:
        rng = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        widths = (train.X.shape[1], *LAYERS)
        hidden = [m for w in zip(widths, LAYERS, strict=False) for m in (nn.Linear(*w), nn.ReLU())]
        network = nn.Sequential(*hidden, nn.Linear(LAYERS[-1], 1))
        optimizer = torch.optim.SGD(network.parameters(), lr=step_size)
        X, y = (torch.as_tensor(part, dtype=torch.float32) for part in (train.X, train.y))
        groups, added, rows = torch.as_tensor(train.groups), penalty(), draws(train.groups, rng)
        for _ in range(n):
            i = next(rows)
            scores, labels = network(X[i]), y[i, None]
            loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
            optimizer.zero_grad()
            (loss + added(scores, nn.functional.one_hot(groups[i]), labels)).backward()
            optimizer.step()
        as_tensor = partial(torch.as_tensor, dtype=torch.float32)
        return lambda X: network(as_tensor(X)).sigmoid().detach().numpy()[:, 0].astype(float)

    return Method(name, ["loss_parity"], fit)


def as_they_come(groups: Any, rng: torch.Generator) -> Iterator[Tensor]:
    """Return batches of eight rows."""
    return shuffled(len(groups), 8, rng)


def in_equal_parts(groups: Any, rng: torch.Generator) -> Iterator[Tensor]:
    """Return batches of twelve rows of each of two groups."""
    return Balanced(torch.as_tensor(groups)).batches(24, rng)[0]


def no_penalty() -> Callable[..., float]:
    """Return zero for every batch."""
    return lambda *batch: 0.0


def fairret() -> Callable[..., Tensor]:
    """Return half the penalty of accuracies, of ``pip install fairret==0.1.3 cvxpy``."""
    from fairret.loss import KLProjectionLoss
    from fairret.statistic import Accuracy

    loss = KLProjectionLoss(Accuracy())
    return lambda *batch: 0.5 * loss(*batch)


# Batches and steps of the paper; step sizes where not given are the defaults of the solvers.
PAPER: dict[str, Any] = {"batch_size": 8, "n_steps": 15_000}
# Ours: larger batches, Adam, and steps that shrink to zero along a cosine.
ADAM: dict[str, Any] = {"optimizer": torch.optim.Adam, "schedule": cosine, "batch_size": 512}
ADAM |= {"step_size": 0.01, "dual_step_size": 0.2, "n_steps": 1500}
# With equal steps, twice as many.
EQUAL: dict[str, Any] = {"step_size": 0.2, "constraint_step_size": 0.2, "tolerance": 0.002}
EQUAL |= {"batch_size": 512, "record_from": 0.9, "n_steps": 3000, "schedule": cosine}
# With batches and fewer levels.
BATCHES: dict[str, Any] = {"step_size": 0.3, "step_decay": 0.002, "batch_size": 32}
BATCHES |= {"max_level": 4, "n_steps": 1500}

SOLVERS = {
    "sgd_published": plain("SGD, published", as_they_come, no_penalty, 0.005, 15_000),
    "fairret_published": plain("fairret, published", in_equal_parts, fairret, 0.05, 2_500),
    "alm_published": classifier("ALM, published", alone(ALM, **PAPER)),
    "ssl_alm_published": classifier("SSL-ALM, published", alone(SSLALM, **PAPER)),
    "switching_published": classifier("switching, published", alone(SwitchingSubgradient, **PAPER)),
    "ghost_published": classifier("ghost, published", alone(StochasticGhost, n_steps=700)),
    "alm_tuned": classifier("ALM, tuned", alone(ALM, **ADAM)),
    "ssl_alm_tuned": classifier("SSL-ALM, tuned", alone(SSLALM, smoothing=0.1, **ADAM)),
    "switching_tuned": classifier("switching, tuned", alone(SwitchingSubgradient, **EQUAL)),
    "ghost_tuned": classifier("ghost, tuned", alone(StochasticGhost, **BATCHES)),
    "sgda": classifier("SGDA", SGDA(), alpha=1e-4),
    # The estimator as a user gets it.
    "loss_parity_default": classifier(
        "LossParityClassifier", None, alpha=1e-4, model=Network(LAYERS)
    ),
}

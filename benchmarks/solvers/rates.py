"""Rates of predicted labels: RateConstrainedClassifier as a user gets it, and its peers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from numpy.typing import NDArray

from benchmarks.objectives.rate_constrained import ALPHA, DELTA, Fitted, Rows, base_model, dense
from benchmarks.solvers import Cells, Method, grid, without_slack
from fairconstrained import RateConstrainedClassifier
from fairconstrained.solvers import DPSGDA

MOMENTS = {"demographic_parity": DemographicParity, "equalized_odds": EqualizedOdds}


def classifier(
    estimator: Callable[..., Any],
    name: str,
    objectives: list[str],
    cells: Callable[..., Cells] = grid,
    **options: Any,
) -> Method:
    """Return a classifier of ours with these parameters; nan stands for no budget."""

    def fit(
        train: Rows,
        *,
        constraint: str,
        seed: int,
        epsilon: float = math.nan,
        unit: str = "record",
        **strength: float,
    ) -> Fitted:
        budget = {"epsilon": None if math.isnan(epsilon) else epsilon, "delta": DELTA}
        parameters = {**budget, "protect": unit, "random_state": seed, **strength, **options}
        model = estimator(constraint, **parameters)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)

    return Method(name, objectives, fit, cells)


def with_and_without_privacy(asked: dict[str, list[Any]]) -> Cells:
    """Return every budget, and none."""
    return grid({**asked, "epsilon": [*asked["epsilon"], math.nan]})


def reductions(train: Rows, *, constraint: str, slack: float, seed: int) -> Fitted:
    """Train fairlearn's ExponentiatedGradient (Agarwal et al. 2018) with its defaults.

    Its predictions are random: each row draws one of the trained classifiers. Errors and rates are
    expectations over these draws. Its `difference_bound`, here the slack, bounds each group's rate
    against that of everybody, so the gap between two groups may reach twice the slack; and it
    guarantees the bound only up to its own `eps` and duality gap. Compare at equal violation.
    """
    moment = MOMENTS[constraint](difference_bound=slack)
    model = ExponentiatedGradient(base_model(len(train.y)), moment)
    model.fit(dense(train.X), train.y, sensitive_features=train.groups)

    def acceptance(X: Any, groups: Any) -> NDArray[np.float64]:
        return model._pmf_predict(dense(X))[:, 1].clip(0, 1)  # the public predict only draws

    return Fitted(acceptance, bool(model.best_gap_ < model.nu))


def without_caps(asked: dict[str, list[Any]]) -> Cells:
    """Return the runs of parity notions."""
    return [cell for cell in grid(asked) if cell["constraint"] in MOMENTS]


def unconstrained(train: Rows, *, constraint: str, slack: float, seed: int) -> Fitted:
    """Train LogisticRegression without the sensitive features."""
    model = base_model(len(train.y)).fit(train.X, train.y)
    return Fitted(lambda X, groups: model.predict(X).astype(float))


PRIVATE = "fairconstrained, private"
rates = partial(classifier, RateConstrainedClassifier, alpha=ALPHA)
SOLVERS = {
    "fairconstrained_default": rates("fairconstrained", ["rate_constrained"]),
    "dpsgda": rates(PRIVATE, ["private_rates"], with_and_without_privacy),
    "reductions": Method("reductions", ["rate_constrained"], reductions, without_caps),
    "unconstrained": Method("unconstrained", ["rate_constrained"], unconstrained, without_slack),
}
for clip in (0.5, 1, 2, 5, 12.5):  # the longest gradient of a row
    SOLVERS[f"dpsgda_clip_{clip}"] = rates(f"{PRIVATE}, clip {clip}", [], solver=DPSGDA(clip=clip))

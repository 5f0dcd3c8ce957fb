"""AUCFairClassifier: as a user gets it, with other objectives, and as the paper formulates it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from benchmarks.objectives.auc_fair import ALPHA, Fitted
from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.solvers import QCQP, LevelSet

# True gaps do not follow the slack of a surrogate: from 0.01 to where it no longer binds.
SURROGATE_SLACKS = [0.01, 0.1, 0.3, 0.6, 1.0]
WIDE = [0.2, 0.3]  # where others have points too, which want a frontier to be compared with


def method(
    name: str,
    *,
    only: list[float] | None = None,
    besides: list[float] | None = None,
    surrogate: str = "soft_bins",
    **options: Any,
) -> SimpleNamespace:
    """The classifier with these parameters, at the slacks asked for and `besides`, or `only`."""

    def slacks(notion: str, asked: list[float]) -> list[float]:
        return only or sorted({*asked, *(besides or [])})

    def fit(
        X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int
    ) -> Fitted:
        params = {"slack": slack, "alpha": ALPHA, "random_state": seed, **options}
        model = AUCFairClassifier(AUCParity(notion, surrogate=surrogate), **params)
        model.fit(X, y, sensitive_features=sensitive_features)
        return Fitted(lambda X, groups: model.decision_function(X))

    return SimpleNamespace(METHOD=name, OBJECTIVES=["auc_fair"], slacks=slacks, fit=fit)


SOLVERS = {
    "auc_default": method("fairconstrained, AUC", besides=WIDE),
    # With probabilities of its own, under the AUCs of normal scores.
    "auc_log_loss": method("fairconstrained, log loss", objective="log", surrogate="binormal"),
    # The slack is narrowed by one standard error of the training gap.
    "auc_with_margin": method("fairconstrained, AUC, margin 1", margin=1.0),
    # Quadratic surrogates of all AUCs (Yao, Lin, Yang 2023), solved exactly from group moments.
    "auc_surrogate_exact": method(
        "quadratic surrogate, exact", only=SURROGATE_SLACKS, surrogate="quadratic", solver=QCQP()
    ),
    # The same by the paper's method, stochastic feasible level sets. Batches of 100 and a step size
    # c / sqrt(t + 1) are the paper's, with the c of its {0.01, 0.1, 1} that does not diverge (in
    # whitened coordinates); theta is 1.1, because the theory asks for more than 1. Ten levels of
    # 1,000 steps end far from its optimum on a9a, and take longer than all other methods.
    "auc_level_set": method(
        "level sets",
        only=SURROGATE_SLACKS,
        surrogate="quadratic",
        solver=LevelSet(step_size=0.01, max_levels=10),
    ),
}

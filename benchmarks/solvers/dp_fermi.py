"""DPFermiClassifier as a user gets it, private and not."""

import math
from collections.abc import Callable
from typing import Any

from benchmarks.objectives.dp_fermi import DELTA
from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import DPFermiClassifier

METHOD = "DPFermiClassifier"
OBJECTIVES = ["dp_fermi"]


def epsilons(unit: str, asked: list[float]) -> list[float]:
    """Every budget; and none, once."""
    return [*asked, math.nan] if unit == "sensitive_features" else asked


def fit_with(**options: Any) -> Callable[..., Fitted]:
    """Give a training with these parameters, all others being the default."""

    def fit(
        X: Any,
        y: Any,
        sensitive_features: Any,
        *,
        notion: str,
        unit: str,
        epsilon: float,
        penalty: float,
        seed: int,
    ) -> Fitted:
        model = DPFermiClassifier(
            notion,
            penalty=penalty,
            epsilon=None if math.isnan(epsilon) else epsilon,
            delta=DELTA,
            protect=unit,
            random_state=seed,
            **{"alpha": ALPHA, **options},
        )
        model.fit(X, y, sensitive_features=sensitive_features)
        return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)

    return fit


fit = fit_with()

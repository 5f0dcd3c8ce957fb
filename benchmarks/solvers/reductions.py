"""fairlearn's ExponentiatedGradient on LogisticRegression (Agarwal et al. 2018).

Its predictions are random: each row draws one of the trained classifiers. Errors and rates are
expectations over these draws. Its `difference_bound`, here the slack, bounds each group's rate
against that of everybody, so the gap between two groups may reach twice the slack; and it
guarantees the bound only up to its own `eps` and duality gap. Compare at equal violation.
"""

from typing import Any

import numpy as np
from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
from numpy.typing import NDArray

from benchmarks.objectives.rate_constrained import Fitted, base_model, dense

METHOD = "reductions"
OBJECTIVES = ["rate_constrained"]
MOMENTS = {"demographic_parity": DemographicParity, "equalized_odds": EqualizedOdds}


def slacks(notion: str, asked: list[float]) -> list[float]:
    """It has parity notions, but no caps."""
    return asked if notion in MOMENTS else []


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train with fairlearn's defaults."""
    moment = MOMENTS[notion](difference_bound=slack)
    model = ExponentiatedGradient(base_model(len(y)), moment)
    model.fit(dense(X), y, sensitive_features=sensitive_features)

    def acceptance(X: Any, groups: Any) -> NDArray[np.float64]:
        return model._pmf_predict(dense(X))[:, 1].clip(0, 1)  # the public predict only draws

    return Fitted(acceptance, bool(model.best_gap_ < model.nu))

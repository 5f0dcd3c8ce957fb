"""fairlearn's ThresholdOptimizer on a LogisticRegression that is already trained.

It picks a threshold, or a mixture of two, for each group: unlike the other methods it needs
everybody's group to predict. Its predictions are random where it mixes; errors and rates are
expectations over these draws. Its grid of 1,000 thresholds limits how exactly parity is reached.
"""

from typing import Any

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from numpy.typing import NDArray

from benchmarks.objectives.rate_constrained import Fitted, base_model, dense

METHOD = "threshold optimizer"
OBJECTIVES = ["rate_constrained"]


def slacks(notion: str, asked: list[float]) -> list[float]:
    """Demographic parity up to a tolerance, equalized odds exactly, no caps."""
    return {"demographic_parity": asked, "equalized_odds": [0.0]}.get(notion, [])


def fit(X: Any, y: Any, sensitive_features: Any, *, notion: str, slack: float, seed: int) -> Fitted:
    """Train the model, then choose the thresholds."""
    model = ThresholdOptimizer(
        estimator=base_model(len(y)).fit(dense(X), y),
        constraints=notion,
        prefit=True,
        predict_method="predict_proba",
        tol=slack or None,
    )
    model.fit(dense(X), y, sensitive_features=sensitive_features)

    def acceptance(X: Any, groups: Any) -> NDArray[np.float64]:
        # The public predict only draws.
        return model._pmf_predict(dense(X), sensitive_features=groups)[:, 1].clip(0, 1)

    return Fitted(acceptance)

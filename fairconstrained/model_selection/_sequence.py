"""The order in which candidates for a certificate are trained and tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier

__all__ = ["CAUTION", "in_sequence"]

Parameters = Mapping[str, Any]
KEPT = 0.05, 0.1, 0.2, 0.35, 0.5, 0.75  # of the rarer decisions: what weaker models keep
# Of the probability of error: a candidate that holds on its own samples with so little may still
# fail on others. Chosen on generated samples and samples of Adult that the evidence does not use.
CAUTION = 0.02


def in_sequence(
    candidates: Sequence[Parameters],
    fit: Callable[[Parameters], Any],
    holds: Callable[[Any], bool],
    X: Any,
) -> Iterator[tuple[Parameters, Any]]:
    """Fitted models from the strictest on, each trained when it is asked for.

    Rates near 0 and 1 vary little, so that a model which hardly ever takes the rarer of its two
    decisions needs few samples for a certificate. Where the strictest candidate does not even hold
    (`holds`) on the training samples X, such models come first: its own scores with thresholds that
    keep fractions of these decisions. The order depends on the training samples alone.
    """
    strictest = fit(candidates[0])
    if not holds(strictest):
        yield from _weaker(strictest, X)
    yield candidates[0], strictest
    for parameters in candidates[1:]:
        yield parameters, fit(parameters)


def _weaker(model: Any, X: Any) -> Iterator[tuple[Parameters, Any]]:
    """The model with thresholds at which it takes the rarer decision less often."""
    if len(model.classes_) != 2 or not hasattr(model, "decision_function"):
        return
    scores = np.asarray(model.decision_function(X))
    sign = 1.0 if (scores > 0).mean() <= 0.5 else -1.0
    rarer = np.sort(scores[sign * scores > 0] * sign)
    for kept in KEPT if len(rarer) else ():
        threshold = sign * float(np.quantile(rarer, 1.0 - kept))
        weaker = FixedThresholdClassifier(
            FrozenEstimator(model), threshold=threshold, response_method="decision_function"
        )
        yield {"threshold": threshold}, weaker.fit(X, model.predict(X))

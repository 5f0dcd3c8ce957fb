"""The interface of a family of boosters: fits whose rounds take gradients of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fairconstrained.arrays import Floats, Ints

# A function of the raw scores (n, K) before each round, from the first to one after the last, and
# of gradient and Hessian (n, K) of the booster's loss there, which it completes in place. It
# returns whether to stop before this round.
Step = Callable[[Floats, Floats, Floats], bool]
# A function that makes a booster a plain one, of its first rounds, with raw scores higher by (K,).
Finish = Callable[[int, Floats], None]


class Family:
    """Boosters of one class, with log odds of two classes, or a score for each, as raw scores."""

    rounds: ClassVar[str]  # the parameter with the number of rounds
    replaced: ClassVar[tuple[str, ...]]  # parameters that a fit sets

    def refusal(self, estimator: Any) -> str | None:
        """Return why this booster cannot be constrained, or None if it can."""
        raise NotImplementedError

    def patience(self, estimator: Any, n_rows: int) -> int | None:
        """Return the rounds without a better one after which the booster ends, or None."""
        rounds = estimator.get_params().get("early_stopping_rounds")
        return None if rounds is None else int(rounds)

    def learning_rate(self, estimator: Any) -> float:
        """Return the factor on the values of leaves."""
        return float(estimator.learning_rate)

    def n_rounds(self, estimator: Any) -> int:
        """Return the number of rounds."""
        return int(getattr(estimator, self.rounds))

    def fit(
        self,
        estimator: Any,
        X: Any,
        y: NDArray[Any],
        weight: Floats | None,
        start: Floats,
        step: Step,
    ) -> Finish:
        """Fit the booster in place from raw scores `start`, (K,), until `step` says stop."""
        raise NotImplementedError


class LogLoss:
    """Gradient and Hessian of the log loss, (n, K); that of K > 1 classes is times a factor."""

    def __init__(self, y: NDArray[Any], factor: float):
        self.code: Ints = np.unique(y, return_inverse=True)[1].reshape(-1)
        self.factor = factor

    def __call__(self, raw: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
        if raw.shape[1] == 1:
            p = expit(raw)
            gradient, hessian = p - self.code[:, None], p * (1.0 - p)
        else:
            p = softmax(raw, axis=1)
            gradient, hessian = p.copy(), self.factor * p * (1.0 - p)
            gradient[np.arange(len(raw)), self.code] -= 1.0
        if weight is not None:
            gradient *= weight[:, None]
            hessian *= weight[:, None]
        return gradient, hessian

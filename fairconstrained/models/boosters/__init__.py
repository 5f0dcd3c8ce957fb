"""Boosters whose rounds accept our gradients, one file for each library."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fairconstrained.arrays import Floats, Ints

# The file with the family of a class, and of its subclasses, by the library and the class. A file
# imports its library, which may not be installed.
FAMILIES = {
    "sklearn.HistGradientBoostingClassifier": "hist_gradient",
    "lightgbm.LGBMClassifier": "light_gbm",
    "xgboost.XGBClassifier": "xg_boost",
}
# A function of the raw scores (n, K) before each round, from the first to one after the last, and
# of gradient and Hessian (n, K) of the booster's loss there, which it completes in place. It
# returns whether to stop before this round.
Step = Callable[[Floats, Floats, Floats], bool]
# A function that cuts a booster to its first rounds, as a plain one, and raises raw scores by (K,).
Finish = Callable[[int, Floats], None]
# Boosters with automatic early stopping stop early from so many rows on. scikit-learn's begin at
# 10,000, but a hundred rounds memorise fewer rows (decisions: boosters stop early).
MANY_ROWS = 2_000


class Task(NamedTuple):
    """The rows that a booster is trained on, its first scores, and a step before each round."""

    X: Any
    y: NDArray[Any]  # labels, (n,)
    weight: Floats | None  # of each row in the loss, (n,)
    start: Floats  # raw scores of all rows before the first round, (K,)
    step: Step

    @property
    def starts(self) -> Floats:
        """Raw scores of each row before the first round, (n, K)."""
        return np.tile(self.start, (len(self.y), 1))


class Family:
    """Boosters of one library, whose raw scores are log odds of two classes or scores of each."""

    rounds: ClassVar[str]  # the parameter with the number of rounds
    other_names: ClassVar[tuple[str, ...]] = ()  # its other names, which override it
    replaced: ClassVar[tuple[str, ...]]  # parameters that a fit sets
    stops: ClassVar[tuple[str, ...]] = ("early_stopping_rounds",)  # parameters of patience

    def refusal(self, estimator: Any) -> str | None:
        """Return why this booster cannot be constrained, or None if it can."""
        raise NotImplementedError

    def patience(self, estimator: Any, n_rows: int) -> int | None:
        """Return the rounds without improvement after which the booster stops, or None."""
        params = estimator.get_params()
        rounds = max(int(params.get(name) or 0) for name in self.stops)
        return rounds if rounds > 0 else None

    def learning_rate(self, estimator: Any) -> float:
        """Return the factor on the values of leaves."""
        return float(estimator.learning_rate)

    def n_rounds(self, estimator: Any) -> int:
        """Return the number of rounds."""
        params = estimator.get_params()
        names = (*self.other_names, self.rounds)
        return int(next((params[name] for name in names if params.get(name) is not None), 0))

    def set_rounds(self, estimator: Any, number: int) -> None:
        """Set the number of rounds under each name that the booster has for it."""
        params = estimator.get_params()
        setattr(estimator, self.rounds, number)  # set_params of LightGBM does more
        names = (name for name in self.other_names if params.get(name) is not None)
        estimator.set_params(**dict.fromkeys(names, number))

    def fit(self, estimator: Any, task: Task) -> Finish:
        """Fit the booster in place until the step returns True."""
        raise NotImplementedError


class Objective:
    """The log loss as an objective of LightGBM and XGBoost, whose terms the step completes.

    LightGBM counts the parameters of a call, XGBoost names them. Each library multiplies the
    Hessian of K > 1 classes by a factor of its own.
    """

    def __init__(self, task: Task, factor: float):
        self.code: Ints = np.unique(task.y, return_inverse=True)[1].reshape(-1)
        self.step, self.factor = task.step, factor
        self.stopped = False  # by the step

    def __deepcopy__(self, memo: Any) -> Self:
        """Return the objective itself: LightGBM copies its parameters, but not our state."""
        return self

    def __call__(
        self, y_true: Any, scores: Any, sample_weight: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return gradient and Hessian by the scores, in their shape."""
        raw = np.asarray(scores, dtype=float).reshape(len(y_true), -1)
        if raw.shape[1] == 1:
            p = expit(raw)
            gradient, hessian = p - self.code[:, None], p * (1.0 - p)
        else:
            p = softmax(raw, axis=1)
            gradient, hessian = p.copy(), self.factor * p * (1.0 - p)
            gradient[np.arange(len(raw)), self.code] -= 1.0
        if sample_weight is not None:
            gradient *= sample_weight[:, None]
            hessian *= sample_weight[:, None]
        self.stopped = self.step(raw, gradient, hessian)
        return gradient.reshape(scores.shape), hessian.reshape(scores.shape)


def family_of(estimator: Any) -> Family | None:
    """Return the family that a booster belongs to, or None for other models."""
    for cls in type(estimator).__mro__:
        file = FAMILIES.get(f"{cls.__module__.partition('.')[0]}.{cls.__name__}")
        if file is not None:
            family: Family = import_module(f"{__name__}.{file}").FAMILY
            return family
    return None

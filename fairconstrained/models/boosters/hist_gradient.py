"""scikit-learn's HistGradientBoostingClassifier, whose parameter ``loss`` may be an object."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn

from fairconstrained.arrays import Floats
from fairconstrained.models.boosters import MANY_ROWS, Family, Finish, Task


class _Stopped(Exception):
    """Raised to end a fit before a round."""


class HistGradient(Family):
    """Fit with a loss object, by interfaces of scikit-learn 1.6.1 to 1.9 that are not public."""

    rounds = "max_iter"
    replaced = ("loss", "max_iter", "early_stopping")

    def refusal(self, estimator: Any) -> str | None:
        try:
            from sklearn._loss.loss import BaseLoss

            takes_object = BaseLoss in type(estimator)._parameter_constraints["loss"]
        except (ImportError, AttributeError, KeyError):
            takes_object = False
        if not takes_object:
            return (
                f"scikit-learn {sklearn.__version__} gives its booster no loss object, through "
                "which rounds are constrained: take LGBMClassifier, XGBClassifier or Posteriors"
            )
        estimator._validate_params()
        if estimator.loss != "log_loss":
            return f"loss must be 'log_loss'; got {estimator.loss!r}"
        if estimator.warm_start:
            return "warm_start must be False, since rounds are counted from the first"
        return None

    def patience(self, estimator: Any, n_rows: int) -> int | None:
        stops = estimator.early_stopping
        stops = n_rows >= MANY_ROWS if stops == "auto" else stops
        return int(estimator.n_iter_no_change) if stops else None

    def fit(self, estimator: Any, task: Task) -> Finish:
        from sklearn._loss.loss import HalfBinomialLoss, HalfMultinomialLoss

        size = len(task.start)
        loss = HalfBinomialLoss() if size == 1 else HalfMultinomialLoss(n_classes=size)
        terms_of = loss.gradient_hessian

        def gradient_hessian(*, y_true: Any, raw_prediction: Any, **options: Any) -> Any:
            terms = terms_of(y_true=y_true, raw_prediction=raw_prediction, **options)
            raw, *views = (a.reshape(len(y_true), -1) for a in (raw_prediction, *terms))
            if task.step(raw, *views):
                raise _Stopped
            return terms

        loss.gradient_hessian = gradient_hessian
        loss.fit_intercept_only = lambda **_: task.start
        estimator.loss, estimator.max_iter = loss, self.n_rounds(estimator) + 1
        estimator.early_stopping = False
        try:
            estimator.fit(task.X, task.y, sample_weight=task.weight)
        except _Stopped:
            del estimator._in_fit

        predictors, baseline = estimator._predictors, estimator._baseline_prediction

        def finish(n_rounds: int, shift: Floats) -> None:
            estimator._predictors = predictors[:n_rounds]
            estimator._baseline_prediction = baseline + shift
            estimator._loss = estimator._get_loss(sample_weight=None)
            estimator.train_score_ = estimator.validation_score_ = np.empty(0)

        return finish


FAMILY = HistGradient()

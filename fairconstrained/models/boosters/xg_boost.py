"""XGBoost's classifier, whose parameter ``objective`` may be a function."""

from __future__ import annotations

import json
from typing import Any

import xgboost

from fairconstrained.arrays import Floats
from fairconstrained.models.boosters import Family, Finish, Objective, Task

# The default of XGBoost, which its estimators leave None.
_RATE = 0.3


class XGBoost(Family):
    """Fit with a function as objective, then read the first rounds from the JSON of the trees."""

    rounds = "n_estimators"
    replaced = ("objective", "n_estimators", "base_score", "callbacks", "early_stopping_rounds")

    def refusal(self, estimator: Any) -> str | None:
        if estimator.booster not in (None, "gbtree"):
            return f"booster must be 'gbtree', whose trees stay; got {estimator.booster!r}"
        if estimator.objective not in (None, "binary:logistic", "multi:softprob"):
            return f"objective must be None, for the log loss; got {estimator.objective!r}"
        if (trees := estimator.get_xgb_params().get("num_parallel_tree")) not in (None, 1):
            return f"num_parallel_tree must be 1, and no random forest; got {trees!r}"
        if estimator.scale_pos_weight not in (None, 1):
            return "scale_pos_weight is for XGBoost's own objective: give sample_weight to fit"
        return None

    def learning_rate(self, estimator: Any) -> float:
        params = estimator.get_xgb_params()
        rates = (params[name] for name in ("learning_rate", "eta") if params.get(name) is not None)
        return float(next(rates, _RATE))

    def n_rounds(self, estimator: Any) -> int:
        return int(estimator.get_num_boosting_rounds())

    def fit(self, estimator: Any, task: Task) -> Finish:
        n_outputs, objective = len(task.start), Objective(task, 2.0)

        class After(xgboost.callback.TrainingCallback):
            """Ends the fit after the round before which the step returned True."""

            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return objective.stopped

        estimator.objective, estimator.n_estimators = objective, self.n_rounds(estimator) + 1
        estimator.base_score = 0.5  # the score zero, in whose place the fit has `starts`
        estimator.callbacks = [*(estimator.callbacks or ()), After()]
        estimator.early_stopping_rounds = None
        estimator.fit(task.X, task.y, sample_weight=task.weight, base_margin=task.starts)

        booster = estimator.get_booster()

        def finish(n_rounds: int, shift: Floats) -> None:
            model = json.loads(bytes(booster[:n_rounds].save_raw("json")))
            trees = model["learner"]["gradient_booster"]["model"]["trees"][:n_outputs]
            for tree, by in zip(trees, task.start + shift, strict=True):
                for node, child in enumerate(tree["left_children"]):
                    if child == -1:
                        tree["split_conditions"][node] += float(by)
            estimator.objective = "binary:logistic" if n_outputs == 1 else "multi:softprob"
            estimator._Booster = xgboost.Booster(model_file=bytearray(json.dumps(model).encode()))

        return finish


FAMILY = XGBoost()

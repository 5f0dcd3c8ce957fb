"""LightGBM's classifier, whose parameter ``objective`` may be a function."""

from __future__ import annotations

from typing import Any

import lightgbm

from fairconstrained.arrays import Floats
from fairconstrained.models.boosters import Family, Finish, Objective, Task

# Parameters under all their names, the values with which rounds can be constrained, and why.
_RULES = (
    (("boosting_type", "boosting", "boost"), (None, "gbdt"), "must be 'gbdt', whose trees stay"),
    (("objective",), (None, "binary", "multiclass"), "must be None, for the log loss"),
    (("objective_type", "application", "app", "loss"), (None,), "must be None, for the log loss"),
    (("linear_tree", "linear_trees"), (None, False), "must be False"),
    *(
        (names, (None, idle), "is for LightGBM's own objective: use class_weight")
        for names, idle in (
            (("is_unbalance", "unbalance", "unbalanced_sets"), False),
            (("scale_pos_weight", "sigmoid"), 1),
            (("pos_bagging_fraction", "pos_sub_row", "pos_subsample", "pos_bagging"), 1),
            (("neg_bagging_fraction", "neg_sub_row", "neg_subsample", "neg_bagging"), 1),
        )
    ),
)


class LightGBM(Family):
    """Fit with a function as objective, then read the first rounds from the text of the trees."""

    rounds = "n_estimators"
    replaced = ("objective", "n_estimators")
    other_names = (
        "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round",
        "num_rounds", "nrounds", "num_boost_round", "max_iter",
    )  # fmt: skip
    stops = ("early_stopping_rounds", "early_stopping_round", "early_stopping", "n_iter_no_change")

    def refusal(self, estimator: Any) -> str | None:
        params = estimator.get_params()
        refused = (
            f"{name} {why}; got {params[name]!r}"
            for names, allowed, why in _RULES
            for name in names
            if params.get(name) not in allowed
        )
        return next(refused, None)

    def fit(self, estimator: Any, task: Task) -> Finish:
        n_outputs = len(task.start)
        objective = Objective(task, n_outputs / max(n_outputs - 1, 1))
        trees = [0]  # rounds that have trees: those without a split have none

        def after(env: Any) -> None:
            trees.append(env.model.current_iteration())
            if objective.stopped:
                raise lightgbm.callback.EarlyStopException(env.iteration, [])

        params = estimator.get_params()
        names = (*self.stops, *self.other_names)
        before = {name: params[name] for name in names if params.get(name) is not None}
        self.set_rounds(estimator, self.n_rounds(estimator) + 1)
        # There are no rows to validate on.
        estimator.set_params(**{name: None for name in self.stops if name in before})
        estimator.objective = estimator._objective = objective
        try:
            estimator.fit(
                *(task.X, task.y, task.weight),
                init_score=task.starts[:, 0] if n_outputs == 1 else task.starts,
                callbacks=[after],
            )
        except lightgbm.basic.LightGBMError as error:
            if "num_features" not in str(error):
                raise
            raise ValueError(
                "LightGBM finds no column of X to split: each has one value, or would leave fewer "
                f"than min_child_samples of {len(task.y)} rows on a side."
            ) from error
        estimator.set_params(**before)

        booster = estimator.booster_

        def finish(n_rounds: int, shift: Floats) -> None:
            text = booster.model_to_string(num_iteration=trees[n_rounds])
            plain = "binary sigmoid:1" if n_outputs == 1 else f"multiclass num_class:{n_outputs}"
            text = text.replace("\nfeature_names=", f"\nobjective={plain}\nfeature_names=", 1)
            model = estimator._Booster = lightgbm.Booster(model_str=text)
            first = model.dump_model(num_iteration=1)["tree_info"]
            for k, (tree, by) in enumerate(zip(first, task.start + shift, strict=True)):
                for leaf in range(tree["num_leaves"]):
                    model.set_leaf_output(k, leaf, model.get_leaf_output(k, leaf) + float(by))
            estimator._objective, estimator._best_iteration = plain.partition(" ")[0], 0

        return finish


FAMILY = LightGBM()

"""LightGBM's classifier, whose parameter ``objective`` may be a function."""

from __future__ import annotations

from typing import Any

import lightgbm

from fairconstrained.arrays import Floats
from fairconstrained.models.boosters.family import Family, Finish, Objective, Task

# Parameters of objectives of LightGBM, which a function as objective does not read, and the values
# with which they do nothing.
_UNREAD = {
    **dict.fromkeys(("is_unbalance", "unbalance", "unbalanced_sets"), (None, False)),
    **dict.fromkeys(("scale_pos_weight", "sigmoid"), (None, 1)),
}


class LightGBM(Family):
    """Fits with a function as objective; what remains is read from the text of its trees."""

    rounds = "n_estimators"
    replaced = ("objective", "n_estimators")

    def refusal(self, estimator: Any) -> str | None:
        params = estimator.get_params()
        if estimator.boosting_type != "gbdt":
            return (
                f"boosting_type must be 'gbdt', whose trees stay; got {estimator.boosting_type!r}"
            )
        if estimator.objective not in (None, "binary", "multiclass"):
            return f"objective must be None, for the log loss; got {estimator.objective!r}"
        if params.get("linear_tree"):
            return "linear_tree must be False"
        unread = [name for name, idle in _UNREAD.items() if params.get(name) not in idle]
        return f"{unread[0]} is for LightGBM's own objective: use class_weight" if unread else None

    def fit(self, estimator: Any, task: Task) -> Finish:
        n_outputs = len(task.start)
        objective = Objective(task, n_outputs / max(n_outputs - 1, 1))
        trees = [0]  # rounds that have trees: those without a split have none

        def after(env: Any) -> None:
            trees.append(env.model.current_iteration())
            if objective.stopped:
                raise lightgbm.callback.EarlyStopException(env.iteration, [])

        estimator.objective = estimator._objective = objective
        estimator.n_estimators = self.n_rounds(estimator) + 1
        estimator.fit(
            *(task.X, task.y, task.weight),
            init_score=task.starts[:, 0] if n_outputs == 1 else task.starts,
            callbacks=[after],
        )

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

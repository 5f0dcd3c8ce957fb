"""The quasi-Seldonian algorithm of ``seldonian-engine`` on trials of ``benchmarks.certificates``.

    python -m benchmarks.certificates --export results/trials --rows 2000 10000
    python3.9 -m venv engine && engine/bin/pip install seldonian-engine==0.8.11
    engine/bin/python -m benchmarks.seldonian results/trials

It needs Python 3.9, and nothing of this package: an interpreter of its own reads the exported rows.
Of each sample 40 % choose a candidate and 60 % test it, the engine's default. Methods:

- ``engine``: the engine's defaults (200 steps of Adam on loss and bounds), started from logistic
  regression. Its rates are means of predicted *probabilities*. So its certificate is about labels
  drawn with these probabilities, and their rates and error are measured on the population;
- ``engine_powell``: a barrier on the rates of predicted labels, with Powell's method, which needs
  no derivatives (Thomas et al. 2019).

Each training is a row of the same table that ``benchmarks.certificates`` writes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from seldonian.dataset import SupervisedDataSet, SupervisedMetaData
from seldonian.models.models import BinaryLogisticRegressionModel
from seldonian.models.objectives import binary_logistic_loss
from seldonian.parse_tree.parse_tree import make_parse_trees_from_constraints
from seldonian.safety_test.safety_test import SafetyTest
from seldonian.seldonian_algorithm import SeldonianAlgorithm
from seldonian.spec import SupervisedSpec

from benchmarks.results import append, finished

SAFETY = 0.6  # of the rows, the default of SupervisedSpec
ERROR = 0.05
CONSTRAINTS = {
    "demographic_parity": "abs((PR | [a]) - (PR | [b])) <= {}",
    "equalized_odds": ("max(abs((TPR | [a]) - (TPR | [b])), abs((FPR | [a]) - (FPR | [b]))) <= {}"),
    "false_negative_rate": "FNR <= {}",
}
KEY = ("population", "constraint", "n_rows", "training", "draws", "method")
COLUMNS = (*KEY, "certified", "violating", "better", "error", "seconds")


class Exported(NamedTuple):
    """A population, and the slack of each constraint."""

    name: str
    X: Any
    y: Any
    group: Any
    slacks: dict

    def rows(self, chosen: Any) -> SupervisedDataSet:
        """Some rows as the engine reads them."""
        names = [f"x{j}" for j in range(self.X.shape[1])]
        meta = SupervisedMetaData(
            sub_regime="classification",
            all_col_names=[*names, "label", "a", "b"],
            feature_col_names=names,
            label_col_names=["label"],
            sensitive_col_names=["a", "b"],
        )
        group = self.group[chosen]
        return SupervisedDataSet(
            features=self.X[chosen],
            labels=self.y[chosen].astype(float),
            sensitive_attrs=np.stack((group == 0, group == 1), axis=1).astype(int),
            num_datapoints=len(group),
            meta=meta,
        )

    def violation(self, constraint: str, predicted: Any) -> float:
        """The gap or rate of what is predicted for all rows, labels or probabilities."""
        a, b = self.group == 0, self.group == 1

        def gap(of: Any) -> float:
            return abs(float(predicted[a & of].mean() - predicted[b & of].mean()))

        if constraint == "demographic_parity":
            return gap(np.ones(len(self.y), dtype=bool))
        if constraint == "equalized_odds":
            return max(gap(self.y == 0), gap(self.y == 1))
        return 1.0 - float(predicted[self.y == 1].mean())

    def constant(self, constraint: str) -> float:
        """The error of the best constant that keeps the constraint."""
        always_one = 1.0 - float(self.y.mean())
        cap = constraint == "false_negative_rate"
        return always_one if cap else min(always_one, 1.0 - always_one)


class Labels(BinaryLogisticRegressionModel):
    """The linear model whose rates are those of predicted labels."""

    def predict(self, theta: Any, X: Any) -> Any:
        """Zeros and ones."""
        return (theta[0] + X @ theta[1:] > 0).astype(float)


def _log_loss(model: Any, theta: Any, X: Any, y: Any, **_: Any) -> float:
    return float(np.logaddexp(0.0, (1 - 2 * y) * (theta[0] + X @ theta[1:])).mean())


METHODS = {
    "engine": {  # as ``createSimpleSupervisedSpec`` sets it
        "model": BinaryLogisticRegressionModel(),
        "primary_objective": binary_logistic_loss,
        "optimization_technique": "gradient_descent",
        "optimizer": "adam",
        "optimization_hyperparams": {
            "lambda_init": 0.5,
            "alpha_theta": 0.005,
            "alpha_lamb": 0.005,
            "beta_velocity": 0.9,
            "beta_rmsprop": 0.95,
            "num_iters": 200,
            "gradient_library": "autograd",
            "use_batches": False,
            "hyper_search": None,
            "verbose": False,
        },
    },
    "engine_powell": {
        "model": Labels(),
        "primary_objective": _log_loss,
        "optimization_technique": "barrier_function",
        "optimizer": "Powell",
        "optimization_hyperparams": {"maxiter": 1000, "verbose": False},
    },
}


def trials(of: Exported, constraint: str, samples: Any, method: str) -> dict:
    """Choose a candidate on a part of the first sample, test it on the other part of each."""
    start = time.process_time()
    settings, slack = METHODS[method], of.slacks[constraint]
    n_train = samples.shape[1] - int(SAFETY * samples.shape[1])
    tests = [of.rows(rows[n_train:]) for rows in samples]
    trees = make_parse_trees_from_constraints(
        [CONSTRAINTS[constraint].format(slack)],
        [ERROR],
        sub_regime="classification",
        columns=["a", "b"],
    )
    spec = SupervisedSpec(
        dataset=None,
        candidate_dataset=of.rows(samples[0, :n_train]),
        safety_dataset=tests[0],
        parse_trees=trees,
        sub_regime="classification",
        initial_solution_fn=BinaryLogisticRegressionModel.fit,
        **settings,
    )
    algorithm = SeldonianAlgorithm(spec)
    algorithm.set_initial_solution()
    theta = algorithm.run_candidate_selection()
    found = {"certified": 0, "violating": 0, "better": 0, "error": float("nan")}
    if not isinstance(theta, str):  # "NSF": nothing finite was found
        model = settings["model"]
        for test in tests:
            trees[0].reset_base_node_dict(reset_data=True)  # else the bounds of the last test stay
            found["certified"] += int(SafetyTest(test, model, trees).run(theta))
        predicted = model.predict(theta, of.X)
        found["violating"] = found["certified"] * int(of.violation(constraint, predicted) > slack)
        if found["certified"]:
            found["error"] = float(np.abs(predicted - of.y).mean())
            found["better"] = found["certified"] * int(found["error"] < of.constant(constraint))
    return {**found, "seconds": round(time.process_time() - start, 3)}


def main() -> None:
    """Run the trials that are missing, on everything in a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--constraints", nargs="+", choices=CONSTRAINTS, default=list(CONSTRAINTS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--output", type=Path, default=Path("results/certificates.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = finished(options.output, KEY)
    for path in sorted(options.folder.glob("population-*.npz")):
        stored = np.load(path)
        name = path.stem[len("population-") :]
        slacks = {constraint: float(stored[constraint]) for constraint in CONSTRAINTS}
        of = Exported(name, stored["X"], stored["y"], stored["group"], slacks)
        for file in sorted(options.folder.glob(f"{name}-*.npy")):
            n_rows, training = file.stem[len(name) + 1 :].split("-")
            samples = np.load(file)
            for constraint in options.constraints:
                for method in options.methods:
                    key = (name, constraint, n_rows, training, str(len(samples)), method)
                    if key not in done:
                        found = trials(of, constraint, samples, method)
                        row = {**dict(zip(KEY, key)), **found}  # noqa: B905 (Python 3.9)
                        append(options.output, row, COLUMNS, KEY)


if __name__ == "__main__":
    main()

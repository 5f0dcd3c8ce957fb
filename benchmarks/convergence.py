"""How near private fits come to a stationary point: ``python -m benchmarks.convergence``.

The squared norm of the exact gradient of loss plus ERMI at the result of a private fit, on
synthetic data of growing n: the theory of DP-FERMI (Theorem 3.4) bounds it by a multiple of
sqrt(max(d, k l) log(1/delta)) / (epsilon n). Written as a table, and drawn beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import results
from benchmarks.frontier import markdown
from fairconstrained import DPFermiClassifier
from fairconstrained.constraints import DemographicParity, Space, Stack
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.datasets import make_biased_classification
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import as_features
from fairconstrained.problems import Batch
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.membership import Members
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers import DPFERMI, LBFGS, ReleasedMoments, Solver

_PENALTY, _ALPHA, _COLUMNS = 2.0, 1e-4, 6


def methods(n: int) -> dict[str, tuple[str, Solver]]:
    """Solvers for n rows, with the steps that theory asks for: more of them, and smaller ones.

    The clip is above the norms of these rows' gradients: a clip that binds has a bias that no
    number of rows undoes. The penalty is that of class probabilities, as in the theory; by default
    it is that of predicted labels, whose stationary points are others.
    """
    steps = max(400, n // 16)
    many: dict[str, Any] = {"clip": 5.0, "table": "probabilities"}
    few = many | {"batch_size": 64, "n_steps": steps, "step_size": (400 / steps) ** 0.5}
    return {
        "ReleasedMoments": ("sensitive_features", ReleasedMoments(inner=LBFGS())),
        "DPFERMI": ("sensitive_features", DPFERMI(**many)),
        "DPFERMI, batches of 64": ("sensitive_features", DPFERMI(**few)),
        "DPFERMI, record": ("record", DPFERMI(step_size=1.0, **many)),
        "DPFERMI, record, batches of 64": ("record", DPFERMI(**few)),
    }


def exact_gradient(clf: DPFermiClassifier, data: Batch) -> float:
    """Squared norm of the gradient of loss plus ERMI, in the columns as given."""
    space = Space([0, 1], [0, 1])
    stack = Stack(space, [DemographicParity().bind(space, 1.0)])
    zeros, ones = torch.zeros(_COLUMNS).double(), torch.ones(_COLUMNS).double()
    rows = Members(data, stack)
    problem = FermiERM(
        LinearModel(1, zeros, ones, True),
        rows,
        MeanLoss(log_loss),
        stack,
        _ALPHA,
        MutualInformation.within(stack, rows.counts()),
        _PENALTY,
    )
    terms = problem.linearize(problem.model.restore(vars(clf)))
    return float((terms.pullback(torch.ones_like(terms.value)) ** 2).sum())


def main(argv: Sequence[str] | None = None) -> None:
    """Write the norms, print their medians and draw them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[2000, 8000, 32000, 128000])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    found = []
    for n in options.rows:
        rows = make_biased_classification(n, _COLUMNS, bias=0.6, random_state=0)
        group = torch.as_tensor(rows.sensitive_features)
        weight = torch.ones(n, dtype=torch.float64)
        data = Batch(as_features(rows.data), torch.as_tensor(rows.target), group, weight)
        for name, (unit, solver) in methods(n).items():
            for seed in range(options.seeds):
                clf = DPFermiClassifier(
                    penalty=_PENALTY,
                    epsilon=options.epsilon,
                    delta=1e-6,
                    protect=unit,
                    solver=solver,
                    alpha=_ALPHA,
                    random_state=seed,
                )
                clf.fit(rows.data, rows.target, sensitive_features=rows.sensitive_features)
                norm = exact_gradient(clf, data)
                found.append({"n": n, "method": name, "seed": seed, "squared norm": norm})
    table = results.save(options.output / "fermi_convergence.csv", found)
    medians = table.groupby(["n", "method"], sort=False)["squared norm"].median().unstack()
    print(markdown(medians.map("{:.3g}".format).reset_index()))
    axes = medians.plot(loglog=True, marker="o")
    axes.set_ylabel("squared gradient norm")
    axes.figure.savefig(options.output / "fermi_convergence.png")


if __name__ == "__main__":
    main()

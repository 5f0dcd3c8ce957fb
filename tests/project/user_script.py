"""A user's script as ``mypy --strict`` sees it; CI checks it, test_package.py runs it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import (
    Cap,
    DemographicParity,
    Event,
    FalseNegativeRate,
    RateConstraint,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.display import TradeoffDisplay
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.metrics import demographic_parity_difference, fairness_scorer
from fairconstrained.model_selection import StratifiedSensitiveKFold, pareto_front, select_feasible
from fairconstrained.privacy import Gaussian, Phase, privacy_spent
from fairconstrained.solvers import ALM, SGDA, Iterate, Solver, cosine
from fairconstrained.training import Trained, train


class SelectionRate(Cap):
    """A notion of the user's own."""

    name = "selection_rate"

    def events(self, classes: Sequence[Any]) -> list[Event]:
        """The second class is predicted."""
        n_classes = len(classes)
        selected = np.zeros((n_classes, n_classes))
        selected[:, 1] = 1.0
        return [Event(np.ones(n_classes), selected)]


def watch(iterate: Iterate) -> bool:
    """A callback that stops when the constraints hold."""
    return bool(iterate.hard[1:].max() <= 0)


def loss(outputs: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
    """A loss of the user's own."""
    return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], batch[1])


def few_positives(outputs: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
    """A constraint of the user's own."""
    return torch.sigmoid(outputs).mean() - 0.4


def main() -> float:
    """Train, measure, choose."""
    data = make_biased_classification(400, random_state=0)
    solver: Solver = SGDA(batch_size=128, n_steps=100)
    constraints = [DemographicParity(slack=0.1), FalseNegativeRate(max=0.5, per_group=True)]
    clf = RateConstrainedClassifier(constraints, solver=solver, callbacks=watch, random_state=0)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    gap: float = demographic_parity_difference(
        data.target, clf.predict(data.data), sensitive_features=data.sensitive_features
    )
    part = {"first": {"group": 0}, "second": {"group": 1}}
    one_sided = RateConstraint(part, [["first"], ["second"]], [[[0, 1], [0, -1]]])
    RateConstrainedClassifier([SelectionRate(max=0.5), one_sided], slack=0.02)
    scorer = fairness_scorer(demographic_parity_difference, method="to_overall")
    chosen = select_feasible("accuracy", "dp", max_violation=0.05)
    folds = StratifiedSensitiveKFold(3)
    front = pareto_front([0.1, 0.2], [0.2, 0.1])
    TradeoffDisplay(error=[0.1, 0.2], violation=[0.2, 0.1], slack=0.05)
    print(scorer, chosen, folds, front.all(), issubclass(ConstraintNotSatisfiedWarning, Warning))
    epsilon: float = privacy_spent([Phase([Gaussian(5.0)])], delta=1e-5)
    rows = (torch.randn(100, 3), torch.ones(100))
    steps = ALM(n_steps=30, optimizer=torch.optim.Adam, schedule=cosine)
    trained: Trained = train(torch.nn.Linear(3, 1), loss, few_positives, rows, solver=steps)
    return gap + epsilon + float(trained.multipliers.sum())


if __name__ == "__main__":
    main()

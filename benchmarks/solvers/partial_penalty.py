"""The paper's penalty method: objective plus weight times the largest gap, by subgradients (G.4).

Paper: steps of a size chosen by validation over 10,000 and more iterations; here: 2,000 normalised
steps that shrink as one over the root of their number, in well-conditioned coordinates.
"""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from benchmarks.objectives.partial_parity import Rows, Scores
from benchmarks.partial_tasks import Task
from benchmarks.solvers.partial_parity import every, fitted
from fairconstrained.problems import Problem
from fairconstrained.solvers import AugmentedLagrangian, Iterate, Solver

METHOD = "penalty"
OBJECTIVES = ["partial_parity"]
WEIGHTS = [0.02, 0.05, 0.1, 0.3, 1.0]
N_STEPS = 2_000


class MaxPenalty(Solver):
    """Minimise f + weight * max(c, 0) by normalised subgradients; the last point counts."""

    length = 20

    def compared_with(self, known):
        return ()  # feasible points are none that a penalty method looks for

    def __init__(self, weight: float, *, n_steps: int, step_size: float = 0.3):
        self.weight = weight
        self.n_steps = n_steps
        self.step_size = step_size

    def iterate(
        self, problem: Problem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield twenty times; the model without constraints is the start."""
        if not len(dual):
            yield from AugmentedLagrangian().iterate(problem, x, dual, tol, rng)
            return
        for step in range(1, self.n_steps + 1):
            terms = problem.linearize(x)
            worst = int(terms.value[1:].argmax())
            weights = torch.zeros_like(terms.value)
            weights[0] = 1.0
            weights[1 + worst] = self.weight * float(terms.value[1 + worst] > 0)
            gradient = terms.pullback(weights)
            x = x - self.step_size / step**0.5 * gradient / gradient.norm().clamp_min(1e-30)
            if step % (self.n_steps // self.length) == 0:
                soft, hard = problem.evaluate(x)
                yield Iterate(x, soft, hard, dual, torch.inf)

    def select(self, iterates: list[Iterate]) -> Iterate:  # type: ignore[override]
        """Keep the last."""
        return iterates[-1]


levels = every


def fit(train: Rows, task: Task, *, notion: str, level: int, seed: int) -> Scores:
    """Train with the gap itself as the penalty: slack 0."""
    solver = MaxPenalty(WEIGHTS[level - 1], n_steps=N_STEPS)
    return fitted(train, constraint=notion, interval=task.interval, slack=0.0, solver=solver)

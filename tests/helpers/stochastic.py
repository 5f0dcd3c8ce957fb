"""What the tests of stochastic algorithms share: a problem of rows, and steps with their draws."""

from dataclasses import dataclass, field

import numpy as np
import torch

from fairconstrained.problems import Evaluation, Linearization
from tests.helpers.numeric import tensor
from tests.helpers.quadratic import QuadraticProblem, SoftIsHard
from tests.helpers.solving import generator


@dataclass
class Rows(SoftIsHard):
    """Row i: f_i = x'x / 2 + q_i'x, c_i = A_i x - b_i; constraints are means of strata's means."""

    n_rows: int = 12
    n_constraints: int = 2
    seed: int = 0
    noise: float = 1.0
    calls: list = field(default_factory=list)
    offsets: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        n, m, d = self.n_rows, self.n_constraints, 3
        self.q = tensor(rng.normal(size=d) * 2 + self.noise * rng.normal(size=(n, d)))
        self.A = tensor(rng.normal(size=(m, d)) + self.noise * rng.normal(size=(n, m, d)))
        self.b = tensor(rng.uniform(0.1, 0.5, size=m) + 0.3 * self.noise * rng.normal(size=(n, m)))
        self.strata = torch.as_tensor(np.arange(n) % 3 == 0).long()  # a third and two thirds
        self.x = tensor(rng.normal(size=d))

    def weights(self, rows, scale):
        """What each row counts, as a share of the table."""
        scale = torch.full((len(rows),), self.n_rows / len(rows)) if scale is None else scale
        return scale.double() / self.n_rows

    def f(self, x, rows, scale=None):
        q = self.weights(rows, scale) @ self.q[rows]
        return 0.5 * x @ x + q @ x, x + q

    def c(self, x, rows, scale=None):
        w = self.weights(rows, scale)
        A = torch.einsum("i,imd->md", w, self.A[rows])
        return A @ x - w @ self.b[rows], A

    def objective(self, x, rows=None):
        self.calls.append(("f", rows, None))
        value, gradient = self.f(x, self.all() if rows is None else rows)
        return Linearization(value[None], lambda v: v * gradient)

    def constraints(self, x, rows=None, scale=None):
        self.calls.append(("c", rows, scale))
        value, jacobian = self.c(x, self.all() if rows is None else rows, scale)
        return Linearization(value, lambda v: v @ jacobian)

    def linearize(self, x, rows=None, scale=None):
        self.calls.append(("fc", rows, scale))
        f, c = self.objective(x, rows), self.constraints(x, rows, scale)
        del self.calls[-2:]
        value = torch.cat((f.value, c.value))
        return Linearization(value, lambda v: f.pullback(v[:1]) + c.pullback(v[1:]))

    def start(self):
        return self.x.clone()

    def all(self):
        return torch.arange(self.n_rows)

    def evaluate(self, x):
        value = torch.cat((self.f(x, self.all())[0][None], self.c(x, self.all())[0]))
        return Evaluation(value, value)

    def quadratic(self):
        q, (c0, A) = self.q.mean(0), self.c(torch.zeros(3).double(), self.all())
        return QuadraticProblem(torch.eye(3).double(), q, A, -c0)


def steps_of(solver, problem, x, dual, n_steps, seed=0):
    """Points and multipliers after each step, and the draws of each."""
    estimates = solver.estimates(problem, generator(seed))
    now, found = solver.begin(estimates, x, dual, n_steps), []
    problem.calls.clear()
    for _ in range(n_steps):
        solver.step(estimates, now)
        now.step += 1
        point = now.output if now.step == n_steps and now.output is not None else now.x
        found.append((point, now.dual, list(problem.calls)))
        problem.calls.clear()
    return found

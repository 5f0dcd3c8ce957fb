"""Quadratic programs as problems of the package, and their solutions by cvxpy."""

from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
import torch

from fairconstrained.problems import Evaluation, FixedSoftness, Linearization, separate_estimates


class SoftIsHard(FixedSoftness):
    """A problem over the whole space that is as sharp as it will be."""

    offers = frozenset({"exact", "sharpness", "more_slack", "draws"})

    def estimates(self, x, rows, *draws):
        return separate_estimates(self, x, rows, *draws)


@dataclass(frozen=True)
class QuadraticProblem(SoftIsHard):
    """Minimise x'Px / 2 + q'x subject to Ax <= b; rows are ignored, hard values are the soft."""

    P: torch.Tensor
    q: torch.Tensor
    A: torch.Tensor
    b: torch.Tensor
    n_rows: int = 1
    offsets: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @classmethod
    def random(cls, seed, n_variables=5, n_constraints=4):
        """Strictly convex; x = 0 is strictly feasible, and far from optimal."""
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(n_variables, n_variables))
        P, q = root @ root.T / n_variables + np.eye(n_variables), 2.0 * rng.normal(size=n_variables)
        A, b = rng.normal(size=(n_constraints, n_variables)), rng.uniform(0.1, 1.0, n_constraints)
        return cls(*map(torch.as_tensor, (P, q, A, b)))

    @property
    def n_constraints(self):
        return len(self.b)

    def start(self):
        return torch.zeros_like(self.q), torch.zeros_like(self.b)

    @property
    def strata(self):
        return torch.zeros(self.n_rows, dtype=torch.long)

    def linearize(self, x, rows=None, scale=None):
        objective = 0.5 * x @ self.P @ x + self.q @ x
        gradients = torch.cat(((self.P @ x + self.q)[None], self.A))
        value = torch.cat((objective[None], self.A @ x - self.b))
        return Linearization(value, lambda weights: weights @ gradients)

    def objective(self, x, rows=None):
        terms = self.linearize(x)
        return Linearization(terms.value[:1], lambda w: w * (self.P @ x + self.q))

    def constraints(self, x, rows=None, scale=None):
        return Linearization(self.linearize(x).value[1:], lambda w: w @ self.A)

    def evaluate(self, x):
        value = self.linearize(x).value
        return Evaluation(value, value)


def solve_quadratic(problem, shift=0.0):
    """The optimum and multipliers of Ax + shift <= b by cvxpy, as tensors."""
    x = cp.Variable(len(problem.q))
    objective = 0.5 * cp.quad_form(x, cp.psd_wrap(problem.P.numpy())) + problem.q.numpy() @ x
    bounds = [problem.A.numpy() @ x + shift <= problem.b.numpy()] if problem.n_constraints else []
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    cp.Problem(cp.Minimize(objective), bounds).solve(solver=cp.CLARABEL, **tight)
    dual = bounds[0].dual_value if bounds else np.zeros(0)
    return torch.as_tensor(x.value), torch.as_tensor(dual)

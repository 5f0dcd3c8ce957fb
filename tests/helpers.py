"""What several test files share: derivatives, random rows, quadratic programs, results."""

import csv
from dataclasses import dataclass, field
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import torch

from fairconstrained.constraints import Space
from fairconstrained.problems import Evaluation, Linearization, separate_estimates


def numerical_jacobian(function, x, step=1e-5):
    """Central differences of a vector function, of shape (m, *x.shape)."""
    columns = []
    for i in range(x.numel()):
        shift = torch.zeros(x.numel(), dtype=x.dtype)
        shift[i] = step
        shift = shift.reshape(x.shape)
        columns.append((function(x + shift) - function(x - shift)) / (2 * step))
    return torch.stack(columns, dim=-1).reshape(-1, *x.shape)


def tensor(values):
    """Double precision."""
    return torch.as_tensor(values, dtype=torch.float64)


def badly_scaled(seed=0, n=400, d=5):
    """Correlated columns with means and scales over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 3, size=d)
    return tensor((rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)) * scale)


def rows_of(path):
    """Rows of a benchmark's results, as they stand in the file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def methods_of(table):
    """The methods that were run on each notion."""
    methods = {}
    for row in table:
        methods.setdefault(row["notion"], set()).add(row["method"])
    return methods


class Rows(NamedTuple):
    """Rows in score space."""

    scores: torch.Tensor
    y: torch.Tensor
    group: torch.Tensor
    weight: torch.Tensor

    def take(self, index):
        """These rows, in this order."""
        return Rows(*(column[index] for column in self))


def random_rows(seed, n_classes=2, n_groups=3, n=60):
    """Random scores and weights; at least two rows of every label and group."""
    rng = np.random.default_rng(seed)
    every_cell = np.tile(np.indices((n_classes, n_groups)).reshape(2, -1), 2)
    rest = rng.integers([[n_classes], [n_groups]], size=(2, max(0, n - every_cell.shape[1])))
    y, group = np.hstack((every_cell, rest))
    n_outputs = 1 if n_classes == 2 else n_classes
    return Rows(
        torch.as_tensor(rng.normal(size=(len(y), n_outputs))),
        torch.as_tensor(y),
        torch.as_tensor(group),
        torch.as_tensor(rng.exponential(size=len(y)) + 0.1),
    )


def bound(notion, shape, temperature=1.0):
    """The notion on labels 0, 1, ... and groups a, b, ..., of which `shape` gives the numbers."""
    n_classes, n_groups = shape
    space = Space(list(range(n_classes)), list("abcdefg"[:n_groups]))
    return notion.bind(space, 0.05, temperature)


def soft_values(constraint, rows):
    """Values of a constraint without extra variables, as optimised."""
    return constraint.values(rows.scores, rows.y, rows.group, torch.zeros(0), rows.weight)


def hard_values(constraint, rows):
    """Values as measured on predicted labels."""
    counts = constraint.counts(rows.y, rows.group, rows.weight)
    return constraint.of_moments(constraint.hard_sums(*rows), counts, torch.zeros(0))


class SoftIsHard:
    """What a problem has that is as sharp as it will be, over the whole space."""

    def estimates(self, x, rows, *draws):
        """One call for each draw."""
        return separate_estimates(self, x, rows, *draws)

    def sharpened(self):
        """Itself."""
        return self

    def loosened(self, x, by):
        """Itself."""
        return self, x

    def project(self, x):
        """The whole space."""
        return x


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
        return cls(
            torch.as_tensor(root @ root.T / n_variables + np.eye(n_variables)),
            torch.as_tensor(2.0 * rng.normal(size=n_variables)),
            torch.as_tensor(rng.normal(size=(n_constraints, n_variables))),
            torch.as_tensor(rng.uniform(0.1, 1.0, size=n_constraints)),
        )

    @property
    def n_constraints(self):
        """Rows of A."""
        return len(self.b)

    def start(self):
        """Zeros for variables and multipliers."""
        return torch.zeros_like(self.q), torch.zeros_like(self.b)

    @property
    def strata(self):
        """One part."""
        return torch.zeros(self.n_rows, dtype=torch.long)

    def linearize(self, x, rows=None, scale=None):
        """Objective and constraints."""
        objective = 0.5 * x @ self.P @ x + self.q @ x
        gradients = torch.cat(((self.P @ x + self.q)[None], self.A))
        value = torch.cat((objective[None], self.A @ x - self.b))
        return Linearization(value, lambda weights: weights @ gradients)

    def objective(self, x, rows=None):
        """The first value of `linearize`."""
        terms = self.linearize(x)
        return Linearization(terms.value[:1], lambda w: w * (self.P @ x + self.q))

    def constraints(self, x, rows=None, scale=None):
        """The others."""
        return Linearization(self.linearize(x).value[1:], lambda w: w @ self.A)

    def evaluate(self, x):
        """Hard values equal to the soft ones."""
        value = self.linearize(x).value
        return Evaluation(value, value)


def solve_quadratic(problem, shift=0.0):
    """The optimum and multipliers of Ax + shift <= b by cvxpy, as tensors."""
    x = cp.Variable(len(problem.q))
    objective = 0.5 * cp.quad_form(x, cp.psd_wrap(problem.P.numpy())) + problem.q.numpy() @ x
    bounds = [problem.A.numpy() @ x + shift <= problem.b.numpy()] if problem.n_constraints else []
    cp.Problem(cp.Minimize(objective), bounds).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    dual = bounds[0].dual_value if bounds else np.zeros(0)
    return torch.as_tensor(x.value), torch.as_tensor(dual)

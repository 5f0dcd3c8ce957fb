"""Runs of solvers to their end, with seeded draws."""

import torch

from fairconstrained.solvers import run


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def solve(solver, problem, x=None, dual=None, *, seed=0, max_iter=None, tol=1e-4, **options):
    """From the start of the problem, or from x; multipliers begin at zero."""
    x = problem.start() if x is None else x
    dual = torch.zeros(problem.n_constraints, dtype=torch.float64) if dual is None else dual
    options |= {"max_iter": max_iter, "tol": tol}
    return run(solver, problem, x, dual, generator(seed), **options)

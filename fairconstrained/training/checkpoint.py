"""Runs that can be interrupted: the state of training in a file, after every evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.problems import SampledProblem
from fairconstrained.solvers import Iterate, Solver, check_solves
from fairconstrained.solvers.stochastic.base import StochasticSolver

__all__ = ["Checkpointed"]


class Checkpointed(Solver):
    """A stochastic solver that stores its state and resumes from a stored one.

    Parameters
    ----------
    solver : StochasticSolver
    path : path-like
        A file; an existing one is resumed from. It is replaced as a whole, so that an interruption
        leaves the last one intact.
    writes : bool
        Whether this process is the one that writes.

    Raises
    ------
    ValueError
        If the solver is not stochastic, or the file belongs to another run.
    """

    def __init__(self, solver: Solver, path: Any, writes: bool):
        if not isinstance(solver, StochasticSolver):
            raise ValueError(f"checkpoint needs a stochastic solver; got {solver!r}.")
        self.solver = solver
        self.path = path
        self.writes = writes

    def check(self, problem: SampledProblem) -> None:
        """Raise where the solver does."""
        check_solves(self.solver, problem)
        self.solver.check(problem)

    def select(self, iterates: Sequence[Iterate]) -> Iterate:
        """Choose as the solver does."""
        return self.solver.select(iterates)

    def iterate(
        self, problem: SampledProblem, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield what is stored, then what follows."""
        past, state = self._stored(x, dual)
        yield from past
        for iterate, now in self.solver.resumable(problem, x, dual, rng, state):
            past.append(iterate)
            if self.writes:
                self._store(past, now)
            yield iterate

    def _stored(self, x: Tensor, dual: Tensor) -> tuple[list[Iterate], dict[str, Any]]:
        path = Path(self.path)
        if not path.exists():
            return [], {}
        # Only tensors and plain values are read: a file cannot bring code.
        stored = torch.load(path, weights_only=True)
        run = (repr(self.solver), len(x), len(dual))
        if tuple(stored["run"]) != run:
            raise ValueError(
                f"checkpoint {path} is of another run: {stored['run']} (solver, parameters, "
                f"constraints), not {run}."
            )
        # Dropout draws from torch's global generator.
        torch.set_rng_state(stored["global_rng"])
        past = [Iterate(*values) for values in stored["past"]]
        return [i._replace(x=i.x.to(x), dual=i.dual.to(dual)) for i in past], stored["state"]

    def _store(self, past: Sequence[Iterate], state: dict[str, Any]) -> None:
        last = past[-1]
        stored = {
            "run": (repr(self.solver), len(last.x), len(last.dual)),
            "past": [tuple(iterate) for iterate in past],
            "state": state,
            "global_rng": torch.get_rng_state(),
        }
        path = Path(self.path)
        unfinished = path.with_name(path.name + ".part")
        torch.save(stored, unfinished)
        unfinished.replace(path)

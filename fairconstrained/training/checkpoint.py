"""Runs that can be interrupted: the state of training in a file, after every evaluation."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.problems.base import SampledProblem
from fairconstrained.solvers.base import Iterate, Solver, check_solves
from fairconstrained.solvers.stochastic import StochasticSolver


class Checkpointed(Solver):
    """A stochastic solver that stores its state in a file and resumes from an existing one.

    The file is replaced as a whole, so that an interruption leaves the last one intact. A solver
    that is not stochastic, and a file that cannot be read or written or belongs to another solver,
    are refused before anything is trained or written. `writes` says which process writes.
    """

    def __init__(self, solver: Solver, path: Any, writes: bool):
        if not isinstance(solver, StochasticSolver):
            raise ValueError(f"checkpoint needs a stochastic solver; got {solver!r}.")
        self.solver = solver
        self.path = Path(path)
        self.writes = writes
        folder = self.path.parent
        if self.path.is_dir() or (writes and not (folder.is_dir() and os.access(folder, os.W_OK))):
            wrong = "is a folder" if self.path.is_dir() else "lies in no folder to write to"
            raise ValueError(f"checkpoint must be the path of a file; {path} {wrong}.")
        self._stored = _read(self.path) if self.path.exists() else None
        # The number of evaluations in the file that training goes on from.
        self.n_stored = 0 if self._stored is None else len(self._stored["past"])
        if self._stored is not None and self._stored["solver"] != identity(solver):
            raise ValueError(
                f"checkpoint {self.path} is of another run, with the solver "
                f"{self._stored['named']}, not {solver!r}. Give another file, or move it away."
            )

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
        past: list[Iterate] = []
        stored, sizes = self._stored, (len(x), len(dual))
        if stored is not None:
            if tuple(stored["sizes"]) != sizes:
                raise ValueError(
                    f"checkpoint {self.path} is of another run: of {stored['sizes']} parameters "
                    f"and constraints, not {sizes}. Give another file, or move it away."
                )
            torch.set_rng_state(stored["global_rng"])  # from which dropout draws
            known = (Iterate(*values) for values in stored["past"])
            past = [i._replace(x=i.x.to(x), dual=i.dual.to(dual)) for i in known]
            yield from past
        state = {} if stored is None else stored["state"]
        for iterate, now in self.solver.resumable(problem, x, dual, rng, state):
            past.append(iterate)
            if self.writes:
                self._store(past, now)
            yield iterate

    def _store(self, past: Sequence[Iterate], state: dict[str, Any]) -> None:
        record = {
            "solver": identity(self.solver),
            "named": repr(self.solver),
            "sizes": (len(past[-1].x), len(past[-1].dual)),
            "past": [tuple(iterate) for iterate in past],
            "state": state,
            "global_rng": torch.get_rng_state(),
        }
        stored = io.BytesIO()
        torch.save(record, stored)
        unfinished = self.path.with_name(self.path.name + ".part")
        try:
            with unfinished.open("wb") as file:
                file.write(stored.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f"{error.strerror}: the checkpoint could not be written. The last one is intact, "
                "and the same call goes on from it",
                str(self.path),
            ) from error


def identity(solver: Solver) -> str:
    """The solver in words that are the same in every process.

    Functions and classes are named by module and name, other objects by their class and state.
    """

    def parts(value: Any) -> Any:
        if hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        return value.hex() if isinstance(value, bytes) else value.__reduce_ex__(4)

    return json.dumps(solver, default=parts, sort_keys=True)


def _read(path: Path) -> dict[str, Any]:
    """Read a file of :class:`Checkpointed`: only tensors and plain values, no code."""
    try:
        with warnings.catch_warnings():  # of formats that torch does not write
            warnings.simplefilter("ignore")
            stored: dict[str, Any] = torch.load(path, weights_only=True)
        stored["solver"], stored["named"], stored["sizes"]
        stored["past"], stored["state"], stored["global_rng"]
    except Exception as error:  # torch fails in many ways on bytes that it did not write
        raise ValueError(
            f"checkpoint {path} cannot be read: it is damaged, or no checkpoint of train "
            f"({type(error).__name__}). Give another file, or move it away to begin anew."
        ) from error
    return stored

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
        If the solver is not stochastic, if the file cannot be read or written or belongs to another
        solver. Nothing has been trained or written then.
    """

    def __init__(self, solver: Solver, path: Any, writes: bool):
        if not isinstance(solver, StochasticSolver):
            raise ValueError(f"checkpoint needs a stochastic solver; got {solver!r}.")
        self.solver = solver
        self.path = Path(path)
        self.writes = writes
        if writes:
            _check_writable(self.path)
        self._stored = _read(self.path) if self.path.exists() else None
        if self._stored is not None and self._stored["solver"] != identity(solver):
            raise ValueError(
                f"checkpoint {self.path} is of another run, with the solver "
                f"{self._stored['named']}, not {solver!r}. Give another file, or move it away."
            )

    @property
    def n_stored(self) -> int:
        """Number of evaluations in the file that training goes on from; 0 if there is none."""
        return len(self._stored["past"]) if self._stored is not None else 0

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
        past, state = self._resumed(x, dual)
        yield from past
        for iterate, now in self.solver.resumable(problem, x, dual, rng, state):
            past.append(iterate)
            if self.writes:
                self._store(past, now)
            yield iterate

    def _resumed(self, x: Tensor, dual: Tensor) -> tuple[list[Iterate], dict[str, Any]]:
        stored = self._stored
        if stored is None:
            return [], {}
        sizes = (len(x), len(dual))
        if tuple(stored["sizes"]) != sizes:
            raise ValueError(
                f"checkpoint {self.path} is of another run: of {stored['sizes']} parameters and "
                f"constraints, not {sizes}. Give another file, or move it away."
            )
        # Dropout draws from torch's global generator.
        torch.set_rng_state(stored["global_rng"])
        past = [Iterate(*values) for values in stored["past"]]
        return [i._replace(x=i.x.to(x), dual=i.dual.to(dual)) for i in past], stored["state"]

    def _store(self, past: Sequence[Iterate], state: dict[str, Any]) -> None:
        last = past[-1]
        stored = io.BytesIO()
        torch.save(
            {
                "solver": identity(self.solver),
                "named": repr(self.solver),
                "sizes": (len(last.x), len(last.dual)),
                "past": [tuple(iterate) for iterate in past],
                "state": state,
                "global_rng": torch.get_rng_state(),
            },
            stored,
        )
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
    return json.dumps(solver, default=_parts, sort_keys=True)


def _parts(value: Any) -> Any:
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return value.hex() if isinstance(value, bytes) else value.__reduce_ex__(4)


def _check_writable(path: Path) -> None:
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        found = "is a folder" if path.is_dir() else "lies in no folder that can be written to"
        raise ValueError(f"checkpoint must be the path of a file; {path} {found}.")


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

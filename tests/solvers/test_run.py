"""The one loop, on scripted iterates: when it stops, what it keeps, what it leaves behind."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairconstrained.exceptions import DivergenceError
from fairconstrained.solvers import Iterate, Solver, Status, run
from fairconstrained.solvers.base import FEASIBILITY_TOL, best_feasible, violation
from tests.helpers.quadratic import QuadraticProblem

PROBLEM = QuadraticProblem.random(0, 2, 1)


def iterate(error=0.0, violation=0.0, residual=math.inf, x=0.0, objective=0.0):
    return Iterate(
        torch.tensor([x, 0.0]),
        torch.tensor([objective, violation]),
        torch.tensor([error, violation]),
        torch.zeros(1),
        residual,
    )


class Scripted(Solver):
    """Yields what it is given."""

    def __init__(self, script=()):
        self.script = script

    def iterate(self, problem, x, dual, tol, rng):
        yield from self.script


def outcome(script, callbacks=(), max_iter=None, tol=1e-3):
    solver = script if isinstance(script, Solver) else Scripted(script)
    x, dual = PROBLEM.start()
    return run(
        solver, PROBLEM, x, dual, torch.Generator(), max_iter=max_iter, tol=tol, callbacks=callbacks
    )


GOOD, BAD, SOLVED = iterate(0.1), iterate(0.0, violation=0.2), iterate(0.3, 0.3, residual=1e-4)


@pytest.mark.parametrize(
    ("script", "max_iter", "status", "kept", "n_iter"),
    [
        ([GOOD, SOLVED, BAD], None, Status.CONVERGED, SOLVED, 2),
        ([BAD, GOOD, BAD], None, Status.FINISHED, GOOD, 3),
        ([BAD, GOOD, BAD, SOLVED], 3, Status.MAX_ITER, GOOD, 3),
        ([BAD, SOLVED], 2, Status.CONVERGED, SOLVED, 2),  # solved just in time
    ],
)
def test_when_it_stops_and_what_it_keeps(script, max_iter, status, kept, n_iter):
    """A residual below tol ends the run with that iterate, else the solver's choice is kept."""
    solution = outcome(script, max_iter=max_iter)
    assert (solution.status, solution.n_iter) == (status, n_iter)
    assert solution.iterate is kept
    assert solution.history == script[:n_iter]
    assert len(solution.times) == n_iter
    assert solution.times[0] >= 0
    assert solution.times == sorted(solution.times)


def test_a_callback_sees_every_iterate_and_may_stop():
    seen, all_seen = [], []
    solution = outcome([GOOD, BAD, SOLVED], [lambda i: seen.append(i) or i is BAD, all_seen.append])
    assert solution.status is Status.STOPPED
    assert solution.iterate is GOOD
    assert seen == all_seen == [GOOD, BAD] == solution.history
    assert outcome([GOOD, SOLVED], [lambda i: None]).status is Status.CONVERGED


@pytest.mark.parametrize(
    "broken",
    [iterate(x=math.nan), iterate(x=math.inf), iterate(objective=math.nan), iterate(0, math.nan)],
)
def test_values_that_are_not_finite_are_an_error_that_says_when(broken):
    seen = []
    with pytest.raises(DivergenceError, match="diverged at iteration 2"):
        outcome([GOOD, broken, SOLVED], [seen.append])
    assert seen == [GOOD]


unit = st.floats(0, 1)


@given(st.lists(st.tuples(unit, st.floats(-1, 1) | st.floats(0, 2e-3)), min_size=1))
def test_the_best_iterate_errs_least_among_the_feasible_or_violates_least(pairs):
    script = [iterate(*pair) for pair in pairs]
    chosen = best_feasible(script)
    feasible = [i for i in script if violation(i.hard) <= FEASIBILITY_TOL]
    if feasible:
        assert violation(chosen.hard) <= FEASIBILITY_TOL
        assert chosen.hard[0] == min(i.hard[0] for i in feasible)
    else:
        assert violation(chosen.hard) == min(violation(i.hard) for i in script)

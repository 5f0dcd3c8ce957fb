"""The one loop on scripted iterates; which solver is for which problem; parameters and messages."""

import ast
import inspect
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fairconstrained
from fairconstrained import constraints, models, solvers
from fairconstrained.exceptions import DivergenceError, IncompatibleSolverError
from fairconstrained.problems import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import MomentERM
from fairconstrained.problems.private.erm import AttributeFermi, PrivateERM, RecordFermi
from fairconstrained.problems.private.secret_groups import SecretGroups
from fairconstrained.solvers import Iterate, Solver, Status, run
from fairconstrained.solvers.base import (
    FEASIBILITY_TOL,
    best_feasible,
    check_solves,
    solves,
    violation,
)
from fairconstrained.training.problem import ModuleProblem
from tests.helpers.quadratic import QuadraticProblem
from tests.helpers.repository import ROOT

PROBLEM = QuadraticProblem.random(0, 2, 1)


def iterate(error=0.0, violation=0.0, residual=math.inf, x=0.0, objective=0.0):
    rows = [x, 0.0], [objective, violation], [error, violation], [0.0]
    return Iterate(*map(torch.tensor, rows), residual)


class Scripted(Solver):
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


EXACT = "AugmentedLagrangian SequentialQuadratic SGDA ALM LBFGS"
NAMED = {
    FairERM: f"{EXACT} LevelSet",
    ModuleProblem: EXACT,
    MomentERM: "AugmentedLagrangian SequentialQuadratic LBFGS QCQP",
    FermiERM: "LBFGS LabelRounds FERMI",
    PrivateERM: "DPSGDA",
    RecordFermi: "DPFERMI NoisyTables",
    AttributeFermi: "DPFERMI NoisyTables",
    SecretGroups: "ReleasedMoments",
}
FOR = {problem: {getattr(solvers, n) for n in names.split()} for problem, names in NAMED.items()}
SOLVERS = set().union(*FOR.values())


@pytest.mark.parametrize("problem", FOR, ids=lambda kind: kind.__name__)
def test_a_problem_that_is_not_built_yet_has_its_solvers(problem):
    assert {solver for solver in SOLVERS if solves(solver(), problem)} == FOR[problem]
    for solver in SOLVERS - FOR[problem]:
        with pytest.raises(IncompatibleSolverError) as caught:
            check_solves(solver(), problem)
        said = str(caught.value)
        assert said.startswith(f"{solver.__name__} cannot solve {problem.__name__}")
        assert all(other.__name__ in said for other in FOR[problem])


class Silent(Solver):
    def iterate(self, problem, x, dual, tol, rng):
        yield Iterate(x, x, x, dual, 0.0)


class Sampling(Silent):
    requires = ("draws",)


def test_solvers_of_users_say_what_they_need_or_nothing():
    assert solves(Silent(), PrivateERM) is None
    check_solves(Silent(), PrivateERM)
    assert solves(Sampling(), FairERM) is True
    assert solves(Sampling(), MomentERM) is False


def test_an_object_is_asked_for_what_its_class_does_not_say():
    """LBFGS is for problems without constraints, which a class cannot tell."""
    constrained = QuadraticProblem.random(0)
    free = QuadraticProblem.random(0, n_constraints=0)
    found = [solves(solvers.LBFGS(), one) for one in (QuadraticProblem, constrained, free)]
    assert found == [True, False, True]


NOT_ALLOWED = {
    "AugmentedLagrangian": {"penalty": 0.0, "patience": 2.5},
    "LabelRounds": {"rounds": True},
    "FERMI": {"table": "scores", "optimizer": 1},
    "SequentialQuadratic": {"n_steps": 0},
    "IDCA": {"epsilon": 0},
    "DirectSwitching": {"epsilon": -1},
    "StochasticIDCA": {"schedule": 3},
    "LevelSet": {"theta": 1.0},
    "SGDA": {"optimizer": "adam"},
    "EarlyStoppedSGDA": {"averaging": 1.0, "held_out": 1},
    "ALM": {"step_size": 0, "batch_size": 0.5, "schedule": 0.5},
    "SSLALM": {"smoothing": -1.0},
    "SwitchingSubgradient": {
        **{"tolerance": -1e-4, "constraint_step_size": float("nan"), "record_from": 1.0}
    },
    "StochasticGhost": {"p0": 1.0, "rho": 10.0, "step_decay": 20.0},
}


@pytest.mark.parametrize("kind", NOT_ALLOWED)
def test_bad_parameters_are_named_with_their_value(kind):
    for name, value in NOT_ALLOWED[kind].items():
        solver = getattr(solvers, kind)(**{name: value})
        with pytest.raises(ValueError, match=rf"{kind}\..*{name}.*; got") as error:
            solver.check(QuadraticProblem.random(0))
        assert repr(value) in str(error.value)


PUBLIC = {
    name: getattr(module, name)
    for module in (fairconstrained, constraints, models, solvers)
    for name in module.__all__
    if inspect.isclass(getattr(module, name))
}
OF_FIT = {"sensitive_features", "sample_weight", "classes"}
ELSEWHERE = {"enable_metadata_routing"}  # of scikit-learn
KNOWN = {p for kind in PUBLIC.values() for p in inspect.signature(kind).parameters} | OF_FIT


def messages(source):
    """The string constants of a module that are no docstrings, with their line numbers."""
    nodes = list(ast.walk(ast.parse(source)))
    expressions = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in expressions:
            yield node.lineno, node.value


@pytest.mark.parametrize("folder", ["estimators", "problems", "solvers", "models", "constraints"])
def test_parameters_in_messages_exist(folder):
    """Something public has each parameter that is named; a class that is named has its own."""
    for path in (ROOT / "fairconstrained" / folder).rglob("*.py"):
        for line, message in messages(path.read_text(encoding="utf-8")):
            names = re.findall(r"\b([a-z_]+)=(?=['\w(\[])", message)
            assert set(names) <= KNOWN | ELSEWHERE, (path, line)
            for kind, name in re.findall(r"\b([A-Z]\w+)(?:\(| with |\.)([a-z_]+)=", message):
                if kind in PUBLIC:
                    assert name in {*inspect.signature(PUBLIC[kind]).parameters, *OF_FIT}, path

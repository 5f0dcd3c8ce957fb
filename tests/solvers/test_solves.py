"""Which solver is for which problem: what one requires and the other offers."""

import ast
import inspect
import re

import pytest

import fairconstrained
from fairconstrained import constraints, models, solvers
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.problems import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import MomentERM
from fairconstrained.problems.private.erm import AttributeFermi, PrivateERM, RecordFermi
from fairconstrained.problems.private.secret_groups import SecretGroups
from fairconstrained.solvers import Iterate, Solver
from fairconstrained.solvers.base import check_solves, solves
from fairconstrained.training.problem import ModuleProblem
from tests.helpers.quadratic import QuadraticProblem
from tests.helpers.repository import ROOT

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
    assert (solves(solvers.LBFGS(), QuadraticProblem), solves(solvers.LBFGS(), constrained)) == (
        True,
        False,
    )
    assert solves(solvers.LBFGS(), free) is True


NOT_ALLOWED = {
    "AugmentedLagrangian": {"penalty": 0.0, "patience": 2.5},
    "LabelRounds": {"rounds": True},
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

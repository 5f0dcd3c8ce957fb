"""Which solver is for which problem: what one requires and the other offers."""

import pytest
import torch

from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.problems import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import MomentERM
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.problems.private.fermi import AttributeFermi, RecordFermi, SecretGroups
from fairconstrained.solvers import (
    ALM,
    DPFERMI,
    DPSGDA,
    FERMI,
    LBFGS,
    QCQP,
    SGDA,
    AugmentedLagrangian,
    Iterate,
    LabelRounds,
    LevelSet,
    NoisyTables,
    ReleasedMoments,
    SequentialQuadratic,
    Solver,
    check_solves,
    solves,
)
from fairconstrained.training.problem import ModuleProblem
from tests.helpers.quadratic import QuadraticProblem

FOR = {
    FairERM: {AugmentedLagrangian, SequentialQuadratic, SGDA, ALM, LBFGS, LevelSet},
    ModuleProblem: {AugmentedLagrangian, SequentialQuadratic, SGDA, ALM, LBFGS},
    MomentERM: {AugmentedLagrangian, SequentialQuadratic, LBFGS, QCQP},
    FermiERM: {LBFGS, LabelRounds, FERMI},
    PrivateERM: {DPSGDA},
    RecordFermi: {DPFERMI, NoisyTables},
    AttributeFermi: {DPFERMI, NoisyTables},
    SecretGroups: {ReleasedMoments},
}
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
    assert (solves(LBFGS(), QuadraticProblem), solves(LBFGS(), constrained)) == (True, False)
    assert solves(LBFGS(), free) is True


def test_values_after_the_constraints_are_measured_only():
    values = torch.tensor([1.0, 0.2, 0.3, 5.0])
    iterate = Iterate(torch.zeros(1), values, values, torch.zeros(2), 0.0)
    assert iterate.constraints.tolist() == pytest.approx([0.2, 0.3])
    assert iterate.measured.tolist() == [5.0]

"""The one loop, on scripted iterates and against known points; who solves which problem."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from fairconstrained import RateConstrainedClassifier, solvers
from fairconstrained.constraints import AUCS, CONSTRAINTS, Space
from fairconstrained.constraints.moments import Stack
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import DivergenceError, IncompatibleSolverError
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems import Baseline, FairERM, Rows
from fairconstrained.problems.baselines import ERROR_TOL, RELAXED_TOL
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.moments import MomentERM, RankingERM
from fairconstrained.problems.objectives import MeanLoss, RankedLoss
from fairconstrained.problems.private.erm import AttributeFermi, PrivateERM, RecordFermi
from fairconstrained.problems.private.secret_groups import SecretGroups
from fairconstrained.solvers import Iterate, Solver, Status, base, run
from fairconstrained.training.problem import ModuleProblem
from tests.helpers.quadratic import QuadraticProblem
from tests.helpers.repository import ROOT
from tests.helpers.solving import solve

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
    options = {"max_iter": max_iter, "tol": tol, "callbacks": callbacks}
    return run(solver, PROBLEM, x, dual, torch.Generator(), **options)


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


BROKEN = iterate(x=math.nan), iterate(x=math.inf), iterate(objective=math.nan), iterate(0, math.nan)


@pytest.mark.parametrize("broken", BROKEN)
def test_values_that_are_not_finite_are_an_error_that_says_when(broken):
    seen = []
    with pytest.raises(DivergenceError, match="diverged at iteration 2"):
        outcome([GOOD, broken, SOLVED], [seen.append])
    assert seen == [GOOD]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 1) | st.floats(0, 2e-3)), min_size=1))
def test_the_best_iterate_errs_least_among_the_feasible_or_violates_least(pairs):
    script = [iterate(*pair) for pair in pairs]
    chosen = base.best_feasible(script)
    feasible = [i for i in script if base.violation(i.hard) <= 0.0]
    if feasible:
        assert base.violation(chosen.hard) <= 0.0
        assert chosen.hard[0] == min(i.hard[0] for i in feasible)
    else:
        assert base.violation(chosen.hard) == min(base.violation(i.hard) for i in script)


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
    assert {solver for solver in SOLVERS if base.solves(solver(), problem)} == FOR[problem]
    for solver in SOLVERS - FOR[problem]:
        with pytest.raises(IncompatibleSolverError) as caught:
            base.check_solves(solver(), problem)
        said = str(caught.value)
        assert said.startswith(f"{solver.__name__} cannot solve {problem.__name__}")
        assert all(other.__name__ in said for other in FOR[problem])
        assert "this problem" not in said  # which may not meet their assumptions


class Silent(Solver):
    def iterate(self, problem, x, dual, tol, rng):
        yield Iterate(x, x, x, dual, 0.0)


class Sampling(Silent):
    requires = ("draws",)


def test_solvers_of_users_say_what_they_need_or_nothing():
    assert base.solves(Silent(), PrivateERM) is None
    base.check_solves(Silent(), PrivateERM)
    assert base.solves(Sampling(), FairERM) is True
    assert base.solves(Sampling(), MomentERM) is False


def test_an_object_is_asked_for_what_its_class_does_not_say():
    """LBFGS is for problems without constraints, which a class cannot tell."""
    constrained = QuadraticProblem.random(0)
    free = QuadraticProblem.random(0, n_constraints=0)
    found = [base.solves(solvers.LBFGS(), one) for one in (QuadraticProblem, constrained, free)]
    assert found == [True, False, True]


NOT_ALLOWED = {
    "AugmentedLagrangian": {"penalty": 0.0, "patience": 2.5},
    "LabelRounds": {"rounds": True},
    "FERMI": {"table": "scores", "optimizer": 1},
    "SequentialQuadratic": {"n_steps": 0},
    "IDCA": {"epsilon": 0},
    "DirectSwitching": {"epsilon": -1},
    "StochasticIDCA": {"schedule": 3, "inner_steps": 1.5},
    "LevelSet": {"theta": 1.0, "n_steps": 0, "batch_size": -1, "interval": "a"},
    "ProximalLevelSet": {"rho": -1.0, "n_rounds": 0, "level_set": 3},
    "SGDA": {"optimizer": "adam"},
    "EarlyStoppedSGDA": {"averaging": 1.0, "held_out": 1},
    "ALM": {"step_size": 0, "batch_size": 0.5, "schedule": 0.5},
    "SSLALM": {"smoothing": -1.0, "averaging": 1.5},
    "SwitchingSubgradient": {"tolerance": -1, "constraint_step_size": math.nan, "record_from": 1.0},
    "StochasticGhost": {"p0": 1.0, "lam": 1.1, "rho": 10.0, "step_decay": 20.0},
}


@pytest.mark.parametrize("kind", NOT_ALLOWED)
def test_bad_parameters_are_named_with_their_value(kind):
    for name, value in NOT_ALLOWED[kind].items():
        solver = getattr(solvers, kind)(**{name: value})
        with pytest.raises(ValueError, match=rf"{kind}\..*{name}.*; got") as error:
            solver.check(QuadraticProblem.random(0))
        assert repr(value) in str(error.value)


def counts_of(data, space):
    counts = np.zeros((len(space.classes), len(space.groups)), dtype=int)
    np.add.at(counts, (data.y.numpy(), data.group.numpy()), 1)
    return counts


def problem_of(notion, seed, n=25, d=3, n_groups=3, n_classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(1)
    columns = rng.integers(0, n_classes, n), rng.integers(0, n_groups, n), rng.uniform(0.5, 2.0, n)
    columns[0][:n_classes] = range(n_classes)
    data = Rows((as_features(X, "cpu"),), *map(torch.as_tensor, columns))
    space = Space(list(range(n_classes)), list(range(n_groups)))
    bound = CONSTRAINTS[notion]().bind(space, 0.1)
    stack = Stack(space, [bound.without_small(counts_of(data, space), 1)[0]])
    outputs = n_outputs(n_classes)
    model = LinearModel.preconditioned(data.X, data.weight, outputs, 1e-4, fit_intercept=True)
    return FairERM(model, data, MeanLoss(log_loss), stack, 1e-4)


def rankings_of(notion, seed, n=25, n_groups=3):
    data = problem_of("demographic_parity", seed, n, 3, n_groups).data
    space = Space([0, 1], list(range(n_groups)))
    bound = AUCS[notion]().bind(space, 0.1)
    stack = Stack(space, [bound.without_small(counts_of(data, space), 1)[0]])
    model = LinearModel.preconditioned(data.X, data.weight, 1, 1e-4, fit_intercept=True)
    return RankingERM(model.for_ranking(), data, RankedLoss(), stack, 1e-4)


NOTIONS = ["demographic_parity", "equalized_odds", "equal_opportunity", "false_negative_rate"]


def assert_values_of_points(line, problem, x, direction):
    hard = torch.stack([problem.evaluate(x + t * direction).hard for t in line.steps])
    torch.testing.assert_close(line.error, hard[:, 0])
    torch.testing.assert_close(line.excess, hard[:, 1:].amax(dim=1))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(NOTIONS), st.integers(0, 10_000), st.booleans(), st.sampled_from([2, 3, 5]))
def test_a_line_gives_the_values_of_each_of_its_points(notion, seed, of_offsets, n_classes):
    problem = problem_of(notion, seed, n_classes=n_classes)
    rng, n = torch.Generator().manual_seed(seed), problem.model.n_params
    x, direction = torch.randn(2, n, generator=rng, dtype=torch.float64)
    if of_offsets:
        direction = torch.eye(n).double()[problem.offsets[0]]
    assert_values_of_points(problem.along(x, direction, math.inf), problem, x, direction)


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 5]), st.sampled_from([0.3, 1.0, math.inf]))
def test_a_line_has_all_labels_within_reach(seed, n_classes, reach):
    """No point gives values that the line does not have."""
    problem = problem_of("demographic_parity", seed, n_classes=n_classes)
    rng, n = torch.Generator().manual_seed(seed), problem.model.n_params
    x, direction = torch.randn(2, n, generator=rng, dtype=torch.float64)
    line = problem.along(x, direction, reach)
    assert line.steps.abs().max() <= reach
    steps = min(reach, 2.0) * torch.linspace(-1, 1, 201).double()
    hard = torch.stack([problem.evaluate(x + t * direction).hard for t in steps])
    seen = torch.stack((line.error, line.excess)).T
    for row in torch.stack((hard[:, 0], hard[:, 1:].amax(dim=1))).T:
        assert (seen - row).abs().amax(dim=1).min() < 1e-12


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.sampled_from(sorted(AUCS)), st.integers(0, 10_000), st.sampled_from([0.3, math.inf]))
def test_a_line_has_all_orders_of_rows_within_reach(notion, seed, reach):
    """Its points have the AUCs that it says, and no other point has AUCs that it lacks."""
    problem = rankings_of(notion, seed)
    x, direction = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).double()
    line = problem.along(x, direction, reach)
    assert line.steps.abs().max() <= reach
    assert_values_of_points(line, problem, x, direction)
    seen = torch.stack((line.error, line.excess)).T
    for t in min(reach, 2.0) * torch.linspace(-1, 1, 101).double():
        hard = problem.evaluate(x + t * direction).hard
        row = torch.stack((hard[0], hard[1:].max()))
        assert (seen - row).abs().amax(dim=1).min() < 1e-12


class Stays(Solver):
    takes_known = True

    def __init__(self, residual=0.0):
        self.residual = residual

    def iterate(self, problem, x, dual, tol, rng):
        soft, hard = problem.evaluate(x)
        yield Iterate(x, soft, hard, dual, self.residual)


def result(problem, x, known, residual=0.0, callbacks=()):
    return solve(Stays(residual), problem, x, known=known, callbacks=callbacks)


@pytest.mark.parametrize("residual", [0.0, math.inf])
def test_a_known_point_takes_the_place_of_an_infeasible_result(residual):
    problem, seen = problem_of("demographic_parity", 2), []
    x = 3.0 * torch.randn(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert problem.evaluate(x).hard[1:].max() > 0.0
    solution = result(problem, x, problem.baselines, residual, [seen.append])
    assert solution.status is Status.KNOWN
    assert solution.ended is (Status.CONVERGED if residual == 0.0 else Status.FINISHED)
    assert solution.words == f"{Status.KNOWN.value}; {solution.ended.value}"
    assert solution.iterate.hard[1:].max() <= 0.0
    assert seen == solution.history
    assert seen[-1] is solution.iterate
    assert len(solution.times) == solution.n_iter == 2


class Guesses(Solver):
    def iterate(self, problem, x, dual, tol, rng):
        x = 3.0 * torch.randn(len(x), generator=rng, dtype=x.dtype)
        yield Iterate(x, *problem.evaluate(x), dual, residual=math.inf)


class TakesKnown(Guesses):
    takes_known = True


def test_a_solver_of_the_user_keeps_its_result_unless_its_class_says_otherwise():
    """Whoever compares methods gets the method, and not a known point under its name."""
    data, points = make_biased_classification(300, random_state=0), []
    params = {"slack": 0.01, "random_state": 0, "callbacks": lambda own: points.append(own.x)}
    clf = RateConstrainedClassifier(solver=Guesses(), **params)
    with pytest.warns(ConvergenceWarning, match="takes_known = True in class Guesses"):
        clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert len(points) == clf.n_iter_ == 1
    assert clf.status_ == Status.FINISHED.value
    assert clf.score(data.data, data.target) < 0.5
    clf = RateConstrainedClassifier(solver=TakesKnown(), **params)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.score(data.data, data.target) > 0.7
    assert clf.status_.startswith(Status.KNOWN.value)


def test_a_known_point_does_not_hide_that_the_iterations_did_not_suffice():
    data = make_biased_classification(300, random_state=0)
    clf = RateConstrainedClassifier(slack=0.01, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.status_ == f"{Status.KNOWN.value}; {Status.MAX_ITER.value}"
    assert clf.feasible_
    assert not clf.converged_


def test_a_known_point_that_is_infeasible_is_moved_along_its_offset():
    problem = problem_of("demographic_parity", 3)
    x = 3.0 * torch.randn(4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    thresholds = problem.along(x, torch.eye(4).double()[3], math.inf)
    least = thresholds.error[thresholds.excess <= 0.0].min()
    far = x + 100.0 * torch.eye(4).double()[3]  # feasible: all predictions are 1
    solution = result(problem, far, [Baseline(x)])
    assert float(solution.iterate.hard[0]) <= float(least) + ERROR_TOL


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000))
def test_the_last_point_of_the_relaxation_has_equal_mean_scores(seed):
    """Zero covariance of scores and groups, and the nearest such point in these coordinates."""
    problem = problem_of("demographic_parity", seed)
    free = torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assume(problem.evaluate(free).hard[1:].max() > 0.0)
    known = replace(problem, free=free).baselines
    *_, fair = (point.x for point in known if point.by == RELAXED_TOL)
    rows, weight = problem.placed, problem.data.weight
    of_part = torch.nn.functional.one_hot(rows.part, rows.n_parts + 1)[:, :-1] * weight[:, None]
    sums = of_part.T @ problem.model.linearize(fair, problem.data.X)[0]
    means = sums / of_part.sum(dim=0)[:, None]
    torch.testing.assert_close(means, means[:1].expand_as(means))
    moves = problem.linearize(torch.zeros_like(free)).jacobian()[1:]
    again = fair + moves.T @ torch.linalg.lstsq(moves.T, free - fair, driver="gelsd").solution
    torch.testing.assert_close(again, free)


@pytest.mark.parametrize(("fraction", "replaced"), [(0.9, True), (1.1, False)])
def test_a_known_point_says_how_much_better_it_must_be(fraction, replaced):
    """Constant predictions of either label are feasible, and one has the smaller error."""
    problem = problem_of("demographic_parity", 0)
    offset = 100.0 * torch.eye(4).double()[3]
    gain = float(problem.evaluate(offset).hard[0] - problem.evaluate(-offset).hard[0])
    assert gain > 0.1
    solution = result(problem, offset, [Baseline(-offset, fraction * gain)])
    assert (solution.status is Status.KNOWN) == replaced
    assert torch.equal(solution.iterate.x, -offset if replaced else offset)


# Of 14 problems one at least shows, with a probability of 95 %, what goes wrong in 20 % of them.
# `benchmarks.stress` has as many as one likes.
PROBLEMS = {"rates": 15, "losses": 10, "partial": 4, "auc": 5, "fermi": 5}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROBLEMS)
def test_no_fit_is_clearly_worse_than_what_is_known(kind, tmp_path):
    """Random problems: reports are right, and feasible points that are known are used."""
    options = {"--estimators": kind, "--trials": PROBLEMS[kind], "--seed": 19, "--output": tmp_path}
    arguments = [str(part) for option in options.items() for part in option]
    command = [sys.executable, "-m", "benchmarks.stress", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    outcomes = pd.read_csv(tmp_path / "stress.csv")
    assert len(outcomes) == PROBLEMS[kind]
    assert not outcomes["wrong"].any()
    assert not outcomes["infeasible"].any()
    assert (outcomes["worse"] <= 1e-3 + 1e-9).all()
    assert (outcomes["than_relaxed"] <= 0.01).all()

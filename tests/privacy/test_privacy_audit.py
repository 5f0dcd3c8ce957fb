"""A black-box audit: what is released gives away no more than the accountant says.

A canary row is added that no other row resembles: alone in its group, and alone in having a feature
of its own, on which its clipped gradient lies. The statistic is the likelihood ratio of both
releases of a batch, so the audit is nearly as sharp as the accountant.
"""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, Space
from fairconstrained.constraints.moments import Stack
from fairconstrained.losses import log_loss
from fairconstrained.model_selection import PrivateGridSearch
from fairconstrained.model_selection.splits import holdout_split
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Budget, Gaussian, Laplace, Phase, mechanisms, privacy_spent
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import Releases, SharedGenerator
from fairconstrained.privacy.plans import plan_releases, privacy_guarantee
from fairconstrained.problems import Rows
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.private import erm as private_problem
from fairconstrained.problems.private.erm import AttributeFermi, PrivateERM, RecordFermi
from tests.helpers.releases import (
    answered_by,
    plan_of,
    with_less_noise,
    without_clips,
    without_noise,
)

# A large delta: a few thousand outputs say little about rare ones.
RATE, DELTA, CLIP, N_SAMPLES, N_ROWS = 6 / 7, 0.02, 0.5, 3_000, 6
TABLE_NOISE, GRADIENT_NOISE = 1.0, 2.0
SPACE = Space([0, 1], ["others", "canary"])


def batch(n_rows, others=0.0, label=0):
    """Equal rows, and the canary as the last one of N_ROWS + 1; `others` are 0 in its feature."""
    X = torch.zeros((N_ROWS + 1, 2), dtype=torch.float64)
    X[:N_ROWS, 0], X[:, 1] = 0.1, others
    X[N_ROWS, 1] = 100.0
    group = torch.tensor([0] * N_ROWS + [1])
    y = torch.tensor([1] * N_ROWS + [label])
    weight = torch.ones(N_ROWS + 1, dtype=torch.float64)
    return Rows((DenseFeatures(X),), y, group, weight).take(torch.arange(n_rows))


def steps(kind, n_steps):
    noise = {"gaussian": Gaussian, "laplace": Laplace}[kind](TABLE_NOISE, of="histogram")
    return Phase([noise, Gaussian(GRADIENT_NOISE, of="gradient")], RATE, n_steps)


def claim(kind, unit="record"):
    return privacy_spent([steps(kind, 1)], delta=DELTA, unit=unit)


def outputs(with_canary, kind, seed, others=0.0):
    """Noisy differences of predictions in both groups, and noisy gradient along the canary's
    feature, of many batches.

    The number of rows is public: it is undone in the gradient's scale.
    """
    data = batch(N_ROWS + with_canary, others)
    return outputs_of(data, len(data.y), kind, torch.Generator().manual_seed(seed))


def outputs_of(data, n_rows, kind, rng):
    """As above, of the rows that one worker has of so many."""
    model = LinearModel(1, torch.zeros(2).double(), torch.ones(2).double(), True)
    stack = Stack(SPACE, [DemographicParity().bind(SPACE, 0.1)])
    counts = torch.ones(stack.n_parts, dtype=torch.float64)
    releases = Releases(plan_of(steps(kind, N_SAMPLES)))
    problem = PrivateERM(model, data, stack, counts, releases, 0.0, n_rows)
    x = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)
    no_dual = torch.zeros(problem.n_constraints).double()
    rows = []
    for _ in range(N_SAMPLES):
        table, gradient = problem.release(x, lambda _: no_dual, CLIP, rng)
        table = (table @ torch.tensor([1.0, -1.0]).double()) * RATE  # predicted 0, less 1
        table = table[stack.partition.part_of_cell[0]]
        along = gradient[1] * RATE * n_rows / CLIP
        rows.append([*table.tolist(), along.item()])
    return np.array(rows)


def loss_of(released, kind):
    """Logarithm of the likelihood ratio: with the canary against without."""
    _, table, gradient = released.T  # the canary is predicted 0, and its gradient is positive
    if kind == "gaussian":
        of_table = (table - 0.5) / TABLE_NOISE**2
    else:
        of_table = _of_two_laplace(table - 1) - _of_two_laplace(table)
    of_gradient = (gradient - 0.5) / GRADIENT_NOISE**2
    return np.logaddexp(np.log(1 - RATE), np.log(RATE) + of_table + of_gradient)


def _of_two_laplace(difference):
    """Logarithm of the density of the difference of two Laplace variables, up to a constant."""
    size = np.abs(difference) / TABLE_NOISE
    return np.log1p(size) - size


def bound(kind="gaussian", seed=0):
    """(lower bound of the audit, claim of the accountant)."""
    return compared(*(outputs(c, kind, seed + c) for c in (False, True)), kind)


def compared(without, with_canary, kind):
    audited = epsilon_lower_bound(loss_of(without, kind), loss_of(with_canary, kind), delta=DELTA)
    return audited, claim(kind)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("gaussian", 0.4), ("laplace", 0.3)])
def test_an_audit_stays_below_the_claim(kind, least):
    """Laplace noise is priced as if a row were alone in one entry, and it moves two by halves."""
    audited, claimed = bound(kind)
    assert audited <= claimed
    assert audited > least * claimed  # it would see noise that is a third of what it should be


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        partial(answered_by, answer=with_less_noise(0.4)),
        partial(without_clips, model=LinearModel),
    ],
)
def test_the_audit_sees_what_is_broken(broken, monkeypatch):
    monkeypatch.setitem(globals(), "N_SAMPLES", 1500)
    broken(monkeypatch)
    audited, claimed = bound()
    assert audited > claimed


@pytest.mark.slow
def test_the_audit_of_a_replaced_record_is_between_both_claims(monkeypatch):
    """Above the one for a null record, which promises less, and below the one for replacement.

    The canary has one label or the other, which its gradient shows and the table does not.
    """
    monkeypatch.setitem(globals(), "N_SAMPLES", 6000)
    monkeypatch.setitem(globals(), "TABLE_NOISE", 1e3)

    def density(along, shift):
        near, far = (-0.5 * ((along - s) / GRADIENT_NOISE) ** 2 for s in (0.0, shift))
        return np.logaddexp(np.log(1 - RATE) + near, np.log(RATE) + far)

    samples = []
    for label in (1, 0):
        data, rng = batch(N_ROWS + 1, label=label), torch.Generator().manual_seed(label)
        along = outputs_of(data, N_ROWS + 1, "gaussian", rng)[:, 2]
        samples.append(density(along, 1.0) - density(along, -1.0))
    audited = epsilon_lower_bound(*samples, delta=DELTA)
    assert claim("gaussian") < audited <= claim("gaussian", "record_replacement")


@pytest.mark.slow
def test_the_audit_sees_batches_of_fixed_size(monkeypatch):
    """The row that makes room for the canary is missing elsewhere: sums move by two rows."""

    def fixed(batches, rng):
        return torch.randperm(batches.n_rows, generator=rng)[:N_ROWS]

    monkeypatch.setattr(private_problem.PoissonBatches, "draw", fixed)

    def statistic(with_canary):
        others, canary, gradient = outputs(with_canary, "gaussian", int(with_canary), 100.0).T
        return 2 * gradient / GRADIENT_NOISE**2 + (canary - others) / TABLE_NOISE**2

    audited = epsilon_lower_bound(statistic(False), statistic(True), delta=DELTA)
    assert audited > claim("gaussian")


class Predicts(DummyClassifier):
    """A private estimator that releases nothing, and predicts one label."""

    excess_, excess_error_, protect = 0.0, 0.0, "record_replacement"
    privacy_ = privacy_guarantee([], delta=DELTA, unit=protect)

    def __init__(self, constant=0, epsilon=None, random_state=None):
        super().__init__(strategy="constant", random_state=random_state, constant=constant)
        self.epsilon = epsilon

    def planned_privacy(self, n_samples):
        return self.privacy_

    def _check_rows(self, X, y, sensitive_features):
        pass

    _count_right = staticmethod(RateConstrainedClassifier._count_right)


def choices_of_searches(canary, epsilon):
    """Which label the winners of searches predict; of 16 rows held out 7 or 8 have label 1."""
    search, chosen = PrivateGridSearch(Predicts(), {"constant": [0, 1]}, epsilon=epsilon), []
    for seed in range(400):
        y, (_, held_out) = np.arange(64) % 2, holdout_split(64, 0.25, seed)
        y[held_out] = np.arange(16) < 7 + canary
        search.set_params(random_state=seed).fit(y[:, None], y)
        chosen.append(search.best_params_["constant"])
    return chosen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_the_audit_of_searches_stays_below_the_claim_and_sees_half_the_noise(epsilon):
    """One record that is held out has one label or the other."""
    choices = (choices_of_searches(canary, epsilon) for canary in (0, 1))
    audited = epsilon_lower_bound(*choices, delta=1e-9)
    assert 0.3 < audited <= epsilon
    assert (audited > 1.0) == (epsilon == 2.0)


class Scripted:
    """One of two workers, which is told what the other has given; at first that is nothing."""

    size = 2

    def __init__(self, rank, of_other=()):
        self.rank = rank
        self.given = []
        self._of_other = iter(of_other)

    def sum(self, tensor):
        self.given.append(tensor)
        return tensor + next(self._of_other, 0)


def outputs_of_two(with_canary):
    """What the second worker sees, which has the canary.

    What the first gives does not depend on what it sees, as all weights on tables are zero.
    """
    data = batch(N_ROWS + with_canary, 0.0)
    parts = torch.tensor_split(torch.arange(len(data.y)), 2)

    def seen_by(worker):
        rng = SharedGenerator(torch.Generator().manual_seed(int(with_canary)), worker)
        return outputs_of(data.take(parts[worker.rank]), len(data.y), "gaussian", rng)

    first = Scripted(0)
    seen_by(first)
    return seen_by(Scripted(1, first.given))


def noise_for_the_first_only(patch):
    """The others get the sum without noise."""

    def broken(rng, part, noise):
        total = rng.workers.sum(torch.from_numpy(part)).numpy()
        return total + noise if rng.workers.rank == 0 else total

    patch.setattr(mechanisms, "_released", broken)


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "n_samples"), [(None, 6000), (noise_for_the_first_only, 1500)])
def test_two_workers_stay_below_the_claim_of_one_unless_something_is_broken(
    broken, n_samples, monkeypatch
):
    """At half the rate of the others: twice the rate, a batch of all for each, would be seen."""
    monkeypatch.setitem(globals(), "RATE", 0.5)
    monkeypatch.setitem(globals(), "N_SAMPLES", n_samples)
    if broken:
        broken(monkeypatch)
    audited, claimed = compared(*map(outputs_of_two, (False, True)), "gaussian")
    assert audited > 0.5 * claimed
    assert (audited > claimed) == bool(broken)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(20_000, 20), (20, 20_000), (500, 500)])
def test_outputs_of_one_law_have_a_positive_bound_at_most_as_often_as_said(sizes):
    """At confidence .95 in 10 of 200 trials or fewer, up to what chance adds to that (binomial)."""
    rng = np.random.default_rng(0)
    positive = 0
    for _ in range(200):
        samples = [rng.normal(size=size) for size in sizes]
        positive += epsilon_lower_bound(*samples, delta=1e-5, confidence=0.95) > 0
    assert positive <= 20


@pytest.mark.parametrize("sizes", [(20_000, 400), (400, 20_000)])
def test_unequal_numbers_still_see_a_difference(sizes):
    """Noise of multiplier 1/2 on a sum: the bound is positive and below the claim."""
    rng = np.random.default_rng(0)
    samples = [rng.normal(shift, 0.5, size) for shift, size in zip((0, 1), sizes, strict=True)]
    bound = epsilon_lower_bound(*samples, delta=1e-5)
    assert 1.0 < bound <= privacy_spent([Phase([Gaussian(0.5)])], delta=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"with_row": np.zeros(19)}, r"with_row must be .* at least 20 outputs"),
        ({"without": np.full(100, np.nan)}, "without must hold finite numbers"),
        ({"delta": -1.0}, "delta must be at least 0 and below 1; got -1.0"),
        ({"confidence": 99}, "confidence must be a number between 0 and 1; got 99"),
    ],
)
def test_what_would_give_a_bound_of_nothing_is_refused(changes, message):
    outputs = {"without": np.zeros(100), "with_row": np.ones(100), "delta": 1e-5}
    with pytest.raises(ValueError, match=message):
        epsilon_lower_bound(**outputs | changes)


UNITS = ("sensitive_features", "record")
N_STEPS, STEP_RATE = 1500, 0.3


def equal_rows(group_of_canary):
    """Equal rows and a canary, the last one, which lies alone along the first feature."""
    X = torch.zeros((N_ROWS, 2), dtype=torch.float64)
    X[:, 1], X[-1, 0], X[-1, 1] = 0.1, 100.0, 0.0
    group = torch.tensor([0, 1] * (N_ROWS // 2))
    group[-1] = group_of_canary
    y = torch.tensor([1] * (N_ROWS - 1) + [0])
    return Rows((DenseFeatures(X),), y, group, torch.ones(N_ROWS, dtype=torch.float64))


def parts_of(data, plan):
    stack = Stack(SPACE, [DemographicParity().bind(SPACE, 1.0)])
    zeros, ones = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    counts = torch.full((2,), N_ROWS / 2).double()
    return LinearModel(1, zeros, ones, True), data, stack, counts, Releases(plan), 0.0, N_ROWS


DUAL = torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64)


class OwnRows(AttributeFermi):
    """Without the public gradient, which all can subtract if its rows are drawn apart."""

    def _of_public(self, dual, scores, y):
        return torch.zeros_like(scores)


def step_outputs(group_of_canary):
    """Gradient along the canary's feature, and its entry of the table, of many steps."""
    budget, step = Budget(1.0, DELTA, UNITS[0]), {"histogram": 0.2, "gradient": 0.8}
    one = plan_releases({}, budget, step=step, sampling_rate=STEP_RATE)
    plan = plan_of(Phase(one.phases[0].releases, STEP_RATE, 2 * N_STEPS), unit=UNITS[0])
    problem = OwnRows(*parts_of(equal_rows(group_of_canary), plan), weight=1.0)
    rng = torch.Generator().manual_seed(group_of_canary)
    x = torch.zeros(3, dtype=torch.float64)
    out = []
    for _ in range(N_STEPS):
        table, gradient = problem.release(x, lambda table: DUAL, 0.5, rng)
        gradient = float(gradient[0]) * STEP_RATE * problem.n_rows / 0.5
        table = table * STEP_RATE
        out.append((gradient, float((table[1] - table[0]).sum() / 2**0.5)))
    gradient, table = np.array(out).T
    return gradient / plan.noise("gradient") ** 2, table / plan.noise("histogram") ** 2


@pytest.mark.slow
def test_the_audit_of_a_step_stays_below_the_claim():
    """By the likelihood ratio's leading part: both releases, each by its precision.

    Steps on whole records are those of rates, which are audited above.
    """
    before, after = map(step_outputs, (0, 1))
    signs = [np.sign(a.mean() - b.mean()) for a, b in zip(after, before, strict=True)]
    sides = (zip(signs, side, strict=True) for side in (before, after))
    samples = (sum(sign * part for sign, part in side) for side in sides)
    assert epsilon_lower_bound(*samples, delta=DELTA) <= 1.0


@pytest.mark.parametrize("table", ["labels", "probabilities"])
@pytest.mark.parametrize(
    ("kind", "unit"), [(AttributeFermi, UNITS[0]), (RecordFermi, UNITS[1])], ids=UNITS
)
def test_a_step_without_noise_is_that_of_the_saddle_form(kind, unit, table, monkeypatch):
    """On all rows, unclipped: the gradients of FERMI, and a table of labels or probabilities."""
    answered_by(monkeypatch, without_noise)
    step = {"histogram": 0.2, "gradient": 0.8}
    plan = plan_releases({}, Budget(1.0, DELTA, unit), step=step)
    data = equal_rows(0)
    model, _, stack, _, *rest = parts_of(data, plan)
    counts = stack.partition.place(data.y, data.group, data.weight).counts()
    problem = kind(model, data, stack, counts, *rest, weight=1.0)
    x = torch.tensor([0.02, -1.0, 0.3], dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    released, gradient = problem.release(x, lambda table: DUAL, 1e9, rng, table)
    information = problem.information
    penalty = {"information": information, "weight": 1.0}
    exact = FermiERM(model, data, MeanLoss(log_loss), stack, 0.0, **penalty)
    on_x, on_dual = exact.saddle_gradients(x, DUAL, torch.arange(N_ROWS), table)
    torch.testing.assert_close(gradient / gradient.norm(), on_x / on_x.norm())
    ascent = information.ascent(DUAL, released)
    torch.testing.assert_close(ascent, on_dual)
    whole = bool((released == released.round()).all())
    assert whole == (table == "labels")

"""Audit of DP-FERMI's releases: the claim holds, and broken variants are seen."""

import numpy as np
import pytest
import torch

from fairconstrained.constraints import DemographicParity, EqualizedOdds, Space
from fairconstrained.constraints.moments import Stack
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Budget, Phase
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems import Rows
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.private.erm import AttributeFermi, RecordFermi
from fairconstrained.problems.private.secret_groups import SecretGroups
from tests.helpers.releases import answered_by, plan_of, without_noise

UNITS = ("sensitive_features", "record")
N_ROWS, DELTA, N_SAMPLES, RATE = 6, 0.02, 1500, 0.3
SPACE = Space([0, 1], ["a", "b"])


def rows(group_of_canary, with_canary=True):
    """Equal rows and a canary, the last one, which lies alone along the first feature."""
    X = torch.zeros((N_ROWS, 2), dtype=torch.float64)
    X[:, 1], X[-1, 0], X[-1, 1] = 0.1, 100.0, 0.0
    group = torch.tensor([0, 1] * (N_ROWS // 2))
    group[-1] = group_of_canary
    y = torch.tensor([1] * (N_ROWS - 1) + [0])
    data = Rows((DenseFeatures(X),), y, group, torch.ones(N_ROWS, dtype=torch.float64))
    return data.take(torch.arange(N_ROWS - (not with_canary)))


def parts(data, plan):
    stack = Stack(SPACE, [DemographicParity().bind(SPACE, 1.0)])
    zeros, ones = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    counts, n_rows = torch.full((2,), N_ROWS / 2).double(), len(data.y)
    return LinearModel(1, zeros, ones, True), data, stack, counts, Releases(plan), 0.0, n_rows


DUAL = torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64)
STEPS = 2 * N_SAMPLES


def step_plan(unit):
    """Noise of one step whose joint price is the claim; enough of them for the audit."""
    step = {"histogram": 0.2, "gradient": 0.8}
    one = plan_releases({}, Budget(1.0, DELTA, unit), step=step, sampling_rate=RATE)
    return plan_of(Phase(one.phases[0].releases, RATE, STEPS), unit=unit)


def step_outputs(kind, unit, changed, seed):
    """Gradient along the canary's feature, and its entry of the table, of many steps."""
    plan = step_plan(unit)
    data = rows(int(changed)) if unit == "sensitive_features" else rows(1, with_canary=changed)
    problem = kind(*parts(data, plan), weight=1.0)
    rng = torch.Generator().manual_seed(seed)
    x = torch.zeros(3, dtype=torch.float64)
    out = []
    for _ in range(N_SAMPLES):
        table, gradient = problem.release(x, lambda table: DUAL, 0.5, rng)
        gradient = float(gradient[0]) * RATE * problem.n_rows / 0.5
        table = table * RATE
        out.append((gradient, float((table[1] - table[0]).sum() / 2**0.5)))
    gradient, table = np.array(out).T
    return gradient / plan.noise("gradient") ** 2, table / plan.noise("histogram") ** 2


def audited(kind, unit):
    """The likelihood ratio's leading part: both releases, each by its precision."""
    before, after = (step_outputs(kind, unit, c, int(c)) for c in (False, True))
    signs = [np.sign(a.mean() - b.mean()) for a, b in zip(after, before, strict=True)]
    return epsilon_lower_bound(
        *(sum(s * part for s, part in zip(signs, side, strict=True)) for side in (before, after)),
        delta=DELTA,
    )


class OwnRows(AttributeFermi):
    """Without the public gradient, which all can subtract if its rows are drawn apart."""

    def _of_public(self, dual, scores, y):
        return torch.zeros_like(scores)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "unit"), [(OwnRows, UNITS[0]), (RecordFermi, UNITS[1])])
def test_the_audit_of_a_step_stays_below_the_claim(kind, unit):
    bound = audited(kind, unit)
    assert bound <= 1.0


@pytest.mark.parametrize("notion", [DemographicParity(), EqualizedOdds()], ids=lambda n: n.name)
def test_one_person_moves_the_sums_by_no_more_than_was_priced(notion, monkeypatch):
    """Without noise: replacing a group moves a release by at most twice its sensitivity."""
    rng = np.random.default_rng(0)
    space = Space([0, 1], list("abcd"))
    stack = Stack(space, [notion.bind(space, 1.0)])
    n, queries = 20, torch.as_tensor(rng.normal(size=(20, 3)))
    y, group = (torch.as_tensor(rng.integers(k, size=n)) for k in (2, 4))
    weight = torch.as_tensor(rng.exponential(size=n))
    moved, asked = [], answered_by(monkeypatch, without_noise)
    for i in range(n):
        for g in (int(group[i]), (int(group[i]) + 1) % 4):
            own = group.clone()
            own[i] = g
            data = Rows((DenseFeatures(queries),), y, own, weight)
            plan = plan_releases({"q": 0.99}, Budget(1.0, 1e-3, "sensitive_features"))
            model, *_, releases, alpha, _ = parts(data, plan)
            public = FairERM(model, data, MeanLoss(log_loss), stack, alpha)
            problem = SecretGroups(public, own, weight.new_ones(stack.n_parts), releases)
            problem.release("q", queries, None)
        (_, _, before), (_, deviation, after) = asked[-2:]
        moved.append(plan.noise("q") * float((after - before).norm()) / deviation)
    assert 1.0 < max(moved) <= 2.0 + 1e-6


@pytest.mark.parametrize("table", ["labels", "probabilities"])
@pytest.mark.parametrize(
    ("kind", "unit"), [(AttributeFermi, UNITS[0]), (RecordFermi, UNITS[1])], ids=UNITS
)
def test_a_step_without_noise_is_that_of_the_saddle_form(kind, unit, table, monkeypatch):
    """On all rows, unclipped: the gradients of FERMI, and a table of labels or probabilities."""
    answered_by(monkeypatch, without_noise)
    step = {"histogram": 0.2, "gradient": 0.8}
    plan = plan_releases({}, Budget(1.0, DELTA, unit), step=step)
    data = rows(0)
    model, _, stack, _, *rest = parts(data, plan)
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

"""DPFermiClassifier(epsilon=...): what it keeps, what it tells, what it refuses, and an audit."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fairconstrained import DPFermiClassifier, private_fermi, private_problem, private_scaling
from fairconstrained.constraints import DemographicParity, EqualizedOdds, Space, Stack
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.features import DenseFeatures
from fairconstrained.losses import log_loss
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.models import Linear
from fairconstrained.objectives import MeanLoss
from fairconstrained.privacy import Gaussian, Phase, plan_releases, plan_training, privacy_spent
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.private_fermi import AttributeFermi, RecordFermi, SecretGroups
from fairconstrained.problem import Batch
from fairconstrained.solvers import DPFERMI, ClosedFormNoise, NoisyTables, ReleasedMoments

LARGE = make_biased_classification(20_000, 6, bias=0.6, random_state=0)
UNITS = ("sensitive_features", "record")
SOLVERS = {
    "sensitive_features": [ReleasedMoments(), NoisyTables(n_steps=40), DPFERMI(n_steps=40)],
    "record": [NoisyTables(n_steps=40), DPFERMI(n_steps=40)],
}
every_solver = pytest.mark.parametrize(
    ("unit", "solver"),
    [(unit, solver) for unit in UNITS for solver in SOLVERS[unit]],
    ids=lambda p: p if isinstance(p, str) else type(p).__name__,
)


def private(fairness="demographic_parity", unit="sensitive_features", n=None, group=None, **params):
    params = {"delta": 1e-6, "random_state": 0, "protect": unit, **params}
    group = LARGE.sensitive_features if group is None else group
    return DPFermiClassifier(fairness, **params).fit(
        LARGE.data[:n], LARGE.target[:n], sensitive_features=group[:n]
    )


def gap_and_error(clf):
    predicted = clf.predict(LARGE.data)
    gap = demographic_parity_difference(
        LARGE.target, predicted, sensitive_features=LARGE.sensitive_features
    )
    return gap, np.mean(predicted != LARGE.target)


# --- what it keeps -------------------------------------------------------------------------------


def test_released_moments_come_near_the_fit_without_privacy():
    exact, private_ = private(penalty=4.0, epsilon=None), private(penalty=4.0)
    (gap, error), (exact_gap, exact_error) = gap_and_error(private_), gap_and_error(exact)
    assert gap == pytest.approx(exact_gap, abs=0.02)
    assert error == pytest.approx(exact_error, abs=0.005)
    assert private_.violation_ == pytest.approx(gap, abs=0.03)


@pytest.mark.parametrize("unit", UNITS)
def test_noisy_tables_lower_the_gap(unit):
    free, fair = (private(unit=unit, penalty=p, n_steps=200) for p in (0.0, 10.0))
    assert gap_and_error(fair)[0] < 0.3 * gap_and_error(free)[0]
    assert fair.violation_ == pytest.approx(gap_and_error(fair)[0], abs=0.03)


@pytest.mark.parametrize("unit", UNITS)
def test_without_penalty_and_noise_all_methods_agree(unit):
    solver = DPFERMI(clip=100.0, batch_size=20_000, n_steps=200)
    clf = private(unit=unit, penalty=0.0, epsilon=1e3, solver=solver)
    exact = private(penalty=0.0, epsilon=None)
    assert clf.score(LARGE.data, LARGE.target) == pytest.approx(
        exact.score(LARGE.data, LARGE.target), abs=0.004
    )


def test_records_may_fill_a_corner_of_their_range():
    """Rows that all point the same way: without released centres every fit was a constant."""
    rng = np.random.default_rng(0)
    n = 10_000
    group = rng.integers(2, size=n)
    X = rng.uniform(0.6, 1.0, (n, 40))
    z = 6 * (X[:, :10] - 0.8).sum(axis=1) + (group - 0.5)
    y = (z + 0.5 * rng.logistic(size=n) > 0).astype(int)
    clf = DPFermiClassifier(protect="record", epsilon=2.0, delta=1e-6, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert (clf.predict(X) != y).mean() < 0.25


def test_networks_and_three_groups():
    group = LARGE.sensitive_features + (np.arange(20_000) % 3 == 0)
    solver = ReleasedMoments(n_rounds=2, inner=None)
    clf = private("equalized_odds", group=group, model=(4,), solver=solver, penalty=5.0)
    assert clf.privacy_.epsilon <= 1.0
    assert clf.score(LARGE.data, LARGE.target) > 0.7


# --- what it tells -------------------------------------------------------------------------------


@every_solver
def test_the_promise_covers_every_release(unit, solver, monkeypatch):
    """Every use of noise is one of the phases, and these cost what is said."""
    noise = []
    for module in (private_problem, private_fermi, private_scaling):
        honest = module.with_gaussian_noise

        def noted(value, deviation, rng, honest=honest):
            noise.append(deviation)
            return honest(value, deviation, rng)

        monkeypatch.setattr(module, "with_gaussian_noise", noted)
    monkeypatch.setitem(private_problem.NOISES, "gaussian", private_problem.with_gaussian_noise)
    privacy = private(unit=unit, solver=solver, epsilon=0.7).privacy_
    assert 0.99 * 0.7 <= privacy.epsilon <= 0.7
    assert privacy.unit == unit
    assert privacy_spent(privacy.phases, delta=1e-6, unit=unit) == pytest.approx(privacy.epsilon)
    assert len(noise) == sum(len(phase.releases) * phase.n_steps for phase in privacy.phases)
    assert "group counts" in str(privacy)


@every_solver
@pytest.mark.parametrize("fairness", ["demographic_parity", "equalized_odds"])
def test_nothing_is_told_that_is_not_released(unit, solver, fairness, monkeypatch):
    """With releases that carry noise alone, what a fit tells does not depend on the secret.

    Of groups where these are protected, and of features and labels, too, where records are:
    coefficients, history, number of iterations, status and warnings.
    """

    def only_noise(value, deviation, rng):
        noise = torch.randn(value.shape, generator=rng, dtype=torch.float64)
        return 1500.0 + deviation * noise

    for module in (private_problem, private_fermi, private_scaling):
        monkeypatch.setattr(module, "with_gaussian_noise", only_noise)
    monkeypatch.setitem(private_problem.NOISES, "gaussian", only_noise)
    rng = np.random.default_rng(0)
    X, y, group = LARGE.data[:5000], LARGE.target[:5000], LARGE.sensitive_features[:5000]
    other = (X, y, rng.permutation(1 - group))
    if unit == "record":
        other = (rng.uniform(-1, 3, X.shape), rng.permutation(y), other[2])
    told = []
    for data in ((X, y, group), other):
        clf = DPFermiClassifier(
            fairness, protect=unit, solver=solver, penalty=3.0, delta=1e-6, random_state=0
        )
        clf.fit(data[0], data[1], sensitive_features=data[2])
        attributes = {k: v for k, v in vars(clf).items() if k not in clf.get_params()}
        attributes["history_"].pop("time")
        told.append(attributes)
    assert told[0].keys() == told[1].keys()
    for name, value in told[0].items():
        np.testing.assert_equal(told[1][name], value, err_msg=name)


def test_another_release_is_refused():
    problem = secret_groups(canary=0)
    rng = torch.Generator().manual_seed(0)
    queries = torch.ones((N_ROWS, 1), dtype=torch.float64)
    problem.release("moments", queries, rng)
    with pytest.raises(RuntimeError, match="no release 'moments' is left"):
        problem.release("moments", queries, rng)


@pytest.mark.parametrize("unit", UNITS)
def test_the_papers_noise_says_what_it_costs(unit):
    solver = ClosedFormNoise(n_steps=100, batch_size=500, least_proportion=0.3)
    clf = DPFermiClassifier(protect=unit, solver=solver, random_state=0)
    X, y, group = LARGE.data[:4000], LARGE.target[:4000], LARGE.sensitive_features[:4000]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, y, sensitive_features=group)
    spent = clf.privacy_.epsilon
    assert spent == pytest.approx(privacy_spent(clf.privacy_.phases, delta=1e-5, unit=unit))
    said = any("more than the 1 asked for" in str(w.message) for w in caught)
    assert said == (spent > 1.0)
    assert (spent > 1.0) == (unit == "sensitive_features")
    steps = clf.privacy_.phases[-1]
    assert (steps.n_steps, steps.sampling_rate) == (100, 0.125)


@pytest.mark.parametrize("unit", UNITS)
def test_public_proportions_are_not_released(unit):
    share = LARGE.sensitive_features.mean()
    clf = private(unit=unit, group_proportions={0: 1 - share, 1: share}, penalty=4.0)
    assert "group counts" not in str(clf.privacy_)
    assert gap_and_error(clf)[0] < 0.25
    cells = [[np.mean((LARGE.target == k) & (LARGE.sensitive_features == g)) for g in (0, 1)]
             for k in (0, 1)]  # fmt: skip
    odds = private("equalized_odds", unit, group_proportions=cells)
    assert "group counts" not in str(odds.privacy_)


@pytest.mark.parametrize(
    ("given", "fairness", "message"),
    [
        ({0: 0.5, 1: 0.6}, "demographic_parity", "must add up to 1; they add up to 1.1"),
        ({0: 1.0}, "demographic_parity", r"misses the groups \['1'\]"),
        ({0: 0.5, 1: 0.4, 2: 0.1}, "demographic_parity", r"has \['2'\], which the data do not"),
        ({0: 1.0, 1: 0.0}, "demographic_parity", "must be positive numbers"),
        ([1.0], "demographic_parity", "one entry for each group"),
        (3, "demographic_parity", "one entry for each group"),
        ({0: {0: 0.5, 1: 0.5}}, "equalized_odds", r"misses the labels \['1'\]"),
    ],
)
def test_bad_proportions_are_named(given, fairness, message):
    with pytest.raises(ValueError, match=message):
        private(fairness, group_proportions=given)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"warm_start": True}, "warm_start must be False"),
        ({"solver": ReleasedMoments(), "unit": "record"}, "protect='sensitive_features'"),
        ({"solver": ReleasedMoments(n_rounds=0)}, r"ReleasedMoments\.n_rounds must be"),
        ({"solver": ReleasedMoments(first_share=2.0)}, r"first_share must be in \(0, 1\]"),
        ({"solver": NoisyTables(memory=1.0)}, r"memory must be in \[0, 1\)"),
        ({"solver": DPFERMI(clip=-1.0)}, r"DPFERMI\.clip must be"),
        ({"solver": DPFERMI(step_size=-1.0)}, r"DPFERMI\.step_size must be"),
        ({"solver": DPFERMI(output="best")}, r"DPFERMI\.output must be one of"),
        ({"solver": ClosedFormNoise(n_steps=1)}, "needs at least .* steps"),
        (
            {
                "model": lambda d, k: nn.Sequential(nn.BatchNorm1d(d), nn.Linear(d, k)),
                "solver": DPFERMI(),
            },
            "group normalisation",
        ),
    ],
)
def test_bad_parameters_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        private(n=3000, **params)


def test_weights_are_public_with_the_features_and_refused_with_records():
    weight = np.ones(20_000)
    fit = {"sensitive_features": LARGE.sensitive_features, "sample_weight": 3 * weight}
    plain = private(penalty=4.0)
    weighted = DPFermiClassifier(penalty=4.0, delta=1e-6, random_state=0)
    weighted.fit(LARGE.data, LARGE.target, **fit)
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=1e-3)
    for clf in (DPFermiClassifier(protect="record"), DPFermiClassifier(n_steps=10)):
        with pytest.raises(ValueError, match="sample_weight must be None"):
            clf.fit(LARGE.data, LARGE.target, **fit)


def test_a_tiny_group_is_named_with_its_released_share():
    group = np.where(np.arange(20_000) < 150, "few", LARGE.sensitive_features.astype(str))
    with pytest.warns(SmallGroupWarning, match=r"few makes up 0\.\d+% .* released counts.*sqrt"):
        private(group=group, epsilon=9.0)


# --- audit ---------------------------------------------------------------------------------------

N_ROWS, DELTA, N_SAMPLES, RATE = 6, 0.02, 1500, 0.3
SPACE = Space([0, 1], ["a", "b"])


def rows(group_of_canary, with_canary=True):
    """Equal rows and a canary, the last one, which lies alone along the first feature."""
    X = torch.zeros((N_ROWS, 2), dtype=torch.float64)
    X[:, 1], X[-1, 0], X[-1, 1] = 0.1, 100.0, 0.0
    group = torch.tensor([0, 1] * (N_ROWS // 2))
    group[-1] = group_of_canary
    y = torch.tensor([1] * (N_ROWS - 1) + [0])
    data = Batch(DenseFeatures(X), y, group, torch.ones(N_ROWS, dtype=torch.float64))
    return data.rows(torch.arange(N_ROWS - (not with_canary)))


def parts(data, plan):
    stack = Stack(SPACE, [DemographicParity().bind(SPACE, 1.0, 1.0)])
    zeros, ones = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    return {
        "model": Linear(1, zeros, ones, True),
        "data": data,
        "alpha": 0.0,
        "constraint": stack,
        "counts": torch.full((2,), N_ROWS / 2).double(),
        "information": MutualInformation.within(stack),
        "weight": 1.0,
        "plan": plan,
    }


def secret_groups(canary):
    plan = plan_releases({"moments": 1.0}, epsilon=1.0, delta=DELTA, unit="sensitive_features")
    return SecretGroups(risk=MeanLoss(log_loss), **parts(rows(canary), plan))


def released_sums(canary, seed):
    """The canary's query is the longest; its coordinate, group a minus group b."""
    problem = secret_groups(canary)
    queries = torch.zeros((N_ROWS, 2), dtype=torch.float64)
    queries[:, 0], queries[-1] = 0.5, torch.tensor([0.0, 2.0])
    rng = torch.Generator().manual_seed(seed)
    outputs = []
    for _ in range(N_SAMPLES):
        problem._left = dict(problem.plan.noise)
        sums, _ = problem.release("moments", queries, rng)
        outputs.append(float(sums[1, 0, 1] - sums[1, 1, 1]))
    return np.array(outputs)


def test_the_audit_of_released_moments_stays_below_the_claim():
    audited = epsilon_lower_bound(released_sums(1, 0), released_sums(0, 1), delta=DELTA)
    assert 0.2 <= audited <= 1.0


def test_the_audit_sees_noise_for_the_mean_instead_of_the_longest_row(monkeypatch):
    honest = private_fermi.with_gaussian_noise
    monkeypatch.setattr(
        private_fermi, "with_gaussian_noise", lambda v, s, rng: honest(v, 0.4 * s, rng)
    )
    assert epsilon_lower_bound(released_sums(1, 0), released_sums(0, 1), delta=DELTA) > 1.0


DUAL = torch.tensor([[2.0, -2.0], [-2.0, 2.0]], dtype=torch.float64)
STEPS = 2 * N_SAMPLES


def step_plan(unit):
    """Noise of one step whose joint price is the claim; enough of them for the audit."""
    one = plan_training(
        epsilon=1.0, delta=DELTA, unit=unit, sampling_rate=RATE, n_steps=1, histogram_share=0.2
    )
    return replace(one, privacy=replace(one.privacy, n_steps=STEPS))


def step_outputs(kind, unit, changed, seed):
    """Gradient along the canary's feature, and its entry of the table, of many steps."""
    plan = step_plan(unit)
    data = rows(int(changed)) if unit == "sensitive_features" else rows(1, with_canary=changed)
    problem = kind(loss=log_loss, **parts(data, plan))
    rng = torch.Generator().manual_seed(seed)
    x = torch.zeros(3, dtype=torch.float64)
    out = []
    for _ in range(N_SAMPLES):
        released = problem.release_saddle(x, lambda table: DUAL, 0.5, rng)
        gradient = float(released.gradient[0]) * RATE * problem.n_rows / 0.5
        table = released.table * RATE
        out.append((gradient, float((table[1] - table[0]).sum() / 2**0.5)))
    gradient, table = np.array(out).T
    return gradient / plan.gradient_noise**2, table / plan.histogram_noise**2


def audited(kind, unit):
    """The likelihood ratio's leading part: both releases, each by its precision."""
    before, after = (step_outputs(kind, unit, c, int(c)) for c in (False, True))
    signs = [np.sign(a.mean() - b.mean()) for a, b in zip(after, before, strict=True)]
    return epsilon_lower_bound(
        *(sum(s * part for s, part in zip(signs, side, strict=True)) for side in (before, after)),
        delta=DELTA,
    )


class SameRows(AttributeFermi):
    """The paper's: exact public gradients of the very rows that the noisy ones come from."""

    def _next_rows(self, rng):
        self._seen = super()._next_rows(rng)
        return self._seen

    def _public_rows(self, rng):
        return self._seen

    def _of_public(self, dual, scores, y):
        # Large where the canary is in the batch, whose label is 0: the batch is known.
        return (10.0 * len(y) * (y == 0).to(scores))[:, None]


class OwnRows(AttributeFermi):
    """Without the public gradient, which all can subtract if its rows are drawn apart."""

    def _of_public(self, dual, scores, y):
        return torch.zeros_like(scores)


@pytest.mark.parametrize(
    ("kind", "unit"), [(OwnRows, "sensitive_features"), (RecordFermi, "record")]
)
def test_the_audit_of_a_step_stays_below_the_claim(kind, unit):
    bound = audited(kind, unit)
    assert bound <= 1.0


def test_the_audit_sees_public_gradients_of_the_same_rows(monkeypatch):
    """Who knows the batches needs only look at those with the canary: no gain by sampling."""
    sides = []
    for changed in (False, True):
        gradient, table = step_outputs(SameRows, "sensitive_features", changed, int(changed))
        plan = step_plan("sensitive_features")
        exact = 1e3 * RATE * N_ROWS / 0.5 / plan.gradient_noise**2
        present = gradient > exact / 2
        score = (gradient - exact * present) + table
        sides.append(np.where(present, score, 0.0))
    sign = np.sign(sides[1].mean() - sides[0].mean())
    assert epsilon_lower_bound(sign * sides[0], sign * sides[1], delta=DELTA) > 1.0


@pytest.mark.parametrize("unit", UNITS)
def test_the_audit_sees_a_clip_that_is_skipped(unit, monkeypatch):
    honest = Linear.linearize_rows

    def unclipped(self, w, X):
        scores, clipped = honest(self, w, X)
        return scores, lambda cotangent, max_norm: clipped(cotangent, 10 * max_norm)

    monkeypatch.setattr(Linear, "linearize_rows", unclipped)
    kind = {"sensitive_features": OwnRows, "record": RecordFermi}[unit]
    assert audited(kind, unit) > 1.0


@pytest.mark.parametrize("notion", [DemographicParity(), EqualizedOdds()], ids=lambda n: n.name)
def test_one_person_moves_the_sums_by_no_more_than_was_priced(notion):
    """Without noise: replacing a group moves a release by at most twice its sensitivity."""
    rng = np.random.default_rng(0)
    space = Space([0, 1], list("abcd"))
    stack = Stack(space, [notion.bind(space, 1.0, 1.0)])
    n, queries = 50, torch.as_tensor(rng.normal(size=(50, 3)))
    y, group = (torch.as_tensor(rng.integers(k, size=n)) for k in (2, 4))
    weight = torch.as_tensor(rng.exponential(size=n))
    moved = []
    for i in range(n):
        sums = []
        for g in (int(group[i]), (int(group[i]) + 1) % 4):
            own = group.clone()
            own[i] = g
            data = Batch(DenseFeatures(queries), y, own, weight)
            plan = plan_releases({"q": 1.0}, epsilon=1.0, delta=1e-3, unit="sensitive_features")
            problem = SecretGroups(risk=None, **{**parts(data, plan), "constraint": stack,
                "information": MutualInformation.within(stack)})  # fmt: skip
            problem._left = {"q": 1e-12}
            found, deviation = problem.release("q", queries, torch.Generator().manual_seed(0))
            sums.append(found)
        moved.append(float((sums[0] - sums[1]).norm()) / (deviation / 1e-12))
    assert max(moved) <= 2.0
    assert max(moved) > 1.0
    assert privacy_spent([Phase([Gaussian(1.0)])], delta=1e-3, unit="sensitive_features") > 0


@pytest.mark.parametrize("unit", UNITS)
def test_with_nothing_to_compare_it_trains_privately_without_penalty(unit):
    one_group = np.zeros(len(LARGE.target), dtype=int)
    clf = private(unit=unit, n=4000, group=one_group, epsilon=5.0, solver=NoisyTables(n_steps=40))
    assert np.mean(clf.predict(LARGE.data) == LARGE.target) > 0.6


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
def test_no_record_decides_whether_a_fit_ends():
    """Squares of such entries overflow: a fit that fails by them would give the row away."""
    X = np.vstack((LARGE.data[:1000], np.full((1, 6), 1e160)))
    clf = DPFermiClassifier(
        protect="record", epsilon=5.0, delta=1e-4, batch_size=900, n_steps=20, random_state=0
    )
    clf.fit(X, LARGE.target[:1001], sensitive_features=LARGE.sensitive_features[:1001])
    assert np.isfinite(clf.coef_).all()

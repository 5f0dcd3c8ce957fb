"""An accountant that shares no code with ours agrees with plans that are set up at random.

Losses of a step are integrated on a grid, rounded to the nearest multiple, and composed by Fourier
transforms: an estimate without the upward rounding of ours.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import irfft, rfft
from scipy.stats import norm
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.model_selection import PrivateGridSearch
from fairconstrained.solvers import DPFERMI, DPSGDA, NoisyTables
from tests.helpers.private_fits import DATA, fitted

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]
SIZE, REACH = 1 << 17, 40.0  # numbers of the grid of losses, and its end
STEP = 2 * REACH / SIZE
RECORDS = ("record", "record_replacement")


def log_densities(x, q, shift, replaces):
    """Of a batch with the row, and with what stands in its place."""
    out = norm.logpdf(x)
    if q == 1:
        return norm.logpdf(x, shift), norm.logpdf(x, -shift) if replaces else out
    rest = math.log1p(-q) + out
    one = np.logaddexp(rest, math.log(q) + norm.logpdf(x, shift))
    other = np.logaddexp(rest, math.log(q) + norm.logpdf(x, -shift)) if replaces else out
    return one, other


def losses(q, shift, replaces, reverse):
    """Probabilities of the losses of one step, by their places on the grid."""
    x = np.linspace(-12 - shift, 12 + shift, 400_001)
    upper, lower = log_densities(x, q, shift, replaces)[:: -1 if reverse else 1]
    place = np.rint((upper - lower) / STEP).astype(int) % SIZE
    mass = np.exp(upper)
    return np.bincount(place, mass / mass.sum(), SIZE)


def independent_epsilon(phases, delta, unit):
    replaces, worst = unit != "record", 0.0
    for reverse in (False, True):
        spectrum = 1.0
        for phase in phases:
            shift = math.sqrt(sum(1 / release.noise**2 for release in phase.releases))
            one = losses(phase.sampling_rate, shift, replaces, reverse)
            spectrum = spectrum * rfft(one) ** phase.n_steps
        mass = np.roll(irfft(spectrum, SIZE), SIZE // 2).clip(0.0)
        loss = (np.arange(SIZE) - SIZE // 2) * STEP
        # The divergence at each loss of the grid: above it, mass less e^epsilon times its mirror.
        above = np.cumsum(mass[::-1])[::-1]
        tilted = np.cumsum((mass * np.exp(-loss.clip(-30.0)))[::-1])[::-1]
        divergence = above - np.exp(loss) * tilted
        worst = max(worst, float(loss[np.flatnonzero(divergence > delta)[-1]]))
    return worst


steps = st.fixed_dictionaries({"n_steps": st.integers(1, 60)})
rates = st.floats(0.02, 0.9) | st.just(1.0)
deltas = st.sampled_from([1e-6, 1e-4, 1e-2])
budgets = st.fixed_dictionaries({"epsilon": st.floats(0.2, 8.0), "delta": deltas})


def set_ups(data):
    given, rate = {**data.draw(budgets), "protect": data.draw(st.sampled_from(RECORDS))}, 0.0
    of_steps, rate = data.draw(steps), data.draw(rates)
    kind = data.draw(st.sampled_from(["rates", "penalty", "groups", "ranking"]))
    if kind == "rates":
        solver = DPSGDA(sampling_rate=rate, **of_steps)
        return RateConstrainedClassifier(solver=solver, **given)
    if kind == "penalty":
        solver = data.draw(st.sampled_from([DPFERMI, NoisyTables]))
        return DPFermiClassifier(solver=solver(batch_size=int(1000 * rate), **of_steps), **given)
    if kind == "groups":
        return DPFermiClassifier(**given | {"protect": "sensitive_features"})
    given.pop("protect")
    return AUCFairClassifier(**given)


@given(data=st.data())
@settings(max_examples=15)
def test_plans_that_are_set_up_at_random_cost_what_another_accountant_says(data):
    plan = set_ups(data).planned_privacy(1000)
    other = independent_epsilon(plan.phases, plan.delta, plan.unit)
    assert 0.995 * other - 2 * STEP <= plan.epsilon <= 1.02 * other + 0.01


HEAD = FrozenEstimator(LogisticRegression().fit(DATA.data, DATA.target))


@given(
    model=st.sampled_from(["linear", HEAD]),
    unit=st.sampled_from(RECORDS),
    rate=rates,
    steps=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    budget=budgets,
)
@settings(max_examples=5)
def test_so_do_searches_over_linear_models_and_public_heads(model, unit, rate, steps, budget):
    solver = DPSGDA(n_steps=1, sampling_rate=rate)
    clf = RateConstrainedClassifier(model=model, protect=unit, solver=solver)
    search = fitted(PrivateGridSearch(clf, {"solver__n_steps": steps}, **budget))
    phases = [phase for one in search.estimators_ for phase in one.privacy_.phases]
    other = independent_epsilon(phases, budget["delta"], unit)
    assert other <= 1.005 * search.privacy_.epsilon + 2 * STEP
    assert search.privacy_.epsilon == budget["epsilon"] <= 1.05 * other + 0.01

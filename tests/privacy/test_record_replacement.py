"""A record in place of another moves sums twice as far as in place of none: priced, and audited."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.constraints import DemographicParity, Space, Stack
from fairconstrained.datasets import make_biased_classification
from fairconstrained.losses import log_loss
from fairconstrained.models import LinearModel
from fairconstrained.models.features import DenseFeatures
from fairconstrained.privacy import Gaussian, Phase, privacy_spent
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems import Rows
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.problems.private.moments import plan_moments
from fairconstrained.solvers import DPSGDA, Budget, NoisyTables
from tests.helpers.releases import plan_of

DATA = make_biased_classification(4000, 6, bias=0.6, random_state=0)

RATE, DELTA, CLIP, N_SAMPLES = 6 / 7, 0.02, 0.5, 6_000
GRADIENT_NOISE, TABLE_NOISE = 2.0, 1e3  # the table does not tell the neighbours apart
STEP = Phase([Gaussian(TABLE_NOISE, "histogram"), Gaussian(GRADIENT_NOISE, "gradient")], RATE)


def claim(unit):
    return privacy_spent([STEP], delta=DELTA, unit=unit)


def gradients(label, seed):
    """Noisy gradients along the canary's feature: its sign is that of its label."""
    X = torch.zeros((7, 2), dtype=torch.float64)
    X[6, 1] = 100.0
    y = torch.tensor([1, 1, 1, 0, 0, 0, label])
    weight = torch.ones(7, dtype=torch.float64)
    data = Rows((DenseFeatures(X),), y, torch.tensor([0, 1, 0, 1, 0, 1, 0]), weight)
    one = torch.ones(2, dtype=torch.float64)
    stack = Stack(Space([0, 1], ["a", "b"]), [DemographicParity().bind(Space([0, 1], "ab"), 0.1)])
    releases = Releases(plan_of(Phase(STEP.releases, RATE, N_SAMPLES)))
    counts = torch.ones(stack.n_parts, dtype=torch.float64)
    model = LinearModel(1, 0 * one, one, True)
    problem = PrivateERM(model, data, log_loss, stack, 0.0, counts, releases)
    rng, x = torch.Generator().manual_seed(seed), torch.zeros(3, dtype=torch.float64)
    no_dual = torch.zeros(problem.n_constraints).double()
    drawn = [problem.release(x, lambda _: no_dual, CLIP, rng)[1][1] for _ in range(N_SAMPLES)]
    return torch.stack(drawn).numpy() * RATE * 7 / CLIP


def loss(gradient):
    """Log likelihood ratio of the two canaries."""

    def density(shift):
        near, far = (-0.5 * ((gradient - s) / GRADIENT_NOISE) ** 2 for s in (0.0, shift))
        return np.logaddexp(np.log(1 - RATE) + near, np.log(RATE) + far)

    return density(1.0) - density(-1.0)


@pytest.mark.slow
def test_the_audit_of_a_replaced_record_is_between_both_claims():
    """Above the one for a null record, which promises less, and below the one for replacement."""
    samples = [loss(gradients(label, seed)) for seed, label in enumerate((1, 0))]
    bound = epsilon_lower_bound(*samples, delta=DELTA)
    assert claim("record") < bound <= claim("record_replacement")


@pytest.mark.parametrize(("epsilon", "steps", "moments"), [(0.1, 0.21, 0.21), (9.0, 18.6, 22.2)])
def test_what_replacing_a_record_costs_where_a_null_record_was_meant(epsilon, steps, moments):
    """The figures of the documentation: the default steps on 20,000 rows, and a private ranking."""
    budget = Budget(epsilon, 1e-5, "record")
    plans = DPSGDA().plan(20_000, budget), plan_moments(budget)
    for plan, expected in zip(plans, (steps, moments), strict=True):
        replaced = privacy_spent(plan.phases, delta=1e-5, unit="record_replacement")
        assert replaced == pytest.approx(expected, rel=0.03)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "clf",
    [
        RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=5)),
        PartialParityClassifier(solver=DPSGDA(n_steps=5)),
        DPFermiClassifier(solver=NoisyTables(n_steps=5)),
        AUCFairClassifier(),
    ],
    ids=["rates", "partial", "fermi", "ranking"],
)
def test_it_is_calibrated_for(clf):
    """The guarantee is within the budget for replacement, and much below it for a null record."""
    budget = Budget(1.0, 1e-5, "record_replacement")
    clf = clone(clf).set_params(epsilon=budget, delta=0.5, random_state=0)
    clf.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)
    privacy = clf.privacy_
    assert privacy.delta == 1e-5
    assert 0.97 <= privacy.epsilon <= 1.0
    assert privacy.unit == "record_replacement"
    assert privacy_spent(privacy.phases, delta=1e-5, unit="record") < 0.9
    assert "replace one record by any other" in str(privacy)


def test_a_budget_is_the_long_form_of_three_parameters():
    """Number, delta and unit, and the same in one object, give the same fit."""
    short = RateConstrainedClassifier(
        epsilon=1.0, delta=1e-6, protect="record_replacement", solver=DPSGDA(n_steps=5)
    )
    long = RateConstrainedClassifier(
        epsilon=Budget(1.0, 1e-6, "record_replacement"), solver=DPSGDA(n_steps=5)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [
            clone(clf)
            .set_params(random_state=0)
            .fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)
            for clf in (short, long)
        ]
    assert fits[0].privacy_ == fits[1].privacy_
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(0.0, 1e-5, "record"), r"epsilon\.epsilon must be a finite number > 0; got 0\.0"),
        (Budget(1.0, 1.0, "record"), r"epsilon\.delta must be a number in"),
        (Budget(1.0, 1e-5, "sensitive_features"), r"epsilon\.unit must be one of \['record', 'rec"),
    ],
)
def test_a_budget_is_checked(budget, message):
    clf = AUCFairClassifier(epsilon=budget)
    with pytest.raises(ValueError, match=rf"AUCFairClassifier\.{message}"):
        clf.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)


def test_other_units_are_refused():
    clf = RateConstrainedClassifier(epsilon=1.0, protect="sensitive_features")
    with pytest.raises(ValueError, match=r"protect must be one of \['record', 'record_rep"):
        clf.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)

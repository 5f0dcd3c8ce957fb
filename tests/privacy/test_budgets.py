"""What plans of solvers cost: by another accountant, for a replaced record, and in a fit."""

import importlib
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.privacy import Budget, privacy_spent
from fairconstrained.problems.private.moments import plan_moments
from fairconstrained.solvers import DPFERMI, DPSGDA, NoisyTables, ReleasedMoments

DATA = make_biased_classification(4000, 6, bias=0.6, random_state=0)


@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 0.22), (1.0, 2.2), (9.0, 22.0)])
def test_what_replacing_a_record_costs_where_a_null_record_was_meant(epsilon, most):
    """The figures of the documentation: the default steps on few rows, and a private ranking."""
    budget = Budget(epsilon, 1e-5, "record")
    for plan in (DPSGDA().plan(300, budget), plan_moments(budget)):
        replaced = privacy_spent(plan.phases, delta=1e-5, unit="record_replacement")
        assert 0.95 * most < replaced <= most


def test_the_price_of_a_ranking_is_stated_however_large():
    assert 690 < plan_moments(Budget(700.0, 1e-5, "record")).epsilon <= 700


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "unit"),
    [
        (DPSGDA().plan, "record"),
        (DPSGDA().plan, "record_replacement"),
        (NoisyTables(n_steps=50).plan, "record"),
        (DPFERMI(n_steps=50).plan, "sensitive_features"),
        (ReleasedMoments().plan, "sensitive_features"),
        (lambda _, budget: plan_moments(budget), "record_replacement"),
    ],
)
def test_plans_cost_what_the_accountant_of_dp_accounting_finds(plan, unit):
    """Never less, and at most 1 % more; its grid is fixed, and takes seconds."""
    dp, pld = map(importlib.import_module, ("dp_accounting", "dp_accounting.pld"))
    relation = dp.NeighboringRelation
    related = relation.ADD_OR_REMOVE_ONE if unit == "record" else relation.REPLACE_ONE
    theirs = pld.PLDAccountant(related, value_discretization_interval=1e-3)
    planned = plan(5000, Budget(2.0, 1e-5, unit))
    for phase in planned.phases:
        joint = sum(release.noise**-2 for release in phase.releases) ** -0.5
        event = dp.PoissonSampledDpEvent(phase.sampling_rate, dp.GaussianDpEvent(joint))
        theirs.compose(event, phase.n_steps)
    assert 1.0 <= planned.epsilon / theirs.get_epsilon(1e-5) * (1 + 1e-5) <= 1.01


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "clf",
    [
        RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=5)),
        DPFermiClassifier(solver=NoisyTables(n_steps=5)),
        AUCFairClassifier(),
    ],
    ids=["rates", "fermi", "ranking"],
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

"""What plans of solvers cost: by another accountant, for a replaced record, and in a fit."""

import builtins
import functools
import importlib
import json
import math
import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.privacy import (
    Budget,
    Gaussian,
    Laplace,
    Phase,
    calibrate,
    privacy_guarantee,
    privacy_spent,
)
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems.private.moments import plan_moments
from fairconstrained.solvers import DPSGDA, NoisyTables
from tests.helpers.releases import DELTA, few, spent, units

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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_budget_is_the_long_form_of_three_parameters():
    """Number, delta and unit, and the same in one object, give the same fit."""
    short = {"epsilon": 1.0, "delta": 1e-6, "protect": "record_replacement"}
    clf = RateConstrainedClassifier(solver=DPSGDA(n_steps=5), random_state=0)
    fits = [
        clone(clf)
        .set_params(**given)
        .fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)
        for given in (short, {"epsilon": Budget(*short.values())})
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


@pytest.mark.slow
@given(
    epsilon=st.floats(0.05, 10),
    q=st.one_of(st.floats(1e-3, 0.5), st.just(1.0)),
    n=st.integers(1, 3000),
    share=st.sampled_from([0.1, 0.5]),
    laplace=st.sampled_from([(), ("table",)]),
    unit=units,
)
@example(epsilon=1.0, q=0.001, n=10_000, share=0.1, laplace=(), unit="sensitive_features")
@settings(max_examples=12)
def test_a_plan_spends_its_budget_and_no_more(epsilon, q, n, share, laplace, unit):
    laplace = laplace if unit == "record" else ()
    fractions, step = {"counts": 0.02, "final": 0.02}, {"table": share, "gradient": 1 - share}
    budget = Budget(epsilon, DELTA, unit)
    plan = plan_releases(
        fractions, budget, times={"final": 2}, step=step, sampling_rate=q, n_steps=n,
        laplace=laplace,
    )  # fmt: skip
    assert 0.99 * epsilon <= plan.epsilon <= epsilon
    assert (plan.unit, plan.sampling_rate, plan.n_steps) == (unit, q, n)
    assert {name: times for name, (_, times) in plan.releases.items()} == {
        "counts": 1, "final": 2, "table": n, "gradient": n,
    }  # fmt: skip
    assert (plan.noise("gradient") / plan.noise("table")) ** -2 == pytest.approx(
        (1 - share) / share
    )
    assert plan.noise("counts") == pytest.approx(plan.noise("final") / 2**0.5, rel=1e-3)  # rounding
    assert plan.noise("nothing") == math.inf
    assert privacy_spent(plan.phases, delta=DELTA, unit=unit) == pytest.approx(plan.epsilon)


def test_calibration_refuses_a_budget_that_is_already_spent():
    def phases_at(noise):
        return [Phase([Gaussian(3.0)]), Phase([Gaussian(noise)], 0.1, 10)]

    with pytest.raises(ValueError, match=r"fixed beforehand spend epsilon = 1\.27"):
        calibrate(phases_at, epsilon=1.0, delta=DELTA)
    assert calibrate(phases_at, epsilon=2.0, delta=DELTA) > 0


def test_hardly_any_noise_suffices_where_delta_exceeds_the_sampling():
    """A row that is in no batch but with probability q < delta is (0, delta)-private anyway."""
    noise = calibrate(lambda s: [Phase([Gaussian(s)], 1e-4)], epsilon=1.0, delta=2e-4)
    assert noise < 0.1
    assert spent(Gaussian(noise), q=1e-4, delta=2e-4) == 0


def test_a_template_in_which_noise_does_not_help_is_refused():
    with pytest.raises(ValueError, match="No noise below 1e\\+09 keeps epsilon"):
        calibrate(
            lambda s: [Phase([Gaussian(1.0 if s < math.inf else s)])], epsilon=1.0, delta=DELTA
        )


@given(share=st.floats(0.01, 0.99), epsilon=st.floats(0.1, 8), unit=units)
@few
def test_fractions_are_of_the_variance_of_the_loss(share, epsilon, unit):
    """The squared shift is split, after what rounding adds to it, whatever is planned besides."""
    budget = Budget(epsilon, DELTA, unit)
    part, most = (plan_releases({"a": f}, budget).releases["a"][0] for f in (share, 0.99))
    assert 0.985 * epsilon <= spent(most, unit=unit) <= epsilon
    assert part.shift == pytest.approx(most.shift * math.sqrt(share / 0.99))


def test_a_guarantee_can_be_read_aloud():
    phases = [
        Phase([Gaussian(20.0, of="group counts")]),
        Phase([Laplace(4.0, of="histogram"), Gaussian(3.0, of="gradient")], 0.014, 200),
    ]
    guarantee = privacy_guarantee(phases, delta=DELTA)
    assert guarantee.epsilon == privacy_spent(phases, delta=DELTA)
    assert (guarantee.sampling_rate, guarantee.n_steps) == (0.014, 200)
    assert guarantee.mechanisms == (
        "group counts with Gaussian noise, multiplier 20, from all rows, once",
        "histogram with Laplace noise, scale 4 and gradient with Gaussian noise, multiplier 3, "
        "from one Poisson batch a step (sampling rate 0.014), 200 times",
    )
    text = str(guarantee)
    for words in (*guarantee.mechanisms, "replace one record by a null record", "dp-accounting 0."):
        assert words in text
    assert f"epsilon = {guarantee.epsilon:.2f}"[:13] in text
    assert "epsilon=0.3" in repr(guarantee)
    assert "phases" not in repr(guarantee)
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    with pytest.raises(AttributeError):
        guarantee.epsilon = 0.0
    for words in ("Assumed:", "random_state=None", "number of rows is public"):
        assert words in text
    card = json.loads(json.dumps(guarantee.to_dict()))
    assert (card["epsilon"], card["protected"]) == (guarantee.epsilon, "record")
    assert card["releases"] == list(guarantee.mechanisms)


@given(noise=st.floats(0.1, 1e3))
@few
def test_a_printed_epsilon_is_not_below_the_spent_one(noise):
    guarantee = privacy_guarantee([Phase([Gaussian(noise)])], delta=DELTA)
    printed = float(re.search(r"epsilon = (\S+) ", str(guarantee))[1])
    assert guarantee.epsilon * (1 - 1e-9) <= printed <= 1.011 * guarantee.epsilon


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian(0.0), "noise_multiplier must be positive; got 0.0"),
        (lambda: Laplace(math.nan), "scale must be positive; got nan"),
        (lambda: Phase([], 0.0), r"sampling_rate must be in \(0, 1\]; got 0.0"),
        (lambda: Phase([], 0.5, 2.5), "n_steps must be a positive integer; got 2.5"),
        (lambda: Gaussian("1"), "noise_multiplier must be positive; got '1'"),
        (lambda: Phase([], "1"), r"sampling_rate must be in \(0, 1\]; got '1'"),
        (lambda: Phase([], 0.5, math.inf), "n_steps must be a positive integer; got inf"),
        (lambda: spent(delta="1"), "delta must be at least 1e-10 and below 1; got '1'"),
        (lambda: spent(delta=1.0), "delta must be at least 1e-10 and below 1; got 1.0"),
        (lambda: spent(unit="row"), "unit must be one of .*; got 'row'"),
        (
            lambda: spent(Laplace(1.0), Gaussian(1.0), q=0.1, unit="sensitive_features"),
            "no known worst case for unit=.sensitive_features.*: use Gaussian noise",
        ),
        (lambda: calibrate(lambda s: [], epsilon=-1.0, delta=DELTA), "epsilon must be positive"),
        (lambda: plan({"a": 0.0}), r"fraction of 'a' must be in \(0, 1\); got 0.0"),
        (lambda: plan({"a": 0.6, "b": 0.6}), r"more than 1: leave 1 % because"),
        (lambda: plan({"a": 1e-13}), "less than what rounding costs"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


plan = functools.partial(plan_releases, budget=Budget(1.0, DELTA, "record"))


def test_without_the_library_it_is_named(monkeypatch):
    """Declaring releases needs nothing; asking for numbers names the library."""
    for name in [name for name in sys.modules if name.split(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    plain_import = builtins.__import__

    def blocked(name, *args, **kwargs):
        if name.split(".")[0] == "dp_accounting":
            raise ImportError(name)
        return plain_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", blocked)
    monkeypatch.setattr(importlib, "import_module", lambda name: blocked(name))
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        spent(Gaussian(1.2345), q=0.1)
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        plan({"a": 0.5})

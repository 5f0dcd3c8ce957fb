"""Privacy accounting: published figures, closed forms, bounds' direction; what plans cost."""

import builtins
import functools
import importlib
import itertools
import json
import math
import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import laplace, norm
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
from tests.helpers.releases import DELTA, few, noises, spent, steps, units

pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
Relation = importlib.import_module("dp_accounting").NeighboringRelation
RELATION = {"record": Relation.ADD_OR_REMOVE_ONE, "sensitive_features": Relation.REPLACE_ONE}


JOINT = [(0.014, 200, 3.0, 4.0, 0.2985, 0.285), (0.005, 5000, 1.0, 2.0, 2.31, 2.05)]


@pytest.mark.parametrize(("q", "n", "s", "b", "joint", "naive"), JOINT)
def test_one_batch_is_one_joint_release(q, n, s, b, joint, naive):
    """Composing the subsampled mechanisms as if each drew its own batch understates epsilon."""
    got = spent(Laplace(b), Gaussian(s), q=q, n=n)
    assert got == pytest.approx(joint, rel=3e-3)
    separate = pld.from_laplace_mechanism(b, sampling_prob=q).self_compose(n)
    separate = separate.compose(pld.from_gaussian_mechanism(s, sampling_prob=q).self_compose(n))
    understated = separate.get_epsilon_for_delta(DELTA)
    assert understated == pytest.approx(naive, rel=3e-3)
    assert understated < 0.97 * got
    apart = [Phase([Laplace(b)], q, n), Phase([Gaussian(s)], q, n)]
    assert privacy_spent(apart, delta=DELTA) == pytest.approx(understated, rel=3e-3)


# Moments accountants are looser than privacy-loss distributions.
@pytest.mark.parametrize(
    ("q", "n", "s", "published"),
    [
        (0.01, 10_000, 4.0, 1.26),  # Abadi et al. (2016), Section 3.2
        (256 / 60_000, 14_062, 1.1, 3.0),  # TensorFlow Privacy's tutorial on MNIST, 60 epochs
    ],
)
def test_published_figures_of_private_sgd(q, n, s, published):
    """Below the published figure, and below Renyi accounting of today by at most 15 %."""
    dp = importlib.import_module("dp_accounting")
    renyi = importlib.import_module("dp_accounting.rdp").RdpAccountant()
    renyi.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(s)), n)
    bound = renyi.get_epsilon(DELTA)
    assert bound < published
    assert 0.85 * bound < spent(Gaussian(s), q=q, n=n) < bound


def test_what_the_notebook_of_raco_costs():
    """Adult, "epsilon 1": its own accountant composes separate batches and finds 10.83."""
    gaussian, laplace_, q = Gaussian(4.0), Laplace(2.0), 4096 / 29_676
    costs = functools.partial(spent, q=q, n=1000, delta=1e-4)
    assert costs(gaussian) == pytest.approx(4.34, rel=2e-3)
    assert costs(laplace_) == pytest.approx(9.21, rel=2e-3)
    apart = [Phase([gaussian], q, 1000), Phase([laplace_], q, 1000)]
    assert privacy_spent(apart, delta=1e-4) == pytest.approx(10.83, rel=2e-3)
    assert 11.1 < costs(gaussian, laplace_) < 11.3


def of_library(one, n):
    """Epsilon of n steps of a distribution of dp-accounting, on its default grid of 1e-4."""
    return one.self_compose(n).get_epsilon_for_delta(DELTA)


@pytest.mark.slow
@given(sigma=noises, q=st.floats(1e-3, 0.3) | st.just(1.0), n=st.integers(1, 60), unit=units)
@example(sigma=18.3, q=0.2, n=150, unit="sensitive_features")
@example(sigma=1.0, q=0.01, n=1000, unit="record")
@few
def test_sampled_gaussians_are_those_of_dp_accounting_on_a_fine_grid(sigma, q, n, unit):
    one = pld.from_gaussian_mechanism(sigma, sampling_prob=q, neighboring_relation=RELATION[unit])
    theirs = of_library(one, n)
    assert theirs * 0.998 - 2e-4 <= spent(Gaussian(sigma), q=q, n=n, unit=unit)
    assert spent(Gaussian(sigma), q=q, n=n, unit=unit) <= theirs * 1.003 + 1e-6


@given(scale=st.floats(0.5, 20.0), q=st.floats(0.01, 1.0), n=st.integers(1, 100))
@few
def test_sampled_laplace_is_that_of_dp_accounting_on_a_fine_grid(scale, q, n):
    theirs = of_library(pld.from_laplace_mechanism(scale, sampling_prob=q), n)
    assert theirs * 0.998 - 1e-4 <= spent(Laplace(scale), q=q, n=n) <= theirs * 1.004 + 1e-6


def gaussian_divergence(epsilon, shift):
    """Of N(shift, 1) from N(0, 1) at e^epsilon."""
    above, below = norm.cdf(np.array([shift, -shift]) / 2 - epsilon / shift)
    return above - math.exp(epsilon) * below


@given(sigma=noises, n=st.integers(1, 100), unit=units)
@few
def test_all_rows_are_the_analytic_gaussian(sigma, n, unit):
    """Balle and Wang (2018): delta(epsilon) of one Gaussian with sqrt(n) times the shift."""
    epsilon = spent(Gaussian(sigma), n=n, unit=unit)
    shift = math.sqrt(n) * (2 if unit == "sensitive_features" else 1) / sigma
    if epsilon:
        assert gaussian_divergence(epsilon, shift) <= DELTA
        assert gaussian_divergence(epsilon * 0.999, shift) > DELTA


def test_ten_thousand_convolutions_do_not_lose_accuracy():
    """Joint releases of all rows are composed step by step; the closed form is known."""
    n, sigma = 10_000, 100.0
    epsilon = spent(Gaussian(sigma), Laplace(1e9), n=n)
    shift = math.sqrt(n) / sigma
    delta, with_less = (gaussian_divergence(e, shift) for e in (epsilon, epsilon * 0.995))
    assert delta <= DELTA < with_less


@given(s=noises, t=noises, q=st.floats(0.01, 1.0), n=steps, unit=units)
@few
def test_two_gaussians_of_a_batch_are_one(s, t, q, n, unit):
    joint = spent(Gaussian(s), Gaussian(t), q=q, n=n, unit=unit)
    one = (s**-2 + t**-2) ** -0.5  # up to what rounding costs: two releases are rounded twice
    assert joint == pytest.approx(spent(Gaussian(one), q=q, n=n, unit=unit), rel=1e-4)


def test_phases_add_up_between_the_largest_and_the_sum():
    counts, first = Phase([Gaussian(20.0)]), Phase([Gaussian(2.0)], 0.02, 300)
    second = Phase([Laplace(9.0), Gaussian(1.5)], 0.01, 99)
    alone = [privacy_spent([phase], delta=DELTA) for phase in (counts, first, second)]
    together = privacy_spent([counts, first, second], delta=DELTA)
    assert max(alone) < together < sum(alone)
    assert privacy_spent([second, counts, first], delta=DELTA) == pytest.approx(together, rel=1e-9)
    # Splitting a phase changes nothing.
    halves = [Phase(first.releases, 0.02, 150)] * 2
    assert privacy_spent(halves, delta=DELTA) == pytest.approx(alone[1], rel=1e-6)
    # Nothing released costs nothing.
    assert privacy_spent([], delta=DELTA) == privacy_spent([Phase([])], delta=DELTA) == 0


def test_laplace_alone_is_pure_differential_privacy():
    """One release of all rows: 1/b for the record, and 2/b when a row is replaced."""
    assert spent(Laplace(4.0), delta=1e-10) == pytest.approx(0.25, rel=1e-2)
    twice = spent(Laplace(4.0), delta=1e-10, unit="sensitive_features")
    assert twice == pytest.approx(0.5, rel=1e-2)


def test_replacing_a_row_of_all_doubles_both_shifts():
    """Without sampling, Laplace noise is accounted for in both units."""
    n = 20
    replaced = spent(Laplace(30.0), Gaussian(40.0), n=n, unit="sensitive_features")
    assert replaced == pytest.approx(spent(Laplace(15.0), Gaussian(20.0), n=n), rel=2e-3)
    assert replaced > 1.5 * spent(Laplace(30.0), Gaussian(40.0), n=n)


def test_hardly_any_noise_is_infinite_at_once():
    assert spent(Gaussian(1e-3)) == spent(Laplace(1e-3), q=0.5, n=100) == math.inf
    assert spent(Gaussian(0.7), q=0.7, n=400, unit="sensitive_features") == math.inf
    assert spent(Gaussian(0.1), q=0.9, n=10_000) == math.inf
    assert spent(Gaussian(1e-300)) == spent(Laplace(1e-300)) == math.inf
    assert spent(Laplace(0.06), Gaussian(0.03), q=1e-100) == math.inf  # e^loss is no double


LARGE_DELTA = 0.02  # integrals are good to some 1e-5


def divergence(x, z, upper, lower, epsilon):
    """Hockey-stick divergence at e^epsilon of two densities on a grid."""
    excess = np.maximum(upper - math.exp(epsilon) * lower, 0)
    return trapezoid(trapezoid(excess, z, axis=1), x)


@pytest.mark.parametrize(("a", "m", "q"), [(1.0, 0.7, 0.3), (0.4, 1.5, 0.6), (2.0, 0.5, 1.0)])
def test_a_joint_release_is_the_mixture_of_products(a, m, q):
    """(1 - q) Q + q P against Q, in the worse direction, with products P and Q."""
    x = np.arange(-12 / a, 12 / a + 1, 1 / 100)  # Laplace outcome, unit shift; kinks at 0 and 1
    x -= x[np.argmin(np.abs(x))]
    z = np.linspace(-7, 7 + m, 401)  # Gaussian outcome, unit noise
    with_row = np.outer(laplace.pdf(x, 1, 1 / a), norm.pdf(z, m))
    without = np.outer(laplace.pdf(x, 0, 1 / a), norm.pdf(z))
    mixture = (1 - q) * without + q * with_row
    epsilon = spent(Laplace(1 / a), Gaussian(1 / m), q=q, delta=LARGE_DELTA)
    remove = divergence(x, z, mixture, without, epsilon)
    add = divergence(x, z, without, mixture, epsilon)
    assert max(remove, add) == pytest.approx(LARGE_DELTA, rel=5e-3)


@pytest.mark.parametrize(("m", "q"), [(0.5, 0.2), (1.5, 0.05), (3.0, 0.5)])
def test_antipodal_contributions_are_the_worst_replacement(m, q):
    """Over pairs of contributions v, v' of norm at most 1, in two dimensions."""
    z = np.linspace(-6 - m, 6 + m, 801)
    epsilon = spent(Gaussian(1 / m), q=q, delta=LARGE_DELTA, unit="sensitive_features")

    def law(v):
        inside = np.outer(norm.pdf(z, m * v[0]), norm.pdf(z, m * v[1]))
        return (1 - q) * np.outer(norm.pdf(z), norm.pdf(z)) + q * inside

    angles = np.pi * np.array([1.0, 0.9, 0.75, 0.5, 0.25])
    for angle, size in itertools.product(angles, (1.0, 0.5)):
        w = size * np.array([np.cos(angle), np.sin(angle)])
        got = divergence(z, z, law(np.array([1.0, 0.0])), law(w), epsilon)
        assert got <= LARGE_DELTA + 1e-5
        if angle == np.pi and size == 1:
            assert got == pytest.approx(LARGE_DELTA, rel=5e-3)
        elif angle <= 0.75 * np.pi and m < 3:  # beyond, nearly all of delta is of the rate
            assert got < 0.99 * LARGE_DELTA


def test_weight_on_one_entry_is_the_worst_for_laplace():
    """A row with l1 norm 1 over two entries of a table: all on one entry loses most."""
    b = 0.8
    x = np.linspace(-20, 21, 2051)
    epsilon = spent(Laplace(b), delta=LARGE_DELTA)
    lower = np.outer(laplace.pdf(x, 0, b), laplace.pdf(x, 0, b))
    for share in (0.5, 0.3, 0.1):
        upper = np.outer(laplace.pdf(x, share, b), laplace.pdf(x, 1 - share, b))
        assert divergence(x, x, upper, lower, epsilon) < LARGE_DELTA


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


RATES = RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=5))
FERMI = DPFermiClassifier(solver=NoisyTables(n_steps=5))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("clf", [RATES, FERMI, AUCFairClassifier()], ids=["rates", "fermi", "AUCs"])
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
    short = {"epsilon": 1.0, "delta": 1e-6, "protect": "record_replacement"}
    clf = RateConstrainedClassifier(solver=DPSGDA(n_steps=5), random_state=0)
    long = {"epsilon": Budget(*short.values())}
    fits = [clone(clf).set_params(**given) for given in (short, long)]
    for one in fits:
        one.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)
    assert fits[0].privacy_ == fits[1].privacy_
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


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
    steps = {"step": step, "sampling_rate": q, "n_steps": n, "laplace": laplace}
    plan = plan_releases(fractions, budget, times={"final": 2}, **steps)
    assert 0.99 * epsilon <= plan.epsilon <= epsilon
    assert (plan.unit, plan.sampling_rate, plan.n_steps) == (unit, q, n)
    times = {name: times for name, (_, times) in plan.releases.items()}
    assert times == {"counts": 1, "final": 2, "table": n, "gradient": n}
    ratio = (plan.noise("table") / plan.noise("gradient")) ** 2
    assert ratio == pytest.approx((1 - share) / share)
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
        (lambda: Phase([3]), r"releases must list objects of Gaussian and Laplace; got \[3\]"),
        (lambda: Phase(Gaussian(1.0)), "releases must list objects of Gaussian and Laplace"),
        (lambda: spent(unit=["row"]), r"unit must be one of .*; got \['row'\]"),
        (lambda: privacy_spent(Phase([]), delta=DELTA), "phases must list objects of Phase; got P"),
        (lambda: privacy_guarantee([3], delta=DELTA), r"list objects of Phase; got \[3\]"),
        (lambda: calibrate(3, epsilon=1.0, delta=DELTA), "phases_at must be a function .*; got 3"),
        (lambda: calibrate(lambda s: 3, epsilon=1.0, delta=DELTA), "list objects of Phase; got 3"),
        (lambda: calibrate(lambda s: [], epsilon=-1.0, delta=DELTA), "must be a finite number > 0"),
        (lambda: calibrate(lambda s: [], epsilon=1.0, delta=DELTA), "must cost more with less"),
        (
            lambda: calibrate(lambda s: [], epsilon=math.inf, delta=DELTA),
            "finite number > 0; got inf",
        ),
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

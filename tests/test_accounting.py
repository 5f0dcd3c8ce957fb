"""Privacy accounting: published figures, closed forms, and the bounds' direction."""

import builtins
import functools
import importlib
import itertools
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import laplace, norm

from fairconstrained.privacy import (
    Gaussian,
    Laplace,
    Phase,
    calibrate,
    fermi_closed_form_sigmas,
    one_off_gaussian,
    plan_training,
    privacy_guarantee,
    privacy_spent,
)
from fairconstrained.privacy._loss_distributions import (
    Batch,
    _epsilon_on_grid,
    directions,
    gaussian_divergence,
    unsampled,
)

pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
Relation = importlib.import_module("dp_accounting").NeighboringRelation

DELTA = 1e-5
RELATION = {
    "record": Relation.ADD_OR_REMOVE_ONE,
    "sensitive_features": Relation.REPLACE_ONE,
}
rates = st.floats(1e-3, 0.9)
noises = st.floats(0.7, 20.0)
steps = st.integers(1, 500)
units = st.sampled_from(list(RELATION))
few = settings(max_examples=15)


def spent(*releases, q=1.0, n=1, delta=DELTA, unit="record"):
    return privacy_spent([Phase(releases, q, n)], delta=delta, unit=unit)


# --- published and known figures -----------------------------------------------------------------

FIGURES = [  # rate, steps, Gaussian, Laplace, joint epsilon, epsilon of separate batches
    (0.014, 200, 3.0, 4.0, 0.2985, 0.285),
    (0.014, 2000, 2.0, 4.0, 1.486, 1.436),
    (0.005, 5000, 1.0, 2.0, 2.31, 2.05),
]


@pytest.mark.parametrize(("q", "n", "s", "b", "joint", "naive"), FIGURES)
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


@pytest.mark.parametrize(
    ("claimed", "alone", "joint"),
    [(0.5, 0.413, 0.592), (1.0, 0.851, 1.225), (3.0, 2.742, 4.026), (9.0, 10.01, 16.63)],
)
def test_what_the_noise_of_dp_fermi_costs(claimed, alone, joint):
    """Theorem 3.3 on Adult (n = 33,916, batch 1024, 6,800 steps, delta = 1/n^2).

    One gradient keeps the claim, the two together do not. A row shifts the mean of a batch by the
    paper's sensitivities, Delta_w^2 = 8 / (m^2 rho) and Delta_theta^2 = 8 (D L)^2 / (m^2 rho).
    """
    n, m, rho, lipschitz, dual = 33_916, 1024, 0.3, 2.0, 1.5
    sigma_theta, sigma_w = fermi_closed_form_sigmas(
        epsilon=claimed,
        delta=1 / n**2,
        n_rows=n,
        n_steps=6800,
        batch_size=m,
        least_proportion=rho,
        lipschitz=lipschitz,
        dual_bound=dual,
    )
    unit = math.sqrt(8 / rho) / m
    theta, w = Gaussian(sigma_theta / (unit * dual * lipschitz)), Gaussian(sigma_w / unit)
    assert theta.noise_multiplier == pytest.approx(w.noise_multiplier)
    costs = functools.partial(spent, q=m / n, n=6800, delta=1 / n**2)
    assert costs(theta) == pytest.approx(alone, rel=2e-3)
    assert costs(theta, w) == pytest.approx(joint, rel=2e-3)


def test_what_the_notebook_of_raco_costs():
    """Adult, "epsilon 1": sigma 4, Laplace scale 2, 1000 batches of 4096 of 29,676, delta 1e-4.

    Its own accountant composes separate batches and finds 10.83 (4.34 and 9.21 alone).
    """
    gaussian, laplace_, q = Gaussian(4.0), Laplace(2.0), 4096 / 29_676
    costs = functools.partial(spent, q=q, n=1000, delta=1e-4)
    assert costs(gaussian) == pytest.approx(4.34, rel=2e-3)
    assert costs(laplace_) == pytest.approx(9.21, rel=2e-3)
    apart = [Phase([gaussian], q, 1000), Phase([laplace_], q, 1000)]
    assert privacy_spent(apart, delta=1e-4) == pytest.approx(10.83, rel=2e-3)
    assert 11.1 < costs(gaussian, laplace_) < 11.3


def test_attribute_setting_of_the_prototype():
    """Epsilon 1, delta 1e-5, replace one, rate 0.2, 150 steps: multiplier 18.3."""
    assert spent(Gaussian(18.3), q=0.2, n=150, unit="sensitive_features") == pytest.approx(
        1.0, rel=3e-3
    )


def on_grid(batch, interval, unit="record"):
    """Our numbers on a given grid, with the library's cut."""
    pair = directions(batch, math.exp(-50), replace=unit == "sensitive_features")
    return _epsilon_on_grid([(batch.n_steps, pair)], DELTA, interval)


@given(
    sigma=st.floats(1.5, 20.0),
    q=st.one_of(st.floats(1e-3, 0.3), st.just(1.0)),
    n=st.integers(1, 200),
    unit=units,
)
@example(sigma=18.3, q=0.2, n=150, unit="sensitive_features")
@example(sigma=1.0, q=0.01, n=1000, unit="record")
@few
def test_sampled_gaussians_are_those_of_dp_accounting(sigma, q, n, unit):
    """The library's constructor, on the same grid; and our choice of the grid is fine enough."""
    one = pld.from_gaussian_mechanism(
        sigma,
        value_discretization_interval=1e-3,
        sampling_prob=q,
        neighboring_relation=RELATION[unit],
    )
    theirs = one.self_compose(n).get_epsilon_for_delta(DELTA)
    assert on_grid(Batch(q, n, 1 / sigma, 0.0), 1e-3, unit) == pytest.approx(
        theirs, rel=1e-6, abs=1e-9
    )
    assert spent(Gaussian(sigma), q=q, n=n, unit=unit) <= theirs * 1.004 + 1e-6


@given(scale=st.floats(0.5, 20.0), q=st.floats(0.01, 1.0), n=st.integers(1, 100))
@few
def test_sampled_laplace_is_that_of_dp_accounting(scale, q, n):
    one = pld.from_laplace_mechanism(scale, sampling_prob=q, value_discretization_interval=1e-3)
    theirs = one.self_compose(n).get_epsilon_for_delta(DELTA)
    ours = on_grid(Batch(q, n, 0.0, 1 / scale), 1e-3)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9)
    assert spent(Laplace(scale), q=q, n=n) <= theirs * 1.004 + 1e-6


@given(scale=st.floats(0.3, 20.0), q=st.floats(0.01, 1.0), n=st.integers(1, 3))
@few
def test_few_laplace_releases_stay_within_pure_privacy(scale, q, n):
    """The largest possible loss of a step is log(1 + q (e^(1/b) - 1))."""
    assert spent(Laplace(scale), q=q, n=n) <= n * math.log1p(q * math.expm1(1 / scale)) * 1.001


# --- the divergences behind it -------------------------------------------------------------------


def by_quadrature(a, m, q, epsilon, *, direction):
    """Hockey-stick divergence of the sampled product of Laplace and Gaussian, in two dimensions."""
    x = np.arange(-12 / a, 12 / a + 1, 1 / 100)  # Laplace outcome, unit shift; kinks at 0 and 1
    x -= x[np.argmin(np.abs(x))]
    z = np.linspace(-7, 7 + m, 401)  # Gaussian outcome, unit noise
    with_row = np.outer(laplace.pdf(x, 1, 1 / a), norm.pdf(z, m))
    without = np.outer(laplace.pdf(x, 0, 1 / a), norm.pdf(z))
    mixture = (1 - q) * without + q * with_row
    pair = {"remove": (mixture, without), "add": (without, mixture)}[direction]
    excess = np.maximum(pair[0] - math.exp(epsilon) * pair[1], 0)
    return np.trapezoid(np.trapezoid(excess, z, axis=1), x)


@pytest.mark.parametrize("epsilon", [-0.1, 0.0, 0.4])
@pytest.mark.parametrize(("a", "m", "q"), [(1.0, 0.7, 0.3), (0.4, 1.5, 0.6), (2.0, 0.5, 1.0)])
def test_joint_divergence_is_the_double_integral(a, m, q, epsilon):
    """Of the mixture of products (1 - q) Q + q P, in both directions."""
    pairs = directions(Batch(q, 1, m, a), 1e-12, replace=False)
    for direction, pair in itertools.zip_longest(["remove", "add"], pairs, fillvalue=pairs[0]):
        got = pair.divergence(np.array([epsilon]))[0]
        assert got == pytest.approx(by_quadrature(a, m, q, epsilon, direction=direction), abs=1e-4)


def test_the_loss_transform_is_the_divergence_transform():
    """log(1 - q + q e^l) of the unsampled loss l has the divergences used for "remove"."""
    q, batch = 0.1, Batch(0.1, 1, 0.8, 0.5)
    rng = np.random.default_rng(0)
    n = 400_000
    x, z = rng.laplace(1, 1 / batch.laplace, n), rng.normal(batch.gaussian, 1, n)
    member = rng.random(n) < q
    x, z = np.where(member, x, x - 1), np.where(member, z, z - batch.gaussian)
    inner = batch.laplace * (np.abs(x) - np.abs(x - 1)) + batch.gaussian * (z - batch.gaussian / 2)
    loss = np.log1p(q * np.expm1(inner))
    (remove, _) = directions(batch, 1e-12, replace=False)
    for epsilon in (-0.05, 0.0, 0.05, 0.2):
        sample = -np.expm1(epsilon - loss) * (loss > epsilon)
        error = 5 * sample.std() / math.sqrt(n)
        assert abs(remove.divergence(np.array([epsilon]))[0] - sample.mean()) < error


@given(m=st.floats(0.01, 10), a=st.floats(0.01, 5), q=st.floats(1e-4, 1.0), replace=st.booleans())
@settings(max_examples=50)
def test_divergences_decrease_are_convex_and_negligible_outside_their_range(m, a, q, replace):
    """What makes them divergences of some pair, and the discretisation of them pessimistic."""
    batch = Batch(q, 1, m, 0.0 if replace else a)
    for pair in directions(batch, 1e-12, replace=replace):
        epsilon = np.linspace(pair.low, pair.high, 4001)
        delta = pair.divergence(epsilon)
        assert np.all(np.isfinite(delta))
        assert -1e-15 <= delta[-1] <= 1e-11
        assert delta[0] == pytest.approx(-math.expm1(pair.low), abs=1e-9)
        slope = np.diff(delta) / np.diff(np.exp(epsilon))
        assert np.all(np.diff(delta) <= 1e-14)
        noise = 1e-14 / np.minimum(np.diff(np.exp(epsilon))[1:], np.diff(np.exp(epsilon))[:-1])
        assert np.all(np.diff(slope) >= -noise)


@pytest.mark.parametrize(("m", "q"), [(0.5, 0.2), (1.5, 0.05), (3.0, 0.5)])
def test_antipodal_contributions_are_the_worst_replacement(m, q):
    """Over pairs of contributions v, v' of norm at most 1, in two dimensions, at many epsilons."""
    z = np.linspace(-6 - m, 6 + m, 801)
    (worst,) = directions(Batch(q, 1, m, 0.0), 1e-12, replace=True)
    epsilons = np.array([-0.5, 0.0, 0.1, 0.5, 1.5])
    bound = worst.divergence(epsilons)

    def law(v):
        inside = np.outer(norm.pdf(z, m * v[0]), norm.pdf(z, m * v[1]))
        return (1 - q) * np.outer(norm.pdf(z), norm.pdf(z)) + q * inside

    def divergence(v, w, epsilon):
        excess = np.maximum(law(v) - math.exp(epsilon) * law(w), 0)
        return np.trapezoid(np.trapezoid(excess, z, axis=1), z)

    angles = np.pi * np.array([1.0, 0.9, 0.75, 0.5, 0.25])
    for angle, size in itertools.product(angles, (1.0, 0.5)):
        w = size * np.array([np.cos(angle), np.sin(angle)])
        got = [divergence(np.array([1.0, 0.0]), w, epsilon) for epsilon in epsilons]
        assert np.all(got <= bound + 1e-5)
        if angle == np.pi and size == 1:
            assert got == pytest.approx(bound, abs=1e-5)
        elif angle <= 0.75 * np.pi:
            assert got[1] < bound[1] - 1e-4  # the test can tell pairs apart


def test_weight_on_one_entry_is_the_worst_for_laplace():
    """A row with l1 norm 1 over two entries of a table: all on one entry loses most."""
    b = 0.8
    for share, epsilon in itertools.product((0.5, 0.3, 0.1), (0.0, 0.3, 0.9)):
        x = np.linspace(-20, 21, 2051)
        upper = np.outer(laplace.pdf(x, share, b), laplace.pdf(x, 1 - share, b))
        lower = np.outer(laplace.pdf(x, 0, b), laplace.pdf(x, 0, b))
        excess = np.maximum(upper - math.exp(epsilon) * lower, 0)
        split = np.trapezoid(np.trapezoid(excess, x, axis=1), x)
        assert split < unsampled(Batch(1, 1, 0.0, 1 / b), np.array([epsilon]))[0]


# --- identities ----------------------------------------------------------------------------------


@given(sigma=noises, n=st.integers(1, 100), unit=units)
@few
def test_all_rows_are_the_analytic_gaussian(sigma, n, unit):
    """Balle and Wang (2018): delta(epsilon) of one Gaussian with sqrt(n) times the shift."""
    epsilon = spent(Gaussian(sigma), n=n, unit=unit)
    shift = math.sqrt(n) * (2 if unit == "sensitive_features" else 1) / sigma
    if epsilon:
        below, above = gaussian_divergence(np.array([epsilon, epsilon * 0.99]), shift)
        assert below <= DELTA < above


def test_ten_thousand_convolutions_do_not_lose_accuracy():
    """Joint releases of all rows are composed step by step; the closed form is known."""
    n, sigma = 10_000, 100.0
    epsilon = spent(Gaussian(sigma), Laplace(1e9), n=n)
    below, above = gaussian_divergence(np.array([epsilon, epsilon * 0.995]), math.sqrt(n) / sigma)
    assert below <= DELTA < above


@given(s=noises, t=noises, q=st.floats(0.01, 1.0), n=steps, unit=units)
@few
def test_two_gaussians_of_a_batch_are_one(s, t, q, n, unit):
    joint = spent(Gaussian(s), Gaussian(t), q=q, n=n, unit=unit)
    one = (s**-2 + t**-2) ** -0.5
    assert joint == pytest.approx(spent(Gaussian(one), q=q, n=n, unit=unit), rel=1e-9)


@given(s=noises, b=st.floats(0.7, 10), q=rates, n=steps)
@few
def test_a_release_with_huge_noise_is_free(s, b, q, n):
    """Laplace and Gaussian together tend to either alone, from above."""
    alone = spent(Gaussian(s), q=q, n=n)
    assert alone * (1 - 5e-3) <= spent(Gaussian(s), Laplace(1e7), q=q, n=n)
    assert spent(Gaussian(s), Laplace(1e7), q=q, n=n) <= alone * (1 + 5e-3) + 1e-6
    alone = spent(Laplace(b), q=q, n=n)
    together = spent(Gaussian(1e7), Laplace(b), q=q, n=n)
    assert together == pytest.approx(alone, rel=1e-2, abs=1e-5)
    assert spent(Gaussian(math.inf), Laplace(b), q=q, n=n) == alone


@given(s=noises, q=rates, n=steps, unit=units, b=st.sampled_from([1.0, 5.0, math.inf]))
@few
def test_epsilon_grows_with_rate_and_steps_and_falls_with_noise(s, q, n, unit, b):
    """Up to the half percent by which a coarser grid may be above a finer one."""
    b = math.inf if unit == "sensitive_features" else b
    base = spent(Gaussian(s), Laplace(b), q=q, n=n, unit=unit)
    assert spent(Gaussian(s), Laplace(b), q=q / 1.3, n=n, unit=unit) <= base * 1.003
    assert spent(Gaussian(s), Laplace(b), q=q, n=2 * n, unit=unit) >= base * 0.997
    assert spent(Gaussian(1.2 * s), Laplace(b), q=q, n=n, unit=unit) <= base * 1.003
    assert spent(Gaussian(s), Laplace(1.2 * b), q=q, n=n, unit=unit) <= base * 1.003


def test_phases_add_up_between_the_largest_and_the_sum():
    counts = Phase([Gaussian(20.0)])
    first, second = (
        Phase([Gaussian(2.0)], 0.02, 300),
        Phase([Laplace(9.0), Gaussian(1.5)], 0.01, 99),
    )
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
    assert spent(Laplace(4.0), delta=1e-10, unit="sensitive_features") == pytest.approx(
        0.5, rel=1e-2
    )


@pytest.mark.parametrize("n", [1, 20])
def test_replacing_a_row_of_all_doubles_both_shifts(n):
    """Without sampling, Laplace noise is accounted for in both units."""
    replaced = spent(Laplace(30.0), Gaussian(40.0), n=n, unit="sensitive_features")
    assert replaced == pytest.approx(spent(Laplace(15.0), Gaussian(20.0), n=n), rel=2e-3)
    assert replaced > 1.5 * spent(Laplace(30.0), Gaussian(40.0), n=n)


def test_replacing_costs_at_most_removing_and_adding():
    """Group privacy: epsilon at delta (1 + e^epsilon) of two changes is twice that of one."""
    one = spent(Gaussian(2.0), q=0.05, n=200)
    two = spent(
        Gaussian(2.0), q=0.05, n=200, delta=DELTA * (1 + math.exp(one)), unit="sensitive_features"
    )
    assert one < two <= 2 * one


def test_hardly_any_noise_is_infinite_at_once():
    assert spent(Gaussian(1e-3)) == spent(Laplace(1e-3), q=0.5, n=100) == math.inf
    assert spent(Gaussian(0.7), q=0.7, n=400, unit="sensitive_features") == math.inf
    assert spent(Gaussian(0.1), q=0.9, n=10_000) == math.inf


# --- calibration ---------------------------------------------------------------------------------


@given(
    epsilon=st.floats(0.05, 10),
    q=st.one_of(st.floats(1e-3, 0.5), st.just(1.0)),
    n=st.integers(1, 3000),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    kind=st.sampled_from(["gaussian", "laplace"]),
    unit=units,
)
@example(epsilon=1.0, q=0.001, n=10_000, share=0.1, kind="gaussian", unit="sensitive_features")
@settings(max_examples=12)
def test_a_plan_spends_its_budget_and_no_more(epsilon, q, n, share, kind, unit):
    if unit == "sensitive_features":
        kind = "gaussian"
    plan = plan_training(
        epsilon=epsilon,
        delta=DELTA,
        sampling_rate=q,
        n_steps=n,
        unit=unit,
        histogram_share=share,
        histogram_noise=kind,
        counts_share=0.02,
    )
    assert 0.99 * epsilon <= plan.privacy.epsilon <= epsilon
    # The noises of the plan are those of its guarantee.
    releases = [Gaussian(plan.gradient_noise)]
    if share:
        releases.append({"gaussian": Gaussian, "laplace": Laplace}[kind](plan.histogram_noise))
        ratio = plan.gradient_noise**-2 / plan.histogram_noise**-2
        assert ratio == pytest.approx((1 - share) / share)
    phases = [Phase([Gaussian(plan.counts_noise)]), Phase(releases, q, n)]
    again = privacy_spent(phases, delta=DELTA, unit=unit)
    assert again == pytest.approx(plan.privacy.epsilon, rel=1e-9)


def test_calibration_of_the_attribute_setting():
    noise = calibrate(
        lambda s: [Phase([Gaussian(s)], 0.2, 150)],
        epsilon=1.0,
        delta=DELTA,
        unit="sensitive_features",
    )
    assert noise == pytest.approx(18.3, rel=5e-3)


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
    with pytest.raises(ValueError, match="must cost less with more"):
        calibrate(
            lambda s: [Phase([Gaussian(1.0 if s < math.inf else s)])], epsilon=1.0, delta=DELTA
        )


@given(share=st.floats(0.01, 1.0), epsilon=st.floats(0.1, 8), unit=units)
@few
def test_a_one_off_release_takes_its_share(share, epsilon, unit):
    release = one_off_gaussian(share, epsilon=epsilon, delta=DELTA, unit=unit)
    whole = one_off_gaussian(1.0, epsilon=epsilon, delta=DELTA, unit=unit)
    assert spent(whole, unit=unit) == pytest.approx(epsilon, rel=5e-3)
    assert release.noise_multiplier == pytest.approx(whole.noise_multiplier / math.sqrt(share))


def test_closed_form_sigmas_are_those_of_the_theorem():
    """DP-FERMI, Theorem 3.3, with T ln(1/delta) / (epsilon n)^2 = 1e-4 ln(1e5)."""
    given_ = {"epsilon": 1.0, "delta": DELTA, "n_rows": 1000, "n_steps": 100, "batch_size": 200}
    sizes = {"least_proportion": 0.25, "lipschitz": 3.0, "dual_bound": 2.0}
    unit = 1e-4 * math.log(1e5)
    theta, w = fermi_closed_form_sigmas(**given_, **sizes)
    assert (theta**2, w**2) == pytest.approx((16 * 36 * unit / 0.25, 16 * unit / 0.25))
    theta, w = fermi_closed_form_sigmas(**given_, **sizes, n_classes=3, unit="record")
    assert w**2 == pytest.approx(32 * unit * (4 + 4))
    assert theta**2 == pytest.approx(64 * 36 * unit / 0.25 + 32 * 2**4 * 3**2 * 3**2 * unit)
    with pytest.raises(ValueError, match="at least 7 steps; got 6"):
        fermi_closed_form_sigmas(**{**given_, "n_steps": 6}, **sizes)
    with pytest.raises(ValueError, match=r"epsilon <= 2 log\(1/delta\) = 23"):
        fermi_closed_form_sigmas(**{**given_, "epsilon": 24.0}, **sizes)


# --- what a fit reports, and bad input -----------------------------------------------------------


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
    for words in (*guarantee.mechanisms, "add or remove one whole row", "dp-accounting 0."):
        assert words in text
    assert f"epsilon = {guarantee.epsilon:.2f}"[:13] in text
    assert "epsilon=0.3" in repr(guarantee)
    assert "phases" not in repr(guarantee)
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    with pytest.raises(AttributeError):
        guarantee.epsilon = 0.0


@given(epsilon=st.floats(1e-3, 1e3))
@settings(max_examples=200)
def test_a_printed_epsilon_is_not_below_the_spent_one(epsilon):
    from fairconstrained.privacy.accounting import rounded_up

    assert epsilon * (1 - 1e-9) <= float(rounded_up(epsilon)) <= 1.011 * epsilon


def test_full_batches_report_their_steps():
    guarantee = privacy_guarantee([Phase([Gaussian(30.0)], n_steps=50)], delta=DELTA)
    assert (guarantee.sampling_rate, guarantee.n_steps) == (1.0, 50)
    once = privacy_guarantee([Phase([Gaussian(30.0)])], delta=DELTA, unit="sensitive_features")
    assert (once.sampling_rate, once.n_steps) == (1.0, 0)
    assert "replace the sensitive features of one row" in str(once)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian(0.0), "noise_multiplier must be positive; got 0.0"),
        (lambda: Laplace(-1.0), "scale must be positive; got -1.0"),
        (lambda: Gaussian(math.nan), "noise_multiplier must be positive; got nan"),
        (lambda: Phase([], 0.0), r"sampling_rate must be in \(0, 1\]; got 0.0"),
        (lambda: Phase([], 0.5, 0), "n_steps must be a positive integer; got 0"),
        (lambda: Phase([], 0.5, 2.5), "n_steps must be a positive integer; got 2.5"),
        (lambda: spent(delta=0.0), "delta must be at least 1e-10 and below 1; got 0.0"),
        (lambda: spent(delta=1.0), "delta must be at least 1e-10 and below 1; got 1.0"),
        (lambda: spent(unit="row"), "unit must be one of .*; got 'row'"),
        (
            lambda: spent(Laplace(1.0), Gaussian(1.0), q=0.1, unit="sensitive_features"),
            "no known worst case for unit=.sensitive_features.*: use Gaussian noise",
        ),
        (lambda: calibrate(lambda s: [], epsilon=-1.0, delta=DELTA), "epsilon must be positive"),
        (lambda: one_off_gaussian(0.0, epsilon=1.0, delta=DELTA), r"share must be in \(0, 1\]"),
        (lambda: plan(histogram_share=1.0), r"histogram_share must be in \[0, 1\); got 1.0"),
        (lambda: plan(counts_share=-0.1), r"counts_share must be in \[0, 1\); got -0.1"),
        (lambda: plan(histogram_noise="uniform"), "must be one of .*'laplace'.*; got 'uniform'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


plan = functools.partial(plan_training, epsilon=1.0, delta=DELTA, sampling_rate=0.1, n_steps=10)


def test_without_the_library_the_extra_is_named(monkeypatch):
    """Declaring releases needs nothing; asking for numbers names the extra."""
    for name in [name for name in sys.modules if name.split(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    plain_import = builtins.__import__

    def blocked(name, *args, **kwargs):
        if name.split(".")[0] == "dp_accounting":
            raise ImportError(name)
        return plain_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", blocked)
    monkeypatch.setattr(importlib, "import_module", lambda name: blocked(name))
    with pytest.raises(ImportError, match=r"pip install 'fairconstrained\[privacy\]'"):
        spent(Gaussian(1.2345), q=0.1)
    with pytest.raises(ImportError, match=r"fairconstrained\[privacy\]"):
        plan()


def test_importing_the_package_does_not_import_the_library():
    code = (
        "import sys, fairconstrained.privacy, fairconstrained.model_selection; "
        "assert 'dp_accounting' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_divergence_of_a_gaussian_is_its_integral():
    """Guards the one formula that calibration of one-off releases rests on."""
    shift, epsilon = 1.3, 0.7
    excess, _ = quad(
        lambda x: max(norm.pdf(x, shift) - math.exp(epsilon) * norm.pdf(x), 0), -10, 12, limit=200
    )
    assert gaussian_divergence(np.array(epsilon), shift) == pytest.approx(excess, abs=1e-8)

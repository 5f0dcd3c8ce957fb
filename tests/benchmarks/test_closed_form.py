"""The noise of DP-FERMI's Theorem 3.3: what the formulas say, and what they cost."""

import functools
import math
import warnings

import pytest

from benchmarks.closed_form import ClosedFormNoise, fermi_closed_form_sigmas
from fairconstrained import DPFermiClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.privacy import Gaussian, privacy_spent
from tests.helpers.releases import DELTA, spent

pytest.importorskip("dp_accounting")


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


@pytest.mark.parametrize("unit", ["sensitive_features", "record"])
def test_the_papers_noise_says_what_it_costs(unit):
    solver = ClosedFormNoise(n_steps=100, batch_size=500, least_proportion=0.3)
    clf = DPFermiClassifier(protect=unit, solver=solver, random_state=0)
    data = make_biased_classification(4_000, 6, bias=0.6, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    paid = clf.privacy_.epsilon
    assert paid == pytest.approx(privacy_spent(clf.privacy_.phases, delta=1e-5, unit=unit))
    said = any("more than the 1 asked for" in str(w.message) for w in caught)
    assert said == (paid > 1.0)
    assert (paid > 1.0) == (unit == "sensitive_features")
    steps = clf.privacy_.phases[-1]
    assert (steps.n_steps, steps.sampling_rate) == (100, 0.125)


def test_the_theorem_asks_for_steps():
    solver = ClosedFormNoise(n_steps=1)
    data = make_biased_classification(3_000, 6, random_state=0)
    with pytest.raises(ValueError, match=r"needs at least .* steps"):
        DPFermiClassifier(solver=solver, random_state=0).fit(
            data.data, data.target, sensitive_features=data.sensitive_features
        )

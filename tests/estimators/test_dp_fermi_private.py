"""DPFermiClassifier(epsilon=...): what it keeps, what it tells, what it refuses, and an audit."""

import numpy as np
import pytest

from fairconstrained import DPFermiClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.solvers import NoisyTables

LARGE = make_biased_classification(20_000, 6, bias=0.6, random_state=0)
UNITS = ("sensitive_features", "record")


def private(
    constraint="demographic_parity", unit="sensitive_features", n=None, group=None, **params
):
    params = {"delta": 1e-6, "random_state": 0, "protect": unit, **params}
    group = LARGE.sensitive_features if group is None else group
    return DPFermiClassifier(constraint, **params).fit(
        LARGE.data[:n], LARGE.target[:n], sensitive_features=group[:n]
    )


def weighed(weight, **params):
    clf, n = DPFermiClassifier(**{"delta": 1e-6, **params}), len(weight)
    groups = LARGE.sensitive_features[:n]
    return clf.fit(
        LARGE.data[:n], LARGE.target[:n], sensitive_features=groups, sample_weight=weight
    )


def gap_and_error(clf):
    predicted = clf.predict(LARGE.data)
    gap = demographic_parity_difference(
        LARGE.target, predicted, sensitive_features=LARGE.sensitive_features
    )
    return gap, np.mean(predicted != LARGE.target)


@pytest.mark.slow
def test_released_moments_come_near_the_fit_without_privacy():
    exact, private_ = private(penalty=4.0, epsilon=None), private(penalty=4.0)
    (gap, error), (exact_gap, exact_error) = gap_and_error(private_), gap_and_error(exact)
    assert gap == pytest.approx(exact_gap, abs=0.02)
    assert error == pytest.approx(exact_error, abs=0.005)
    assert private_.violation_ == pytest.approx(gap, abs=0.03)


def test_a_penalty_whose_noise_would_underflow_is_none():
    """Otherwise its exact gradients would stand where those of public rows are zero."""
    none, *others = (
        private(n=4000, penalty=p, solver=NoisyTables(n_steps=20)) for p in (0.0, 5e-324, 1e-300)
    )
    for least in others:
        np.testing.assert_array_equal(least.coef_, none.coef_)


@pytest.mark.parametrize("unit", UNITS)
def test_noisy_tables_lower_the_gap(unit):
    free, fair = (
        private(unit=unit, penalty=p, solver=NoisyTables(n_steps=200)) for p in (0.0, 10.0)
    )
    assert gap_and_error(fair)[0] < 0.3 * gap_and_error(free)[0]
    assert fair.violation_ == pytest.approx(gap_and_error(fair)[0], abs=0.03)


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


@pytest.mark.slow
def test_unequal_weights_move_released_moments_as_the_fit_without_privacy():
    """Positives that count thrice: far more rows get the label, with noise or without."""
    weight = np.where(LARGE.target == 1, 3.0, 1.0)
    # From seed to seed the rate moves by .04.
    fits = [weighed(weight, penalty=4.0, random_state=seed) for seed in range(4)]
    exact, plain = weighed(weight, penalty=4.0, epsilon=None), private(penalty=4.0)
    rate = np.mean([clf.predict(LARGE.data).mean() for clf in fits])
    exact_rate, plain_rate = (c.predict(LARGE.data).mean() for c in (exact, plain))
    assert rate == pytest.approx(exact_rate, abs=0.04)
    assert rate > plain_rate + 0.15


@pytest.mark.parametrize("unit", ["record", "record_replacement"])
def test_records_refuse_any_weights(unit):
    """Even ones: whether weights are equal is a fact about secret rows."""
    with pytest.raises(ValueError, match="sample_weight must be None with epsilon"):
        weighed(np.ones(20_000), protect=unit)


def test_gradients_of_single_rows_refuse_unequal_weights():
    with pytest.raises(ValueError, match="sample_weight must be None with NoisyTables"):
        weighed(np.where(LARGE.target == 1, 3.0, 1.0), solver=NoisyTables(n_steps=10))


@pytest.mark.parametrize("unit", UNITS)
def test_with_nothing_to_compare_it_trains_privately_without_penalty(unit):
    one_group = np.zeros(len(LARGE.target), dtype=int)
    clf = private(unit=unit, n=4000, group=one_group, epsilon=5.0, solver=NoisyTables(n_steps=40))
    assert np.mean(clf.predict(LARGE.data) == LARGE.target) > 0.6

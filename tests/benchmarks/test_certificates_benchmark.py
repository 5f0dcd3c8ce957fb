"""The certificates benchmark decides as ``certify`` does, and knows its population."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from benchmarks.certificates import Population
from fairconstrained.metrics import (
    certify,
    demographic_parity_difference,
    equalized_odds_difference,
    false_negative_rate,
)

METRICS = {
    "demographic_parity": demographic_parity_difference,
    "equalized_odds": equalized_odds_difference,
    "false_negative_rate": false_negative_rate,
}


class Given(BaseEstimator):
    """The only column of X is the predicted label."""

    def predict(self, X):
        return X[:, 0]


@pytest.mark.parametrize("constraint", sorted(METRICS))
def test_rates_decide_as_certify(constraint):
    """Same violation, same verdict, on both sides of the bound."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=5000), rng.integers(2, size=5000)
    predicted = (rng.random(5000) < 0.3 + 0.4 * y + 0.02 * group).astype(int)
    of = Population("random", np.zeros((5000, 1)), y, group)
    rows = np.arange(2000)
    rates = of.rates(constraint, predicted, rows)
    groups = None if constraint == "false_negative_rate" else group[rows]
    given = {"constraint": constraint, "sensitive_features": groups}
    certificate = certify(Given(), predicted[rows, None], y[rows], slack=0.5, **given)
    measured = METRICS[constraint](y[rows], predicted[rows], sensitive_features=groups)
    assert rates.violation() == pytest.approx(measured)
    assert rates.certified(certificate.upper)
    assert not rates.certified(certificate.upper - 0.001)


def test_parts_of_few_rows_certify_nothing():
    """One row of group 1 has label 1: it is left out, and no rates are compared there."""
    y, group = np.array([0, 1] * 200 + [0] * 199 + [1]), np.repeat([0, 1], [400, 200])
    of = Population("few", np.zeros((600, 1)), y, group)
    assert not of.rates("equalized_odds", np.zeros(600, dtype=int)).certified(0.5)
    assert of.rates("demographic_parity", np.zeros(600, dtype=int)).certified(0.5)


def test_the_best_constant_that_keeps_the_constraint():
    """Both labels keep a gap; only label 1 has no false negatives."""
    y = np.repeat([0, 1], [300, 100])
    of = Population("constant", np.zeros((400, 1)), y, np.tile([0, 1], 200))
    assert of.constant_error("demographic_parity") == 0.25
    assert of.constant_error("false_negative_rate") == 0.75
    assert of.rates("false_negative_rate", np.ones_like(y)).violation() == 0.0
    assert of.rates("demographic_parity", np.zeros_like(y)).violation() == 0.0

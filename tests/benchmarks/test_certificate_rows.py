"""The power that the table of rows rests on is that of ``certify``."""

import numpy as np
import pytest

from benchmarks.certificate_rows import certified, power
from fairconstrained.metrics import certify

N_ROWS, RATES, SLACK = 200, (0.2, 0.22), 0.1


class Given:
    """The only column of X is the prediction."""

    classes_ = np.array([0, 1])

    def predict(self, X):
        return np.asarray(X)[:, 0]


def kept(hits):
    """Whether so many positive predictions of two groups are certified."""
    predicted = np.concatenate([np.arange(N_ROWS) < k for k in hits]).astype(int)
    certificate = certify(
        Given(),
        predicted[:, None],
        np.arange(2 * N_ROWS) % 2,
        sensitive_features=np.repeat(["a", "b"], N_ROWS),
        constraint="demographic_parity",
        slack=SLACK,
    )
    return certificate.kept


@pytest.mark.slow
def test_power_is_the_probability_that_certify_keeps_the_slack():
    """Against 2,000 samples, within three standard errors; certify itself on 40 of them."""
    samples = np.random.default_rng(0).binomial(N_ROWS, RATES, size=(2000, 2))
    found = [certified(max(pair), min(pair), N_ROWS, SLACK) for pair in samples]
    assert found[:40] == [kept(pair) for pair in samples[:40]]
    exact = power(N_ROWS, RATES, SLACK)
    assert 0.2 < exact < 0.95
    assert np.mean(found) == pytest.approx(exact, abs=3 * np.sqrt(exact * (1 - exact) / 2000))

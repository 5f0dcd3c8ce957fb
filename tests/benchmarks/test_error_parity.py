"""The transcription of error-parity, beside fairlearn's thresholds, which have no slack of odds."""

import numpy as np
import pytest
from fairlearn.postprocessing import ThresholdOptimizer

from benchmarks.any_classifier import Given
from benchmarks.error_parity import thresholds
from benchmarks.objectives.rate_constrained import quality


def scored(n_rows=2000):
    rng = np.random.default_rng(0)
    groups = rng.choice(3, size=n_rows, p=[0.6, 0.3, 0.1])
    log_odds = rng.normal(size=n_rows) * np.array([1.0, 2.0, 0.5])[groups] + 0.5 * groups
    p = 1 / (1 + np.exp(-log_odds))
    return p, (rng.uniform(size=n_rows) < p).astype(int), groups


@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
def test_expected_rates_keep_the_slack_and_more_slack_costs_no_error(constraint):
    p, y, groups = scored()
    errors = []
    for slack in (0.0, 0.02, 0.1, 1.0):
        accepted = thresholds(p, y, groups, constraint, slack)(p, groups)
        error, gap = quality(y, groups, accepted, constraint)
        assert gap <= slack + 1e-9
        errors.append(error)
    assert np.all(np.diff(errors) <= 1e-9)


@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
def test_without_slack_it_finds_what_fairlearn_finds(constraint):
    p, y, groups = scored()
    theirs = ThresholdOptimizer(
        estimator=Given(), constraints=constraint, prefit=True, predict_method="predict_proba"
    ).fit(p[:, None], y, sensitive_features=groups)
    accepted = thresholds(p, y, groups, constraint, 0.0)(p, groups)
    expected = theirs._pmf_predict(p[:, None], sensitive_features=groups)[:, 1].clip(0, 1)
    error, _ = quality(y, groups, accepted, constraint)
    assert error == pytest.approx(quality(y, groups, expected, constraint)[0], abs=1e-3)

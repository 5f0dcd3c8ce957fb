"""Log odds from scores that only rank: increasing maps, calibrated over everybody."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from fairconstrained.models.cross_fitting import log_odds_scale
from fairconstrained.solvers import SGDA
from tests.helpers.auc_fits import fitted, table


@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e3]))
@settings(max_examples=20)
def test_calibration_is_logistic_regression_on_the_score(seed, scale):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(2, size=200))
    scores = scale * (rng.normal(size=202) + y - 7.0)
    weight = rng.exponential(size=202) + 0.1
    slope, offset = log_odds_scale(*map(torch.as_tensor, (scores, y, weight)))
    mean = np.average(scores, weights=weight)
    unit = np.sqrt(np.average((scores - mean) ** 2, weights=weight))
    z = ((scores - mean) / unit)[:, None]
    lr = LogisticRegression(C=1e4 / weight.sum(), tol=1e-12, solver="newton-cholesky")
    lr.fit(z, y, weight)
    assert slope.item() * unit == pytest.approx(max(lr.coef_[0, 0], 1e-6), rel=1e-5, abs=2e-6)
    if lr.coef_[0, 0] > 0:
        assert offset.item() + slope.item() * mean == pytest.approx(lr.intercept_[0], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "objective"), [("linear", "auc"), ((4,), "log")])
def test_probabilities_are_calibrated_over_everybody(model, objective):
    """In the mean they are the share of positives; labels are where they exceed one half."""
    X, y, _ = data = table(n=1000)
    solver = None if model == "linear" else SGDA(n_steps=300, batch_size=256)
    clf = fitted(data=data, objective=objective, model=model, solver=solver, random_state=0)
    proba = clf.predict_proba(X)[:, 1]
    assert proba.mean() == pytest.approx(y.mean(), abs=0.04)
    assert ((proba > 0.5) == clf.predict(X)).all()
    assert ((clf.decision_function(X) > 0) == clf.predict(X)).all()
    high = proba > 0.7
    assert y[high].mean() == pytest.approx(proba[high].mean(), abs=0.08)

"""What the tests of estimators share: a small table of biased data, and a fit on it."""

import functools

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.datasets import make_biased_classification

FORGIVEN = 1e-9  # of a gap: tests that compute it in another way may round
CAPS = {"false_negative_rate", "false_positive_rate", "rejection_rate"}
METRIC_OF = {name: getattr(metrics, name) for name in CAPS} | {"loss_parity": metrics.loss_gap}
for _rate in ("error_rate", "false_positive_rate", "false_omission_rate"):
    METRIC_OF[f"{_rate}_parity"] = getattr(metrics, f"{_rate}_difference")
for _name in ("demographic_parity", "equal_opportunity", "equalized_odds", "predictive_parity"):
    METRIC_OF[_name] = getattr(metrics, f"{_name}_difference")


@functools.cache
def table(n_classes=2, n_groups=2, n=400):
    """Features, labels and groups; group 0 is favoured, and its labels are noisier."""
    shape, params = (n, 6, n_groups, n_classes), {"bias": 0.6, "class_sep": 3.0}
    data = make_biased_classification(*shape, **params, random_state=0)
    rng = np.random.default_rng(0)
    y, group = data.target.copy(), data.sensitive_features
    noisy = (group == 0) & (rng.random(n) < 0.2)
    y[noisy] = rng.integers(n_classes, size=noisy.sum())
    for array in (data.data, y, group):
        array.flags.writeable = False  # a fit that changes its input fails
    return data.data, y, group


def fitted(constraint="demographic_parity", data=None, sample_weight=None, **params):
    X, y, group = table() if data is None else data
    clf = RateConstrainedClassifier(constraint, **params)
    return clf.fit(X, y, sensitive_features=group, sample_weight=sample_weight)


def logistic_regression(X, y, penalty, *, fit_intercept=True, weight=None):
    """scikit-learn's on standardised columns; `penalty` is alpha times the sum of the weights."""
    scaler = StandardScaler(with_mean=fit_intercept)
    params = {"C": 1 / penalty, "tol": 1e-10, "max_iter": 10_000}
    model = LogisticRegression(fit_intercept=fit_intercept, **params)
    Z = scaler.fit_transform(X, sample_weight=weight)
    model.fit(Z, y, sample_weight=weight)
    coef = model.coef_ / scaler.scale_
    shift = coef @ scaler.mean_ if fit_intercept else 0.0
    return coef, model.intercept_ - shift


def penalty(clf, X):
    """Half the squared norm of the coefficients of standardised columns."""
    return 0.5 * ((X.std(axis=0) * clf.coef_) ** 2).sum()


def measured(clf, name, data, **options):
    X, y, group = data
    judged = clf.predict_proba(X) if name == "loss_parity" else clf.predict(X)
    groups = {} if name in CAPS else {"sensitive_features": group}
    return METRIC_OF[name](y, judged, **groups, **options)


def same_model(one, other, rtol=1e-5):
    for attribute in ("coef_", "intercept_"):
        values = (getattr(clf, attribute) for clf in (one, other))
        np.testing.assert_allclose(*values, rtol=rtol, atol=rtol)

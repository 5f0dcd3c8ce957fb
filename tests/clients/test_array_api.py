"""Torch tensors go in and come out, with scikit-learn's `array_api_dispatch`."""

import pytest

from tests.helpers.clients import array_api, run_python

BEGIN = """
import warnings

import numpy as np
import sklearn
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fairconstrained as fc
from fairconstrained import metrics
from fairconstrained.model_selection import StratifiedSensitiveKFold
from tests.helpers.clients import biased
from tests.helpers.metrics import METRICS

X, y, s = biased()
weight = np.ones(len(y))
weight[:9] = 0.0
given = {"sensitive_features": s, "sample_weight": weight}
tX, ty, ts, tweight = map(torch.from_numpy, (X, y, s, weight))
tensors = {"sensitive_features": ts, "sample_weight": tweight}
warnings.simplefilter("ignore")
sklearn.set_config(array_api_dispatch=True, enable_metadata_routing=True)
"""
ESTIMATORS = (
    BEGIN
    + """
for estimator in (
    fc.RateConstrainedClassifier(),
    fc.RateConstrainedClassifier(model=(4,), random_state=0, max_iter=5),
    fc.AUCFairClassifier(),
    fc.LossParityClassifier(),
    fc.PartialParityClassifier(slack=0.3),
    fc.PartialParityClassifier(slack=0.3, group_features=True),
    fc.DPFermiClassifier(epsilon=None, max_iter=5, random_state=0),
):
    group = {"sensitive_features": s} if getattr(estimator, "group_features", False) else {}
    of_arrays = sklearn.clone(estimator).fit(X, y, **given)
    of_tensors = sklearn.clone(estimator).fit(tX, ty, **tensors)
    for method in ("predict", "predict_proba", "decision_function"):
        expected = getattr(of_arrays, method)(X, **group)
        got = getattr(of_tensors, method)(tX, **group)
        assert isinstance(expected, np.ndarray) and isinstance(got, torch.Tensor), method
        np.testing.assert_allclose(got.numpy(), expected, atol=1e-9)
    accuracy = of_arrays.score(X, y, **group)
    assert abs(of_tensors.score(tX, ty, **group) - accuracy) < 1e-6
    single = of_tensors.predict_proba(tX.float(), **group).numpy()
    expected = of_arrays.predict_proba(X.astype(np.float32), **group)
    np.testing.assert_allclose(single, expected, atol=1e-9)
    words = sklearn.clone(estimator).fit(tX, np.where(y == 1, "yes", "no"), **tensors)
    assert set(words.predict(tX, **group)) == {"yes", "no"}
streamed = fc.AUCFairClassifier().partial_fit(tX, ty, **tensors)
assert isinstance(streamed.predict(tX), torch.Tensor)
"""
)
METRICS = (
    BEGIN
    + """
labels = (tX[:, 0] > 0).long()
scores = tX[:, 0].clone().requires_grad_()
for name, metric in METRICS.items():
    assert metric(ty, labels, **tensors) == metric(y, labels.numpy(), **given), name
for metric in (metrics.group_auc_gap, metrics.inter_group_auc_gap,
               metrics.wasserstein_distance_between_groups):
    assert metric(ty, scores, **tensors) == metric(y, X[:, 0], **given)
gap = metrics.ccdf_gap(ty, scores, sensitive_features=ts, interval=(0, 0.3))
assert gap == metrics.ccdf_gap(y, X[:, 0], sensitive_features=s, interval=(0, 0.3))
p = torch.sigmoid(scores)
assert metrics.loss_gap(ty, p, **tensors) == metrics.loss_gap(y, p.detach().numpy(), **given)
report = metrics.group_report(ty, labels, y_score=scores, **tensors)
assert report.equals(metrics.group_report(y, labels.numpy(), y_score=X[:, 0], **given))
"""
)


@pytest.mark.slow
@pytest.mark.skipif(not array_api(), reason="scikit-learn before 1.9 needs more packages for it")
@pytest.mark.parametrize("program", [ESTIMATORS, METRICS])
def test_tensors_give_what_arrays_give(program):
    """scikit-learn wants scipy's array API to be on before either is imported."""
    run_python("-W", "error", "-c", program, SCIPY_ARRAY_API="1")

"""Predictions of a fitted model or pipeline, with the groups if its last step reads them."""

from __future__ import annotations

from typing import Any

from sklearn import config_context


def last_step(estimator: Any) -> Any:
    """The estimator at the end of a pipeline, also of one within another; else itself."""
    while hasattr(estimator, "steps"):
        estimator = estimator[-1]
    return estimator


def predicted(estimator: Any, X: Any, sensitive_features: Any, method: str = "predict") -> Any:
    """Call a prediction method of the model on these samples."""
    if not getattr(last_step(estimator), "group_features", False):
        return getattr(estimator, method)(X)
    with config_context(enable_metadata_routing=True):
        return getattr(estimator, method)(X, sensitive_features=sensitive_features)


def scores_of(estimator: Any, X: Any, sensitive_features: Any) -> Any:
    """Its ``decision_function`` or, without one, the probabilities of the second class."""
    if hasattr(estimator, "decision_function"):
        return predicted(estimator, X, sensitive_features, "decision_function")
    return predicted(estimator, X, sensitive_features, "predict_proba")[:, 1]

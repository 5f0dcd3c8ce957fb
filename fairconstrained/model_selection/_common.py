"""The base of classifiers that train others and predict by one of them; shared warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fairconstrained.arrays import splittable
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import positions_noted
from fairconstrained.privacy.seeds import HiddenSeed, private_parts, without_seeds


def _if_estimator_has(method: str) -> Any:
    """Return a decorator for a method that exists if the predicting estimator has `method`."""
    return available_if(lambda self: hasattr(getattr(self, self._fitted, self.estimator), method))


class DelegatingClassifier(
    HiddenSeed,
    ClassifierMixin,  # type: ignore[misc]
    MetaEstimatorMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A classifier that trains others, one of which predicts."""

    __metadata_request__score = {"sample_weight": True}  # noqa: RUF012 (read by scikit-learn)
    _fitted = "estimator_"  # the attribute with the fitted estimator

    @_if_estimator_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any, **params: Any) -> Any:
        """Predict labels, (n_samples,), by the fitted estimator; `params` go to its method."""
        return self._response("predict", X, **params)

    @_if_estimator_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, **params: Any) -> Any:
        """Predict class probabilities by the fitted estimator; see ``predict``."""
        return self._response("predict_proba", X, **params)

    @_if_estimator_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any, **params: Any) -> Any:
        """Compute scores by the fitted estimator; see ``predict``."""
        return self._response("decision_function", X, **params)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predicted labels, which may be weighted."""
        return float(super().score(X, plain_labels(y), sample_weight))

    def _predict_by(self, model: Any) -> None:
        """Set the fitted estimator, and the attributes that describe its inputs and outputs."""
        self.estimator_ = model
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)  # of another fit, perhaps to a table with other names
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def _without_seed(self) -> dict[str, Any]:
        return {"estimator": without_seeds(self.estimator)}

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.classifier_tags = inner.classifier_tags or tags.classifier_tags
        return tags

    def _response(self, method: str, X: Any, **params: Any) -> Any:
        check_is_fitted(self, self._fitted)
        return getattr(getattr(self, self._fitted), method)(X, **params)


def plain_objects(y: Any) -> Any:
    """Return labels of one type from a column of objects; load other columns unchanged."""
    y = splittable(y)
    return plain_labels(y) if getattr(y, "dtype", None) == np.dtype("O") else y


@contextmanager
def passing_metadata(user: str) -> Iterator[None]:
    """Enable metadata routing; scikit-learn's error also says how an estimator makes requests."""
    try:
        with config_context(enable_metadata_routing=True), positions_noted():
            yield
    except UnsetMetadataPassedError as error:
        names = ", ".join(f"{name}=True" for name in error.unrequested_params)
        raise ValueError(
            f"{error} {user} passes metadata by requests, also with routing off. Make them by "
            "`with sklearn.config_context(enable_metadata_routing=True): "
            f"estimator.set_fit_request({names})`, with False for a step that does not use them."
        ) from error


def warn_of_exact_scores(estimator: Any, what: str, varied: Iterable[str] = ()) -> None:
    """Warn if private fits are made several times and compared by exact numbers."""
    if private_parts(estimator, varied):
        warn_caller(
            f"{what} fits a private estimator several times, and what it reveals about held-out "
            "rows is exact: no epsilon covers its result. Hold out public rows, and publish one "
            "fit that was not chosen by others, or use PrivateGridSearch.",
            PrivacyWarning,
        )

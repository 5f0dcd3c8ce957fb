"""A classifier that takes its sensitive features from columns of X."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from fairconstrained.arrays import as_numpy, check_has, other_columns, read_columns
from fairconstrained.metrics.inputs import predicted
from fairconstrained.model_selection._common import DelegatingClassifier


@dataclass(eq=False, repr=False)
class SensitiveColumnsClassifier(DelegatingClassifier):
    """A classifier that takes its sensitive features from columns of X.

    For meta-estimators that do not pass metadata on, such as ``AdaBoostClassifier``, or that change
    the rows, such as the samplers of imbalanced-learn.

    Parameters
    ----------
    estimator : classifier
        Its ``fit`` takes ``sensitive_features``, as those of this package do; also a pipeline with
        such a step. It sees X without the columns.
    column : column name, position, or list of them
        Columns of X that hold the sensitive features; several are crossed. Use positions if the
        caller turns tables into arrays.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on the other columns.
    classes_, n_features_in_, feature_names_in_
        As usual, of X with the sensitive columns.

    Notes
    -----
    Predictions take X with the same columns. They use the groups only if ``predict`` takes
    ``sensitive_features``, or the last step of a pipeline has ``group_features=True``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import AdaBoostClassifier
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.model_selection import SensitiveColumnsClassifier
    >>> data = make_biased_classification(200, random_state=0)
    >>> X = np.column_stack((data.sensitive_features, data.data))
    >>> fair = SensitiveColumnsClassifier(RateConstrainedClassifier(), column=0)
    >>> AdaBoostClassifier(fair, n_estimators=2).fit(X, data.target).predict(X).shape
    (200,)
    """

    estimator: Any
    column: Any

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the estimator on the other columns, with the sensitive columns as groups.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Passed to the estimator if given.
        """
        check_has("estimator", self.estimator, "fit")
        given: dict[str, Any] = {} if sample_weight is None else {"sample_weight": sample_weight}
        given["sensitive_features"] = self._groups(X)
        self._begun = True
        with config_context(enable_metadata_routing=True):  # where the estimator is a pipeline
            self.estimator_ = clone(self.estimator).fit(other_columns(X, self.column), y, **given)
        # Declared labels are public, and those that occur may not be.
        known = getattr(self.estimator_, "classes_", None)
        self.classes_ = np.unique(as_numpy(y)) if known is None else known
        validate_data(self, X, skip_check_array=True)
        return self

    def _response(self, method: str, X: Any) -> Any:  # type: ignore[override]
        check_is_fitted(self)
        validate_data(self, X, reset=False, skip_check_array=True)
        ask = getattr(self.estimator_, method)
        table, groups = other_columns(X, self.column), self._groups(X)
        if "sensitive_features" in inspect.signature(ask).parameters:
            return ask(table, sensitive_features=groups)
        return predicted(self.estimator_, table, groups, method)

    def _groups(self, X: Any) -> Any:
        columns = read_columns(X, self.column)
        return columns["0"] if len(columns) == 1 else pd.DataFrame(columns)

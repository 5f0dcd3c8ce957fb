"""A classifier itself as the model, which alone predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairconstrained.arrays import Floats
from fairconstrained.models.boosters.words import as_codes
from fairconstrained.models.cross_fitting import evidence_of
from fairconstrained.models.specification import OfClassifier
from fairconstrained.numerics import TINY


class PlainClassifier(OfClassifier):
    """Base of specifications whose fitted classifier, ``estimator_``, is the whole model."""

    needs_label_rates = True
    estimator_: Any
    classes_: NDArray[Any]

    @property
    def learns_from(self) -> frozenset[str]:
        return frozenset({"y", "group"})

    def transform(self, X: Any) -> Floats:
        """Return the scores of the classifier, (n, 1) for two classes, else (n, K)."""
        return scores_of(self.estimator_, X, self.classes_)

    def transform_for_labels(self, X: Any, coef: Any, intercept: Any) -> Floats:
        # SingleFit is a Posteriors as well, but has no models of the groups to ask.
        return self.transform(X)


def scores_of(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    """Return log odds or decisions, (n, 1) for two classes, else (n, K)."""
    ((model, X),) = as_codes([model], X)
    evidence = evidence_of(model, X, classes, TINY)
    return np.diff(evidence, axis=1) if len(classes) == 2 else evidence

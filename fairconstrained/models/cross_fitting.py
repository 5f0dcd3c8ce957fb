"""Any classifier fitted across folds: calibrated posteriors of rows that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from fairconstrained.arrays import Floats, Ints, as_numpy, rows_of

# The least posterior that is taken at its word. Forests and trees say 0 where a leaf has no such
# row, and the logarithm of that would decide how all others are calibrated (Adult, out of fold, log
# loss of a forest of 20 trees .367 with 1e-6 and .347 with 1e-3, of boosted trees .2762 with both).
LEAST_GIVEN = 1e-3
_MOST_STEPS = 200


def is_scoring_classifier(model: Any) -> bool:
    """Whether a model can be asked for posteriors or decisions."""
    asked = ("predict_proba", "decision_function")
    # A search or a pipeline has them only where what it holds does, which may show after fitting.
    return hasattr(model, "fit") and (any(hasattr(model, a) for a in asked) or is_classifier(model))


def dealt(strata: Ints, n_folds: int, rng: np.random.RandomState) -> Ints:
    """A fold for each row: shuffled, every stratum is dealt out where the one before ended.

    So a fold lacks a stratum only if it has fewer rows than there are folds, and the sizes of folds
    differ by one row at most.
    """
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(len(strata), dtype=np.int64)
    fold[order] = np.arange(len(strata)) % n_folds
    return fold


class CrossFit:
    """Classifiers on the same rows and folds, with their answers out of fold."""

    out_of_fold: Floats  # posteriors (n, n_kinds) of the last classifier fitted

    def __init__(
        self,
        X: Any,
        weight: Floats,
        folds: Sequence[tuple[Ints, Ints]],
        rng: np.random.RandomState,
        weighted: bool,
    ):
        self.X, self.weight, self.folds, self.rng = X, weight, folds, rng
        self.weighted = weighted

    def fit(
        self,
        estimator: Any,
        kinds: NDArray[Any],
        target: Ints,
        fit_params: Mapping[str, Any],
        used: NDArray[np.bool_] | None = None,
    ) -> Calibrated:
        """Fit on the rows `used`, to tell which of the `kinds` a row is: ``kinds[target]``."""
        folds = self.folds
        if isinstance(estimator, FrozenEstimator):
            _check_known(estimator, kinds)
            everything = np.arange(len(target))
            folds = [(everything, everything)]  # of which it has seen nothing
        used = np.ones(len(target), dtype=bool) if used is None else used
        evidence, models = np.empty((len(target), len(kinds))), []
        for train, test in folds:
            model = self._fitted(estimator, kinds[target], fit_params, train[used[train]])
            evidence[test] = _evidence(model, _safe_indexing(self.X, test), kinds)
            models.append(model)
        calibrator = _calibrator(evidence[used], target[used], self.weight[used], len(kinds))
        calibrated = Calibrated(models, kinds, calibrator)
        self.out_of_fold = calibrated.posteriors(evidence)
        return calibrated

    def _fitted(
        self, estimator: Any, target: NDArray[Any], fit_params: Mapping[str, Any], rows: Ints
    ) -> Any:
        if isinstance(estimator, FrozenEstimator):
            return estimator
        model = _seeded(clone(estimator), self.rng)
        if len(np.unique(target[rows])) < 2:  # which many classifiers refuse
            model, fit_params = DummyClassifier(), {}
        own = {name: rows_of(value, rows) for name, value in fit_params.items()}
        if self.weighted:
            own |= _weights_for(model, self.weight[rows])
        return model.fit(_safe_indexing(self.X, rows), target[rows], **own)


def _check_known(frozen: FrozenEstimator, kinds: NDArray[Any]) -> None:
    """Raise ValueError unless a model that is not fitted again knows all it is asked for."""
    known = np.asarray(frozen.classes_).tolist()
    unknown = [kind for kind in kinds.tolist() if kind not in known]
    if unknown:
        raise ValueError(
            f"{frozen!r} was fitted for the classes {known}, and is not fitted again: it cannot "
            f"tell {unknown} apart."
        )


class Calibrated(NamedTuple):
    """The classifiers of the folds, and the map from the evidence of each to posteriors."""

    models: Sequence[Any]
    kinds: NDArray[Any]
    calibrator: LogisticRegression

    def answer(self, X: Any) -> Floats:
        """Posteriors of new rows, (n, n_kinds): the mean over the classifiers."""
        each = [self.posteriors(_evidence(model, X, self.kinds)) for model in self.models]
        return np.asarray(np.mean(each, axis=0))

    def posteriors(self, evidence: Floats) -> Floats:
        """Posteriors from evidence, (n, n_kinds)."""
        posteriors = np.zeros(evidence.shape)
        posteriors[:, self.calibrator.classes_] = self.calibrator.predict_proba(_free(evidence))
        return posteriors


def _evidence(model: Any, X: Any, kinds: NDArray[Any]) -> Floats:
    """Logarithms of probabilities, or decisions, a column for each of the `kinds`."""
    if hasattr(model, "predict_proba"):
        given = np.asarray(as_numpy(model.predict_proba(X)), dtype=float)
        given, lacking = np.log(np.maximum(given, LEAST_GIVEN)), np.log(LEAST_GIVEN)
    else:
        given = np.asarray(as_numpy(model.decision_function(X)), dtype=float)
        if given.ndim == 1:
            given = np.column_stack((-0.5 * given, 0.5 * given))
        lacking = given.min(initial=0.0)
    if not np.isfinite(given).all():
        raise ValueError(
            f"{type(model).__name__} gives posteriors or decisions that are not finite."
        )
    known, place = np.isin(model.classes_, kinds), np.searchsorted(kinds, model.classes_)
    evidence = np.full((len(given), len(kinds)), lacking)
    evidence[:, place[known]] = given[:, known]
    return evidence


def _free(evidence: Floats) -> Floats:
    """Evidence without what all kinds have in common: for two kinds one column."""
    if evidence.shape[1] == 2:
        return np.diff(evidence, axis=1)
    return np.asarray(evidence - evidence.mean(axis=1, keepdims=True))


def _calibrator(evidence: Floats, target: Ints, weight: Floats, n_kinds: int) -> Any:
    """Posteriors of the kinds from evidence that has not seen the rows."""
    present = len(np.unique(target))
    simple = n_kinds < 2 or present < 2
    model = DummyClassifier() if simple else LogisticRegression(max_iter=_MOST_STEPS)
    return model.fit(_free(evidence), target, sample_weight=weight)


def _seeded(model: Any, rng: np.random.RandomState) -> Any:
    """The model with seeds where it has none: fits with one random_state are alike."""
    unset = [
        name
        for name, value in sorted(model.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    ]
    seeds = {name: rng.randint(np.iinfo(np.int32).max) for name in unset}
    return model.set_params(**seeds) if seeds else model


def _weights_for(model: Any, weight: Floats) -> dict[str, Floats]:
    """Sample weights under the name by which the model takes them; none if it takes none."""
    if has_fit_parameter(model, "sample_weight"):
        return {"sample_weight": weight}
    if hasattr(model, "steps") and has_fit_parameter(model.steps[-1][1], "sample_weight"):
        return {f"{model.steps[-1][0]}__sample_weight": weight}
    return {}

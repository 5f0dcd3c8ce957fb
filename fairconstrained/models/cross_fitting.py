"""Calibrated posteriors of any classifier, fitted across folds, and Platt scaling of scores."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import _num_samples, has_fit_parameter
from torch import Tensor

from fairconstrained.arrays import Floats, Ints, as_numpy
from fairconstrained.models.boosters import MANY_ROWS
from fairconstrained.models.boosters.words import as_codes, learn_words, with_numbers
from fairconstrained.numerics import ROUNDING

# Smaller posteriors are raised to this one. Forests and trees return 0 where a leaf has no such
# row, and its logarithm would decide how all others are calibrated.
LEAST_PROBABILITY = 1e-3


def is_scoring_classifier(model: Any) -> bool:
    """Return whether an object can be fitted and has scores, or may have them once fitted."""
    has_scores = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    inside = model.estimator if isinstance(model, FrozenEstimator) else model  # may be anything
    # A search or a pipeline may have neither before it is fitted.
    is_object = hasattr(inside, "fit") and not isinstance(inside, type)
    return is_object and (has_scores or is_classifier(model))


def assign_folds(strata: Ints, n_folds: int, rng: np.random.RandomState) -> Ints:
    """Return a fold for each row; shuffled strata are dealt to the folds one after the other."""
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    fold = np.empty(len(strata), dtype=np.int64)
    fold[order] = np.arange(len(strata)) % n_folds
    return fold


class Ensemble(NamedTuple):
    """Fitted classifiers of the same kinds: one for each fold, or a single one for all rows."""

    models: Sequence[Any]
    kinds: NDArray[Any]

    def evidence(self, X: Any) -> list[Floats]:
        """Return the evidence of each classifier on the kinds of rows, (n, n_kinds)."""
        return [evidence_of(*pair, self.kinds) for pair in as_codes(self.models, X)]

    def only_fold(self, k: int) -> Ensemble:
        """Return the ensemble of the classifier of fold k only; a frozen one serves all folds."""
        return self._replace(models=self.models[k : k + 1] or self.models)


class Calibrator(NamedTuple):
    """A map from evidence to posteriors of all kinds; its `model` may know only some of them."""

    n_kinds: int
    model: LogisticRegression | DummyClassifier

    def posteriors(self, *evidence: Floats) -> Floats:
        """Return posteriors from tables of evidence, (n, n_kinds)."""
        contrasts, posteriors = _contrasts(evidence), np.zeros((len(evidence[0]), self.n_kinds))
        if not hasattr(self.model, "coef_"):
            likely = self.model.predict_proba(contrasts)
        else:  # without a check of the input
            scores = contrasts @ self.model.coef_.T + self.model.intercept_
            several, one = scores.shape[1] > 1, expit(scores)
            likely = softmax(scores, axis=1) if several else np.hstack((1.0 - one, one))
        posteriors[:, self.model.classes_] = likely
        return posteriors


class InKinds:
    """A fitted classifier as a classifier of kinds, which are sets of its classes.

    A copy predicts, so that nothing of the rows is kept. Classes other than `names` are ignored.
    """

    def __init__(self, model: Any, names: ArrayLike, kind_of_name: NDArray[Any]):
        check_known(model, names)
        self.model = model
        self.names, place = np.unique(np.asarray(names), return_index=True)
        self.classes_, kind = np.unique(kind_of_name[place], return_inverse=True)
        self.is_kind = np.eye(len(self.classes_))[kind.reshape(-1)]

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities of the kinds, (n, n_kinds), which add up to one."""
        evidence = np.nan_to_num(_outputs(copy.deepcopy(self.model), X, self.names))
        return np.asarray(softmax(evidence, axis=1) @ self.is_kind)


def check_known(model: Any, names: ArrayLike) -> None:
    """Raise ValueError unless a fitted classifier knows all the named classes."""
    known = np.asarray(model.classes_).tolist()
    unknown = [name for name in np.asarray(names).tolist() if name not in known]
    if unknown:
        raise ValueError(
            f"{model!r} was fitted for the classes {known}, and is not fitted again: it "
            f"cannot tell {unknown} apart."
        )


def uncalibrated(n_kinds: int, n_beside: int = 0) -> Calibrator:
    """Return a calibrator that leaves evidence unchanged and ignores the columns beside it."""
    unit = LogisticRegression()
    unit.classes_ = np.arange(n_kinds)
    free = np.eye(n_kinds) if n_kinds > 2 else np.ones((1, 1))
    unit.coef_ = np.hstack((free, np.zeros((len(free), n_beside))))
    unit.intercept_ = np.zeros(len(free))
    return Calibrator(n_kinds, unit)


def calibrated(
    evidence: Sequence[Floats], target: Ints, weight: Floats, used: NDArray[np.bool_]
) -> Calibrator:
    """Fit a calibrator on rows `used` to out-of-fold evidence, whose first table is on kinds."""
    n_kinds = evidence[0].shape[1]
    simple = n_kinds < 2 or len(np.unique(target[used])) < 2
    model = DummyClassifier() if simple else LogisticRegression(max_iter=200)
    # The penalty is meant for rows of weight one: with smaller weights it would leave a constant.
    # Whole weights stay, since they stand for copies of a row.
    unit = weight[used] / min(weight[used].mean(), 1.0)
    model.fit(_contrasts(evidence)[used], target[used], sample_weight=unit)
    return Calibrator(n_kinds, model)


def cross_fit(
    estimator: Any,
    kinds: NDArray[Any],
    target: Ints,
    used: NDArray[np.bool_],
    *,
    X: Any,
    folds: Sequence[tuple[Ints, Ints]],
    rng: np.random.RandomState,
    sample_weight: Floats | None,
    alone: bool = False,
    max_rows: int | None = None,
) -> tuple[Ensemble, Floats]:
    """Fit a classifier of the classes ``kinds[target]`` for each fold, on the rows `used`.

    Return them, or if `alone` one fitted to all used rows, and out-of-fold evidence of all rows.
    """
    everything = np.arange(len(target))
    frozen = isinstance(estimator, FrozenEstimator)
    if frozen:
        check_known(estimator, kinds)
        folds = [(everything, everything)]  # it has seen none of them
    table, words = with_numbers(estimator, X)

    def fit(train: Ints) -> Any:
        if frozen:
            return estimator
        rows, model = train[used[train]], seeded_where_unset(clone(estimator), rng)
        if max_rows is not None and len(rows) > max_rows:
            rows = np.sort(rng.choice(rows, max_rows, replace=False))
        options = {} if sample_weight is None else weights_for(model, sample_weight[rows])
        train, kind = _safe_indexing(table, rows), kinds[target[rows]]
        model = stopping_early(model, target[rows])
        if len(np.unique(kind)) < 2:  # which many classifiers refuse
            return DummyClassifier().fit(train, kind)
        model.fit(train, kind, **options)
        learn_words(model, words)
        return model

    evidence, models = np.empty((len(target), len(kinds))), []
    for train, test in folds:
        models.append(fit(train))
        (evidence[test],) = Ensemble(models[-1:], kinds).evidence(_safe_indexing(X, test))
    return Ensemble([fit(everything)] if alone else models, kinds), evidence


def evidence_of(
    model: Any, X: Any, kinds: NDArray[Any], least: float = LEAST_PROBABILITY
) -> Floats:
    """Return a model's evidence on the `kinds`; raise ValueError if it is not finite."""
    evidence = _outputs(model, X, kinds, least)
    if not np.isfinite(evidence).all():
        raise ValueError(
            f"{type(model).__name__} gives posteriors or decisions that are not finite."
        )
    return evidence


def _outputs(model: Any, X: Any, kinds: NDArray[Any], least: float = LEAST_PROBABILITY) -> Floats:
    """Return logarithms of probabilities, or decisions, a column for each of the `kinds`."""
    if hasattr(model, "predict_proba"):
        output = np.asarray(as_numpy(model.predict_proba(X)), dtype=float)
        output, lacking = np.log(np.maximum(output, least)), np.log(least)
    elif hasattr(model, "decision_function"):
        output = np.asarray(as_numpy(model.decision_function(X)), dtype=float)
        if output.ndim == 1:
            output = np.column_stack((-0.5 * output, 0.5 * output))
        lacking = output.min(initial=0.0)
    else:  # a search or a vote, which are known by then
        raise ValueError(
            f"a classifier as model needs predict_proba or decision_function once it is fitted; "
            f"got {model!r}."
        )
    n_rows, n_classes = _num_samples(X), len(model.classes_)
    if output.shape != (n_rows, n_classes):  # as with a loss of one's own in LightGBM
        raise ValueError(
            f"{type(model).__name__} must give a probability or a decision for each of its "
            f"{n_classes} classes; of {n_rows} rows it gives shape {output.shape}."
        )
    known, place = np.isin(model.classes_, kinds), np.searchsorted(kinds, model.classes_)
    evidence = np.full((len(output), len(kinds)), lacking)
    evidence[:, place[known]] = output[:, known]
    return evidence


def _contrasts(tables: Sequence[Floats]) -> Floats:
    """Return evidence without the part common to all kinds: for two kinds one column."""
    return np.hstack(
        [
            np.diff(table, axis=1)
            if table.shape[1] == 2
            else table - table.mean(axis=1, keepdims=True)
            for table in tables
        ]
    )


def seeded_where_unset(model: Any, rng: np.random.RandomState) -> Any:
    """Seed a model where it has no seed, so that fits with one random_state are equal."""
    seeds = {}
    for name, value in sorted(model.get_params(deep=True).items()):
        if name.rpartition("__")[2] == "random_state" and value is None:
            seeds[name] = rng.randint(np.iinfo(np.int32).max)
    return model.set_params(**seeds) if seeds else model


def stopping_early(model: Any, target: Ints) -> Any:
    """Turn automatic early stopping of boosters on from 2,000 rows, and off below."""
    # Each kind needs a row on either side of the split.
    stops = len(target) >= MANY_ROWS and np.unique(target, return_counts=True)[1].min() > 1
    choices = {}
    for name, value in model.get_params(deep=True).items():
        if name.rpartition("__")[2] == "early_stopping" and isinstance(value, str):
            choices[name] = bool(stops)
    return model.set_params(**choices) if choices else model


def takes_weights(model: Any) -> bool:
    """Return whether a classifier, or the classifier in a pipeline or search, takes weights."""
    inside = model.steps[-1][1] if hasattr(model, "steps") else getattr(model, "estimator", None)
    takes = bool(has_fit_parameter(model, "sample_weight"))
    return takes or (inside is not None and takes_weights(inside))


def weights_for(model: Any, weight: Floats) -> dict[str, Floats]:
    """Return sample weights by the name of their parameter in ``fit``; empty if there is none."""
    if has_fit_parameter(model, "sample_weight"):
        return {"sample_weight": weight}
    name, last = model.steps[-1] if hasattr(model, "steps") else ("", None)
    takes = last is not None and has_fit_parameter(last, "sample_weight")
    if not get_config()["enable_metadata_routing"]:
        return {f"{name}__sample_weight": weight} if takes else {}
    if get_routing_for_object(model).consumes("fit", ["sample_weight"]):
        return {"sample_weight": weight}
    if takes and get_routing_for_object(last).fit.requests.get("sample_weight") is None:
        raise ValueError(
            f"sample_weight does not reach the step {name!r} of the model: with metadata routing "
            f"it must say so, by {type(last).__name__}().set_fit_request(sample_weight=True), or "
            "False to train it without weights."
        )
    return {}


def log_odds_scale(scores: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a positive slope and an offset of Platt scaling: from scores (n,) to log odds."""
    weight = weight / weight.sum()
    mean = weight @ scores
    std = (weight @ (scores - mean) ** 2).sqrt()
    unit = std if std > 0 else torch.ones_like(std)
    z, labels, weights = map(as_numpy, (((scores - mean) / unit)[:, None], y, weight))
    # A ridge keeps the slope finite if the scores separate the labels.
    model = LogisticRegression(C=1e4, tol=ROUNDING, solver="newton-cholesky")
    with warnings.catch_warnings():  # where scores separate the labels it goes on by another solver
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(z, labels, weights)
    found, intercept = scores.new_tensor([model.coef_[0, 0], model.intercept_[0]])
    # The order of standardised scores must not be reversed.
    slope = found.clamp_min(1e-6) / unit
    return slope, intercept - slope * mean

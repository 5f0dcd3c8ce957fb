"""The base of all estimators: parameters, notions and predictions.

Predictions are in the library of X: numpy, or torch on the device of X. ``fit`` trains by an object
that exists for one fit (``_training.py``), which the estimator chooses by its parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairconstrained.arrays import Array, Floats, check_samples
from fairconstrained.blocks import Blocks
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.notions import Notion, as_notion
from fairconstrained.constraints.space import Space
from fairconstrained.distributed import refuse_difference, taken_workers
from fairconstrained.estimators._inputs import Given, check_parameters
from fairconstrained.estimators._parts import check_parts
from fairconstrained.estimators._reporting import (
    CallbackSupportMixin,
    data_by_position,
    fit_task,
    unchanged_on_error,
)
from fairconstrained.estimators._training import Training
from fairconstrained.losses import class_probabilities, hard_classes, log_loss
from fairconstrained.models import as_specification
from fairconstrained.models.specification import Specification
from fairconstrained.problems.objectives import MeanLoss, Objective
from fairconstrained.process import one_thread
from fairconstrained.solvers.base import Solver

BLOCK_ROWS = 65_536


class FairClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators, which are data classes of these parameters and their own."""

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    _doc_link_module = "fairconstrained"
    _doc_link_template = (
        "https://fairconstrained.readthedocs.io/en/latest/api/fairconstrained.{estimator_name}.html"
    )

    constraint: Any
    slack: float
    model: Any
    solver: Solver | None
    alpha: float
    max_iter: int | None
    tol: float
    missing_sensitive: str
    min_group_size: int | str
    callbacks: Any
    random_state: Any
    verbose: int
    device: str
    warm_start: bool

    # ------------------------------------------------------------------ for subclasses

    def _notions(self) -> list[Any]:
        """Return the notions in ``constraint`` as objects; raise ValueError for anything else."""
        raise NotImplementedError

    def _one_notion(self, names: Mapping[str, Any], kind: type = Notion) -> list[Any]:
        """The notion in ``constraint``, alone in a list."""
        return [as_notion(self.constraint, names, kind, f"{type(self).__name__}.constraint")]

    def _notions_of_list(self, names: Mapping[str, Any]) -> list[Any]:
        """The notions in ``constraint``, which may be a list of several."""
        if not isinstance(self.constraint, (list, tuple)):
            return self._one_notion(names)
        owner = f"{type(self).__name__}.constraint"
        if not self.constraint:
            raise ValueError(f"{owner} is empty; give at least one.")
        return [as_notion(item, names, Notion, owner) for item in self.constraint]

    def _bound(self, notion: Any, space: Space) -> MomentConstraint:
        """The constraint of a notion on these labels and groups."""
        return notion.bind(space, self.slack)  # type: ignore[no-any-return]

    def _risk(self) -> Objective:
        """Return the objective: what is minimised, and what feasible points are compared by."""
        return MeanLoss(log_loss)

    def _training(self) -> Training:
        """Return the kind of training that the parameters ask for, for one fit."""
        return Training(self)

    # ------------------------------------------------------------------ public methods

    @data_by_position("X", "y")
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sensitive_features: Any = None,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Train under the constraints.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Numbers, or whatever `model` accepts if it is a classifier. Without `epsilon` linear
            models are also fitted to :class:`~fairconstrained.blocks.Blocks`, and to the rows of
            several workers (:func:`~fairconstrained.distributed.sharded_rows`).
        y : array-like of shape (n_samples,)
            Labels of any type, with two classes or more.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Strings, numbers or booleans without missing values, in a list, array, Series or
            DataFrame (pandas, polars or dask), or an array or table of pyarrow. Several columns are
            crossed. They are used in training only. Like `y` and `sample_weight` they are taken by
            position. An index with the labels of that of X in another order is refused.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights. An integer weight is equivalent to that many copies of the sample.
        **fit_params
            For the ``fit`` of a classifier given as `model`, which must request them
            (scikit-learn's metadata routing).

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is not valid. The message names it, before any work.
        DivergenceError
            If training diverges. After any error or interruption the estimator is in the state from
            before the call.
        """
        with unchanged_on_error(self), taken_workers() as workers:
            refuse_difference("estimators", workers.gather(type(self).__name__))
            with workers.agreeing():
                training = self._checked_training()
                if workers.size > 1 or isinstance(X, Blocks):
                    check_parts(training, X)
                routed = self._routed_params(fit_params)
            with fit_task(training, X, y, sample_weight) as training.watch:
                given = Given(X, y, sensitive_features, sample_weight)
                training.train(training.read(given, routed, workers))
        return self

    def decision_function(self, X: Any) -> Floats:
        """Scores of the samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, a positive score predicts the second class.
        """
        scores: Floats = self._of_scores(lambda scores: scores, X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Predicted labels. They are deterministic and need no sensitive features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """

        def labels(scores: Any) -> Any:
            return labels_of(self.classes_, hard_classes(torch.as_tensor(scores)), scores)

        return self._of_scores(labels, X)  # type: ignore[no-any-return]

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities of the logistic model.

        They are as well calibrated as the constraints allow.
        :class:`sklearn.calibration.CalibratedClassifierCV` can wrap this estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """

        def probabilities(scores: Any) -> Any:
            return like(class_probabilities(torch.as_tensor(scores)), scores)

        return self._of_scores(probabilities, X)  # type: ignore[no-any-return]

    def get_metadata_routing(self) -> Any:
        """Return the requests of this estimator and of a classifier given as `model`.

        Returns
        -------
        MetadataRequest or MetadataRouter
        """
        own = self._get_metadata_request()
        classifier = self._specification().metadata_consumer()
        if classifier is None:
            return own
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(own)
        return router.add(method_mapping=to_fit, estimator=classifier)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = self._specification().input_tags()
        return tags

    # ------------------------------------------------------------------ checks

    def _checked_training(self) -> Training:
        """Return the training for one fit, after checking all parameters."""
        check_parameters(self)
        training = self._training()
        training.check()
        return training

    def _routed_params(self, fit_params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata for the ``fit`` of a classifier given as `model`."""
        if not fit_params:
            return {}
        consumer = self._specification().metadata_consumer()
        if consumer is None or not get_config()["enable_metadata_routing"]:
            raise TypeError(
                f"{type(self).__name__}.fit got {sorted(fit_params)}: only a classifier given as "
                "model can use them, with sklearn.set_config(enable_metadata_routing=True)."
            )
        return dict(process_routing(self, "fit", **fit_params)["estimator"].fit)

    def _specification(self) -> Specification:
        return as_specification(self.model)

    # ------------------------------------------------------------------ prediction

    def _table(self, X: Any, sensitive_features: Any = None) -> Any:
        """Columns of the model for new samples."""
        check_is_fitted(self)
        check_samples(X=X, sensitive_features=sensitive_features)
        return self.model_.transform(self.model_.new_rows(self, X))

    def _of_scores(
        self, function: Callable[[Any], Any], X: Any, sensitive_features: Any = None
    ) -> Any:
        """A function of the scores (n, K) of new samples, computed for some rows at a time."""
        table = self._table(X, sensitive_features)
        if not hasattr(self, "coef_"):
            return by_blocks(lambda rows: function(network_scores(rows, self.module_)), table)
        with one_thread():  # networks gain from threads
            return by_blocks(
                lambda rows: function(linear_scores(rows, self.coef_, self.intercept_)), table
            )


# ---------------------------------------------------------------------- in the library of X


def like(values: Any, table: Any) -> Any:
    """The array or tensor `values` in the library, and on the device, of `table`."""
    if isinstance(table, Tensor):
        return torch.as_tensor(values, device=table.device)
    return values.cpu().numpy() if isinstance(values, Tensor) else values


def labels_of(classes: Array, codes: Tensor, table: Any) -> Any:
    """The labels of class indices, a Tensor (n,); text is always in numpy."""
    if classes.dtype.kind in "biuf":
        return like(classes, table)[like(codes, table)]
    return classes[codes.cpu().numpy()]


def linear_scores(table: Any, coef: Floats, intercept: Floats) -> Any:
    """Scores (n, K) of a linear model, for coefficients (K, d)."""
    return table @ like(coef.T, table) + like(intercept, table)


def network_scores(table: Any, module: nn.Module) -> Any:
    """Scores (n, K) of a network on the CPU; on other devices of a copy there."""
    device = getattr(table, "device", "cpu")
    if str(device) != "cpu":
        module = copy.deepcopy(module).to(device)
    rows = table.toarray() if sparse.issparse(table) else table
    with torch.no_grad():
        scores = module(torch.asarray(rows, dtype=torch.float64, copy=True))
    return like(scores.reshape(len(rows), -1), table)


def by_blocks(function: Callable[[Any], Any], table: Any) -> Any:
    """A function of the rows of a table, for some rows at a time to save memory."""
    result: Any = None
    for start in range(0, table.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        block = function(table[rows])
        if result is None:
            shape = (table.shape[0], *block.shape[1:])
            kept = isinstance(block, Tensor)
            result = block.new_empty(shape) if kept else np.empty(shape, block.dtype)
        result[rows] = block
    return result

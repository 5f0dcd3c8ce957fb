"""The base of all estimators: common parameters, ``fit``, and predictions in the library of X."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairconstrained.arrays import Array, Floats
from fairconstrained.blocks import Blocks
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.notions import Notion, as_notion
from fairconstrained.constraints.tables import BLOCK_ROWS, Space
from fairconstrained.distributed import one_thread, refuse_difference, taken_workers
from fairconstrained.engines import Table, as_table
from fairconstrained.estimators._inputs import (
    Given,
    TrainingRows,
    check_parameters,
    check_strata,
)
from fairconstrained.estimators._parts import check_parts
from fairconstrained.estimators._reporting import (
    CallbackSupportMixin,
    data_by_position,
    fit_task,
    unchanged_on_error,
)
from fairconstrained.estimators._tables import of_tables, rows_here
from fairconstrained.estimators._training import Training
from fairconstrained.inputs.features import naming_texts_and_dates
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import check_samples
from fairconstrained.losses import class_probabilities, hard_classes, log_loss
from fairconstrained.models.perceptron import Layers
from fairconstrained.models.short_forms import as_specification
from fairconstrained.problems.objectives import MeanLoss, Objective
from fairconstrained.solvers.base import Solver


@dataclass(kw_only=True, eq=False, repr=False)
class FairClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the estimators: the parameters that all of them have, and predictions."""

    # Read by scikit-learn.
    __metadata_request__fit = dict.fromkeys(
        ["sensitive_features", "control_features", "sample_weight"], True
    )
    __metadata_request__score = {"sample_weight": True}  # noqa: RUF012
    _multi_class = True
    _within_strata = True  # whether criteria may be within strata of control features
    _doc_link_module = "fairconstrained"
    _doc_link_template = (
        "https://fairconstrained.readthedocs.io/en/latest/api/fairconstrained.{estimator_name}.html"
    )

    constraint: Any = field(default=None, kw_only=False)
    model: Any = "linear"
    solver: Solver | None = None
    alpha: float = 1e-4
    max_iter: int | None = None
    tol: float = 1e-4
    missing_sensitive: str = "warn"
    min_group_size: int | str = "auto"
    callbacks: Any = None
    random_state: Any = None
    verbose: int = 0
    device: str = "cpu"
    warm_start: bool = False

    def _notions(self) -> list[Any]:
        """Return the criteria in ``constraint`` as objects; raise ValueError for anything else."""
        raise NotImplementedError

    def _as_notions(self, given: Any, names: Mapping[str, Any], kind: type = Notion) -> list[Any]:
        """Return these criteria of a kind, names or objects, one or a list, as objects."""
        owner = f"{type(self).__name__}.constraint"
        given = given if isinstance(given, (list, tuple)) else [given]
        if not given:
            raise ValueError(f"{owner} is empty; give at least one.")
        return list(map(partial(as_notion, names=names, kind=kind, parameter=owner), given))

    def _bound(self, notion: Any, space: Space) -> MomentConstraint:
        """The constraint of a criterion on these labels and groups."""
        return notion.bind(space, self.slack)  # type: ignore[no-any-return]

    def _risk(self, rows: TrainingRows) -> Objective:
        """Return the objective, which is minimised and by which feasible points are compared."""
        return MeanLoss(log_loss)

    def _training(self) -> Training:
        """Return the kind of training that the parameters ask for, for one fit."""
        return Training(self)

    def _own_attributes(self, constraint: MomentConstraint) -> dict[str, Any]:
        """Return fitted attributes that only this estimator has."""
        return {}

    @data_by_position("X", "y")
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        control_features: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train under the constraints.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Numbers, or whatever `model` accepts if it is a classifier. Without `epsilon` linear
            models are also fitted to :class:`~fairconstrained.blocks.Blocks`, to the rows of
            several workers (:func:`~fairconstrained.distributed.sharded_rows`), and to a table of
            Dask, Ray or Spark, whose rows stay where they are. The other parameters then name
            columns of X, or are columns of X, and all remaining columns are features. With
            `epsilon` the rows of a table come to this process, which draws batches of them.
        y : array-like of shape (n_samples,)
            Labels of any type, with two classes or more.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Strings, numbers or booleans, in a list, array, Series or DataFrame (pandas, polars or
            dask), or an array or table of pyarrow. Several columns are crossed. A missing value
            (None, NaN, pandas.NA) means that the group is not known: see `missing_sensitive`.
            :class:`~fairconstrained.groups.EstimatedGroups` are estimated,
            :class:`~fairconstrained.groups.GroupProbabilities` known with a probability only,
            :class:`~fairconstrained.groups.RecordedGroups` with errors. They are used
            only in training. Like `y` and `sample_weight` they are matched by position; an index
            with the labels of X in another order is an error.
        control_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Strata of conditional parity: groups are compared within each stratum only, as with
            fairlearn's argument of this name. For criteria of rates and losses. `groups_` are then
            combinations of group and stratum, and every rule for crossed columns applies to them.
            Predictions need no strata.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights. An integer weight is equivalent to that many copies of the sample.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is not valid. The message names it, before any work.
        DivergenceError
            If training diverges. Any error or interruption leaves the estimator unchanged.
        """
        given = Given(as_table(X), y, sensitive_features, sample_weight)
        with unchanged_on_error(self) as begun, taken_workers() as workers:
            if workers.size > 1:
                refuse_difference("estimators", workers.gather(type(self).__name__))
            with workers.agreeing():
                training = self._checked_training()
                begun.append(training)
                if control_features is not None:
                    check_strata(self, given)
                    given = given.within_strata(control_features)
                if training.is_private and isinstance(given.X, Table):
                    given = rows_here(given)
                if workers.size > 1 or isinstance(given.X, (Blocks, Table)):
                    check_parts(training, given.X)
            watched = hasattr(self, "_skl_callbacks")
            with (
                fit_task(training, given) if watched else nullcontext() as training.watch,
                naming_texts_and_dates(given.X),
            ):
                training.train(training.read(given, workers))
            return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predicted labels, which may be weighted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type that :meth:`fit` takes.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return float(super().score(X, plain_labels(y), sample_weight))

    @of_tables
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
        scores: Floats = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @of_tables
    def predict(self, X: Any) -> Array:
        """Predicted labels. They are deterministic and need no sensitive features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self._scores(X)
        codes = hard_classes(torch.as_tensor(scores))
        return labels_of(self.classes_, codes, scores)  # type: ignore[no-any-return]

    @of_tables
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
        scores = self._scores(X)
        return like(class_probabilities(torch.as_tensor(scores)), scores)  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multi_class
        tags.input_tags = as_specification(self.model).input_tags()
        return tags

    def _checked_training(self) -> Training:
        """Return the training for one fit, after checking all parameters."""
        check_parameters(self)
        training = self._training()
        training.check()
        return training

    def _table(self, X: Any, sensitive_features: Any = None) -> Any:
        """Columns of the model for new samples."""
        check_is_fitted(self)
        check_samples(X=X, sensitive_features=sensitive_features)
        return self.model_.transform(self.model_.new_rows(self, X))

    def _scores(self, X: Any, sensitive_features: Any = None) -> Any:
        """Scores (n, K) of new samples, in the library of X."""
        table = self._table(X, sensitive_features)
        if not hasattr(self, "coef_"):  # networks gain from threads
            return network_scores(table, self.module_)
        with one_thread():
            return table @ like(self.coef_.T, table) + like(self.intercept_, table)


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


def network_scores(table: Any, module: nn.Module) -> Any:
    """Scores (n, K) of a network where the table is, for some rows at a time.

    Modules of users may keep rows, which would travel with the estimator: a copy computes.
    """
    device = getattr(table, "device", "cpu")
    if str(device) != "cpu" or type(module) is not Layers:
        module = copy.deepcopy(module).to(device)
    scores = []
    for start in range(0, table.shape[0], BLOCK_ROWS):
        rows = table[start : start + BLOCK_ROWS]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        with torch.no_grad():
            found = module(torch.asarray(rows, dtype=torch.float64, copy=True))
        scores.append(found.reshape(len(rows), -1))
    return like(torch.cat(scores), table)

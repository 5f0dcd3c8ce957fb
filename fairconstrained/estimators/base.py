"""The base of all estimators: common parameters, ``fit``, and predictions in the library of X."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fairconstrained.arrays import Array, Floats, as_numpy, check_array, check_number
from fairconstrained.distributed import (
    ALONE,
    check_device,
    one_thread,
    refuse_difference,
    taken_workers,
)
from fairconstrained.engines import Table, as_table
from fairconstrained.fit.columns import admitted, generator, random_seed
from fairconstrained.fit.engine_tables import predictions_of_table
from fairconstrained.fit.result import attributes_to_predict, store
from fairconstrained.fit.rows import FitInputs, TrainingRows
from fairconstrained.fit.task import Fit, Task, as_specification, check_parameters
from fairconstrained.inputs.labels import plain_labels
from fairconstrained.inputs.samples import check_samples, naming_texts_and_dates
from fairconstrained.losses import class_probabilities, hard_classes
from fairconstrained.models.perceptron import Layers
from fairconstrained.models.specification import Head
from fairconstrained.numerics import VECTOR_ROWS
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee, Unit
from fairconstrained.privacy.seeds import HiddenSeed
from fairconstrained.sharing import NO_STORE, share
from fairconstrained.solvers.base import Iterate, Solver, check_solves

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """An empty mixin, where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method unchanged."""
        return method


_LEAST_FIRST = ("sensitive_features", "record", "record_replacement")  # units, by what is covered
_SPENT = (
    "Noisy numbers had been released before: up to epsilon = {:.4g} and delta = {:.4g} are spent "
    "(the attribute privacy of this error), although no model was returned. Another fit on the "
    "same rows adds its own."
)

Method = TypeVar("Method", bound=Callable[..., Any])


def data_by_position(*names: str) -> Callable[[Method], Method]:
    """Decorate a method to answer further arguments by position with the line that works."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def checked(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                taken = ", ".join(names)
                raise TypeError(
                    f"{type(estimator).__name__}.{method.__name__} takes {taken} by position; got "
                    f"{len(args)} arguments. Name the others, as in "
                    f"{method.__name__}({taken}, sensitive_features=groups)."
                )
            return method(estimator, *args, **kwargs)

        return cast("Method", checked)

    return decorate


def accepts_tables(method: Method) -> Method:
    """Decorate a method that predicts to take tables of an engine, and return lazy columns."""

    @wraps(method)
    def predict(self: Any, X: Any, **groups: Any) -> Any:
        table = as_table(X)
        if not isinstance(table, Table):
            return method(self, X, **groups)
        return predictions_of_table(self, method, table, groups)

    return cast("Method", predict)


@contextmanager
def unchanged_on_error(estimator: object) -> Iterator[list[PrivacyGuarantee]]:
    """Restore the estimator after an error, and add to the error the privacy spent so far.

    Yield the ledger in which a fit notes its possible releases.
    """
    ledger: list[PrivacyGuarantee] = []
    # A shallow copy is enough: fits replace attributes, and change none in place.
    before = dict(vars(estimator))
    try:
        yield ledger
    # Interruptions too: a search that is stopped may go on with its estimators.
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        error.add_note(f"This {type(estimator).__name__} is as it was before this call.")
        for spent in ledger:
            vars(estimator)["_begun"] = True  # which hides the seed
            error.privacy = spent  # type: ignore[attr-defined]
            error.add_note(_SPENT.format(spent.epsilon, spent.delta))
        raise


# Decorating `fit` itself would put a frame of scikit-learn between `fit` and its caller, and our
# warnings would point to it.
@with_callbacks  # type: ignore[untyped-decorator]
def _tear_down(estimator: Any) -> None:
    """Let scikit-learn end the callbacks of a fit, which it does after the decorated method."""


@contextmanager
def watched_by_scikit_learn(
    estimator: Any, task: Task, inputs: FitInputs
) -> Iterator[Callable[..., object]]:
    """Notify scikit-learn's callbacks of the start and end of a fit; yield one for iterations.

    Callbacks get the user's rows, and the current model if they ask for it. In private fits they
    get neither: a monitor scores rows exactly, and no budget covers that.
    """
    X, y, weight = inputs.X, inputs.y, inputs.sample_weight
    metadata = None if weight is None else {"sample_weight": weight}
    rows = {} if task.is_private else {"X": X, "y": y, "metadata": metadata}

    def watch(fit: Fit, problem: Any, iterate: Iterate) -> object:
        iteration = context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(estimator=estimator, **rows)
        model = partial(attributes_to_predict, fit, problem, iterate.x) if rows else None
        return iteration.call_on_fit_task_end(
            estimator=estimator, **rows, reconstruction_attributes=model
        )

    try:
        context = estimator._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=estimator, **rows)
        yield watch
        none: Any = {} if rows else None
        context.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes=none)
    finally:
        _tear_down(estimator)


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
    _protects: ClassVar[tuple[str, ...]] = ()  # units of privacy
    _budget: ClassVar[Callable[[Any], Budget]]  # where there is a parameter epsilon
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

    def _with_steps(self, task: Task) -> Task:
        """Return the task with the bounds, the objective and the steps of this estimator."""
        raise NotImplementedError

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
        inputs = FitInputs(as_table(X), y, sensitive_features, sample_weight)
        with unchanged_on_error(self) as ledger, taken_workers() as workers:
            # Workers that fit different classes would wait for each other in different sums.
            if workers.size > 1:
                refuse_difference("estimators", workers.gather(type(self).__name__))
            # Errors about parameters come on all workers, before one waits for another's rows.
            with workers.agreeing():
                task = self._task()
                inputs = admitted(task, inputs, control_features, workers)
            watching: Any = nullcontext()
            if hasattr(self, "_skl_callbacks"):
                watching = watched_by_scikit_learn(self, task, inputs)
            with watching as watch, naming_texts_and_dates(inputs.X):
                self._train(task, task.read(task, self, inputs, workers), ledger, watch)
        return self

    def _task(self) -> Task:
        """Check all parameters, and return them as the task of one fit."""
        name, params = type(self).__name__, self.get_params(deep=False)
        check_parameters(name, params, self._protects)
        specification = as_specification(self.model)
        specification.check()
        # The user's object keeps no state of a fit, and may be the model of several estimators.
        specification = clone(specification)
        check_device(f"{name}.device", self.device)
        budget = None if params.get("epsilon") is None else self._budget()
        # A private fit shares nothing: its budget does not cover results of other fits.
        specification.handle = NO_STORE if budget else self.__dict__.get("_handle", NO_STORE)
        last = dict(vars(self)) if self.warm_start and hasattr(self, "classes_") else None
        common = {f.name: params[f.name] for f in fields(Task) if f.name in params}
        task = Task(
            **{**common, "alpha": float(self.alpha)},
            name=name,
            params=params,
            notions=self._notions(),
            specification=specification,
            budget=budget,
            last=last,
            described=None if last is None else last.get("_description_"),
            multi_class=self._multi_class,
            within_strata=self._within_strata,
        )
        return self._with_steps(task)

    def _train(
        self, task: Task, rows: TrainingRows, ledger: list[PrivacyGuarantee], watch: Any = None
    ) -> None:
        """Learn columns from the rows, pose a problem, solve it, and store the result."""
        # A warning of an overflow would reveal single entries in a private fit.
        silent: Any = {"all": "ignore"} if task.is_private else {}
        seed = random_seed(task.random_state)
        if task.random_state is None:
            # Clones of one object draw the same folds, and can share what they learn on them.
            seed = task.specification.handle.seed(seed)
        with np.errstate(**silent), generator(task, seed) as rng:
            fit = task.learn(Fit(task, rows, rng, ledger, watch))
            with one_thread():
                problem, left_out = task.pose(fit)
                # Again, after the check of the class: what the solver needs may depend on where the
                # rows are.
                check_solves(task.solver, problem, in_memory=fit.data.in_memory)
                task.solver.check(problem)
                solved = task.solve(fit, problem)
                store(self, fit, solved, left_out)
            if task.measure is not None:
                problem, solution = solved.stages[-1]
                # Models fitted to these rows know their labels, so gaps of their scores are stored
                # apart from gaps of scores out of fold.
                hard = task.measure(fit, problem, solution.iterate.x)
                self.training_violation_ = problem.constraint.measure(hard[1:])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predicted labels, weighted if `sample_weight` is given.

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

    @accepts_tables
    def decision_function(self, X: Any) -> Floats:
        """Return the scores of the samples.

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

    @accepts_tables
    def predict(self, X: Any) -> Array:
        """Predict labels, which are deterministic and need no sensitive features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        head = (self.coef_, self.intercept_) if hasattr(self, "coef_") else None
        scores = self._scores(X, head=head)
        # Ties go to the same class as in training, whatever the library of X.
        codes = hard_classes(torch.as_tensor(scores))
        return labels_of(self.classes_, codes, scores)  # type: ignore[no-any-return]

    @accepts_tables
    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities of the logistic model.

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

    def __sklearn_clone__(self) -> Any:
        return share(self, super().__sklearn_clone__())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._multi_class
        tags.input_tags = as_specification(self.model).input_tags()
        return tags

    def _table(self, X: Any, sensitive_features: Any = None, head: Head | None = None) -> Any:
        """Check new samples, and return their columns, or columns that suffice for labels."""
        check_is_fitted(self)
        check_samples(X=X, sensitive_features=sensitive_features)
        return self.model_.transform(self.model_.new_rows(self, X), head)

    def _scores(self, X: Any, sensitive_features: Any = None, head: Head | None = None) -> Any:
        """Return the scores (n, K) of new samples in the library of X; with a head their signs."""
        table = self._table(X, sensitive_features, head)
        if not hasattr(self, "coef_"):  # networks gain from threads
            return network_scores(table, self.module_)
        with one_thread():
            return table @ like(self.coef_.T, table) + like(self.intercept_, table)


class PrivateFairClassifier(HiddenSeed, FairClassifier):
    """A FairClassifier that trains privately if ``epsilon`` is a number."""

    epsilon: float | Budget | None
    delta: float
    feature_range: Any
    protect: Unit = "record"  # the unit of privacy
    _protects: ClassVar[tuple[str, ...]] = ("record", "record_replacement")

    def planned_privacy(self, n_samples: int) -> PrivacyGuarantee:
        """Return the attribute ``privacy_`` of a fit to `n_samples` samples, without any data.

        Raises
        ------
        ValueError
            If a parameter is not valid, ``epsilon`` is None, or this is called on one of several
            workers within :func:`~fairconstrained.distributed.sharded_rows`, as by a search.
        """
        task = self._task()
        check_number("n_samples", n_samples, "an integer >= 1", lambda n: n >= 1 and n % 1 == 0)
        with taken_workers() as workers:
            if workers.size > 1:
                raise ValueError(
                    "planned_privacy, and so PrivateGridSearch, must be called outside of "
                    "sharded_rows: a worker knows the number of its own rows only."
                )
        if task.plan is None:
            raise ValueError(
                f"{task.name}.epsilon must be a number or a Budget for planned_privacy; got None."
            )
        guarantee: PrivacyGuarantee = task.plan(n_samples)
        return guarantee

    def _budget(self) -> Budget:
        """Return the budget; raise ValueError if a parameter set by the user promises more."""
        budget: Any = self.epsilon
        if not isinstance(budget, Budget):
            return Budget(float(budget), float(self.delta), self.protect)
        changed = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        less = (
            budget.delta > self.delta,
            _LEAST_FIRST.index(budget.unit) < _LEAST_FIRST.index(self.protect),
        )
        for parameter, promises_less in zip(("delta", "protect"), less, strict=True):
            if parameter in changed and promises_less:
                raise ValueError(
                    f"{type(self).__name__}.epsilon is a weaker promise than {type(self).__name__}."
                    f"{parameter}={getattr(self, parameter)!r}; got {budget!r}. Give one only."
                )
        return budget

    def _check_rows(self, X: Any, y: Any, sensitive_features: Any) -> None:
        """Raise any error of a fit to all or some of these rows, or of predictions for them."""
        task = self._task()
        rows = task.read(task, self, FitInputs(X, y, sensitive_features, None), ALONE)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not task.specification.learns_from:
                task.learn(Fit(task, rows, torch.Generator(), []))
            elif not get_tags(self).input_tags.allow_nan:
                check_array(X, dtype=None, accept_sparse=True, input_name="X")

    @staticmethod
    def _count_right(model: Any, X: Any, y: Any) -> float:
        """Return the number of correct predictions, to which a row adds between 0 and 1."""
        return float(np.sum(model.predict(X) == y))


def like(values: Any, table: Any) -> Any:
    """Convert an array or a tensor to the library and the device of `table`."""
    if isinstance(table, Tensor):
        return torch.as_tensor(values, device=table.device)
    return as_numpy(values)


def labels_of(classes: Array, codes: Tensor, table: Any) -> Any:
    """Return the labels of class indices, a tensor (n,); texts are always in numpy."""
    if classes.dtype.kind in "biuf":
        return like(classes, table)[like(codes, table)]
    return classes[as_numpy(codes)]


def network_scores(table: Any, module: nn.Module) -> Any:
    """Return the scores (n, K) of a network on the table's device, some rows at a time."""
    device = getattr(table, "device", "cpu")
    # A copy computes, because users' modules may keep rows, which would be pickled with them.
    if str(device) != "cpu" or type(module) is not Layers:
        module = copy.deepcopy(module).to(device)
    scores = []
    for start in range(0, table.shape[0], VECTOR_ROWS):
        rows = table[start : start + VECTOR_ROWS]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        with torch.no_grad():
            answer = module(torch.asarray(rows, dtype=torch.float64, copy=True))
        scores.append(answer.reshape(len(rows), -1))
    return like(torch.cat(scores), table)

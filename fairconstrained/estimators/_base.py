"""The only file that knows scikit-learn's fit conventions: data in, fitted attributes out."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from fairconstrained.constraints import Space, Stack
from fairconstrained.estimators._checks import (
    check_common_parameters,
    checked_callbacks,
    checked_weight,
    present_groups,
    progress,
    report,
    unchanged_on_error,
    warn_caller,
)
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.losses import class_probabilities, hard_classes, log_loss, n_outputs
from fairconstrained.models import as_model
from fairconstrained.models.features import as_features
from fairconstrained.problems import Batch, FairERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers import SGDA, AugmentedLagrangian, Status, run
from fairconstrained.solvers.run import FEASIBILITY_TOL

_CHUNK_ROWS = 65_536


class FairClassifier(ClassifierMixin, BaseEstimator):
    """Base of the estimators: a subclass says which constraints, this class does the rest."""

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    _row_loss = staticmethod(log_loss)  # its mean is minimised
    _doc_link_module = "fairconstrained"
    _doc_link_template = (
        "https://fairconstrained.readthedocs.io/en/latest/api/fairconstrained.{estimator_name}.html"
    )

    def __init__(
        self,
        *,
        model="linear",
        solver=None,
        alpha=1e-4,
        fit_intercept=True,
        max_iter=None,
        tol=1e-4,
        missing_sensitive="warn",
        min_group_size=1,
        callbacks=None,
        random_state=None,
        verbose=0,
        device="cpu",
        warm_start=False,
    ) -> None:
        self.model = model
        self.solver = solver
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.missing_sensitive = missing_sensitive
        self.min_group_size = min_group_size
        self.callbacks = callbacks
        self.random_state = random_state
        self.verbose = verbose
        self.device = device
        self.warm_start = warm_start

    # ------------------------------------------------------------------ for subclasses

    def _needs_groups(self):
        """Whether any of the constraints compares groups."""
        raise NotImplementedError

    def _members(self, space):
        """Give the constraints bound to `space`, without those that miss groups to compare."""
        raise NotImplementedError

    def _check_own_parameters(self):
        """Check the subclass's own parameters, before any work."""

    def _problem(self, data, space, solver, rng):
        """Give the problem to solve; here the mean log loss under the constraints."""
        stack = self._exact_stack(data, space)
        model = self._model(data, len(space.classes))
        return FairERM(model, data, MeanLoss(self._row_loss), stack, float(self.alpha))

    def _model(self, data, n_classes):
        outputs = n_outputs(n_classes)
        return as_model(self.model, data.X, data.weight, outputs, self.alpha, self.fit_intercept)

    def _attributes(self, problem, w):
        """Give what a fit keeps of the model."""
        return problem.model.attributes(w)

    def _columns(self, X, group_index, group_labels):
        """Give the columns that the model sees."""
        return X

    def _forget(self):
        """Discard what earlier calls kept for later ones, before a new fit."""

    # ------------------------------------------------------------------ public methods

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None) -> Self:
        """Train under the constraints.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any kind, two classes or more.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Strings, numbers or booleans without missing values, in a list, array, Series or
            DataFrame (pandas or polars); several columns are crossed. Used in training only.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative; an integer weight means that many copies of the row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or an input is not valid; named, before any work.
        DivergenceError
            If training diverges. After this error, as after an interruption or an error in a
            callback, the estimator is as it was before the call.
        """
        with unchanged_on_error(self):
            self._forget()
            self._check_parameters()
            X, y, groups, weight = self._check_data(X, y, sensitive_features, sample_weight)
            self._train(X, y, groups, weight)
        return self

    def decision_function(self, X) -> np.ndarray:
        """Scores of the samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive where the second class is predicted.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X) -> np.ndarray:
        """Predicted labels; deterministic, without the sensitive features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = torch.from_numpy(self._scores(X))
        return self.classes_[hard_classes(scores).numpy()]

    def predict_proba(self, X) -> np.ndarray:
        """Class probabilities of the logistic model.

        They are those of a model trained under constraints: calibrated as far as the constraints
        allow. :class:`sklearn.calibration.CalibratedClassifierCV` can wrap this estimator.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return class_probabilities(torch.from_numpy(self._scores(X))).numpy()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------------ data in

    def _check_parameters(self):
        check_common_parameters(self)
        self._check_own_parameters()

    def _check_data(self, X, y, sensitive_features, sample_weight):
        """Arrays, groups or None, and weights; rows of weight zero are gone."""
        # Torch warns of read-only memory, which joblib's workers get.
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, order="C", force_writeable=True
        )
        check_classification_targets(y)
        n_samples = len(y)
        weight = checked_weight(sample_weight, n_samples)
        index = None
        if sensitive_features is not None:
            index, labels = encode_groups(sensitive_features, n_samples)
        used = weight > 0
        if not used.all():  # as if these rows were not there
            X, y, weight = X[used], y[used], weight[used]
            index = None if index is None else index[used]
        groups = None if index is None else present_groups(index, labels)
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes; the data have only "
                f"one class: {classes[0]}."
            )
        if len(classes) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: {type(self).__name__} ranks one class above one other."
            )
        if groups is None or len(groups[1]) < 2:
            groups = self._without_groups(groups, n_samples=len(y))
        return X, y, groups, weight

    def _without_groups(self, groups, n_samples):
        if not self._needs_groups():
            return groups or (np.zeros(n_samples, dtype=np.int64), np.array(["all"]))
        found = "not given" if groups is None else f"all {group_name(groups[1][0])}, a single group"
        message = (
            f"sensitive_features is {found}: {type(self).__name__} cannot compare groups and "
            "imposes no constraint between them. Pass sensitive_features to fit, through a "
            "pipeline or search with sklearn.set_config(enable_metadata_routing=True)."
        )
        if self.missing_sensitive == "raise":
            raise ValueError(message)
        warn_caller(message, MissingSensitiveFeaturesWarning)
        return groups or (np.zeros(n_samples, dtype=np.int64), None)

    # ------------------------------------------------------------------ training

    def _train(self, X, y, groups, weight):
        classes, y_index = np.unique(y, return_inverse=True)
        group_index, group_labels = groups
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = torch.Generator().manual_seed(seed)
        data = Batch(
            as_features(self._columns(X, group_index, group_labels), self.device),
            torch.as_tensor(y_index.reshape(-1), device=self.device),
            torch.as_tensor(group_index, device=self.device),
            torch.as_tensor(weight, device=self.device),
        )
        space = Space(classes, group_labels if group_labels is not None else ["all"])
        # Networks initialise and drop out from torch's global generator: lend them one.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            solver = self._chosen_solver()
            problem = self._problem(data, space, solver, rng)
            solution = self._solve(solver, problem, rng, classes)
            self._store(solution, problem, space)

    def _exact_stack(self, data, space):
        return self._stack(space, space.count_cells(data.y, data.group), self.min_group_size)

    def _stack(self, space, rows, min_rows):
        """The constraints, without what rests on fewer than `min_rows` of the counted rows."""
        members = []
        for member in self._members(space):
            kept, dropped = member.without_small(rows.cpu().numpy(), min_rows)
            if dropped:
                warn_caller(
                    f"{member.name} leaves out {'; '.join(dropped)}: fewer than "
                    f"{max(min_rows, 1)} rows (min_group_size). The constraint says nothing about "
                    "them.",
                    SmallGroupWarning,
                )
            if len(kept.slack):
                members.append(kept)
        return Stack(space, members)

    def _chosen_solver(self):
        return self.solver or (AugmentedLagrangian() if self._is_linear() else SGDA())

    def _is_linear(self):
        return isinstance(self.model, str)

    def _solve(self, solver, problem, rng, classes):
        x, dual = problem.start(), torch.zeros(problem.n_constraints, device=self.device)
        dual = dual.to(x.dtype)
        if self.warm_start and hasattr(self, "classes_"):
            x, dual = self._warm(problem, x, dual, classes)
        return self._run(solver, problem, x, dual, rng)

    def _run(self, solver, problem, x, dual, rng):
        with progress(type(self).__name__, self.max_iter or solver.length, self.verbose) as tick:
            return run(
                solver,
                problem,
                x,
                dual,
                rng,
                max_iter=self.max_iter,
                tol=self.tol,
                callbacks=[*checked_callbacks(self), tick],
            )

    def _warm(self, problem, x, dual, classes):
        """Parameters and multipliers of the last fit, where they fit this one."""
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"{type(self).__name__} with warm_start=True needs the classes of the last fit, "
                f"{self.classes_}; got {classes}."
            )
        try:
            w = problem.model.restore(vars(self))
        except RuntimeError as error:  # of torch, for a module whose tensors have other shapes
            raise ValueError(
                f"warm_start=True needs the model and the features of the last fit. {error}"
            ) from error
        if len(self.multipliers_) == len(dual):
            dual = torch.as_tensor(self.multipliers_, dtype=dual.dtype, device=dual.device)
        return problem.variables(w.to(x)), dual

    def _store(self, solution, problem, space):
        for name in [n for n in vars(self) if n.endswith("_") and n not in _FROM_VALIDATION]:
            delattr(self, name)  # of a former fit, perhaps with another model
        stack, iterate = problem.constraint, solution.iterate
        w = iterate.x[: problem.model.n_params]
        problem.model.settle(w, problem.data.X)
        vars(self).update(self._attributes(problem, w))
        self.classes_ = np.asarray(space.classes)
        self.groups_ = space.groups
        self.n_iter_ = solution.n_iter
        self.converged_ = solution.status is Status.CONVERGED
        self.status_ = solution.status.value
        self.residual_ = iterate.residual
        self.multipliers_ = iterate.dual.cpu().numpy().copy()
        self.constraints_ = [stack.describe(j) for j in range(len(stack.slack))]
        self.violations_ = stack.measures(iterate.hard[1:])
        self.violation_ = stack.measure(iterate.hard[1:])
        excess = float(iterate.hard[1:].max()) if len(self.multipliers_) else 0.0
        self.feasible_ = excess <= FEASIBILITY_TOL
        self.privacy_ = None
        self.history_ = {
            "objective": np.array([float(i.soft[0]) for i in solution.history]),
            "error": np.array([float(i.hard[0]) for i in solution.history]),
            "violation": np.array([stack.measure(i.hard[1:]) for i in solution.history]),
            "soft_violation": np.array([stack.measure(i.soft[1:]) for i in solution.history]),
            "residual": np.array([i.residual for i in solution.history]),
            "multipliers": np.stack([i.dual.cpu().numpy() for i in solution.history]),
            "time": np.array(solution.times),
        }
        report(self, solution, iterate, excess)

    # ------------------------------------------------------------------ prediction

    def _scores(self, X):
        return self._scores_of(self._checked(X))

    def _checked(self, X):
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, order="C", reset=False)

    def _scores_of(self, X):
        if hasattr(self, "coef_"):
            return X @ self.coef_.T + self.intercept_
        chunks = []
        with torch.no_grad():
            for start in range(0, X.shape[0], _CHUNK_ROWS):
                rows = X[start : start + _CHUNK_ROWS]
                rows = rows.toarray() if sparse.issparse(rows) else rows
                scores = self.module_(torch.tensor(rows))
                chunks.append(scores.reshape(len(rows), -1).numpy())
        return np.concatenate(chunks)


_FROM_VALIDATION = ("n_features_in_", "feature_names_in_")

"""The base of all estimators: ``fit`` in five steps (check, rows, problem, solve, store).

A subclass builds the problem (``_problem``). If a simpler problem has to be solved first, it
derives the final one from that solution (``_refined``).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from fairconstrained.arrays import rows_of
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import Notion, Stack, as_notion
from fairconstrained.distributed import taken_workers
from fairconstrained.estimators._around import (
    data_by_position,
    progress,
    report,
    report_equal,
    unchanged_on_error,
)
from fairconstrained.estimators._callbacks import CallbackSupportMixin, fit_task
from fairconstrained.estimators._history import history, recorded
from fairconstrained.estimators._parameters import check_parameters, given_callbacks
from fairconstrained.estimators._parts import (
    agreed,
    check_parts,
    learnt_columns,
    parted_rows,
    rows_of_blocks,
)
from fairconstrained.estimators._predictions import (
    by_blocks,
    labels_of,
    like,
    linear_scores,
    network_scores,
)
from fairconstrained.estimators._rows import (
    Task,
    TrainingRows,
    check_groups,
    checked_weight,
    random_seed,
    relative_weight,
)
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.losses import class_probabilities, hard_classes, log_loss, n_outputs
from fairconstrained.models import Linear, as_specification
from fairconstrained.models.features import as_features
from fairconstrained.models.layers import auditable
from fairconstrained.models.perceptron import WidePerceptronModel
from fairconstrained.models.specification import LinearSpecification
from fairconstrained.problems import Batch, FairERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.process import one_thread, seeded
from fairconstrained.samples import check_samples
from fairconstrained.solvers import (
    AugmentedLagrangian,
    EarlyStoppedSGDA,
    Solution,
    Status,
    check_solves,
    run,
    solves,
)
from fairconstrained.solvers.base import FEASIBILITY_TOL
from fairconstrained.workers import ALONE, refuse_difference

# Rounds after which standard errors differ by a few percent from those at the solution.
ROUGH = 4
_FROM_VALIDATION = ("n_features_in_", "feature_names_in_")


class Stage(NamedTuple):
    """A problem and its solution."""

    problem: object
    solution: Solution

    @property
    def stack(self) -> Stack:
        """The constraints of the problem."""
        return self.problem.constraint


class FairClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the estimators. A subclass defines the problem, this class does the rest."""

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    _doc_link_module = "fairconstrained"
    _doc_link_template = (
        "https://fairconstrained.readthedocs.io/en/latest/api/fairconstrained.{estimator_name}.html"
    )
    epsilon = None  # of estimators without a private version
    margin = 0.0  # of estimators whose slack is not narrowed

    def __init__(
        self,
        *,
        model="linear",
        solver=None,
        alpha=1e-4,
        max_iter=None,
        tol=1e-4,
        missing_sensitive="warn",
        min_group_size="auto",
        callbacks=None,
        random_state=None,
        verbose=0,
        device="cpu",
        warm_start=False,
    ) -> None:
        self.model = model
        self.solver = solver
        self.alpha = alpha
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

    def _notions(self):
        """Return the notions in ``constraint`` as objects; raise ValueError for anything else."""
        raise NotImplementedError

    def _one_notion(self, names, kind=Notion):
        """The notion in ``constraint``, alone in a list."""
        return [as_notion(self.constraint, names, kind, f"{type(self).__name__}.constraint")]

    def _notions_of_list(self, names):
        """The notions in ``constraint``, which may be a list of several."""
        if not isinstance(self.constraint, (list, tuple)):
            return self._one_notion(names)
        owner = f"{type(self).__name__}.constraint"
        if not self.constraint:
            raise ValueError(f"{owner} is empty; give at least one.")
        return [as_notion(item, names, Notion, owner) for item in self.constraint]

    def _check(self):
        """Check combinations of parameters, before any work."""

    def _problem_class(self):
        """Return the class of the problem, or a class with the same protocols."""
        return FairERM

    def _problem(self, task):
        """Build the problem without solving anything; by default that of the mean loss."""
        stack = self._exact_stack(task)
        kind = task.posed_as(FairERM, stack)
        return kind(self._model(task), task.data, self._risk(), stack, float(self.alpha))

    def _risk(self):
        """Return the objective: what is minimised, and what feasible points are compared by."""
        return MeanLoss(log_loss)

    def _refined(self, problem, task):
        """Return the final problem, after solving a simpler one if that is needed."""
        if self.epsilon is not None:
            return problem
        if not self._is_linear():
            return self._beginning_linear(problem, task)
        if not problem.n_constraints:
            return problem
        return replace(problem, free=self._preliminary(problem, task))

    def _default_solver(self):
        """Return the solver to use if none is given."""
        return AugmentedLagrangian() if self._is_linear() else EarlyStoppedSGDA()

    def _columns(self, X, group, groups):
        """Return the columns from which scores are computed, given those of the model."""
        return X

    def _attributes(self, problem, w):
        """Return the fitted attributes of the trained model."""
        return problem.model.attributes(w)

    def _errors_of_estimates(self, problem):
        """Give how far the measured constraints may be from the truth: 0 if they are exact."""
        return torch.zeros(problem.n_constraints)

    def _forget(self):
        """Discard state from earlier calls, before a new fit."""

    # ------------------------------------------------------------------ public methods

    @data_by_position("X", "y")
    def fit(self, X, y, *, sensitive_features=None, sample_weight=None, **fit_params) -> Self:
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
            self._forget()
            refuse_difference("estimators", workers.gather(type(self).__name__))
            with workers.agreeing():
                self._check_all()
                if workers.size > 1 or isinstance(X, Blocks):
                    check_parts(self, X)
                routed = self._routed_params(fit_params)
            with fit_task(self, X, y, sample_weight) as watch:
                rows = self._rows(X, y, sensitive_features, sample_weight, routed, workers)
                self._train(replace(rows, watch=watch))
        return self

    def decision_function(self, X) -> np.ndarray:
        """Scores of the samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes, a positive score predicts the second class.
        """
        scores = self._by_blocks(lambda scores: scores, self._table(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X) -> np.ndarray:
        """Predicted labels. They are deterministic and need no sensitive features.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._by_blocks(self._labels, self._table(X))

    def predict_proba(self, X) -> np.ndarray:
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
        return self._by_blocks(_probabilities, self._table(X))

    def get_metadata_routing(self):
        """What this estimator and a classifier given as `model` request.

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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = self._specification().input_tags()
        return tags

    # ------------------------------------------------------------------ rows

    def _check_all(self):
        check_parameters(self)
        self._check()
        check_solves(self._chosen_solver(), self._problem_class())

    def _routed_params(self, fit_params):
        """What reaches the ``fit`` of a classifier given as `model`."""
        if not fit_params:
            return {}
        consumer = self._specification().metadata_consumer()
        if consumer is None or not get_config()["enable_metadata_routing"]:
            raise TypeError(
                f"{type(self).__name__}.fit got {sorted(fit_params)}: only a classifier given as "
                "model can use them, with sklearn.set_config(enable_metadata_routing=True)."
            )
        routed = process_routing(self, "fit", **fit_params)
        return dict(routed["estimator"].fit)

    def _rows(self, X, y, sensitive_features, sample_weight, routed, workers=ALONE):
        """Validated samples of positive weight, with labels and groups as indices."""
        with workers.agreeing():
            rows = self._own_rows(X, y, sensitive_features, sample_weight, routed)
        rows = agreed(self, rows, workers)
        if rows.groups is not None:
            n_samples = int(rows.cells.sum())
            check_groups(type(self).__name__, self._possible_groups(rows.groups), n_samples)
        self._check_classes(rows.classes)
        return self._with_groups(rows)

    def _own_rows(self, X, y, sensitive_features, sample_weight, routed):
        """The samples of this worker."""
        check_samples(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        if isinstance(X, Blocks):
            return rows_of_blocks(self, X, y, sensitive_features, sample_weight)
        X, y = self._specification().training_rows(self, X, y)
        check_classification_targets(y)
        weight = checked_weight(sample_weight, len(y))
        codes = labels = None
        if sensitive_features is not None:
            codes, labels = encode_groups(sensitive_features, len(y))
        used = weight > 0
        if not used.all():  # as if these rows were not there
            X, y, weight = _safe_indexing(X, np.flatnonzero(used)), y[used], weight[used]
            codes = None if codes is None else codes[used]
            routed = {name: rows_of(value, used) for name, value in routed.items()}
        if codes is not None:  # groups that still have rows, renumbered
            seen, codes = np.unique(codes, return_inverse=True)
            labels = labels[seen]
        classes, y = np.unique(y, return_inverse=True)
        return TrainingRows(X, y.reshape(-1), codes, weight, classes, labels, routed=routed)

    def _possible_groups(self, occurring):
        """The groups that are counted, and named, if they are too many."""
        return occurring

    def _check_classes(self, classes):
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes; the data have only "
                f"one class: {classes[0]}."
            )
        if len(classes) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(classes)}: {type(self).__name__} ranks one class above one other."
            )
        for notion in self._notions():
            notion.positive(classes)

    def _with_groups(self, rows):
        """The rows, in one group if none are known; warn if constraints then mean nothing."""
        if rows.groups is not None and len(rows.groups) > 1:
            return rows
        if self._needs_groups():
            self._say_that_groups_are_missing(rows.groups)
        group = np.zeros(len(rows.y), dtype=np.int64) if rows.group is None else rows.group
        return replace(rows, group=group)

    def _say_that_groups_are_missing(self, groups):
        found = "not given" if groups is None else f"all {group_name(groups[0])}, a single group"
        message = (
            f"sensitive_features is {found}: {type(self).__name__} cannot compare groups and "
            "imposes no constraint between them. Pass sensitive_features to fit, through a "
            "pipeline or search with sklearn.set_config(enable_metadata_routing=True)."
        )
        if self.missing_sensitive == "raise":
            raise ValueError(message)
        warn_caller(message, MissingSensitiveFeaturesWarning)

    def _needs_groups(self):
        """Whether any of the notions compares groups."""
        return any(notion.needs_groups for notion in self._notions())

    # ------------------------------------------------------------------ problem

    def _train(self, rows):
        with self._seeded(random_seed(self.random_state)) as rng:
            task = self._task(rows, rng)
            with one_thread():
                problem = self._problem(task)
                check_solves(task.solver, problem)
                task.solver.check(problem)
                problem = self._refined(problem, task)
                self._store(self._solved(problem, task), rows)

    def _seeded(self, seed):
        """A context with the generator of a fit; only modules need torch's global one as well."""
        if self._is_linear():
            return nullcontext(torch.Generator().manual_seed(seed))
        return seeded(seed, self.device)

    def _task(self, rows, rng):
        """Fit the specification of the model and put its columns on the device."""

        def learn(specification):
            return specification.fit_transform(
                rows.X,
                rows.y,
                rows.group,
                rows.weight,
                classes=rows.classes,
                part_of_cell=partial(self._part_of_cell, rows),
                rng=rng,
                routed=rows.routed,
            )

        table, self.model_ = learnt_columns(clone(self._specification()), rows, learn)
        return Task(
            self._data(table, rows),
            rows.space,
            self._chosen_solver(),
            rng,
            lambda: rows.cells,
            rows.workers,
            rows.moments,
            rows.watch,
        )

    def _data(self, table, rows):
        """The rows as a problem sees them."""
        weight = relative_weight(rows.weight, rows.weight_range)
        columns = partial(self._columns, groups=rows.groups)
        if rows.in_parts:
            return parted_rows(rows, table, columns, weight, self.device)
        return Batch(
            self._features(columns(table, rows.group)),
            *(
                torch.as_tensor(column, device=self.device)
                for column in (rows.y, rows.group, weight)
            ),
        )

    def _features(self, table):
        """The columns as models see them, stored as suits them best."""
        return as_features(table, self.device)

    def _specification(self):
        return as_specification(self.model)

    def _is_linear(self):
        return isinstance(self._specification(), LinearSpecification)

    def _chosen_solver(self):
        return self._default_solver() if self.solver is None else self.solver

    def _model(self, task):
        """The model of flat parameters that solvers see."""
        outputs = n_outputs(len(task.space.classes))
        return self.model_.build(task.data.X, task.data.weight, outputs, float(self.alpha))

    def _part_of_cell(self, rows):
        """The part of each label and group in the constraints; -1 for none."""
        space = rows.space
        members = [kept for kept, _ in self._kept(space, rows.cells, self.min_group_size)]
        return Stack(space, members).part_of_cell.numpy()

    def _kept(self, space, rows, least):
        """Each constraint without the values that depend on fewer than `least` rows."""
        return [
            self._bound(notion, space).without_small(rows.cpu().numpy(), least)
            for notion in self._notions()
            if not notion.needs_groups or len(space.groups) > 1
        ]

    def _stack(self, space, rows, least):
        """Stack the constraints without small groups, which a warning names."""
        members = []
        for kept, dropped in self._kept(space, rows, least):
            if dropped:
                few = "too few" if least == "auto" else f"fewer than {max(least, 1)}"
                warn_caller(
                    f"{kept.name} leaves out {'; '.join(dropped)}: {few} rows (min_group_size="
                    f"{least!r}). The constraint says nothing about them.",
                    SmallGroupWarning,
                )
            if len(kept.slack):
                members.append(kept)
        return Stack(space, members)

    def _bound(self, notion, space):
        return notion.bind(space, self.slack)

    def _exact_stack(self, task):
        return self._stack(task.space, task.cells(), self.min_group_size)

    # ------------------------------------------------------------------ solve

    def _solved(self, problem, task):
        """The stages of the solution: one, or a rough one before it, for the errors of a margin."""
        x, dual = problem.start(), torch.zeros(problem.n_constraints, device=self.device)
        dual = dual.to(x.dtype)
        if self._is_warm():
            x, dual = self._warm(problem, x, dual, task.space.classes)
        if not (self.margin > 0 and problem.constraint.members):
            return [self._run(problem, task, x, dual)]
        rough = self._run(problem, task, x, dual, rounds=min(ROUGH, self.max_iter or ROUGH))
        found = rough.solution.iterate
        narrow = replace(problem, constraint=narrowed(problem, found.x, self.margin))
        if self._is_linear():  # a network that starts at a rough solution ends at a larger error
            x, dual = found.x, found.dual
        return [rough, self._run(narrow, task, x, dual)]

    def _preliminary(self, problem, task):
        """The point that solves the problem without constraints, which callbacks do not see."""
        free = replace(problem, constraint=Stack(task.space, []))
        solver = AugmentedLagrangian() if self._is_linear() else task.solver
        none, start = task.data.weight.new_zeros(0), free.start()
        return run(solver, free, start, none, task.rng, max_iter=None, tol=self.tol).iterate.x

    def _beginning_linear(self, problem, task):
        """The problem of a perceptron that starts at the linear model, where it contains that."""
        divisible = solves(EarlyStoppedSGDA(), problem)  # others begin where they say themselves
        if self._is_warm() or not (divisible and isinstance(problem.model, WidePerceptronModel)):
            return problem
        return replace(problem, simpler=partial(self._linear_start, task))

    def _linear_start(self, task, part):
        """The perceptron that is the constrained linear model of the rows of `part`."""
        outputs = n_outputs(len(task.space.classes))
        model = Linear().build(part.data.X, part.data.weight, outputs, part.alpha)
        linear = replace(part, model=model, simpler=None)
        x, dual = linear.start(), part.total.new_zeros(part.n_constraints)
        solver = AugmentedLagrangian()
        found = run(solver, linear, x, dual, task.rng, max_iter=None, tol=self.tol).iterate
        w, aux = found.x.tensor_split([model.n_params])
        coef, intercept = model.unpack(w)
        return torch.cat((part.model.of_linear(coef.T, intercept), aux)), found.dual

    def _run(self, problem, task, x, dual, rounds=None):
        """Run the solver; runs that are capped at so many rounds are compared with no baseline."""
        max_iter, watchers = rounds or self.max_iter, given_callbacks(self.callbacks)
        compared = rounds is None and self.epsilon is None and len(dual)
        length = max_iter or task.solver.length
        with progress(type(self).__name__, length, self.verbose) as tick:
            solution = run(
                task.solver,
                problem,
                x,
                dual,
                task.rng,
                max_iter=max_iter,
                tol=self.tol,
                callbacks=task.workers.asked([*watchers, partial(task.watch, problem), tick]),
                known=problem.known() if compared else (),
                record=partial(recorded, problem.constraint),
            )
        return Stage(problem, solution)

    def _is_warm(self):
        """Whether training begins at the last fit."""
        return self.warm_start and hasattr(self, "classes_")

    def _warm(self, problem, x, dual, classes):
        """Parameters and multipliers of the last fit, if they fit this problem."""
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

    # ------------------------------------------------------------------ store

    def _store(self, stages, rows):
        """Write the fitted attributes, and report what users should know."""
        kept = (*_FROM_VALIDATION, "model_")
        for name in [n for n in vars(self) if n.endswith("_") and n not in kept]:
            delattr(self, name)  # of a former fit, perhaps with another model
        problem, solution = stages[-1]
        stack, iterate = problem.constraint, solution.iterate
        w = iterate.x[: problem.model.n_params]
        problem.model.update_batch_norm(w, problem.data.X)
        vars(self).update(self._fitted(problem, iterate.x))
        self.n_iter_ = sum(stage.solution.n_iter for stage in stages)
        self.converged_ = solution.status is Status.CONVERGED
        self.status_ = solution.words
        self.residual_ = iterate.residual
        self.multipliers_ = iterate.dual.cpu().numpy().copy()
        # Values that a penalty replaces are measured, and have no multipliers.
        self.constraints_ = [stack.describe(j) for j in range(len(iterate.dual))]
        self.violations_ = stack.measures(iterate.hard[1:])
        self.violation_ = stack.measure(iterate.hard[1:])
        # A margin narrows the slacks in training only.
        wider = (stack.slack - stages[0].stack.slack).to(iterate.hard)
        excess = iterate.constraints + wider[: len(iterate.dual)]
        self.feasible_ = bool((excess <= FEASIBILITY_TOL).all())
        errors = self._errors_of_estimates(problem).to(excess)
        worst = int((excess - errors).argmax()) if len(excess) else None
        self.excess_ = np.nan if worst is None else float(excess[worst])
        self.excess_error_ = 0.0 if worst is None else float(errors[worst])
        self.privacy_ = None
        solutions = [stage.solution for stage in stages]
        self.history_ = history([s.history for s in solutions], [s.times for s in solutions])
        report(self, solution, worst)
        if solution.status is Status.KNOWN and self.feasible_:  # never of a private fit
            report_equal(self, problem, w)

    def _fitted(self, problem, x):
        """The attributes with which the model at `x` predicts."""
        attributes = self._attributes(problem, x[: problem.model.n_params])
        if "module_" in attributes:
            attributes["module_"] = auditable(attributes["module_"])
        space = problem.constraint.space
        return {**attributes, "classes_": space.classes, "groups_": space.groups}

    # ------------------------------------------------------------------ prediction

    def _table(self, X, sensitive_features=None):
        """Columns of the model for new samples."""
        check_is_fitted(self)
        check_samples(X=X, sensitive_features=sensitive_features)
        return self.model_.transform(self.model_.new_rows(self, X))

    def _by_blocks(self, function, table):
        """A function of the scores of each row, some rows at a time."""
        limit = one_thread if hasattr(self, "coef_") else nullcontext  # networks gain from threads
        with limit():
            return by_blocks(lambda rows: function(self._scores(rows)), table)

    def _labels(self, scores):
        return labels_of(self.classes_, hard_classes(torch.as_tensor(scores)), scores)

    def _scores(self, rows):
        """Scores (n, K), in the library of the rows."""
        if hasattr(self, "coef_"):
            return linear_scores(rows, self.coef_, self.intercept_)
        return network_scores(rows, self.module_)


def _probabilities(scores):
    return like(class_probabilities(torch.as_tensor(scores)), scores)


def narrowed(problem, x, margin):
    """The constraints with slacks less `margin` of their own standard errors at x."""
    stack, errors = problem.constraint, problem.standard_errors(x)
    narrow = stack.narrowed(margin * errors)
    nothing = torch.nonzero((narrow.slack <= 0) & (stack.slack > 0))[:, 0].tolist()
    if nothing:
        worst = max(nothing, key=lambda j: float(margin * errors[j] - stack.slack[j]))
        warn_caller(
            f"margin={margin:g} leaves nothing of the slack for {len(nothing)} of "
            f"{len(stack.slack)} constraints, such as {stack.describe(worst)} (slack "
            f"{float(stack.slack[worst]):g}, standard error {float(errors[worst]):.3g}): they are "
            "trained for no gap at all, and on new data they may exceed the slack nevertheless. "
            "Use more rows, a larger slack or a smaller margin.",
            ConstraintNotSatisfiedWarning,
        )
    return narrow

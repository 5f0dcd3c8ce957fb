"""The base of private fits: public ranges, system randomness and warnings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy import sparse

from fairconstrained.constraints import Stack
from fairconstrained.distributed import taken_workers
from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._domain import as_labels, categories, recoded
from fairconstrained.exceptions import PrivacyWarning, SmallGroupWarning, warn_caller
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models import Posteriors
from fairconstrained.models.features import dense_features
from fairconstrained.privacy import Budget, PrivacyGuarantee
from fairconstrained.privacy.mechanisms import Releases, SharedGenerator, SystemGenerator
from fairconstrained.problems.private.coordinates import (
    Coordinates,
    release_coordinates,
    release_scales,
)
from fairconstrained.problems.private.erm import GRADIENT, PrivateERM
from fairconstrained.problems.private.secret_groups import COUNTS, released_counts
from fairconstrained.solvers import DPSGDA, check_solves
from fairconstrained.workers import ALONE, refuse_difference

_SPENT = (
    "Noisy numbers had been released before: up to epsilon = {:.4g} and delta = {:.4g} are spent "
    "(the attribute privacy of this error), although no model was returned. Another fit on the "
    "same rows adds its own."
)

_FAR = 1e6  # how far outside the public range entries may be, in widths of the range
_FEW_ROWS = 5  # least expected number of rows of a group in a batch without a warning
_MUCH_NOISE = 0.3  # on the mean gradient over the training, in units of the clipping norm


class PrivateFairClassifier(FairClassifier):
    """A FairClassifier that trains privately if ``epsilon`` is a number.

    Whatever leaves :meth:`fit` and depends on the data is accounted for. The number of rows, the
    classes and the names of the groups count as public.
    """

    protect = "record"  # the unit of privacy
    _protects = ("record", "record_replacement")
    _domains = None  # of labels and groups, while rows are read
    keeps_seed = False  # whether a pickle of a private fit holds random_state: for experiments

    def _check(self):
        if self.epsilon is None:
            return
        if self.warm_start:
            raise ValueError(
                f"{type(self).__name__}.warm_start must be False with epsilon: every fit spends "
                "the whole budget, and the promise of this one would not cover the last one."
            )
        if self.margin > 0:
            raise ValueError(
                f"{type(self).__name__}.margin must be 0 with epsilon: standard errors are read "
                f"off the exact predictions; got {self.margin!r}."
            )
        if isinstance(self._specification(), Posteriors):
            raise ValueError(
                f"{type(self).__name__}.model must be 'linear' or a network with epsilon: a "
                f"classifier such as {self.model!r} reads the rows exactly, and what it learnt of "
                "them would leave fit without noise."
            )

    def _refuse_with_epsilon(self, refused, offered):
        """Raise ValueError for a parameter that a private fit does not support."""
        wrong = [parameter for parameter, is_wrong in refused.items() if is_wrong]
        if wrong:
            raise ValueError(
                f"{type(self).__name__}.epsilon must be None with {wrong[0]}; private training "
                f"needs {offered}."
            )

    def _rows(self, X, y, sensitive_features, sample_weight, routed, workers=ALONE):
        private_records = self.epsilon is not None and self._protects_records()
        with workers.agreeing():
            if private_records and sample_weight is not None:
                raise ValueError(
                    "sample_weight must be None with epsilon: a row of weight w would need w times "
                    "the noise."
                )
            domains = None
            if self.epsilon is not None:
                domains = (
                    categories(y, "y"),
                    categories(sensitive_features, "sensitive_features"),
                )
        if domains is not None:
            refuse_difference("categories of y and sensitive_features", workers.gather(domains))
            self._domains = domains
        try:
            return super()._rows(X, y, sensitive_features, sample_weight, routed, workers)
        finally:
            vars(self).pop("_domains", None)

    def _check_classes(self, classes):
        """Of a public domain all classes count, whether or not they occur."""
        declared = self._domains and self._domains[0]
        super()._check_classes(np.asarray(declared) if declared else classes)

    def _possible_groups(self, occurring):
        """Count all groups of a public domain, so as not to reveal how many occur."""
        groups = self._domains and self._domains[1]
        return as_labels(groups) if groups else occurring

    def _with_groups(self, rows):
        """With what a public domain declares: that a class or group is absent is not told."""
        classes, groups = self._domains or (None, None)
        if classes is not None:
            y, labels = recoded(rows.y, rows.classes, classes)
            rows = replace(rows, y=y, classes=labels)
        if groups is not None and rows.groups is not None:
            group, labels = recoded(rows.group, rows.groups, groups)
            rows = replace(rows, group=group, groups=labels)
        return super()._with_groups(rows)

    def _data(self, table, rows):
        """The rows; those of records also of several workers as a batch.

        Every sum over them is a release, which adds up those of all workers. Where groups alone are
        secret there are public sums, too.
        """
        if self.epsilon is not None and self._protects_records():
            rows = replace(rows, in_parts=False)
        return super()._data(table, rows)

    def _features(self, table):
        """The columns; those of private rows stay as they are given, dense or sparse.

        Dense and sparse sums round differently, by many rows where a range is far from zero.
        One entry must not decide between them.
        """
        if self.epsilon is None or not self._protects_records() or sparse.issparse(table):
            return super()._features(table)
        return dense_features(table, self.device)

    def _task(self, rows, rng):
        """The task with system randomness, and with private rows near their public range."""
        task = super()._task(rows, rng)
        if self.epsilon is None:
            return task
        if self.random_state is None:
            task = replace(task, rng=SystemGenerator())
        else:
            warn_caller(
                f"random_state={self.random_state!r} seeds the noise of private training: whoever "
                "knows it, or tries it out, can subtract the noise, and no promise is left. That "
                "is for experiments; a model to be released needs random_state=None.",
                PrivacyWarning,
            )
        if task.workers.size > 1:
            task = replace(task, rng=SharedGenerator(task.rng, task.workers))
        if not self._protects_records():
            return task
        public = self._public_range(task.data)
        reach = _FAR * public.scale
        # Squares and sums of larger entries overflow, so one row could make a fit fail.
        X = task.data.X.bounded(public.centre - reach, public.centre + public.scale + reach)
        return replace(task, data=task.data._replace(X=X))

    def _problem_class(self):
        return super()._problem_class() if self.epsilon is None else PrivateERM

    def _default_solver(self):
        return super()._default_solver() if self.epsilon is None else DPSGDA()

    def _problem(self, task):
        return self._exact_problem(task) if self.epsilon is None else self._private_problem(task)

    def _exact_problem(self, task):
        """Build the problem without privacy."""
        return super()._problem(task)

    def _train(self, rows):
        self._spent = None
        try:
            super()._train(rows)
        except BaseException as error:
            if self._spent is not None:
                error.privacy = self._spent
                error.add_note(_SPENT.format(self._spent.epsilon, self._spent.delta))
            raise
        finally:
            vars(self).pop("_spent", None)

    def _spends(self, plan):
        """Record that budget may have been spent, for errors from here on."""
        self._spent = plan

    def _refuse_early(self, task, pose):
        """Pose the problem on one row and on no releases: what cannot be solved is refused here."""
        space, data = task.space, task.data
        ample = torch.full((len(space.classes), len(space.groups)), task.n_rows)
        stack = Stack(space, [kept for kept, _ in self._kept(space, ample, 1)])
        counts = stack.counts_of_cells(ample.to(data.weight)).clamp_min(1.0)
        one_row = data.kept(torch.zeros(1, dtype=torch.long).to(data.y), data.weight[:1])
        trial = pose(one_row, stack, counts)
        check_solves(task.solver, trial)
        task.solver.check(trial)

    def _private_problem(self, task):
        """Build the problem of noisy releases; here the mean log loss under the constraints."""
        data, space, rng = task.data, task.space, task.rng
        plan = task.solver.plan(task.n_rows, self._budget())
        releases = Releases(plan)

        def pose(model, rows, stack, counts):
            alpha, n_rows = float(self.alpha), task.n_rows
            return PrivateERM(model, rows, log_loss, stack, alpha, counts, releases, n_rows)

        trial = self._trial_model(task)
        self._refuse_early(task, partial(pose, trial))
        model = self._private_model(task, releases, trial.n_params)
        counts = released_counts(data, space, releases, rng)
        stack = self._stack(space, counts.round(), least_rows(self, plan.noise(COUNTS)))
        _warn_of_small_groups(stack, counts, plan.sampling_rate)
        parts = stack.counts_of_cells(counts).clamp_min(1.0)
        return pose(model, data, stack, parts)

    def _protects_records(self):
        return self._budget().unit != "sensitive_features"

    def planned_privacy(self, n_samples) -> PrivacyGuarantee:
        """What a fit with these parameters would spend, without any data.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        PrivacyGuarantee
            The attribute ``privacy_`` of such a fit.

        Raises
        ------
        ValueError
            If a parameter is not valid, ``epsilon`` is None, or this is called on one of several
            workers within :func:`~fairconstrained.distributed.sharded_rows`, as by a search.
        """
        self._check_all()
        with taken_workers() as workers:
            if workers.size > 1:
                raise ValueError(
                    "planned_privacy, and so PrivateGridSearch, must be called outside of "
                    "sharded_rows: a worker knows how many rows it has, and not how many all have."
                )
        if self.epsilon is None:
            raise ValueError(
                f"{type(self).__name__}.epsilon must be a number or a Budget for planned_privacy; "
                "got None."
            )
        return self._planned(n_samples)

    def _planned(self, n_samples):
        return self._chosen_solver().plan(n_samples, self._budget())

    def _budget(self):
        """What a private fit may spend, given as a number or in full."""
        if isinstance(self.epsilon, Budget):
            return self.epsilon
        return Budget(float(self.epsilon), float(self.delta), self.protect)

    def _public_range(self, data):
        """Coordinates from ``feature_range`` alone, in which columns are in [0, 1]."""
        n_features = data.X.shape[1]
        low, high = (0.0, 1.0) if self.feature_range is None else self.feature_range
        try:
            ends = [np.broadcast_to(np.asarray(end, float), n_features) for end in (low, high)]
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__}.feature_range must be None or a pair (low, high) of "
                f"numbers or of arrays of shape ({n_features},); got {self.feature_range!r}."
            ) from error
        low, high = torch.tensor(np.stack(ends), device=data.weight.device)
        return Coordinates(low, high - low)

    def _trial_model(self, task):
        """The model in public coordinates; ValueError for one that cannot be trained privately."""
        return self._built(task, self._public_range(task.data))

    def _built(self, task, coordinates):
        """The model in these coordinates, which may use the ranges that the user has given."""
        public, outputs = self._public_range(task.data), n_outputs(len(task.space.classes))
        low, high = public.centre, public.centre + public.scale
        given = None if self.feature_range is None else (low, high)
        centre, scale, _, run = coordinates
        return self.model_.build_private(centre, scale, outputs, given, run)

    def _private_model(self, task, releases, n_params):
        """The model in released coordinates."""
        X, n_rows, rng = task.data.X, task.n_rows, task.rng
        public = self._public_range(task.data)
        self._warn_of_noise(releases.plan, n_rows, n_params)
        self._warn_of_delta(n_rows)
        self._spends(releases.plan)
        if self.feature_range is None:
            public = release_scales(X, n_rows, public, releases, rng)
        coordinates = release_coordinates(X, n_rows, public, releases, rng)
        if coordinates.far:
            self._warn_of_range()
        return self._built(task, coordinates)

    def _errors_of_estimates(self, problem):
        """Two standard deviations of the noise on the measured constraints."""
        if self.epsilon is None:
            return super()._errors_of_estimates(problem)
        return 2.0 * problem.deviations_of_estimates().cpu()

    def __getstate__(self):
        """The state to pickle: without the seed of a private fit, which undoes its noise."""
        state = super().__getstate__()
        if getattr(self, "privacy_", None) is not None and not self.keeps_seed:
            state = {**state, "random_state": None}
        return state

    def _store(self, stages, rows):
        super()._store(stages, rows)
        if self.epsilon is not None:
            self.privacy_ = stages[-1].problem.plan
            # The time of a step would reveal the exact size of its batch.
            self.history_["time"] = np.full(len(self.history_["time"]), np.nan)

    def _warn_of_noise(self, plan, n_rows, n_params):
        rate, n_steps = plan.sampling_rate, plan.n_steps
        noise = plan.noise(GRADIENT) * np.sqrt(n_params / n_steps) / (rate * n_rows)
        if noise > _MUCH_NOISE:
            warn_caller(
                f"With {n_rows} rows, {n_params} parameters and "
                f"epsilon={self._budget().epsilon:g} the noise on the gradients, averaged over the "
                f"training, is {noise:.2g} times what a row can contribute: little can be learnt. "
                "Use more rows, fewer features or a larger epsilon.",
                PrivacyWarning,
            )

    def _warn_of_range(self):
        """Say which parameter raw columns need; known from what was released."""
        where = "(0, 1) in released scales" if self.feature_range is None else "what was given"
        warn_caller(
            f"By the released norms most rows lie outside of {type(self).__name__}.feature_range "
            f"({where}): columns of large numbers may then drown all others, and accuracy is lost. "
            "Give feature_range=(low, high), arrays of one number a column, from public knowledge.",
            PrivacyWarning,
        )

    def _warn_of_delta(self, n_rows):
        """Warn if delta is so large that the guarantee means little."""
        delta = self._budget().delta
        if delta >= 1 / n_rows:
            warn_caller(
                f"delta={delta:g} is not below 1/n = {1 / n_rows:.1g}: a mechanism that "
                "publishes a random row in full would keep such a promise. Choose a smaller delta.",
                PrivacyWarning,
            )


def least_rows(estimator, counts_noise):
    """Least released count of a group: below two standard deviations it may be empty."""
    asked = 1 if estimator.min_group_size == "auto" else estimator.min_group_size
    if np.isinf(counts_noise):  # a single group, of which nothing is secret
        return asked
    return int(max(asked, np.ceil(2 * counts_noise)))


def _warn_of_small_groups(stack, counts, rate):
    small = [
        f"{stack.space.describe(cells)} (about {int(counts[cells].sum())} rows)"
        for cells in stack.part_cells()
        if 0 < rate * counts[cells].sum() < _FEW_ROWS
    ]
    if small:
        warn_caller(
            f"{'; '.join(small)}, by the released counts: fewer than {_FEW_ROWS} in an expected "
            "batch. Their rates are mostly noise; set min_group_size to leave them out.",
            SmallGroupWarning,
        )

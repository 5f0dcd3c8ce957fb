"""Private fits: a budget, public domains and ranges, system randomness, noisy releases."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from torch import Generator, Tensor

from fairconstrained.arrays import check_array
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.tables import sum_by
from fairconstrained.distributed import ALONE, Workers, refuse_difference, taken_workers
from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._inputs import Given, TrainingRows, declared_domains
from fairconstrained.estimators._training import Stage, Training
from fairconstrained.exceptions import (
    PrivacyWarning,
    SmallGroupWarning,
    warn_caller,
)
from fairconstrained.inputs.features import check_numbers
from fairconstrained.inputs.groups import UncertainGroups, refuse_groups_in
from fairconstrained.losses import n_outputs
from fairconstrained.models.features import Features, as_features, dense_features
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Linear, Network
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee, Unit
from fairconstrained.privacy.callers import (
    pipeline_steps_above,
    refuse_steps_with_groups,
    trainer_above,
    warn_of_learning_steps,
)
from fairconstrained.privacy.mechanisms import Releases, SharedGenerator, SystemGenerator
from fairconstrained.privacy.plans import privacy_guarantee
from fairconstrained.privacy.seeds import HiddenSeed
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.private.coordinates import (
    LARGEST,
    Coordinates,
    release_coordinates,
    release_scales,
)
from fairconstrained.problems.private.erm import COUNTS, GRADIENT, PrivateERM
from fairconstrained.problems.private.secret_groups import SecretGroups, noisy_sums
from fairconstrained.solvers.base import Solution, Solver, check_solves
from fairconstrained.solvers.private.dpsgda import DPSGDA
from fairconstrained.solvers.private.released_moments import ReleasedMoments

_LEAST_FIRST = ("sensitive_features", "record", "record_replacement")  # units, by what is covered
_FAR = 1e6  # how far outside their range entries may be, in widths of the range
_SELDOM = 10.0  # least probability of a row to be in a batch without a warning, in units of delta
_FEW_ROWS = 5  # least expected number of rows of a group in a batch without a warning
_MUCH_NOISE = 0.3  # on the mean gradient over the training, in units of the clipping norm


class PrivateFairClassifier(HiddenSeed, FairClassifier):
    """A FairClassifier that trains privately if ``epsilon`` is a number."""

    epsilon: float | Budget | None
    delta: float
    feature_range: Any
    protect: Unit = "record"  # the unit of privacy
    _protects: tuple[str, ...] = ("record", "record_replacement")

    def planned_privacy(self, n_samples: int) -> PrivacyGuarantee:
        """Return the attribute ``privacy_`` of a fit to so many samples, without any data.

        Raises
        ------
        ValueError
            If a parameter is not valid, ``epsilon`` is None, or this is called on one of several
            workers within :func:`~fairconstrained.distributed.sharded_rows`, as by a search.
        """
        training = self._checked_training()
        with taken_workers() as workers:
            if workers.size > 1:
                raise ValueError(
                    "planned_privacy, and so PrivateGridSearch, must be called outside of "
                    "sharded_rows: a worker knows how many rows it has, and not how many all have."
                )
        if not isinstance(training, PrivateTraining):
            raise ValueError(
                f"{type(self).__name__}.epsilon must be a number or a Budget for planned_privacy; "
                "got None."
            )
        return training.plan(n_samples)

    def _check_rows(self, X: Any, y: Any, sensitive_features: Any) -> None:
        """Raise what a fit to all or some of these rows, or predictions of them, may raise."""
        training = self._checked_training()
        rows = training.read(Given(X, y, sensitive_features, None), ALONE)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not training.specification.learns_from:
                training.prepare(rows, torch.Generator())
            elif not get_tags(self).input_tags.allow_nan:
                check_array(X, dtype=None, accept_sparse=True, input_name="X")

    @staticmethod
    def _count_right(model: Any, X: Any, y: Any) -> float:
        """Count what `model` gets right, to which no row adds more than 1 or less than 0."""
        return float(np.sum(model.predict(X) == y))


class PrivateTraining(Training):
    """A private fit: whatever leaves it and depends on the secret is accounted for.

    The number of rows, the classes and the names of the groups count as public.
    """

    is_private = True
    counted = ", by the released counts, which are noisy"
    hidden: ClassVar[dict[str, Any]] = {"y": None, "group": None}
    # Times tell the sizes of batches, also by how often a bar is drawn, and whether one comes late.
    bar: ClassVar[dict[str, Any]] = {
        "bar_format": "{desc}: {n_fmt}/{total_fmt}{postfix}", "mininterval": 0.0, "miniters": 1,
        "late": {"disable": True},
    }  # fmt: skip
    estimator: PrivateFairClassifier

    def __init__(self, estimator: PrivateFairClassifier):
        super().__init__(estimator)
        given: Any = estimator.epsilon
        if not isinstance(given, Budget):
            given = Budget(float(given), float(estimator.delta), estimator.protect)
        self.budget: Budget = given

    def plan(self, n_samples: int) -> PrivacyGuarantee:
        """Plan the noise of all releases within the budget, and what they cost together."""
        return self.solver.plan(n_samples, self.budget)  # type: ignore[no-any-return]

    def check(self) -> None:
        """Refuse what would read rows exactly, or use another budget."""
        clf, name = self.estimator, type(self.estimator).__name__
        self.check_budget()
        if clf.warm_start:
            raise ValueError(
                f"{name}.warm_start must be False with epsilon: every fit spends the whole budget, "
                "and the promise of this one would not cover the last one."
            )
        if self.margin > 0:
            raise ValueError(
                f"{name}.margin must be 0 with epsilon: standard errors are read off the exact "
                f"predictions; got {self.margin!r}."
            )
        own = type(self.specification) in (Linear, Network, Posteriors)  # subclasses may read rows
        secret = self.specification.learns_from & self.hidden.keys()
        if not own or secret:
            what = "groups" if own and secret == {"group"} else "rows"
            raise ValueError(
                f"{name}.model must be 'linear', a network or a frozen classifier "
                f"(FrozenEstimator, fitted to public rows) with epsilon: {clf.model!r} reads the "
                f"{what} exactly, and what it learnt of them would leave fit without noise."
            )
        if isinstance(self.specification, Posteriors) and clf.feature_range is not None:
            raise ValueError(
                f"{name}.feature_range must be None with a classifier as model, whose posteriors "
                f"have ranges of their own; got {clf.feature_range!r}."
            )
        super().check()

    def check_budget(self) -> None:
        """Refuse a Budget that promises less than a parameter that is not at its default."""
        clf, name = self.estimator, type(self.estimator).__name__
        changed = {f.name for f in fields(clf) if getattr(clf, f.name) != f.default}
        less = (
            self.budget.delta > clf.delta,
            _LEAST_FIRST.index(self.budget.unit) < (_LEAST_FIRST.index(clf.protect)),
        )
        for parameter, promises_less in zip(("delta", "protect"), less, strict=True):
            if parameter in changed and promises_less:
                raise ValueError(
                    f"{name}.epsilon promises less than {name}.{parameter}="
                    f"{getattr(clf, parameter)!r}; got {self.budget!r}. Give one of both."
                )

    def read(self, given: Given, workers: Workers) -> TrainingRows:
        """Read the samples; count all of a public domain, so as not to reveal what occurs."""
        # What numpy and scikit-learn warn of depends on single entries and labels.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes")
            with workers.agreeing():
                self.check_given(given)
                domains = declared_domains(given.y, given.sensitive_features)
            refuse_difference("categories of y and sensitive_features", workers.gather(domains))
            self.domains = domains
            return super().read(given, workers)

    def check_given(self, given: Given) -> None:
        """Refuse what no noise is planned for, in words that quote no entry."""
        if self.budget.unit != "sensitive_features" and given.sample_weight is not None:
            raise ValueError(
                "sample_weight must be None with epsilon: a row of weight w would need w "
                "times the noise."
            )
        groups = given.sensitive_features
        if isinstance(groups, UncertainGroups) and groups.encoded().codes.ndim == 2:
            raise ValueError(
                "sensitive_features must be groups with epsilon, of which some may be "
                "missing: what a row adds to noisy counts of groups is limited to one "
                f"group; got {groups!r}."
            )
        if not isinstance(self.specification, Posteriors):
            check_numbers(given.X)

    def train(self, rows: TrainingRows) -> None:
        """Fit the estimator to these rows; that a number overflows would tell of single entries."""
        with np.errstate(all="ignore"):
            super().train(rows)

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Prepare the rows; noise comes from the operating system unless it is seeded."""
        if self.estimator.random_state is None:
            rng = SystemGenerator()
        else:
            warn_caller(
                "random_state seeds the noise of private training: whoever knows it, or tries it "
                "out, can subtract the noise, and no promise is left. That is for experiments; a "
                "model to be released needs random_state=None.",
                PrivacyWarning,
            )
        self.check_callers()
        if rows.workers.size > 1:
            rng = SharedGenerator(rng, rows.workers)
        # A frozen model may warn of single rows, such as unknown categories.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().prepare(rows, rng)

    def check_callers(self) -> None:
        """Refuse or name what learns of protected rows around this fit, by those who called it."""
        steps = pipeline_steps_above()
        refuse_steps_with_groups(steps)
        if "y" in self.hidden:
            warn_of_learning_steps(steps)
        trainer = trainer_above()
        if trainer:
            warn_caller(
                f"{trainer} trains this private estimator: each fit spends a whole budget, and "
                "what is learnt of exact scores or labels of other rows is in none. privacy_ is "
                "that of one fit. Use PrivateGridSearch, or public rows.",
                PrivacyWarning,
            )

    def posed(self, plan: PrivacyGuarantee, model: Any) -> Any:
        """Build the problem by releases, after posing it on one row and on no releases.

        What cannot be solved is refused there, before anything is spent.
        """
        data, releases = self.data, Releases(plan)
        stack = self.stack_of_all(self.ample, 1)
        counts = stack.pooled(self.ample.to(data.weight).reshape(-1)).clamp_min(1.0)
        one_row = data.subset(torch.zeros(1, dtype=torch.long).to(data.y), data.weight[:1])
        trial = self.problem(model, one_row, stack, counts, releases)
        check_solves(self.solver, trial)
        self.solver.check(trial)
        self.warn_of(plan)
        self.spent = plan
        model = self.released_model(model, releases)
        cells = self.released_counts(releases)
        stack = self.stack(cells.round(), self.least_rows(plan.noise(COUNTS)))
        self.warn_of_parts(stack, cells, plan)
        counts = stack.pooled(cells.reshape(-1)).clamp_min(1.0)
        return self.problem(model, self.data, stack, counts, releases)

    @property
    def ample(self) -> Tensor:
        """Numbers of rows of each label and group of which no constraint leaves out any."""
        return torch.full(self.rows.space.shape, self.n_rows)

    def part_of_cell(self) -> Any:
        """The part of each label and group, whether or not they have rows."""
        return self.stack_of_all(self.ample, 1).part_of_cell.numpy()

    def problem(self, *posed: Any) -> Any:
        """Build the problem of a model, rows, a constraint, counts of its parts and releases."""
        return self.problem_class(*posed, self.alpha, self.n_rows)

    def released_model(self, model: Any, releases: Releases) -> Any:
        """Return the model, which where only groups are secret depends on nothing released."""
        return model

    def released_counts(self, releases: Releases) -> Tensor:
        """Noisy number of the rows of each label and group, (n_classes, n_groups)."""
        data, (n_labels, n_groups) = self.data, self.rows.space.shape
        cell = data.y * n_groups + data.group
        sums = sum_by(data.weight[:, None], cell, n_labels * n_groups)
        return releases.noisy(COUNTS, sums, 1.0, self.rng).reshape(n_labels, n_groups)

    def warn_of_parts(self, stack: MomentConstraint, cells: Tensor, plan: PrivacyGuarantee) -> None:
        """Name the parts of few rows in a batch, by the released counts of labels and groups."""
        small = [
            f"{stack.space.describe(own)} (about {int(cells[own].sum())} rows)"
            for own in stack.part_cells()
            if 0 < plan.sampling_rate * cells[own].sum() < _FEW_ROWS
        ]
        if small:
            warn_caller(
                f"{'; '.join(small)}, by the released counts, which are noisy: fewer than "
                f"{_FEW_ROWS} in an expected batch. Their rates are mostly noise; set "
                "min_group_size to leave them out.",
                SmallGroupWarning,
            )

    def refine(self, problem: Any) -> Any:
        """Return the problem itself: another solution would cost a part of the budget."""
        return problem

    def finish(self, stages: list[Stage]) -> None:
        """Write the fitted attributes, without times: those of steps tell the sizes of batches."""
        super().finish(stages)
        self.warn_of_one_label(*stages[-1])
        history = self.estimator.history_
        history["time"] = np.full(len(history["time"]), np.nan)

    def warn_of_one_label(self, problem: Any, solution: Solution) -> None:
        """Say so if by what is released or public the model predicts one label for all rows."""
        found = problem.one_label(solution.iterate.x[: problem.model.n_params])
        if found is None:
            return
        label, error = self.rows.classes[found[0]], found[1]
        which = "all rows"
        if error:
            which = f"all rows that are compared, by the released table (error {error:.2g})"
        warn_caller(
            f"{type(self.estimator).__name__} predicts {label} for {which}: the noise, or the "
            "slack, leaves nothing else. Try a larger epsilon or slack, more rows, or fewer "
            "columns.",
            ConvergenceWarning,
        )

    def errors_of_estimates(self, problem: Any) -> Tensor:
        """Two standard deviations of the noise on the measured constraints."""
        if not problem.n_constraints:
            return torch.zeros(0)
        return 2.0 * problem.deviations_of_estimates().cpu()  # type: ignore[no-any-return]

    def least_rows(self, counts_noise: float) -> int:
        """Least released count of a group: below two standard deviations it may be empty."""
        asked = self.estimator.min_group_size
        least = 1 if isinstance(asked, str) else asked
        # Of a single group nothing is secret.
        return least if np.isinf(counts_noise) else int(max(least, np.ceil(2 * counts_noise)))

    def warn_of(self, plan: PrivacyGuarantee) -> None:
        """Warn if the guarantee means little, or is not the one that was asked for."""
        asked, delta = self.budget.epsilon, plan.delta
        steps = (p for p in plan.phases if p.sampling_rate < 1)
        seldom = [p for p in steps if p.sampling_rate * p.n_steps < _SELDOM * delta]
        if seldom:
            warn_caller(
                f"delta={delta:g} is more than {1 / _SELDOM:g} of the probability that a row is in "
                f"any batch ({seldom[0].sampling_rate:.3g} x {seldom[0].n_steps} steps): the plan "
                "may leave it almost without noise where it is. Choose a smaller delta, a larger "
                "sampling rate or more steps.",
                PrivacyWarning,
            )
        if plan.epsilon > asked:
            warn_caller(
                f"{type(self.solver).__name__} spends epsilon = {plan.epsilon:.3g}, more than the "
                f"{asked:g} asked for: see privacy_.",
                PrivacyWarning,
            )
        if plan.phases and delta >= 1 / self.n_rows:
            warn_caller(
                f"delta={delta:g} is not below 1/n = {1 / self.n_rows:.1g}: a mechanism that "
                "publishes a random row in full would keep such a promise. Choose a smaller delta.",
                PrivacyWarning,
            )


class PrivateRecords(PrivateTraining):
    """A fit that protects records: models are built from public ranges and noisy releases."""

    public: Coordinates  # from ``feature_range`` alone, in which columns are in [0, 1]
    problem_class: type = PrivateERM  # of noisy tables and gradients

    def default_solver(self) -> Solver:
        return DPSGDA()

    def pose(self) -> Any:
        plan, model = self.plan(self.n_rows), self.model_in(self.public)
        noise = plan.noise(GRADIENT) * np.sqrt(model.n_params / plan.n_steps)
        noise /= plan.sampling_rate * self.n_rows
        if noise > _MUCH_NOISE:
            warn_caller(
                f"With {self.n_rows} rows, {model.n_params} parameters and "
                f"epsilon={self.budget.epsilon:g} the noise on the gradients, averaged over the "
                f"training, is {noise:.2g} times what a row can contribute: little can be learnt. "
                "Use more rows, fewer features or a larger epsilon.",
                PrivacyWarning,
            )
        return self.posed(plan, model)

    def prepare(self, rows: TrainingRows, rng: Generator) -> None:
        """Prepare the rows as one batch; every sum over them is a release, of all workers."""
        super().prepare(rows, rng)
        self.data = replace(self.data, workers=ALONE)

    def blocks(self, table: Any) -> Any:
        """The columns of all rows, near their public range.

        They stay as they are given. Dense and sparse sums round differently, by many rows where a
        range is far from zero: one entry must not decide between them.
        """
        device = self.estimator.device
        is_sparse = sparse.issparse(table)
        X = as_features(table, device) if is_sparse else dense_features(table, device)
        self.public = self.public_range(X.shape[1])
        if self.given_range is None:  # the range of each column is yet to be released
            ends = torch.full_like(self.public.scale, 2.0 * LARGEST)  # in the last bin
            return (X.bounded(-ends, ends),)
        return (self.cut(X, self.public),)

    def cut(self, X: Features, public: Coordinates) -> Features:
        """Cut entries far from their range, row by row, of which one could make sums overflow."""
        reach = _FAR * public.scale
        return X.bounded(public.centre - reach, public.centre + public.scale + reach)

    @property
    def given_range(self) -> Any:
        """The public range of the columns, by their model or the user, or None."""
        of_model = self.specification.column_range
        return self.estimator.feature_range if of_model is None else of_model

    def public_range(self, n_features: int) -> Coordinates:
        """Coordinates from ``feature_range``, if it is for so many columns."""
        given = self.given_range
        ends = (0.0, 1.0) if given is None else given
        try:
            low, high = (np.broadcast_to(np.asarray(end, float), n_features) for end in ends)
        except ValueError as error:
            raise ValueError(
                f"{type(self.estimator).__name__}.feature_range must be None or a pair (low, high) "
                f"of numbers or of arrays of shape ({n_features},); got {given!r}."
            ) from error
        low, high = torch.tensor(np.stack((low, high)), device=self.estimator.device)
        return Coordinates(low, high - low)

    def model_in(self, coordinates: Coordinates) -> Any:
        """The model in these coordinates, which may use the ranges that the user has given."""
        low, high = self.public.centre, self.public.centre + self.public.scale
        given = None if self.given_range is None else (low, high)
        centre, scale, _, run = coordinates
        outputs = n_outputs(len(self.rows.classes))
        return self.specification.build_private(centre, scale, outputs, given, run)

    def released_model(self, model: Any, releases: Releases) -> Any:
        n_rows, public = self.n_rows, self.public
        if self.given_range is None:
            public = release_scales(self.data.X, n_rows, public, releases, self.rng)
            self.data = replace(self.data, blocks=(self.cut(self.data.X, public),))
            self.warn_of_cut(public)
        coordinates = release_coordinates(self.data.X, n_rows, public, releases, self.rng)
        if coordinates.far:
            self.warn_of_range()
        return self.model_in(coordinates)

    def warn_of_cut(self, public: Coordinates) -> None:
        """Name the columns whose entries are cut to a constant, by the released counts."""
        cut = torch.nonzero(public.scale > LARGEST)[:, 0].tolist()
        if cut:
            warn_caller(
                f"By the released counts columns {cut} of X have entries beyond {LARGEST:.0e}, "
                "which are cut: nothing is learnt of what lies there. Give these columns in other "
                "units.",
                PrivacyWarning,
            )

    def warn_of_range(self) -> None:
        """Say which parameter raw columns need; known from the releases."""
        clf = self.estimator
        where = "(0, 1) in released scales" if self.given_range is None else "what was given"
        warn_caller(
            f"By the released norms most rows lie outside of {type(clf).__name__}.feature_range "
            f"({where}): columns of large numbers may then drown all others, and accuracy is lost. "
            "Give feature_range=(low, high), arrays of one number a column, from public knowledge.",
            PrivacyWarning,
        )


class PrivateGroups(PrivateTraining):
    """A fit where the groups alone are secret: features, labels and weights are public."""

    hidden: ClassVar[dict[str, Any]] = {"group": None}

    @property
    def problem_class(self) -> type:
        return SecretGroups

    def default_solver(self) -> Solver:
        return ReleasedMoments()

    def check(self) -> None:
        """Refuse a public range of columns as well, since the columns themselves are public."""
        super().check()
        clf = self.estimator
        if clf.feature_range is not None:
            raise ValueError(
                f"{type(clf).__name__}.feature_range must be None with protect="
                f"'sensitive_features', where features are public; got {clf.feature_range!r}."
            )

    def check_given(self, given: Given) -> None:
        """Refuse groups among the features as well, by the names of columns, which are public."""
        super().check_given(given)
        refuse_groups_in(given.X, given.sensitive_features)

    def pose(self) -> Any:
        if self.rows.space.shape[1] < 2:  # of a single group nothing is secret
            _, delta, unit = self.budget
            return self.posed(privacy_guarantee([], delta=delta, unit=unit), self.model())
        return self.posed(self.plan(self.n_rows), self.model())

    def problem(self, *posed: Any) -> Any:
        """Build the problem of groups that only noisy sums over them tell."""
        model, data, stack, counts, releases = posed
        without = replace(data, group=torch.zeros_like(data.group))
        return SecretGroups(
            self.public(model, without, stack, counts), data.group, counts, releases
        )

    def public(self, model: Any, data: Any, stack: MomentConstraint, counts: Tensor) -> FairERM:
        """Build the problem of rows whose groups are known, or estimated."""
        return FairERM(model, data, self.estimator._risk(self.rows), stack, self.alpha)

    def released_counts(self, releases: Releases) -> Tensor:
        """Noisy weight of the rows of each label and group; that of each label is public."""
        shape, weight = self.rows.space.shape, self.data.weight[:, None]
        return noisy_sums(COUNTS, weight, self.data, shape, releases, self.rng)[0][..., 0]

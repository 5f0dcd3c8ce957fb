"""Ranking under AUC-based fairness constraints (paper 4 of the package)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from torch import Tensor

from fairconstrained.arrays import as_numpy, check_all_samples
from fairconstrained.constraints.auc import AUCS, AUCParity
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.surrogates import Binormal, Quadratic
from fairconstrained.estimators._inputs import Given, given_callbacks, with_groups
from fairconstrained.estimators._private import PrivateFairClassifier, PrivateRecords
from fairconstrained.estimators._reporting import data_by_position, unchanged_on_error
from fairconstrained.estimators._stream import Stream, begun, read_chunk
from fairconstrained.estimators._training import Training
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.models.cross_fitting import log_odds_scale
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.moments import GroupMoments, MomentERM, RankingERM, whitened_model
from fairconstrained.problems.objectives import Objective, PairwiseLoss, RankedLoss
from fairconstrained.problems.private.moments import (
    PrivateMomentERM,
    made_up,
    plan_moments,
    release,
)
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import Solver, check_solves, solves
from fairconstrained.solvers.level_set import LevelSet

_MOST_COLUMNS = 2048  # of whose covariances every cell keeps a matrix
_MUCH_NOISE = 0.3  # on the mean of a cell, in units of the clipped rows


@dataclass(kw_only=True, eq=False, repr=False)
class AUCFairClassifier(PrivateFairClassifier):
    r"""Linear model or network whose scores rank equally well for all groups.

    .. math::

        \max_w \; \mathrm{AUC}_w(+, -)
        \quad \text{s.t.} \quad
        | \mathrm{AUC}_w(G_1, G_1') - \mathrm{AUC}_w(G_2, G_2') | \le \mathrm{slack}

    for the pairs of sets of samples that `constraint` names. Training uses smooth surrogates whose
    targets follow the true AUCs: with ``slack=0.05`` the metric of the criterion, such as
    :func:`fairconstrained.metrics.inter_group_auc_gap`, is at most 0.05 on the training data, for
    every pair of groups. There must be two classes.

    Parameters
    ----------
    constraint : str or AUCParity object, default="group_auc"
        - ``"group_auc"``: the scores of one group against those of another, compared with AUC 1/2;
        - ``"inter_group"``: positives of g against negatives of h, and the other way round;
        - ``"intra_group"``: positives against negatives within g, and within h;
        - ``"positive_equality_gap"``, ``"negative_equality_gap"``: positives (negatives) of a group
          against all positives (negatives), compared with AUC 1/2;
        - ``"bpsn_bnsp"``: all positives against negatives of a group, and positives of the group
          against all negatives.

        An object, such as ``AUCParity("inter_group", surrogate="binormal")``, chooses the surrogate
        of true AUCs in the constraint and in the objective. ``"soft_bins"``, the default, counts
        pairs in smooth histograms of the scores and is close to the true AUC. ``"binormal"``, the
        default with `epsilon`, is the AUC of normal scores with the means and variances of the
        groups. ``"quadratic"`` is that of the paper; for pairwise criteria it does not follow the
        true AUC. With one of the last two, ``objective="auc"`` and a linear model, the data are
        read once, a step costs d x d for any number of samples, and the objective is the quadratic
        one. :class:`~fairconstrained.constraints.SoftBins` and ``Quadratic`` take parameters.
    slack : float, default=0.05
        Largest allowed difference of AUCs.
    margin : float, default=0.0
        As in :class:`RateConstrainedClassifier`.
    objective : {"auc", "log"}, default="auc"
        Minimise 1 - AUC, by the surrogate, or the log loss. With few samples per column the log
        loss ranks new samples better.
    stream_memory : int, default=100_000
        Largest number of samples that :meth:`partial_fit` keeps.
    epsilon : float or Budget, optional
        Train a linear model with (epsilon, delta)-differential privacy of the record, from noisy
        group moments that are released once: see Notes. Against any other record with
        ``Budget(epsilon, delta, "record_replacement")`` of ``fairconstrained.privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    feature_range : (low, high), optional
        Publicly known range of the columns, with `epsilon`; default: (0, 1). It sets their units.
        Samples outside the range count less, and the guarantee still holds.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`, with networks of one output. ``QCQP()`` solves the
        surrogate problem of the paper exactly, and ``LevelSet()`` is the stochastic method of the
        paper. Both need ``surrogate="quadratic"``, and bound the gap of the surrogate instead of
        the true gap. AUCs do not depend on an intercept.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    violation_ : float
        The gap of true AUCs; nan if nothing is constrained. It is measured on the training rows,
        and for a scikit-learn classifier as `model` out of fold: by copies that were not fitted to
        the row.
    training_violation_ : float
        As in :class:`RateConstrainedClassifier`.
    history_ : dict of ndarray
        As in :class:`RateConstrainedClassifier`; the error is 1 - AUC.
    classes_, groups_, model_, coef_, intercept_, module_, violations_, feasible_, excess_
        As in :class:`RateConstrainedClassifier`.
    excess_error_, multipliers_, constraints_, residual_, n_iter_, converged_, status_, privacy_
        As in :class:`RateConstrainedClassifier`.
    pos_label_ : label
        The label on top of the ranking, ``classes_[1]``: of words the last in the alphabet.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    ``decision_function`` returns log odds. With ``objective="auc"`` training determines only the
    order of the scores. Platt scaling, a logistic regression on the score of the training data,
    then sets their scale and offset, which changes no AUC. With ``objective="log"`` the scores come
    from a logistic model, as well calibrated as the constraints allow. In both cases they are
    calibrated over all samples, not within each group.

    With `epsilon` the number of samples, the classes and the names of the groups are public.
    Everything else that leaves ``fit`` follows from four noisy releases
    (``problems.private.moments``). ``violation_`` and ``history_`` are computed for normal scores
    with the released moments, and corrected by a noisy table of scores. Scores become log odds as
    if they were normal with equal variances. `alpha` is in the units of the clipped samples, and
    the noise on the moments adds to it. Weights, warm starts and streams are refused. The noise
    does not depend on the size of a group: the gap of a small one may exceed the slack by far.

    References
    ----------
    Yao, Lin and Yang (2023), Stochastic Methods for AUC Optimization subject to AUC-based Fairness
    Constraints.

    Examples
    --------
    >>> from fairconstrained import AUCFairClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import group_auc_gap
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = AUCFairClassifier("group_auc", slack=0.02)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    AUCFairClassifier(slack=0.02)
    >>> gap = group_auc_gap(
    ...     data.target, clf.decision_function(data.data),
    ...     sensitive_features=data.sensitive_features)
    >>> bool(gap <= 0.021)
    True
    """

    constraint: Any = field(default="group_auc", kw_only=False)
    slack: float = 0.05
    margin: float = 0.0
    objective: str = "auc"
    stream_memory: int = 100_000
    epsilon: float | Budget | None = None
    delta: float = 1e-5
    feature_range: Any = None

    _multi_class = False
    __metadata_request__partial_fit = {"sensitive_features": True, "sample_weight": True}  # noqa: RUF012

    @data_by_position("X", "y", "classes")
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        sensitive_features: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on all samples that this method has seen so far.

        The model is the one that :meth:`fit` finds on these samples, up to rounding, or on a
        uniform sample of `stream_memory` of them. Every call runs the solver from the start, or
        with ``warm_start=True`` from the last solution; both agree within the tolerance.

        With ``solver=LevelSet()`` (and ``surrogate="quadratic"``) a call updates the state of the
        solver. Each sample is used once, in a mini-batch of the solver's `batch_size`, which is
        used when it is full, so the model does not depend on the chunks. The solver begins once it
        has a full mini-batch, five samples for each column (which determine the coordinates), and
        samples of both labels in at least two groups; at `stream_memory` samples it begins anyway
        and leaves out empty sets. Until then new groups may appear; `alpha` and `slack` are read
        when it begins. The samples that are kept serve only to measure the model.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As in :meth:`fit`. New groups may appear at any time, but see above for ``LevelSet``.
        classes : array-like of shape (2,), optional
            Both labels. They are needed in the first call unless its samples have both.

        Returns
        -------
        self
            It predicts once it has seen both classes, with ``LevelSet`` once the solver has begun.
            A call to :meth:`fit` ends the stream.

        Raises
        ------
        ValueError
            If a label is not in `classes`, if the number of columns changes, if only some chunks
            have sensitive features, or, with ``LevelSet``, if a group is new after the solver has
            begun; also within :func:`~fairconstrained.distributed.sharded_rows`. The estimator is
            then left unchanged.
        """
        with unchanged_on_error(self):
            training, name = self._checked_training(), type(self).__name__
            check_all_samples(
                f"{name}.partial_fit",
                "a stream is kept by one process. fit takes the rows of all workers.",
            )
            if self.epsilon is not None:
                raise ValueError(
                    f"{name}.partial_fit needs epsilon=None: every call would spend the whole "
                    "budget."
                )
            if isinstance(training.specification, Posteriors):
                raise ValueError(
                    f"{name}.partial_fit needs a linear model or a network: {self.model!r} would "
                    "have to be fitted to the whole stream again."
                )
            given = Given(X, y, sensitive_features, sample_weight)
            known = getattr(self, "_stream_", None)  # removed by `fit`, as all fitted attributes
            stream, chunk = read_chunk(training, known, given, classes)
            rows = with_groups(self, stream.training_rows())
            if isinstance(training.solver, LevelSet):
                stream = self._stepped(stream, chunk, training, training.solver)
            elif len(np.unique(stream.rows.y)) == 2:
                training.train(rows)
            self._stream_: Stream = stream
        return self

    def _stepped(self, stream: Stream, chunk: Any, training: Training, solver: LevelSet) -> Stream:
        """Continue from the state of the last call, or begin; return the stream with the state."""
        if self.margin > 0:
            raise ValueError(
                f"{type(self).__name__}.margin must be 0 with {type(solver).__name__} in "
                f"partial_fit: a margin takes a second fit; got {self.margin!r}."
            )
        with training.seeded(stream.seed) as rng:
            steps = stream.steps
            if steps is None:
                chunk, steps = stream.rows, begun(training, stream, solver, rng)
            if steps is None:
                return stream
            steps = steps.after(solver, stream.groups, chunk, self.device)
            stage = steps.stage(stream.rows.as_rows(self.device))
            for callback in given_callbacks(self.callbacks) or ():
                callback(stage.solution.iterate)
            training.rows = stream.training_rows()
            training.finish([stage])
        return replace(stream, steps=steps)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _notions(self) -> list[Any]:
        surrogate = "soft_bins" if self.epsilon is None else "binormal"
        notions: Mapping[str, Any] = AUCS
        names = {name: partial(notion, surrogate=surrogate) for name, notion in notions.items()}
        return self._as_notions([self.constraint], names, AUCParity)

    def _own_attributes(self, constraint: MomentConstraint) -> dict[str, Any]:
        return {"pos_label_": constraint.space.classes[1]}

    def _surrogate(self) -> Any:
        (notion,) = self._notions()
        return notion.chosen_surrogate()

    @staticmethod
    def _count_right(model: Any, X: Any, y: Any) -> float:
        """Count positives ranked above negatives, divided by the rows: no row adds more than 1."""
        rank, positive = rankdata(model.decision_function(X)), y == model.classes_[1]
        n_positive = int(positive.sum())
        return float(rank[positive].sum() - n_positive * (n_positive + 1) / 2) / len(y)

    def _training(self) -> Training:
        return RankingTraining(self) if self.epsilon is None else PrivateRanking(self)


class RankingTraining(Training):
    """A fit of scores that rank: from group moments where these are all that it needs."""

    estimator: AUCFairClassifier

    @property
    def problem_class(self) -> type:
        """The class of the problem, of moments only if the solver, where one is given, takes it."""
        clf = self.estimator
        of_moments = clf.objective == "auc" and clf._surrogate().uses_score_moments
        free = clf.solver is None or solves(clf.solver, MomentERM)
        return MomentERM if self.is_linear and of_moments and free else FairERM

    def pose(self) -> Any:
        data, clf = self.data, self.estimator
        stack = self.stack(self.rows.cells, clf.min_group_size)
        if self.problem_class is MomentERM and data.X.shape[1] <= _MOST_COLUMNS:
            moments = GroupMoments.from_rows(data, self.rows.space.shape[1])
            risk = self._pairwise_loss(data)
            surrogate: Any = risk.surrogate  # the quadratic one
            scale, curvature = moments.standard_scale(), 2.0 * surrogate.c1
            model = whitened_model(moments, scale, self.alpha, curvature)
            return MomentERM(model, data, risk, stack, self.alpha, moments=moments)
        objective: Objective = RankedLoss()
        model = self.model()
        if clf.objective == "auc":
            objective, model = self._pairwise_loss(data), model.for_ranking()
        kind = RankingERM if self.is_linear else FairERM
        return kind(model, data, objective, stack, self.alpha)

    def attributes(self, problem: Any, w: Tensor) -> dict[str, Any]:
        attributes = super().attributes(problem, w)
        if self.estimator.objective == "log":
            return attributes
        rows = problem.data.quantiles
        scores = problem.model.scores(w, rows.X)[:, 0]
        slope, offset = log_odds_scale(scores, rows.y, rows.weight)
        rescaled: dict[str, Any] = problem.model.rescaled(attributes, slope.item(), offset.item())
        return rescaled

    def _pairwise_loss(self, data: Rows) -> PairwiseLoss:
        """The loss of positives against negatives."""
        surrogate = self.estimator._surrogate()
        # If the constraint does not depend on scale, the quadratic and the binormal loss have the
        # same optimum up to scale, and the quadratic one is convex.
        quadratic = surrogate.uses_score_moments and not isinstance(surrogate, Quadratic)
        return PairwiseLoss.from_data(Quadratic() if quadratic else surrogate, data)


class PrivateRanking(PrivateRecords):
    """A fit from noisy group moments of the rows, which are released once."""

    estimator: AUCFairClassifier
    problem_class = PrivateMomentERM
    cell: Tensor  # the label and group of each row

    def default_solver(self) -> Solver:
        return AugmentedLagrangian()

    @property
    def given_range(self) -> Any:
        """The public range of the columns, here (0, 1) if none is given: no scales are released."""
        given = self.estimator.feature_range
        return (0.0, 1.0) if given is None else given

    def plan(self, n_samples: int) -> PrivacyGuarantee:
        """Plan the noise of the releases, which does not depend on the number of rows."""
        return plan_moments(self.budget)

    def check(self) -> None:
        """Raise ValueError for parameters that a private ranking does not support."""
        clf = self.estimator
        binormal = isinstance(clf._surrogate(), Binormal)
        wanted = (
            ("model", "'linear'", self.is_linear),
            ("objective", "'auc'", clf.objective == "auc"),
            ("constraint", "a name or one with surrogate='binormal'", binormal),
        )
        for name, allowed, holds in wanted:
            if not holds:
                raise ValueError(
                    f"{type(clf).__name__}.{name} must be {allowed} with epsilon: a private "
                    f"ranking is computed from released moments; got {getattr(clf, name)!r}."
                )
        super().check()

    def pose(self) -> PrivateMomentERM:
        space, plan, X = self.rows.space, self.plan(self.n_rows), self.data.X
        shape, n_cells = space.shape, prod(space.shape)
        releases = Releases(plan)
        self.warn_of(plan)
        trial = made_up(n_cells, X.shape[1], self.n_rows)
        stack = self.stack_of_all(trial.counts.reshape(shape), 1)
        refused = PrivateMomentERM.of(trial, stack, self.alpha, releases)
        check_solves(self.solver, refused)  # before any release
        self.solver.check(refused)
        self.spent = plan
        self.cell = self.data.y * shape[1] + self.data.group
        rows = X, self.n_rows, self.cell, n_cells
        released = release(*rows, self.public.centre, self.public.scale, releases, self.rng)
        if released.far:
            self.warn_of_range()
        counts, deviations = released.counts.reshape(shape), released.mean_deviation.reshape(shape)
        noisy = [
            f"{space.describe(cell.numpy())} (about {max(int(counts[cell]), 0)} rows)"
            for cell in torch.eye(n_cells, dtype=torch.bool).reshape(-1, *shape)
            if float(deviations[cell]) > _MUCH_NOISE
        ]
        if noisy:
            warn_caller(
                f"With epsilon={self.budget.epsilon:g} the noise on the mean of "
                f"{'; '.join(noisy)}{self.counted}, is more than {_MUCH_NOISE:g} of the norm of a "
                "row: gaps there are mostly noise. Use more rows, fewer columns, larger groups or "
                "a larger epsilon.",
                PrivacyWarning,
            )
        constraint = self.stack(counts.round(), self.least_rows(released.count_deviation))
        return PrivateMomentERM.of(released, constraint, self.alpha, releases)

    def refine(self, problem: PrivateMomentERM) -> PrivateMomentERM:
        """Correct released moments by a noisy table of the scores of their solution."""
        if not problem.constraint.members:
            return problem
        x, dual = problem.start(), self.data.weight.new_zeros(problem.n_constraints)
        x = self.run(problem, x, dual).solution.iterate.x
        return problem.corrected(x, self.data.X, self.cell, self.rng)

    def attributes(self, problem: Any, w: Tensor) -> dict[str, Any]:
        slope, offset = problem.log_odds_scale(w)
        coef = slope * problem.model.unpack(w)[0][:, 0] / problem.released.scale
        intercept = offset - coef @ problem.released.centre
        named = {"coef_": coef, "intercept_": intercept}
        return {name: as_numpy(value[None]).copy() for name, value in named.items()}

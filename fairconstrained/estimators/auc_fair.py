"""Ranking under AUC-based fairness constraints (paper 4 of the package)."""

from __future__ import annotations

from functools import partial

import torch

from fairconstrained.constraints import AUCS, AUCParity, Quadratic
from fairconstrained.estimators._partial_fit import StreamingClassifier
from fairconstrained.estimators._private_ranking import (
    check_private_ranking,
    log_odds_of_columns,
    released_problem,
)
from fairconstrained.models.platt import log_odds_scale
from fairconstrained.problems import FairERM
from fairconstrained.problems.moments import GroupMoments, MomentERM, RankingERM, whitened_model
from fairconstrained.problems.objectives import LogLossForRanking, PairwiseLoss
from fairconstrained.problems.private.moments import PrivateMomentERM, plan_moments
from fairconstrained.solvers import AugmentedLagrangian, EarlyStoppedSGDA, solves

_MOST_COLUMNS = 2048  # of whose covariances every cell keeps a matrix


class AUCFairClassifier(StreamingClassifier):
    r"""Linear model or network whose scores rank equally well for all groups.

    .. math::

        \max_w \; \mathrm{AUC}_w(+, -)
        \quad \text{s.t.} \quad
        | \mathrm{AUC}_w(G_1, G_1') - \mathrm{AUC}_w(G_2, G_2') | \le \mathrm{slack}

    for the pairs of sets of samples that `constraint` names. No threshold is involved. Training
    uses smooth surrogates whose targets follow the true AUCs of the training data: with
    ``slack=0.05`` the metric of the notion, such as
    :func:`fairconstrained.metrics.inter_group_auc_gap`, is at most 0.05 there. With more than two
    groups the constraint holds for every pair. There must be two classes.

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
        of true AUCs in the constraint and in the objective. Names use ``"soft_bins"``, or
        ``"binormal"`` with `epsilon`. ``"soft_bins"`` counts pairs in smooth histograms of the
        scores and is close to the true AUC. ``"binormal"`` is the AUC of normal scores with the
        means and variances of the groups. ``"quadratic"`` is that of the paper, which does not
        follow the true AUC for pairwise notions. With one of the last two, ``objective="auc"`` and
        a linear model, the data are read once, a step then costs d x d for any number of samples,
        and the objective is the quadratic one. :class:`fairconstrained.constraints.SoftBins` and
        ``Quadratic`` are surrogates with parameters.
    slack : float, default=0.05
        Largest allowed difference of AUCs.
    margin : float, default=0.0
        Number of its own standard errors by which each constraint is narrowed, but not below zero:
        a pair of small groups by more than a pair of large ones. The gap of new samples then
        exceeds the slack less often. It is no promise, because a model is closer to its training
        samples than to others. The standard errors are those of a first fit, from which a second
        fit starts. Must be 0 with `epsilon`.
    objective : {"auc", "log"}, default="auc"
        The objective is 1 - AUC, in terms of the surrogate, or the log loss. With few samples per
        column the log loss ranks new samples better.
    stream_memory : int, default=100_000
        Largest number of samples that :meth:`partial_fit` keeps.
    epsilon : float or Budget, optional
        Train a linear model with (epsilon, delta)-differential privacy of the record, from noisy
        group moments that are released once: see Notes. Against any other record with
        ``Budget(epsilon, delta, "record_replacement")`` of ``fairconstrained.privacy``. Needs the
        extra ``privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    feature_range : (low, high), optional
        Publicly known range of the columns (numbers, or arrays of shape (n_features,)), with
        `epsilon`; default: (0, 1). It sets the units of the columns. Samples outside the range
        count less, and the guarantee still holds.
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
        The gap of true AUCs on the training data; nan if nothing is constrained.
    history_ : dict of ndarray
        Per iteration: objective, error (1 - AUC), violation, soft_violation, residual,
        multiplier (the largest), time (s). Callbacks see the multipliers of each iteration.
    classes_, groups_, model_, coef_, intercept_, module_, violations_, feasible_, excess_
        As in :class:`RateConstrainedClassifier`.
    excess_error_, multipliers_, constraints_, residual_, n_iter_, converged_, status_, privacy_
        As in :class:`RateConstrainedClassifier`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    ``decision_function`` returns log odds, and ``predict`` returns the second class where they are
    positive. With ``objective="auc"`` training determines only the order of the scores. Platt
    scaling on the training data, a logistic regression on the score, then sets their scale and
    offset, which changes no AUC. With ``objective="log"`` the scores are those of a logistic model
    and as well calibrated as the constraints allow. In both cases they are calibrated over all
    samples, and not within each group.

    With `epsilon` the number of samples, the classes and the names of the groups are public.
    Everything else that leaves ``fit`` follows from four noisy releases
    (``problems.private.moments``). ``violation_`` and ``history_`` are computed for normal scores
    with the released moments, and corrected by a noisy table of scores. Scores become log odds as
    if they were normal with equal variances. `alpha` is in the units of the clipped samples, and
    the noise on the moments adds to it. Weights, warm starts and streams are refused. The noise
    does not depend on the size of a group, so the gap of a group of some hundred samples may exceed
    the slack by far.

    A warning names cells without samples, whose comparisons are left out. If there is nothing left
    to compare, nothing is constrained.

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

    def __init__(
        self,
        constraint="group_auc",
        *,
        slack=0.05,
        margin=0.0,
        objective="auc",
        stream_memory=100_000,
        epsilon=None,
        delta=1e-5,
        feature_range=None,
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
        super().__init__(
            model=model,
            solver=solver,
            alpha=alpha,
            max_iter=max_iter,
            tol=tol,
            missing_sensitive=missing_sensitive,
            min_group_size=min_group_size,
            callbacks=callbacks,
            random_state=random_state,
            verbose=verbose,
            device=device,
            warm_start=warm_start,
        )
        self.constraint = constraint
        self.slack = slack
        self.margin = margin
        self.objective = objective
        self.stream_memory = stream_memory
        self.epsilon = epsilon
        self.delta = delta
        self.feature_range = feature_range

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "classes_")

    # ------------------------------------------------------------------ constraints

    def _notions(self):
        surrogate = "soft_bins" if self.epsilon is None else "binormal"
        names = {name: partial(notion, surrogate=surrogate) for name, notion in AUCS.items()}
        return self._one_notion(names, AUCParity)

    def _surrogate(self):
        (notion,) = self._notions()
        return notion.chosen_surrogate()

    def _check(self):
        super()._check()
        if self.epsilon is not None:
            check_private_ranking(self)

    # ------------------------------------------------------------------ problem

    def _problem_class(self):
        if self.epsilon is not None:
            return PrivateMomentERM
        of_moments = self.objective == "auc" and self._surrogate().of_score_moments
        free = self.solver is None or solves(self.solver, MomentERM)
        if self._is_linear() and of_moments and free:
            return MomentERM
        return FairERM

    def _default_solver(self):
        return AugmentedLagrangian() if self._is_linear() else EarlyStoppedSGDA()

    def _exact_problem(self, task):
        constraint, alpha = self._exact_stack(task), float(self.alpha)
        if self._from_moments(task.data.X.shape[1]):
            moments = self._moments(task)
            risk = self._pairwise_loss(moments.weight.reshape(2, -1).sum(dim=1))
            scale = moments.standard_scale()
            model = whitened_model(moments, scale, alpha, 2.0 * risk.surrogate.c1)
            return MomentERM(model, moments, risk, constraint, alpha, task.data)
        risk, model = LogLossForRanking(), self._model(task)
        if self.objective == "auc":
            rows = task.data.representatives
            risk = self._pairwise_loss([rows.weight[rows.y == k].sum() for k in (0, 1)])
            model = model.for_ranking()
        kind = task.posed_as(RankingERM if self._is_linear() else FairERM, constraint)
        return kind(model, task.data, risk, constraint, alpha)

    def _planned(self, n_samples):
        return plan_moments(self._budget())

    def _private_problem(self, task):
        return released_problem(self, task)

    def _refined(self, problem, task):
        """Correct released moments by a noisy table of the scores of their solution."""
        if self.epsilon is None or not problem.constraint.members:
            return super()._refined(problem, task)
        x, dual = problem.start(), task.data.weight.new_zeros(problem.n_constraints)
        x = self._run(problem, task, x, dual).solution.iterate.x
        cell = task.data.y * len(task.space.groups) + task.data.group
        return problem.corrected(x, task.data.X, cell, task.rng)

    def _pairwise_loss(self, label_weight):
        """The loss of positives against negatives, given the weights of both labels."""
        surrogate = self._surrogate()
        # If the constraint does not depend on scale, the quadratic and the binormal loss have the
        # same optimum up to scale, and the quadratic one is convex.
        quadratic = surrogate.of_score_moments and not isinstance(surrogate, Quadratic)
        fractions = torch.stack(tuple(label_weight)) / sum(label_weight)
        return PairwiseLoss(Quadratic() if quadratic else surrogate, tuple(fractions.tolist()))

    def _from_moments(self, n_columns):
        """Whether group moments are all that training needs."""
        return self._problem_class() is MomentERM and n_columns <= _MOST_COLUMNS

    def _moments(self, task):
        """Moments of all rows; a stream may have more rows than those kept."""
        if task.moments is not None:
            return task.moments.on(self.device)
        return GroupMoments.of_data(task.data, len(task.space.groups), task.workers)

    # ------------------------------------------------------------------ store

    def _attributes(self, problem, w):
        """Attributes of the model of log odds, after Platt scaling if scores only rank."""
        if self.epsilon is not None:
            return log_odds_of_columns(problem, w)
        attributes = problem.model.attributes(w)
        if self.objective == "log":
            return attributes
        rows = problem.data.representatives
        scores = problem.model.scores(w, rows.X)[:, 0]
        slope, offset = log_odds_scale(scores, rows.y, rows.weight)
        return problem.model.rescaled(attributes, slope.item(), offset.item())

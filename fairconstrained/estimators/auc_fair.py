"""Ranking under AUC-based fairness constraints (paper 4 of the package)."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real

import torch
from torch import nn

from fairconstrained.auc import COMPARISONS
from fairconstrained.constraints import AUCParity, Quadratic
from fairconstrained.constraints.surrogates import SURROGATES
from fairconstrained.estimators._checks import check_parameter
from fairconstrained.estimators._margin import told_by, with_margin
from fairconstrained.estimators._partial_fit import StreamingClassifier
from fairconstrained.estimators._private_ranking import (
    check_private_ranking,
    log_odds_of_columns,
    private_ranking_problem,
)
from fairconstrained.estimators._promise import refuse_weights
from fairconstrained.models import Module, as_model
from fairconstrained.models.platt import Rescale, log_odds_scale
from fairconstrained.problems import FairERM
from fairconstrained.problems.moments import GroupMoments, MomentERM, RankingERM, whitened_model
from fairconstrained.problems.objectives import LogLossForRanking, PairwiseLoss

__all__ = ["AUCFairClassifier"]

_OBJECTIVES = ("auc", "log")
_MOST_COLUMNS = 2048  # of whose covariances every cell keeps a matrix


class AUCFairClassifier(StreamingClassifier):
    r"""Scores that rank positives above negatives, and do so equally well for all groups.

    .. math::

        \max_w \; \mathrm{AUC}_w(+, -)
        \quad \text{s.t.} \quad
        | \mathrm{AUC}_w(G_1, G_1') - \mathrm{AUC}_w(G_2, G_2') | \le \mathrm{slack}

    for the pairs of sets that `fairness` names, no threshold being involved. Training uses smooth
    surrogates, whose targets follow the true AUCs of the training data: with ``slack=0.05`` the
    metric of the notion (say :func:`fairconstrained.metrics.inter_group_auc_gap`) ends at 0.05 or
    below on them. More than two groups: every pair. Two classes only.

    Parameters
    ----------
    fairness : str, default="group_auc"
        - ``"group_auc"``: one group's scores against another's, AUC 1/2;
        - ``"inter_group"``: positives of g against negatives of h, and the other way round;
        - ``"intra_group"``: positives against negatives within g, and within h;
        - ``"positive_equality_gap"``, ``"negative_equality_gap"``: a group's positives (negatives)
          against everybody's, AUC 1/2;
        - ``"bpsn_bnsp"``: everybody's positives against a group's negatives, and the group's
          positives against everybody's negatives.
    slack : float, default=0.05
        Largest allowed difference of AUCs.
    margin : float, default=0.0
        Standard errors of the training gap by which `slack` is narrowed (not below zero), so that
        the gap of new rows exceeds it less often; 1 or 2 help where a group has few rows. The
        errors are those of a first fit; a second one starts there.
    objective : {"auc", "log"}, default="auc"
        What is minimised: 1 - AUC, in terms of `surrogate`, or the log loss, which ranks new rows
        better where there are few rows a column.
    surrogate : {"soft_bins", "binormal", "quadratic"} or surrogate object, optional
        What stands in for true AUCs; default: ``"soft_bins"``, or ``"binormal"`` with `epsilon`.
        ``"soft_bins"`` counts pairs in smooth histograms of the scores and is close to the truth;
        ``"binormal"`` is the AUC of normal scores with the groups' means and variances;
        ``"quadratic"`` is the paper's, which does not track the truth for pairwise notions. With
        one of the last two, ``objective="auc"`` and a linear model the data are read once: what
        follows costs d x d, for any number of rows, and the objective is the quadratic one.
        Objects: :class:`fairconstrained.constraints.SoftBins` (``n_bins, reach``) and
        ``Quadratic`` (``c1, c2``).
    stream_memory : int, default=100_000
        Rows that :meth:`partial_fit` keeps at most.
    epsilon : float, optional
        Train a linear model with (epsilon, delta)-differential privacy of the record, from noisy
        group moments that are released once: see Notes. Needs the extra ``privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    feature_range : (low, high), optional
        Publicly known range of the columns (numbers, or arrays of shape (n_features,)), with
        `epsilon`; default: (0, 1). It fixes the units of the columns; rows outside of it count
        less, and break nothing.
    model : "linear", tuple of int, or callable, default="linear"
        Linear scores; a network with hidden layers of these sizes; or a function
        ``(n_features, n_outputs) -> torch.nn.Module`` with one output.
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`; default: ``AugmentedLagrangian()`` for linear
        models, ``SGDA()`` for networks. ``QCQP()`` solves the paper's surrogate exactly, and
        ``LevelSet()`` is the paper's stochastic method; both need ``surrogate="quadratic"``, and
        keep the surrogate's slack, not the true gap's.
    alpha : float, default=1e-4
        Weight of the l2 penalty on coefficients of the columns as given (not on intercepts).
    fit_intercept : bool, default=True
        With ``objective="log"``; AUCs do not depend on intercepts.
    max_iter : int, optional
        Most iterations of the solver; default: until it ends by itself.
    tol : float, default=1e-4
        Residual at which training is done (see the solver).
    missing_sensitive : {"warn", "raise"}, default="warn"
        What to do without sensitive features: warn and train without constraints, or refuse.
    min_group_size : int, default=1
        Comparisons leave out sets of fewer rows.
    callbacks : callable or list of callables, optional
        Called with each :class:`fairconstrained.solvers.Iterate`; a true answer ends training.
    random_state : int, RandomState or None, default=None
        Seeds networks, mini-batches, and the sample of a long stream.
    verbose : int, default=0
        A progress bar if positive.
    device : str, default="cpu"
        Torch device for training; fitted attributes are on the CPU.
    warm_start : bool, default=False
        Start from the last fit's parameters and multipliers.

    Attributes
    ----------
    classes_, groups_ : ndarray
        Labels and groups, sorted; several sensitive columns give tuples.
    coef_, intercept_ : ndarray of shape (1, n_features), (1,)
        Of a linear model.
    module_ : torch.nn.Module
        Of a network, in evaluation mode.
    violation_ : float
        The notion's gap of true AUCs on the training data; nan if nothing is constrained.
    violations_ : dict
        The same by name.
    feasible_ : bool
        Whether the slack is kept up to 0.001.
    multipliers_ : ndarray of shape (m,)
        Lagrange multipliers of the surrogate's constraints.
    constraints_ : list of str
        What each multiplier belongs to.
    residual_ : float
        KKT residual of the returned point; infinite if the solver's targets never settled.
    n_iter_ : int
    converged_ : bool
    status_ : str
        Why training ended.
    history_ : dict of ndarray
        Per iteration: objective, error (1 - AUC), violation, soft_violation, residual,
        multipliers, time (s).
    privacy_ : PrivacyGuarantee or None
        With `epsilon`: what was released, and what it cost.
    n_features_in_, feature_names_in_
        As usual.

    Notes
    -----
    ``decision_function`` gives log odds and ``predict`` the second class where they are positive:
    where its probability is above one half. With ``objective="auc"`` scores rank only, so that
    after training a logistic regression on the one score (Platt's calibration, on the training
    data) sets their scale and offset; that changes no AUC. With ``objective="log"`` they are those
    of a logistic model trained under constraints: calibrated as far as the constraints allow. In
    both cases they are calibrated over everybody, and not within each group.

    With `epsilon` the number of rows, the classes and the names of the groups are public.
    Everything else that leaves ``fit`` follows from four noisy releases
    (``problems.private.moments``): ``violation_`` and ``history_`` are those of normal
    scores with the released moments, moved to what a noisy table of scores says of the gaps; scores
    become log odds as if they were normal with one variance. `alpha` is in the units of the clipped
    rows, and the noise on the moments adds to it. Weights, warm starts and streams are refused. The
    noise is the same for small groups as for large ones: the gap of a group of some hundred rows
    may miss the slack by far.

    A set without rows is named in a warning and its comparisons are left out; where nothing is
    left to compare, ``fit`` raises ValueError.

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
        fairness="group_auc",
        *,
        slack=0.05,
        margin=0.0,
        objective="auc",
        surrogate=None,
        stream_memory=100_000,
        epsilon=None,
        delta=1e-5,
        feature_range=None,
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
        super().__init__(
            model=model,
            solver=solver,
            alpha=alpha,
            fit_intercept=fit_intercept,
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
        self.fairness = fairness
        self.slack = slack
        self.margin = margin
        self.objective = objective
        self.surrogate = surrogate
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

    def _check_own_parameters(self):
        check_parameter(
            self, "fairness", str, COMPARISONS.__contains__, f"one of {sorted(COMPARISONS)}"
        )
        check_parameter(self, "slack", Real, lambda v: v >= 0, "a number >= 0")
        check_parameter(self, "margin", Real, lambda v: 0 <= v < inf, "a finite number >= 0")
        check_parameter(self, "objective", str, _OBJECTIVES.__contains__, f"one of {_OBJECTIVES}")
        check_parameter(self, "stream_memory", Integral, lambda v: v >= 1, "an integer >= 1")
        if self._surrogate() is None:
            raise ValueError(
                f"AUCFairClassifier.surrogate must be one of {sorted(SURROGATES)}, or an object "
                f"such as fairconstrained.constraints.SoftBins(n_bins=32); got {self.surrogate!r}."
            )
        if self.epsilon is not None:
            check_private_ranking(self)

    def _check_data(self, X, y, sensitive_features, sample_weight):
        refuse_weights(self, sample_weight)
        return super()._check_data(X, y, sensitive_features, sample_weight)

    def _solve(self, solver, problem, rng, classes):
        solution = super()._solve(solver, problem, rng, classes)
        if self.margin == 0 or not problem.constraint.members:
            return solution
        start = solution.iterate
        narrow = with_margin(problem, start.x, self.margin)
        again = self._run(solver, narrow, start.x, start.dual, rng)
        return told_by(problem.constraint, narrow.constraint, solution, again)

    def _surrogate(self):
        """Give the surrogate asked for; None if there is no such thing."""
        if self.surrogate is None:
            return SURROGATES["soft_bins" if self.epsilon is None else "binormal"]
        if isinstance(self.surrogate, str):
            return SURROGATES.get(self.surrogate)
        return self.surrogate if hasattr(self.surrogate, "loss") else None

    def _needs_groups(self):
        return True

    def _members(self, space):
        if len(space.groups) < 2:
            return []
        notion = AUCParity(self.fairness, surrogate=self._surrogate())
        return [notion.bind(space, self.slack)]

    # ------------------------------------------------------------------ the problem

    def _problem(self, data, space, solver, rng):
        if self.epsilon is not None:
            return private_ranking_problem(self, data, space, solver, rng)
        constraint = self._exact_stack(data, space)
        if self._stream is None:
            self._refuse_nothing(constraint)
        n_groups = constraint.part_of_cell.shape[1]
        alpha = float(self.alpha)
        if self._from_moments():
            moments = self._moments(data, n_groups)
            risk = self._pairwise_loss(moments.weight.reshape(2, -1).sum(dim=1))
            model = whitened_model(moments, alpha, 2.0 * risk.surrogate.c1)
            return MomentERM(model, moments, risk, constraint, alpha, data)
        risk = LogLossForRanking()
        if self.objective == "auc":
            risk = self._pairwise_loss([data.weight[data.y == k].sum() for k in (0, 1)])
        problem = RankingERM if self._is_linear() else FairERM
        return problem(self._model(data, len(space.classes)), data, risk, constraint, alpha)

    def _refuse_nothing(self, constraint):
        n_groups = constraint.part_of_cell.shape[1]
        if n_groups > 1 and not constraint.members:
            raise ValueError(
                f"{self.fairness} has nothing left to compare: each of its comparisons needs a "
                "set without rows (or with fewer than min_group_size), as the warning says."
            )

    def _pairwise_loss(self, label_weight):
        """The loss of positives against negatives, given the weight of both labels."""
        surrogate = self._surrogate()
        # The quadratic loss and the binormal one have the same optimum up to scale, with any
        # constraint that does not depend on scale either; this one is convex.
        quadratic = surrogate.of_score_moments and not isinstance(surrogate, Quadratic)
        shares = torch.stack(tuple(label_weight)) / sum(label_weight)
        return PairwiseLoss(Quadratic() if quadratic else surrogate, tuple(shares.tolist()))

    def _from_moments(self):
        """Whether group moments are all that training needs."""
        return (
            self._is_linear()
            and self.objective == "auc"
            and self.n_features_in_ <= _MOST_COLUMNS
            and self._surrogate().of_score_moments
            and torch.device(self.device).type == "cpu"
            and (self.solver is None or not self.solver.needs_rows)
        )

    def _moments(self, data, n_groups):
        if self._stream is not None:
            return self._stream.moments
        return GroupMoments.of(data.X, data.y * n_groups + data.group, data.weight, 2 * n_groups)

    def _model(self, data, n_classes):
        if self.objective == "log":
            return super()._model(data, n_classes)
        model = as_model(self.model, data.X, data.weight, 1, self.alpha, fit_intercept=True)
        if self._is_linear():
            # AUCs are flat along an intercept: solvers would stop there where rounding lets them.
            return model.centred()
        return Module(nn.Sequential(model.network, Rescale().to(data.weight)))

    def _store(self, solution, problem, space):
        super()._store(solution, problem, space)
        if self.epsilon is not None:
            self.privacy_ = problem.plan.privacy

    def _attributes(self, problem, w):
        """Log odds: those of the log loss, or the scores calibrated."""
        if self.epsilon is not None:
            return log_odds_of_columns(problem, w)
        attributes = problem.model.attributes(w)
        if self.objective == "log":
            return attributes
        data = problem.data
        scores = problem.model.scores(w, data.X)[:, 0]
        slope, offset = log_odds_scale(scores, data.y, data.weight)
        if "module_" in attributes:
            attributes["module_"][-1].then(slope.cpu(), offset.cpu())
            return attributes
        return {
            "coef_": attributes["coef_"] * slope.item(),
            "intercept_": attributes["intercept_"] * slope.item() + offset.item(),
        }

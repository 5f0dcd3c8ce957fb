"""Ranking under AUC-based fairness constraints (paper 4 of the package)."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import nn

from fairconstrained.calibration import Rescale, log_odds_scale
from fairconstrained.constraints import AUCParity, Quadratic
from fairconstrained.constraints.surrogates import SURROGATES
from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._checks import check_parameter, checked_weight, unchanged_on_error
from fairconstrained.estimators._stream import Stream
from fairconstrained.groups import encode_groups
from fairconstrained.models import Module
from fairconstrained.objectives import LogLossForRanking, PairwiseLoss
from fairconstrained.problem import FairERM
from fairconstrained.ranking import COMPARISONS
from fairconstrained.ranking_problems import GroupMoments, MomentERM, RankingERM, whitened_model

__all__ = ["AUCFairClassifier"]

_OBJECTIVES = ("log", "auc")
_MOST_COLUMNS = 2048  # of whose covariances every cell keeps a matrix


class AUCFairClassifier(FairClassifier):
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
    objective : {"log", "auc"}, default="log"
        What is minimised: the log loss, or a pairwise loss of positives against negatives. On a9a
        the log loss gives the higher AUC at every slack (by 0.002). With ``"auc"``, moment
        surrogates and a linear model the data are read once: what follows costs d x d, for any
        number of rows.
    surrogate : {"binormal", "quadratic", "soft_bins"} or surrogate object, optional
        What stands in for true AUCs; default: ``"binormal"`` for linear models, ``"soft_bins"`` for
        networks. ``"binormal"`` is the AUC of normal scores with the groups' means and variances,
        which tracks the truth closely; ``"quadratic"`` is the paper's, which does not for pairwise
        notions; ``"soft_bins"`` tends to the truth with the number of bins and costs that many
        columns. Objects: :class:`fairconstrained.constraints.Quadratic` (``c1, c2``), ``SoftBins``
        (``n_bins, temperature``). The pairwise objective is quadratic, unless bins are asked for.
    stream_memory : int, default=100_000
        Rows that :meth:`partial_fit` keeps at most.
    model : "linear", tuple of int, or callable, default="linear"
        Linear scores; a network with hidden layers of these sizes; or a function
        ``(n_features, n_outputs) -> torch.nn.Module`` with one output.
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`; default: ``AugmentedLagrangian()`` for linear
        models, ``SGDA()`` for networks. ``QCQP()`` solves the paper's surrogate exactly, and
        ``LevelSet()`` is the paper's stochastic method; both need ``surrogate="quadratic"`` and
        ``objective="auc"``, and keep the surrogate's slack, not the true gap's.
    alpha : float, default=1e-4
        Weight of the l2 penalty on coefficients of the columns as given (not on intercepts).
    fit_intercept : bool, default=True
        For the log loss; AUCs do not depend on intercepts.
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
    privacy_ : None
    n_features_in_, feature_names_in_
        As usual.

    Notes
    -----
    ``decision_function`` gives log odds and ``predict`` the second class where they are positive:
    where its probability is above one half. With ``objective="log"`` they are those of a logistic
    model trained under constraints: calibrated as far as the constraints allow. With
    ``objective="auc"`` scores rank only, so that after training a logistic regression on the one
    score (Platt's calibration, on the training data) sets their scale and offset; that changes no
    AUC. In both cases they are calibrated over everybody, and not within each group.

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

    __metadata_request__partial_fit = {"sensitive_features": True}  # noqa: RUF012

    def __init__(
        self,
        fairness="group_auc",
        *,
        slack=0.05,
        objective="log",
        surrogate=None,
        stream_memory=100_000,
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
        self.objective = objective
        self.surrogate = surrogate
        self.stream_memory = stream_memory

    def partial_fit(self, X, y, classes=None, *, sensitive_features=None, sample_weight=None):
        """Train on all rows seen by this method so far.

        Moments of groups add up exactly over chunks of any size, single rows included. With
        ``objective="auc"``, a linear model and a surrogate of moments the whole stream counts,
        and the rows kept serve to measure true AUCs; otherwise the model is trained on the rows
        kept. Up to `stream_memory` rows all are kept: then the model is that of :meth:`fit` on the
        same rows, up to rounding. Beyond, they are a uniform sample.

        Every call runs the solver afresh (also a stochastic one); ``warm_start=True`` starts from
        the last solution, which is faster and agrees within the tolerance of the slack.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like of shape (2,), optional
            Both labels; needed in the first call unless its rows have both.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            As in :meth:`fit`; new groups may come at any time.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
            Ready to predict once both classes have been seen. A call to :meth:`fit` ends the
            stream.

        Raises
        ------
        ValueError
            For a label that is not in `classes`, another number of columns, or sensitive features
            in some chunks only; the estimator is then as it was before the call.
        """
        with unchanged_on_error(self):
            self._check_parameters()
            groups = self._extend_stream(X, y, classes, sensitive_features, sample_weight)
            stream = self._stream
            if len(np.unique(stream.y)) == 2:
                self._train(stream.X, stream.classes[stream.y], groups, stream.weight)
        return self

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
        check_parameter(
            self, "objective", str, _OBJECTIVES.__contains__, f"one of {list(_OBJECTIVES)}"
        )
        check_parameter(self, "stream_memory", Integral, lambda v: v >= 1, "an integer >= 1")
        if self._surrogate() is None:
            raise ValueError(
                f"AUCFairClassifier.surrogate must be one of {sorted(SURROGATES)}, or an object "
                f"such as fairconstrained.constraints.Quadratic(c1=0.5); got {self.surrogate!r}."
            )

    def _surrogate(self):
        """Give the surrogate asked for; None if there is no such thing."""
        if self.surrogate is None:
            return SURROGATES["binormal" if self._is_linear() else "soft_bins"]
        if isinstance(self.surrogate, str):
            return SURROGATES.get(self.surrogate)
        return self.surrogate if hasattr(self.surrogate, "loss") else None

    def _needs_groups(self):
        return True

    def _members(self, space):
        if len(space.groups) < 2:
            return []
        notion = AUCParity(self.fairness, surrogate=self._surrogate())
        return [notion.bind(space, self.slack, 1.0)]

    # ------------------------------------------------------------------ the problem

    def _problem(self, data, space, solver, rng):
        constraint = self._exact_stack(data, space)
        streaming = self._stream is not None
        n_groups = constraint.part_of_cell.shape[1]
        if n_groups > 1 and not constraint.members and not streaming:
            raise ValueError(
                f"{self.fairness} has nothing left to compare: each of its comparisons needs a "
                "set without rows (or with fewer than min_group_size), as the warning says."
            )
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
        model = super()._model(data, n_classes)
        if self.objective == "log" or self._is_linear():
            return model
        return Module(nn.Sequential(model.network, Rescale().to(data.weight)))

    def _attributes(self, problem, w):
        """Log odds: those of the log loss, or the scores calibrated."""
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

    # ------------------------------------------------------------------ streams

    _stream = None

    def _forget(self):
        vars(self).pop("_stream", None)

    def _extend_stream(self, X, y, classes, sensitive_features, sample_weight):
        """Take in a chunk; give the groups of the rows kept."""
        first = self._stream is None
        X, y = validate_data(
            self,
            X,
            y,
            reset=first,
            accept_sparse="csr",
            dtype=np.float64,
            order="C",
            force_writeable=True,
        )
        weight = checked_weight(sample_weight, len(y))
        groups = None
        if sensitive_features is not None:
            groups = encode_groups(sensitive_features, len(y))
        if first:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            begun = Stream.begin(
                y, classes, groups, X.shape[1], seed, with_moments=self._from_moments()
            )
        stream = begun if first else self._stream
        self._stream = stream.extended(X, y, classes, groups, weight, self.stream_memory)
        groups = None if groups is None else (self._stream.group, self._stream.groups)
        if groups is None or len(groups[1]) < 2:
            groups = self._without_groups(groups, n_samples=len(self._stream.y))
        return groups

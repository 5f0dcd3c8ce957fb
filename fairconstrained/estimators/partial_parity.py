"""Classification with fairness inside an interval of percentiles (paper 3 of the package)."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.metrics import accuracy_score

from fairconstrained.constraints import PARTIAL, PARTIAL_PRIVATE, PartialStatisticalParity, Stack
from fairconstrained.constraints.steps import STEPS
from fairconstrained.estimators._checks import check_parameter
from fairconstrained.estimators._group_columns import known_codes, with_group_columns
from fairconstrained.estimators._intervals import in_least_fair_interval, warn_of_fine_grids
from fairconstrained.estimators._private import PrivateFairClassifier
from fairconstrained.estimators._promise import refuse_with_epsilon
from fairconstrained.losses import class_probabilities, log_loss, zero_one_loss
from fairconstrained.percentiles import read_intervals
from fairconstrained.problems import FairERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers import SequentialQuadratic, run

__all__ = ["PartialParityClassifier"]


class PartialParityClassifier(PrivateFairClassifier):
    r"""Logistic model or network that is fair among the rows of certain ranks, and free elsewhere.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \max_{g, h} \mathrm{gap}_{g, h}(\text{scores of ranks in } I) \le \mathrm{slack}

    where a row's rank is the share of its group that scores higher (0 is the top). The gap is the
    exact one on the training scores: with the default notion
    :func:`fairconstrained.metrics.partial_statistical_parity` of ``decision_function`` ends at
    `slack` or below. Training is deterministic for linear models. Two classes, any number of
    groups by the worst pair.

    Parameters
    ----------
    fairness : str, default="statistical_parity"
        - ``"statistical_parity"``: equal distributions of the scores in the interval;
        - ``"rank_parity"``: equal ranks of every threshold there, which is what the paper's tables
          report (:func:`fairconstrained.metrics.ccdf_gap`);
        - ``"demographic_parity"``: equal rates of scores above `threshold` there;
        - ``"equal_opportunity"``: the same among the positives, ranks among them too;
        - ``"equalized_odds"``: the same within each label;
        - ``"group_auc"``: no group's scores rank above another's there, AUC 1/2.
    interval : pair of float, list of pairs, dict, or "auto", default=(0.0, 0.3)
        Ranks ``(alpha, beta)`` out of [0, 1]; several that do not overlap; one of these for every
        group; or the interval of length 0.25 in which a model without constraints is the least
        fair, among those that contain its rate of positive decisions (Appendix B of the paper);
        ``interval_`` says which.
    slack : float, default=0.05
        Largest allowed gap.
    threshold : float, default=0.0
        Rows are predicted positive where their score is above it.
    n_grid : int, default=10
        Thresholds at which training compares distributions (``"statistical_parity"`` and
        ``"rank_parity"``).
    epsilon : float, optional
        Train with (epsilon, delta)-differential privacy of the record, as in
        :class:`fairconstrained.RateConstrainedClassifier`. Intervals are public, ranks are read
        from released counts; ``"statistical_parity"`` compares `n_grid` fixed thresholds between -3
        and 3 log odds, and nothing between them. Not with ``"rank_parity"``, ``"group_auc"``,
        ``interval="auto"`` or group features.
    delta, histogram_noise, feature_range
        As in :class:`fairconstrained.RateConstrainedClassifier`.
    group_features : bool, default=False
        Whether groups have coefficients of their own: of the columns
        ``[X, 1[group], 1[group] X]`` for all groups but the first (the paper's model). Predictions
        then need the sensitive features.
    surrogate : {"logistic", "ramp"}, default="logistic"
        What stands in for "score above threshold" in training.
    temperature : float, default=2.0
        Its sharpness; the solver sharpens it where the true gap does not follow.
    model : "linear", tuple of int, or callable, default="linear"
        Logistic regression; a network with hidden layers of these sizes; or a function
        ``(n_features, n_outputs) -> torch.nn.Module`` with one output.
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`; default: for linear models
        ``SequentialQuadratic()`` (distributions) or ``AugmentedLagrangian()`` (rates, AUC); for
        networks ``SGDA()``.
    alpha : float, default=1e-4
        Weight of the l2 penalty on coefficients of the columns as given (not on intercepts).
    fit_intercept : bool, default=True
    max_iter : int, optional
        Most iterations of the solver; default: until it ends by itself.
    tol : float, default=1e-4
        Residual at which training is done (see the solver).
    missing_sensitive : {"warn", "raise"}, default="warn"
        What to do without sensitive features: warn and train without constraints, or refuse.
    min_group_size : int, default=1
        The constraint leaves out groups, or groups within a label, of fewer rows.
    callbacks : callable or list of callables, optional
        Called with each :class:`fairconstrained.solvers.Iterate`; a true answer ends training.
    random_state : int, RandomState or None, default=None
        Seeds networks and mini-batches.
    verbose : int, default=0
        A progress bar if positive.
    device : str, default="cpu"
        Torch device for training; fitted attributes are on the CPU.
    warm_start : bool, default=False
        Start from the last fit's parameters and multipliers.

    Attributes
    ----------
    interval_ : pair, list or dict
        The interval in use: that given, or the one chosen.
    classes_, groups_ : ndarray
        Labels and groups, sorted; several sensitive columns give tuples.
    coef_, intercept_ : ndarray of shape (1, n_features), (1,)
        Of a linear model; with group features for all columns that these add.
    module_ : torch.nn.Module
        Of a network, in evaluation mode.
    violation_ : float
        The gap of the training scores, in the notion's own units; nan if nothing is constrained.
    violations_ : dict
        The same by name.
    feasible_ : bool
        Whether the slack is kept up to 0.001.
    multipliers_ : ndarray of shape (m,)
    constraints_ : list of str
        What each multiplier belongs to.
    residual_, n_iter_, converged_, status_, history_, privacy_
        As in :class:`fairconstrained.RateConstrainedClassifier`.
    n_features_in_, feature_names_in_
        As usual; of X, without what group features add.

    Notes
    -----
    ``decision_function`` gives log odds and ``predict_proba`` their probabilities. ``predict`` is
    positive where the score is above `threshold`, and so where the probability is above
    ``1 / (1 + exp(-threshold))``: one half for the default.

    Training starts from the model without constraints: tied scores would be feasible and stuck.

    With ``group_features=True`` prediction asks for ``sensitive_features`` (metadata routing).

    References
    ----------
    "Enforcing Fair Predicted Scores on Intervals of Percentiles by Difference-of-Convex
    Constraints", 2026.

    Examples
    --------
    >>> from fairconstrained import PartialParityClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import partial_statistical_parity
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = PartialParityClassifier(interval=(0.1, 0.4), slack=0.1)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    PartialParityClassifier(interval=(0.1, 0.4), slack=0.1)
    >>> gap = partial_statistical_parity(
    ...     data.target, clf.decision_function(data.data),
    ...     sensitive_features=data.sensitive_features, interval=(0.1, 0.4))
    >>> bool(gap <= 0.101)
    True
    """

    _routed = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    __metadata_request__predict = _routed
    __metadata_request__predict_proba = _routed
    __metadata_request__decision_function = _routed
    __metadata_request__score = _routed

    def __init__(
        self,
        fairness="statistical_parity",
        *,
        interval=(0.0, 0.3),
        slack=0.05,
        threshold=0.0,
        n_grid=10,
        epsilon=None,
        delta=1e-5,
        histogram_noise="gaussian",
        feature_range=None,
        group_features=False,
        surrogate="logistic",
        temperature=2.0,
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
        self.interval = interval
        self.slack = slack
        self.threshold = threshold
        self.n_grid = n_grid
        self.epsilon = epsilon
        self.delta = delta
        self.histogram_noise = histogram_noise
        self.feature_range = feature_range
        self.group_features = group_features
        self.surrogate = surrogate
        self.temperature = temperature

    # ------------------------------------------------------------------ prediction

    def decision_function(self, X, *, sensitive_features=None) -> np.ndarray:
        """Scores of the samples, in log odds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Needed with ``group_features=True``, and not used else.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        X = self._checked(X)
        if self.group_features:
            codes = known_codes(sensitive_features, X.shape[0], self.groups_)
            X = with_group_columns(X, codes, len(self.groups_))
        return self._scores_of(X)[:, 0]

    def predict(self, X, *, sensitive_features=None) -> np.ndarray:
        """Predicted labels: the second class where the score is above ``threshold``.

        Parameters are those of :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X, sensitive_features=sensitive_features)
        return self.classes_[(scores > self.threshold).astype(int)]

    def predict_proba(self, X, *, sensitive_features=None) -> np.ndarray:
        """Class probabilities of the logistic model, as far as the constraints allow.

        Parameters are those of :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_samples, 2)
        """
        scores = self.decision_function(X, sensitive_features=sensitive_features)
        return class_probabilities(torch.from_numpy(scores[:, None])).numpy()

    def score(self, X, y, sample_weight=None, *, sensitive_features=None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            As in :meth:`decision_function`.

        Returns
        -------
        float
        """
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return accuracy_score(y, predicted, sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    # ------------------------------------------------------------------ training

    def _check_own_parameters(self):
        names = sorted(PARTIAL)
        check_parameter(self, "fairness", str, PARTIAL.__contains__, f"one of {names}")
        check_parameter(self, "slack", Real, lambda v: v >= 0, "a number >= 0")
        check_parameter(self, "threshold", Real, np.isfinite, "a finite number")
        check_parameter(self, "n_grid", Integral, lambda v: v >= 1, "an integer >= 1")
        check_parameter(self, "group_features", (bool, np.bool_), lambda v: True, "True or False")
        check_parameter(self, "surrogate", str, STEPS.__contains__, f"one of {sorted(STEPS)}")
        check_parameter(
            self, "temperature", Real, lambda v: 0 < v < float("inf"), "a finite number > 0"
        )
        if not self._is_auto():
            by_group = isinstance(self.interval, dict)
            read_intervals(self.interval, list(self.interval) if by_group else ["all"])
        super()._check_own_parameters()
        refuse_with_epsilon(
            self,
            {
                f"fairness={self.fairness!r}": self.fairness not in PARTIAL_PRIVATE,
                "interval='auto'": self._is_auto(),
                "group_features=True": self.group_features,
            },
            f"a given interval, fairness in {sorted(PARTIAL_PRIVATE)} and no group features",
        )

    def _is_auto(self):
        return isinstance(self.interval, str) and self.interval == "auto"

    def _chosen_solver(self):
        if self.epsilon is not None:
            return super()._chosen_solver()
        of_distributions = issubclass(PARTIAL[self.fairness], PartialStatisticalParity)
        if self.solver is None and self._is_linear() and of_distributions:
            return SequentialQuadratic()
        return super()._chosen_solver()

    def _needs_groups(self):
        return True

    def _members(self, space):
        if len(space.groups) < 2:
            return []
        notion = (PARTIAL if self.epsilon is None else PARTIAL_PRIVATE)[self.fairness]
        own = {"n_grid", "threshold", "surrogate", "temperature"}.intersection(
            notion._get_param_names()
        )
        # Of an interval still to be chosen everything else is known: the sets of rows, the slack.
        interval = (0.0, 1.0) if self._is_auto() else self.interval
        notion = notion(interval, **{name: getattr(self, name) for name in own})
        return [notion.bind(space, self.slack)]

    def _columns(self, X, group_index, group_labels):
        if not self.group_features:
            return X
        if group_labels is None:
            raise ValueError(
                "sensitive_features is needed to fit PartialParityClassifier with "
                "group_features=True."
            )
        return with_group_columns(X, group_index, len(group_labels))

    def _problem(self, data, space, solver, rng):
        if self.epsilon is not None:
            return super()._problem(data, space, solver, rng)
        constraint = self._exact_stack(data, space)
        model = self._model(data, len(space.classes))
        threshold = float(self.threshold)
        problem = FairERM(
            model,
            data,
            MeanLoss(log_loss, lambda scores, y: zero_one_loss(scores - threshold, y)),
            constraint,
            float(self.alpha),
        )
        solver.check(problem)  # before the work below
        if not constraint.members:
            return problem
        if self._is_auto() or not solver.starts_feasible:
            free = replace(problem, constraint=Stack(constraint.members[0].space, []))
            w = self._solve_free(free, solver)
        if not solver.starts_feasible:
            problem = replace(problem, initial=w)
        if self._is_auto():
            scores = model.scores(w, data.X)
            chosen = in_least_fair_interval(constraint.members[0], scores, self.threshold, data)
            problem = replace(problem, constraint=Stack(chosen.space, [chosen]))
        warn_of_fine_grids(problem.constraint.members, data)
        return problem

    def _solve_free(self, problem, solver):
        """Parameters of the model without constraints."""
        rng = torch.Generator().manual_seed(torch.initial_seed())
        none = problem.data.weight.new_zeros(0)
        start = problem.start()
        return run(solver, problem, start, none, rng, max_iter=None, tol=self.tol).iterate.x

    def _attributes(self, problem, w):
        interval, members = self.interval, problem.constraint.members
        if self._is_auto():
            ends = members and members[0].intervals
            interval = (float(ends.lower[0, 0]), float(ends.upper[0, 0])) if members else None
        return {**super()._attributes(problem, w), "interval_": interval}

"""Classification with fairness inside an interval of percentiles (paper 3 of the package)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from sklearn.metrics import accuracy_score

from fairconstrained.constraints import (
    PARTIAL,
    PARTIAL_PRIVATE,
    PartialNotion,
    PartialStatisticalParity,
    Stack,
)
from fairconstrained.estimators._group_columns import known_codes, with_group_columns
from fairconstrained.estimators._intervals import in_least_fair_interval, warn_of_fine_grids
from fairconstrained.estimators._private import PrivateFairClassifier
from fairconstrained.losses import class_probabilities, log_loss, zero_one_loss
from fairconstrained.problems import FairERM
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.solvers import SequentialQuadratic

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
    constraint : str or partial notion, default="statistical_parity"
        A name, or an object of :mod:`fairconstrained.constraints` that carries thresholds, their
        number and the surrogate, such as ``PartialStatisticalParity(n_grid=20)``:

        - ``"statistical_parity"``: equal distributions of the scores in the interval;
        - ``"rank_parity"``: equal ranks of every threshold there, which is what the paper's tables
          report (:func:`fairconstrained.metrics.ccdf_gap`);
        - ``"demographic_parity"``: equal rates of scores above the threshold there;
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
    epsilon : float, optional
        Train with (epsilon, delta)-differential privacy of the record, as in
        :class:`fairconstrained.RateConstrainedClassifier`. Intervals are public, ranks are read
        from released counts; ``"statistical_parity"`` compares fixed thresholds between -3 and 3
        log odds, and nothing between them. Not with ``"rank_parity"``, ``"group_auc"``,
        ``interval="auto"`` or group features.
    delta, feature_range
        As in :class:`fairconstrained.RateConstrainedClassifier`.
    group_features : bool, default=False
        Whether groups have coefficients of their own: of the columns
        ``[X, 1[group], 1[group] X]`` for all groups but the first (the paper's model). Predictions
        then need the sensitive features.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`, with networks of one output. Default solvers of
        linear models: ``SequentialQuadratic()`` for distributions, ``AugmentedLagrangian()`` for
        rates and AUCs.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    interval_ : pair, list or dict
        The interval in use: that given, or the one chosen.
    threshold_ : float
        Rows are predicted positive where their score is above it: the threshold of a constraint of
        rates, and 0 for others.
    coef_, intercept_ : ndarray of shape (1, n_columns), (1,)
        Of a linear model; with group features for all columns that these add.
    violation_ : float
        The gap of the training scores, in the notion's own units; nan if nothing is constrained.
    classes_, groups_, model_, module_, violations_, feasible_, multipliers_, constraints_
        As in :class:`RateConstrainedClassifier`.
    residual_, n_iter_, converged_, status_, history_, privacy_
        As in :class:`RateConstrainedClassifier`.
    n_features_in_, feature_names_in_
        As usual; of X, without what group features add.

    Notes
    -----
    ``decision_function`` gives log odds and ``predict_proba`` their probabilities. ``predict`` is
    positive where the score is above ``threshold_``, and so where the probability is above
    ``1 / (1 + exp(-threshold_))``: one half unless the constraint has a threshold of its own.

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
        constraint="statistical_parity",
        *,
        interval=(0.0, 0.3),
        slack=0.05,
        epsilon=None,
        delta=1e-5,
        feature_range=None,
        group_features=False,
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
        self.interval = interval
        self.slack = slack
        self.epsilon = epsilon
        self.delta = delta
        self.feature_range = feature_range
        self.group_features = group_features

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
        table = self._table(X)
        if self.group_features:
            codes = known_codes(sensitive_features, table.shape[0], self.groups_)
            table = with_group_columns(table, codes, len(self.groups_))
        return self._scores(table)[:, 0]

    def predict(self, X, *, sensitive_features=None) -> np.ndarray:
        """Predicted labels: the second class where the score is above ``threshold_``.

        Parameters are those of :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X, sensitive_features=sensitive_features)
        return self.classes_[(scores > self.threshold_).astype(int)]

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

    def _notions(self):
        return self._named(PARTIAL if self.epsilon is None else PARTIAL_PRIVATE, PartialNotion)

    def _check(self):
        super()._check()
        if self.epsilon is not None:
            self._refuse_with_epsilon(
                {"interval='auto'": self._is_auto(), "group_features=True": self.group_features},
                "a given interval and no group features",
            )

    def _is_auto(self):
        return isinstance(self.interval, str) and self.interval == "auto"

    def _threshold(self):
        (notion,) = self._notions()
        return float(getattr(notion, "threshold", 0.0))

    def _default_solver(self):
        (notion,) = self._notions()
        of_distributions = isinstance(notion, PartialStatisticalParity)
        if self.epsilon is None and self._is_linear() and of_distributions:
            return SequentialQuadratic()
        return super()._default_solver()

    def _bound(self, notion, space):
        # Of an interval still to be chosen everything else is known: the parts, the slack.
        interval = (0.0, 1.0) if self._is_auto() else self.interval
        return notion.bind(space, self.slack, interval)

    def _columns(self, X, group, groups):
        if not self.group_features:
            return X
        if groups is None:
            raise ValueError(
                "sensitive_features is needed to fit PartialParityClassifier with "
                "group_features=True."
            )
        return with_group_columns(X, group, len(groups))

    def _exact_problem(self, task):
        threshold = self._threshold()
        risk = MeanLoss(log_loss, lambda scores, y: zero_one_loss(scores - threshold, y))
        stack = self._exact_stack(task)
        return FairERM(self._model(task), task.data, risk, stack, float(self.alpha))

    def _refined(self, problem, task):
        """Begin at the model without constraints, which also chooses an automatic interval."""
        if self.epsilon is not None or not problem.constraint.members:
            return problem
        if self._is_auto() or not task.solver.starts_feasible:
            free = replace(problem, constraint=Stack(task.space, []))
            none = task.data.weight.new_zeros(0)
            w = self._run(free, task, free.start(), none).solution.iterate.x
        if not task.solver.starts_feasible:
            problem = replace(problem, initial=w)
        if self._is_auto():
            scores = problem.model.scores(w, task.data.X)
            (member,) = problem.constraint.members
            chosen = in_least_fair_interval(member, scores, self._threshold(), task.data)
            problem = replace(problem, constraint=Stack(task.space, [chosen]))
        warn_of_fine_grids(problem.constraint.members, task.data)
        return problem

    def _attributes(self, problem, w):
        interval, members = self.interval, problem.constraint.members
        if self._is_auto():
            ends = members and members[0].intervals
            interval = (float(ends.lower[0, 0]), float(ends.upper[0, 0])) if members else None
        return {
            **super()._attributes(problem, w),
            "interval_": interval,
            "threshold_": self._threshold(),
        }

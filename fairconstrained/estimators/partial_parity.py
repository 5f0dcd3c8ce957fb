"""Classification with fairness inside an interval of percentiles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.metrics import accuracy_score
from torch import Tensor

from fairconstrained.arrays import Array, Floats, Ints
from fairconstrained.constraints.moments import stacked
from fairconstrained.constraints.notions import as_notions
from fairconstrained.constraints.partial_notions import (
    PARTIAL,
    PARTIAL_PRIVATE,
    PartialNotion,
    PartialStatisticalParity,
)
from fairconstrained.estimators.base import PrivateFairClassifier, accepts_tables, labels_of, like
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.fit import columns, exact
from fairconstrained.fit.private_records import as_records
from fairconstrained.fit.rows import TrainingRows
from fairconstrained.fit.task import Fit, Task
from fairconstrained.groups import refuse_negative
from fairconstrained.inputs.groups import read_groups
from fairconstrained.inputs.values import listed
from fairconstrained.losses import class_probabilities, log_loss, zero_one_loss
from fairconstrained.models.specification import Head
from fairconstrained.percentiles import read_intervals
from fairconstrained.privacy.accounting import Budget
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.rows import Rows
from fairconstrained.solvers.base import Solver
from fairconstrained.solvers.idca import FromFeasible
from fairconstrained.solvers.sequential_quadratic import SequentialQuadratic
from fairconstrained.solvers.sgda import EarlyStoppedSGDA

# Candidates of an automatic interval: the paper's chosen intervals have lengths of 0.2 to 0.3.
_LENGTH, _STEP = 0.25, 0.05
_OF_EVERY_ROW = (
    "sensitive_features must have the group of every row with group_features=True, which makes it "
    "a feature."
)


@dataclass(kw_only=True, eq=False, repr=False)
class PartialParityClassifier(PrivateFairClassifier):
    r"""Logistic model or network that is fair within an interval of ranks.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \max_{g, h} \mathrm{gap}_{g, h}(\text{scores of ranks in } I) \le \mathrm{slack}

    where the rank of a sample is the fraction of its group that scores higher (0 is the top). The
    slack bounds the exact gap of the training scores: with the default criterion,
    :func:`fairconstrained.metrics.partial_statistical_parity` of ``decision_function`` is at most
    `slack`, for the worst pair of groups. Outside the interval nothing is constrained. There must
    be two classes.

    Parameters
    ----------
    constraint : str or constraint object, default="statistical_parity"
        A name, or an object of :mod:`fairconstrained.constraints` with parameters for thresholds
        and the surrogate, such as ``PartialStatisticalParity(n_grid=20)``:

        - ``"statistical_parity"``: equal distributions of the scores in the interval;
        - ``"rank_parity"``: equal ranks of every threshold in the interval, as in the tables of the
          paper (:func:`fairconstrained.metrics.ccdf_gap`);
        - ``"demographic_parity"``: equal rates of scores above the threshold in the interval;
        - ``"equal_opportunity"``: the same among the positives, with ranks among them;
        - ``"equalized_odds"``: the same within each label;
        - ``"group_auc"``: group AUCs close to 1/2 in the interval.
    interval : pair of float, list of pairs, dict, or "auto", default=(0.0, 0.3)
        Ranks ``(alpha, beta)`` in [0, 1], a list of such pairs that do not overlap, or a dict with
        one of these for every group. "auto" considers intervals of length 0.25 that contain the
        rate of positive decisions of a model without constraints, and takes the one where this
        model is least fair (Appendix B of the paper). ``interval_`` is the result. An interval of
        the constraint object takes its place.
    slack : float, default=0.05
        Largest allowed gap.
    margin : float, default=0.0
        As in :class:`RateConstrainedClassifier`. All thresholds share the largest standard error.
    epsilon : float or Budget, optional
        Train with (epsilon, delta)-differential privacy of the record; against any other record
        with ``Budget(epsilon, delta, "record_replacement")`` of ``fairconstrained.privacy``.
        Intervals are public, and ranks are computed from released counts. ``"statistical_parity"``
        compares fixed thresholds between -3 and 3 in log odds, and does not see gaps between them.
        Not with ``"rank_parity"``, ``"group_auc"``, ``interval="auto"`` or group features.
    delta, feature_range
        As in :class:`RateConstrainedClassifier`.
    group_features : bool, default=False
        Whether groups have coefficients of their own, for the columns
        ``[X, 1[group], 1[group] X]`` of all groups but the first (the model of the paper).
        Predictions then need the sensitive features.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`, with networks of one output. The default solver of
        linear models is ``SequentialQuadratic()`` for distributions and ``AugmentedLagrangian()``
        for rates and AUCs.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    interval_ : pair, list, dict or None
        The interval that was given or chosen; None if there were no groups to choose it by.
    threshold_ : float
        Samples with a higher score are predicted positive. It is the threshold of a constraint on
        rates, and otherwise 0.
    pos_label_ : label
        The label on top of the ranking, ``classes_[1]``: of words the last in the alphabet.
    coef_, intercept_ : ndarray of shape (1, n_columns), (1,)
        Coefficients of a linear model, including those of group features.
    violation_ : float
        The gap of the scores, in the criterion's units; nan if nothing is constrained.
    all others
        As in :class:`RateConstrainedClassifier`; ``n_features_in_`` is without group features.

    Notes
    -----
    ``decision_function`` returns log odds. ``predict`` is positive where they are above
    ``threshold_``: at a probability above ``1 / (1 + exp(-threshold_))``, which is one half unless
    the constraint has its own threshold.

    With a classifier as `model`, a linear model of a few posteriors is trained. The best rule for
    rates at one threshold has that form. A few coefficients may not bring whole distributions,
    compared at all thresholds of the interval, within a small slack. The fit then ends with equal
    scores, which satisfy every criterion; all entries of ``coef_`` are 0. Use a larger slack, a
    criterion of rates or AUCs, or ``model="linear"`` on the columns.

    With ``group_features=True`` predictions request ``sensitive_features`` by metadata routing.

    References
    ----------
    "Enforcing Fair Predicted Scores on Intervals of Percentiles by Difference-of-Convex
    Constraints", 2026.

    Examples
    --------
    >>> from fairconstrained import PartialParityClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import partial_statistical_parity
    >>> data = make_biased_classification(800, random_state=0)
    >>> clf = PartialParityClassifier(interval=(0.1, 0.4), slack=0.1)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    PartialParityClassifier(interval=(0.1, 0.4), slack=0.1)
    >>> gap = partial_statistical_parity(
    ...     data.target, clf.decision_function(data.data),
    ...     sensitive_features=data.sensitive_features, interval=(0.1, 0.4))
    >>> bool(gap <= 0.101)
    True
    """

    _multi_class = False
    _routed = {"sensitive_features": True}  # noqa: RUF012 (read by scikit-learn)
    __metadata_request__predict = _routed
    __metadata_request__predict_proba = _routed
    __metadata_request__decision_function = _routed
    __metadata_request__score = _routed

    constraint: Any = field(default="statistical_parity", kw_only=False)
    interval: Any = (0.0, 0.3)
    slack: float = 0.05
    margin: float = 0.0
    epsilon: float | Budget | None = None
    delta: float = 1e-5
    feature_range: Any = None
    group_features: bool = False

    @accepts_tables
    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the scores of the samples, in log odds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            Needed with ``group_features=True``, and not used otherwise.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._scores(X, sensitive_features)[:, 0]  # type: ignore[no-any-return]

    @accepts_tables
    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Predict labels (n_samples,): the second class where the score is above ``threshold_``.

        Parameters are as in :meth:`decision_function`.
        """
        scores = self.decision_function(X, sensitive_features=sensitive_features)
        codes = (torch.as_tensor(scores) > self.threshold_).long()
        return labels_of(self.classes_, codes, scores)  # type: ignore[no-any-return]

    @accepts_tables
    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return class probabilities (n_samples, 2), as well calibrated as the constraints allow.

        Parameters are as in :meth:`decision_function`.
        """
        scores = self.decision_function(X, sensitive_features=sensitive_features)
        return like(class_probabilities(torch.as_tensor(scores)[:, None]), scores)  # type: ignore[no-any-return]

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """Return the accuracy of :meth:`predict` for labels `y`, weighted if weights are given."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _table(self, X: Any, sensitive_features: Any = None, head: Head | None = None) -> Any:
        table = super()._table(X, sensitive_features, head)
        if not self.group_features:
            return table
        if sensitive_features is None:
            raise ValueError(
                "sensitive_features is needed for predictions, because group_features=True: pass "
                "predict(X, sensitive_features=...), or through a pipeline or search with "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        before = self._description_
        (codes, labels), _ = read_groups(sensitive_features, table.shape[0], before)
        if codes.ndim == 2 or (codes < 0).any():
            raise ValueError(_OF_EVERY_ROW)
        known = {label: i for i, label in enumerate(self.groups_.tolist())}  # 1 is not "1"
        unknown = [label for label in labels.tolist() if label not in known]
        if unknown:
            raise ValueError(
                f"sensitive_features has groups that were not seen in training: {unknown}; known "
                f"are {list(known)}."
            )
        places = np.array([known[label] for label in labels.tolist()])
        return with_group_columns(table, places[codes], len(known))

    def _notions(self) -> list[Any]:
        names = PARTIAL if self.epsilon is None else PARTIAL_PRIVATE
        others = sorted(PARTIAL.keys() - names.keys())  # not functions of counts
        if self.constraint in others or isinstance(
            self.constraint, tuple(PARTIAL[name] for name in others)
        ):
            raise ValueError(
                f"{type(self).__name__}.epsilon must be None with {' and '.join(others)}; got "
                f"constraint={self.constraint!r}."
            )
        return as_notions(self, [self.constraint], names, PartialNotion)

    def _with_steps(self, task: Task) -> Task:
        interval = interval_of(task)
        if not is_auto(task):
            read_intervals(interval, list(interval) if isinstance(interval, dict) else ["all"])
        threshold = threshold_of(task)
        risk = MeanLoss(log_loss, lambda scores, y: zero_one_loss(scores - threshold, y))
        # An automatic interval is chosen later. Whether a row of each part lies in it depends only
        # on its length.
        bounds = (self.slack, (0.0, _LENGTH) if is_auto(task) else interval)
        task = replace(task, bounds=bounds, risk=lambda rows: risk)
        solver: Solver | None = None
        if isinstance(task.notions[0], PartialStatisticalParity):
            # Gaps at many thresholds are added up: on small batches they are mostly noise.
            sgda = EarlyStoppedSGDA(batch_size=2048, dual_step_size=0.02)
            solver = SequentialQuadratic() if task.specification.is_linear else sgda
        if task.budget is None:
            return exact.as_exact(
                task,
                solver=solver,
                learn=learn,
                solve=partial(exact.solve, start=with_start),
                attributes=attributes,
                expand=expand if self.group_features else None,
            )
        if is_auto(task) or self.group_features:
            wrong = "interval='auto'" if is_auto(task) else "group_features=True"
            raise ValueError(
                f"{task.name}.epsilon must be None with {wrong}; private training needs a given "
                "interval and no group features."
            )
        return as_records(task, attributes=attributes)


def threshold_of(task: Task) -> float:
    """Return the score above which rows are predicted positive."""
    (notion,) = task.notions
    return float(getattr(notion, "threshold", 0.0))


def interval_of(task: Task) -> Any:
    """Return the interval of the criterion or, if it has none, of the estimator."""
    (notion,) = task.notions
    return task.params["interval"] if notion.interval is None else notion.interval


def is_auto(task: Task) -> bool:
    """Return whether the fit has to choose the interval."""
    interval = interval_of(task)
    return isinstance(interval, str) and interval == "auto"


def learn(fit: Fit) -> Fit:
    """Return the fit with its columns; raise ValueError for negative shares in groups."""
    if fit.rows.group.ndim == 2:
        refuse_negative(fit.rows.group, fit.task.name)
    return columns.learn(fit)


def expand(rows: TrainingRows, table: Any, group: Ints) -> Any:
    """Return the table with columns for the separate coefficients of each group."""
    if rows.groups is None or rows.unknown or group.ndim == 2:
        raise ValueError(_OF_EVERY_ROW)
    return with_group_columns(table, group, len(rows.groups))


def attributes(fit: Fit, problem: Any, w: Tensor) -> dict[str, Any]:
    """Return the attributes of the trained model, the interval and the threshold."""
    interval = interval_of(fit.task)
    if is_auto(fit.task):
        ends = [member.intervals for member in problem.constraint.members]
        interval = (float(ends[0].lower[0, 0]), float(ends[0].upper[0, 0])) if ends else None
    return {
        **problem.model.attributes(w),
        "interval_": interval,
        "threshold_": threshold_of(fit.task),
        "pos_label_": fit.rows.classes[1],
    }


def with_start(fit: Fit, problem: Any) -> Any:
    """Return the problem with the unconstrained model, and with the interval chosen by it."""
    task = fit.task
    if not problem.constraint.members:
        return problem
    feasible = isinstance(task.solver, FromFeasible)  # starts at scores that are all the same
    if task.specification.is_linear or is_auto(task) or not feasible:
        problem = replace(problem, free=exact.without_constraints(fit, problem))
    if not feasible:
        problem = replace(problem, initial=problem.free)
    if is_auto(task):
        rows = fit.data.quantiles
        scores = problem.model.scores(problem.free, rows.X)
        (member,) = problem.constraint.members
        chosen = in_least_fair_interval(member, scores, threshold_of(task), rows)
        problem = replace(problem, constraint=stacked(fit.rows.space, [chosen]))
    for member in problem.constraint.members:
        coarse = member.coarse_parts(fit.rows.cells.cpu().numpy())
        if coarse:
            warn_caller(
                f"{member.name} compares {member.statistic.n_columns} thresholds (n_grid), but few "
                f"rows lie in the interval: {listed(coarse, between='; ')}. Take a longer interval "
                "or a smaller n_grid.",
                SmallGroupWarning,
            )
    return problem


def in_least_fair_interval(member: Any, scores: Tensor, threshold: float, data: Rows) -> Any:
    """Return the constraint in the interval of the largest gap around the rate above threshold."""
    rows = member.partition.place(data.y, data.group, data.weight)
    # Paper (Appendix B): the rate of all rows; here: the rate of the rows that the criterion ranks,
    # label by label where it compares within labels, because outside of ranks near this rate all
    # groups' clipped rates are equal.
    above = (scores > threshold).to(data.weight)[:, :1]
    sums, counts = rows.sum(above)[:, 0].cpu().numpy(), rows.counts().cpu().numpy()
    label = member.label
    rates = [sums[label == k].sum() / counts[label == k].sum() for k in np.unique(label)]
    starts = np.arange(0.0, 1.0 - _LENGTH + 1e-9, _STEP).round(10)
    candidates = [
        member.within(start, round(start + _LENGTH, 10))
        for start in starts
        if any(start - 1e-9 <= rate <= start + _LENGTH + 1e-9 for rate in rates)
    ]
    aux = member.init_aux(scores, rows)

    def gap(candidate: Any) -> float:
        return float(candidate.measure(candidate.hard_values(scores, rows, aux)))

    return max(candidates, key=gap)


def with_group_columns(X: Any, codes: Ints, n_groups: int) -> Any:
    """Return ``[X, 1[g], 1[g] X]`` for every group g but the first: the model of the paper."""
    # Paper: (1, x, s, s x) with s = 1, 2; here indicators, because they span the same models for
    # two groups and also work for more.
    blocks = [X]
    for g in range(1, n_groups):
        rows = like((codes == g).astype(np.float64)[:, None], X)
        blocks += [rows, X.multiply(rows) if sparse.issparse(X) else X * rows]
    if sparse.issparse(X):
        return sparse.csr_array(sparse.hstack(blocks))
    return torch.hstack(blocks) if isinstance(X, Tensor) else np.hstack(blocks)

"""Classification under rate constraints (RaCO-DP)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fairconstrained.constraints import CONSTRAINTS
from fairconstrained.constraints.notions import as_notions
from fairconstrained.estimators.base import PrivateFairClassifier
from fairconstrained.fit.boosting import as_boosting
from fairconstrained.fit.exact import as_exact
from fairconstrained.fit.private import as_secret_groups
from fairconstrained.fit.private_records import as_records
from fairconstrained.fit.refits import as_refits
from fairconstrained.fit.task import Task
from fairconstrained.models.boosting import Boosting
from fairconstrained.models.single_fit import SingleFit
from fairconstrained.privacy.accounting import Budget, Unit
from fairconstrained.problems.objectives import Costs

# How models are trained without privacy that predict themselves; others have a linear head.
_STEPS: dict[type, Any] = {Boosting: as_boosting, SingleFit: as_refits}


@dataclass(kw_only=True, eq=False, repr=False)
class RateConstrainedClassifier(PrivateFairClassifier):
    r"""Logistic model or network under constraints on its prediction rates.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \sum_r C_{jr} P(\hat y \in E_r \mid \text{rows } r) \le \mathrm{slack}_j
        \quad \text{for all } j ,

    with the rates of predicted labels on the training data: with
    ``constraint="demographic_parity", slack=0.05`` the largest rate of positive predictions in a
    group exceeds the smallest by at most 0.05. Training of linear models is deterministic, and so
    are predictions of all models, which need no sensitive features.

    Parameters
    ----------
    constraint : str, constraint object, or list of them, default="demographic_parity"
        One of the names ``demographic_parity``, ``equalized_odds``, ``equal_opportunity``,
        ``false_positive_rate_parity``, ``error_rate_parity``, ``predictive_parity``,
        ``false_omission_rate_parity``, ``loss_parity``, ``false_negative_rate``,
        ``false_positive_rate`` and ``rejection_rate`` (the last three are caps), or an object of
        :mod:`fairconstrained.constraints`. All constraints in a list must hold.
    slack : float, default=0.05
        Largest allowed gap, or the cap. It applies to names, and to objects without a slack.
    margin : float, default=0.0
        Narrow each constraint by this many of its own standard errors, but not below zero. A first
        fit estimates them, and a second starts from it. The gap on new samples then exceeds the
        slack less often. This is not a promise: a model fits its training samples better than
        others. Must be 0 with `epsilon`.
    epsilon : float or Budget, optional
        Train with (epsilon, delta)-differential privacy (extra ``privacy``): a change of one record
        (see `protect`) changes the probability of any outcome of ``fit`` by at most a factor
        :math:`e^\epsilon`, up to ``delta``. The number of rows, the classes and the names of the
        groups count as public. Labels and groups that are pandas categoricals declare all possible
        values; absent values are treated like groups of too few samples. A
        :class:`fairconstrained.privacy.Budget` has its own `delta` and `protect`.
    delta : float, default=1e-5
        Should be well below 1 / n.
    protect : {"record", "record_replacement", "sensitive_features"}, default="record"
        The change, at an equal number of rows: a record in place of a null record, which adds
        nothing to any sum ("record"), or of any other record ("record_replacement"). The second
        promises more, and takes about twice the noise; in its terms the first costs about twice
        epsilon. "sensitive_features": other sensitive and control features for one row. Features,
        labels, weights, and which rows each worker has, are then *public*, X must not hold the
        groups, and noise is added to a few sums over groups alone
        (:class:`~fairconstrained.solvers.ReleasedMoments`), for constraints that are linear in such
        sums.
    feature_range : (low, high), optional
        Publicly known range of typical values of the columns (numbers, or arrays of shape
        (n_features,)), where records are protected: training sees ``(x - low) / (high - low)`` and
        penalises coefficients of these. Extremes may lie outside: a range that holds them would
        make all other values small, and small ones are lost in the noise. Rows should have norms of
        a few units, since large gradients are clipped. By default columns of numbers beyond 4 are
        divided by powers of 4, which are released with a part of the budget.
    costs : array-like of shape (n_classes, n_classes) or "balanced", optional
        Costs of at least 0 in place of errors, true label by predicted label, in the sorted order
        of the labels; "balanced": the mean over labels of the error rate within each. The log loss
        of a row is weighted by the cost of mistaking its label, and feasible points are compared by
        their mean cost. Rates count all rows alike. `predict_proba` then returns probabilities
        under the cost-weighted class frequencies. `history_` has costs as fractions of the largest.
        Must be None with `epsilon`. For a cap on the mean cost see
        :class:`~fairconstrained.constraints.ExpectedCost`.
    model : "linear", tuple of int, callable, or model object, default="linear"
        Logistic regression; a network with hidden layers of these sizes; a function ``(n_features,
        n_outputs) -> torch.nn.Module``, with one output for two classes; any scikit-learn
        classifier, pipeline, search or ``FrozenEstimator``, whose posteriors a constrained linear
        model combines; or an object of :mod:`fairconstrained.models`. With `epsilon` classifiers
        must be frozen and public, and where the groups alone are secret, models of the groups: see
        :class:`~fairconstrained.models.Posteriors`.
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`. The default is ``AugmentedLagrangian()`` for
        linear models, ``EarlyStoppedSGDA()`` for networks, and with ``epsilon`` ``DPSGDA()`` for
        records and ``ReleasedMoments()`` for sensitive features.
    alpha : float, default=1e-4
        Weight of the l2 penalty on the coefficients of standardised columns, so that their units do
        not matter: divided by the standard deviation, or by the range if there are two values. With
        more than two values, and no constraints, the linear model is
        ``make_pipeline(StandardScaler(), LogisticRegression(C=1 / (n * alpha)))``. `coef_` and
        `intercept_` are in the units of X.
    max_iter : int, optional
        Largest number of iterations of the solver. By default it runs until it ends.
    tol : float, default=1e-4
        Residual at which training ends; each solver defines its residual.
    missing_sensitive : {"warn", "raise"}, default="warn"
        What to do without sensitive features, or where some of them are missing: warn and train, or
        raise. Without any there are no constraints between groups. Rows of unknown group train the
        model; in constraints between groups the other rows of their label represent them, except
        with `epsilon`. Constraints on all rows count them, too.
    min_group_size : "auto" or int, default="auto"
        Constraints leave out groups, or groups within a label, with fewer rows; a
        :class:`~fairconstrained.exceptions.SmallGroupWarning` names and counts them. ``"auto"``: so
        few that one row moves the rate by more than `slack`, and fewer than a quarter of the second
        largest group. Private fits leave out groups that, given the noise, may be empty.
        Metrics, certificates and audits decide alike: :doc:`/guide/compared`.
    callbacks : callable or list of callables, optional
        Called with each :class:`fairconstrained.solvers.Iterate`. Returning True ends training.
    random_state : int, RandomState or None, default=None
        Seed of networks and mini-batches, and of the noise of private training. With privacy, None
        uses the randomness of the operating system; a seed is for experiments only.
    verbose : int, default=0
        If positive, show a progress bar. Without, a fit without privacy shows one on a terminal
        from two seconds on (``TQDM_DISABLE=1`` in the environment turns it off).
    device : str, default="cpu"
        Torch device for training. Fitted attributes are on the CPU.
    warm_start : bool, default=False
        Whether to start from the parameters and multipliers of the last fit.

    Attributes
    ----------
    classes_, groups_ : ndarray
        Labels and groups, sorted. With several sensitive columns groups are tuples.
    model_ : Specification
        The fitted specification of the model, which computes the columns of new samples.
    coef_, intercept_ : ndarray of shape (K, n_features), (K,)
        Coefficients of a linear model; K is 1 for two classes.
    module_ : torch.nn.Module
        The trained network, in evaluation mode.
    violation_ : float
        The value of the criterion, for predicted labels; nan if nothing is constrained. Of several
        criteria, the one that exceeds its slack most counts. It is measured on the training rows,
        and for a scikit-learn classifier as `model` out of fold: by copies that were not fitted to
        the row; for ``Boosting`` on the training rows that it holds out.
    training_violation_ : float
        The same value for the predictions of the final model on all training rows. A wrapped
        classifier was fitted to most or all of them, so `violation_` says more about new rows.
    label_shares_ : ndarray of shape (n_classes,)
        The weighted share of the rows of `violation_` that are predicted to be of each class; for
        ``SingleFit`` by the head from which its classifier learns. Not of private fits.
    violations_ : dict
        The value of each criterion, by its name; nan if it has nothing to compare.
    feasible_ : bool
        Whether ``violation_ <= slack``, to the last row, for each criterion; False where a
        criterion has nothing to compare.
    left_out_ : list of str
        The groups, or groups within a label, that are not compared, with their rows and the reason,
        and ratios of two rates that are zero, which do not exist.
    excess_, excess_error_ : float
        The largest excess over a slack (negative if all are kept), and the error of this number:
        two standard deviations of the noise of a private fit, otherwise 0.
    multipliers_ : ndarray of shape (m,)
        Lagrange multipliers: the rate at which the objective falls as each slack grows.
    constraints_ : list of str
        The constraint of each multiplier in words.
    residual_ : float
        KKT residual of the returned point; infinite if the targets of the solver never settled.
    n_iter_, converged_ : int, bool
        Number of iterations, and whether the residual fell below `tol`.
    status_ : str
        Why training ended. If a baseline took the place of the result, it says so first.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, multiplier (the
        largest), time (s). For networks objective and error are on rows held out.
    privacy_ : PrivacyGuarantee or None
        The guarantee of a private fit, and its releases. With ``epsilon`` the attributes above
        hold private estimates, and nan where nothing was released (objective, error).
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    RaCO-DP, "Private Rate-Constrained Optimization with Applications to Fair Learning", Section 3.
    Secret groups: Jagielski et al., "Differentially Private Fair Learning", 2019. There every step
    of the oracle-based learner is paid for; here sums are released in a few rounds.

    Examples
    --------
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = RateConstrainedClassifier("demographic_parity", slack=0.02)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    RateConstrainedClassifier(slack=0.02)
    >>> gap = demographic_parity_difference(
    ...     data.target, clf.predict(data.data), sensitive_features=data.sensitive_features)
    >>> bool(gap <= 0.02)
    True
    """

    constraint: Any = field(default="demographic_parity", kw_only=False)
    slack: float = 0.05
    margin: float = 0.0
    epsilon: float | Budget | None = None
    delta: float = 1e-5
    protect: Unit = "record"
    feature_range: Any = None
    costs: Any = None

    _protects = (*PrivateFairClassifier._protects, "sensitive_features")

    def _notions(self) -> list[Any]:
        return as_notions(self, self.constraint, CONSTRAINTS)

    def _with_steps(self, task: Task) -> Task:
        task = replace(task, bounds=(self.slack,))
        if self.costs is not None and task.is_private:
            raise ValueError(
                f"{task.name}.costs must be None with epsilon: noise is planned for the log loss "
                f"of rows that weigh the same; got {self.costs!r}."
            )
        if self.costs is not None:
            task = replace(
                task, risk=lambda rows: Costs.of(self.costs, rows.weight_of_labels.numpy())
            )
        if task.budget is None:
            return _STEPS.get(type(self.model), as_exact)(task)  # type: ignore[no-any-return]
        only_groups = task.budget.unit == "sensitive_features"
        return as_secret_groups(task) if only_groups else as_records(task)

"""Classification under rate constraints (RaCO, paper 1 of the package)."""

from __future__ import annotations

from fairconstrained.constraints import CONSTRAINTS
from fairconstrained.estimators._private import PrivateFairClassifier

__all__ = ["RateConstrainedClassifier"]


class RateConstrainedClassifier(PrivateFairClassifier):
    r"""Logistic model or network whose prediction rates keep constraints.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \sum_r C_{jr} P(\hat y \in E_r \mid \text{rows } r) \le \mathrm{slack}_j
        \quad \text{for all } j ,

    where the rates are those of the predicted labels on the training data: with
    ``constraint="demographic_parity", slack=0.05`` the largest minus the smallest group's rate of
    positive predictions ends at 0.05 or below. Training is deterministic for linear models and
    predictions are for all models; the sensitive features are not needed for them.

    Parameters
    ----------
    constraint : str, constraint object, or list of them, default="demographic_parity"
        A name out of ``demographic_parity``, ``equalized_odds``, ``equal_opportunity``,
        ``false_positive_rate_parity``, ``error_rate_parity``, ``loss_parity``,
        ``false_negative_rate`` and ``false_positive_rate`` (the last two are caps), or an object
        of :mod:`fairconstrained.constraints`. All of a list must hold.
    slack : float, default=0.05
        Largest allowed gap, or the cap; the slack of names, and of objects without their own.
    epsilon : float, optional
        Train with (epsilon, delta)-differential privacy, which protects the record: adding or
        removing one row changes the probability of any outcome of ``fit`` by at most a factor
        :math:`e^\epsilon`, up to ``delta``. The number of rows, the classes and the names of the
        groups count as public. Needs the extra ``privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    feature_range : (low, high), optional
        Publicly known range of the columns (numbers, or arrays of shape (n_features,)): private
        training sees ``(x - low) / (high - low)``, because it may not learn scales from the data.
        Rows should then have norms of a few units, since longer gradients are clipped; ``alpha``
        penalises the coefficients of these columns. Without ``epsilon`` it is not needed.
    model : "linear", tuple of int, callable, or model object, default="linear"
        Logistic regression; a network with hidden layers of these sizes; a function
        ``(n_features, n_outputs) -> torch.nn.Module`` (one output for two classes); or an object of
        :mod:`fairconstrained.models`, such as ``Linear(fit_intercept=False)``.
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`; default: ``AugmentedLagrangian()`` for linear
        models, ``SGDA()`` for networks, ``DPSGDA()`` with ``epsilon``.
    alpha : float, default=1e-4
        Weight of the l2 penalty on coefficients of the columns as given (not on intercepts).
        Without constraints the linear model is ``LogisticRegression(C=1 / (n * alpha))``.
    max_iter : int, optional
        Most iterations of the solver; default: until it ends by itself.
    tol : float, default=1e-4
        Residual at which training is done (see the solver).
    missing_sensitive : {"warn", "raise"}, default="warn"
        What to do without sensitive features: warn and train without constraints between groups,
        or refuse.
    min_group_size : int, default=1
        Constraints leave out groups, or groups within a label, of fewer rows.
    callbacks : callable or list of callables, optional
        Called with each :class:`fairconstrained.solvers.Iterate`; a true answer ends training.
    random_state : int, RandomState or None, default=None
        Seeds networks and mini-batches, and the noise of private training: there None takes the
        operating system's randomness, and anything else is for experiments only.
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
    model_ : Specification
        The model as it was fitted: what makes columns of new rows.
    coef_, intercept_ : ndarray of shape (K, n_features), (K,)
        Of a linear model; K is 1 for two classes.
    module_ : torch.nn.Module
        Of a network, in evaluation mode.
    violation_ : float
        The notion on the training labels predicted, in its own units (a gap or a rate); of several
        notions, the one that exceeds its slack the most; nan if nothing is constrained.
    violations_ : dict
        The same for each notion.
    feasible_ : bool
        Whether all slacks are kept up to 0.001.
    multipliers_ : ndarray of shape (m,)
        Lagrange multipliers: how fast the objective falls as a slack grows.
    constraints_ : list of str
        What each multiplier belongs to.
    residual_ : float
        KKT residual of the returned point; infinite if the solver's targets never settled.
    n_iter_ : int
    converged_ : bool
    status_ : str
        Why training ended.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, multipliers, time (s).
    privacy_ : PrivacyGuarantee or None
        What a private fit promises and released. With ``epsilon`` the attributes above hold
        private estimates, and nan where nothing was released (objective, error).
    n_features_in_, feature_names_in_
        As usual.

    References
    ----------
    RaCO-DP, "Private Rate-Constrained Optimization with Applications to Fair Learning", Section 3.

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
    >>> bool(gap <= 0.021)
    True
    """

    _several = True

    def __init__(
        self,
        constraint="demographic_parity",
        *,
        slack=0.05,
        epsilon=None,
        delta=1e-5,
        feature_range=None,
        model="linear",
        solver=None,
        alpha=1e-4,
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
        self.epsilon = epsilon
        self.delta = delta
        self.feature_range = feature_range

    def _notions(self):
        return self._named(CONSTRAINTS)

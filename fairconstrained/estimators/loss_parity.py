"""Classification whose groups pay equal losses (paper 5 of the package)."""

from __future__ import annotations

from numbers import Real

from fairconstrained.constraints import LOSS_PARITIES
from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._checks import check_parameter
from fairconstrained.losses import LOSSES

__all__ = ["LossParityClassifier"]


class LossParityClassifier(FairClassifier):
    r"""Logistic model or network whose mean losses differ little between groups.

    .. math::

        \min_w \; \frac{\sum_i \omega_i \ell(f_w(x_i), y_i)}{\sum_i \omega_i}
        + \frac{\alpha}{2} \lVert w \rVert^2
        \quad \text{s.t.} \quad
        \big| E[\ell(f_w(x), y) \mid g] - E[\ell(f_w(x), y) \mid h] \big| \le \mathrm{slack}
        \quad \text{for all groups } g, h .

    A small gap says that the model serves the groups equally well, not that it treats them alike:
    rates of positive predictions may differ as much as before.

    Parameters
    ----------
    fairness : {"loss_parity", "equal_opportunity", "equalized_odds"}, default="loss_parity"
        Compare mean losses over all rows, over the rows of the positive label (of every label but
        the first, if there are more than two), or within each label.
    slack : float, default=0.005
        Largest allowed gap of any two groups, in units of the loss.
    loss : {"log", "brier"}, default="log"
        What is minimised and what is compared.
    model : "linear", tuple of int, or callable, default="linear"
        Logistic regression; a network with hidden layers of these sizes; or a function
        ``(n_features, n_outputs) -> torch.nn.Module`` (one output for two classes).
    solver : Solver, optional
        An object of :mod:`fairconstrained.solvers`; default: ``AugmentedLagrangian()`` for linear
        models, ``SGDA()`` for networks.
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
        Groups, or groups within a label, of fewer rows are left out.
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
    classes_, groups_ : ndarray
        Labels and groups, sorted; several sensitive columns give tuples.
    coef_, intercept_ : ndarray of shape (K, n_features), (K,)
        Of a linear model; K is 1 for two classes.
    module_ : torch.nn.Module
        Of a network, in evaluation mode.
    violation_ : float
        Largest gap on the training data; nan if nothing is constrained.
    violations_ : dict
        The same, by name of the notion.
    feasible_ : bool
        Whether the slack is kept up to 0.001.
    multipliers_ : ndarray of shape (m,)
        Lagrange multipliers: how fast the objective falls as a slack grows.
    constraints_ : list of str
        What each multiplier belongs to.
    residual_ : float
        KKT residual of the returned point; infinite for stochastic solvers.
    n_iter_ : int
    converged_ : bool
    status_ : str
        Why training ended.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, multipliers, time (s).
    privacy_ : None
    n_features_in_, feature_names_in_
        As usual.

    References
    ----------
    Kliachkin, Lepsova, Bareilles and Marecek, "Benchmarking Stochastic Approximation Algorithms for
    Fairness-Constrained Training of Deep Neural Networks", Table 1.

    Examples
    --------
    >>> from fairconstrained import LossParityClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import loss_gap
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = LossParityClassifier(slack=0.01)
    >>> clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    LossParityClassifier(slack=0.01)
    >>> proba = clf.predict_proba(data.data)
    >>> gap = loss_gap(data.target, proba, sensitive_features=data.sensitive_features)
    >>> bool(gap <= 0.011)
    True
    """

    def __init__(
        self,
        fairness="loss_parity",
        *,
        slack=0.005,
        loss="log",
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
        self.loss = loss

    def _check_own_parameters(self):
        check_parameter(self, "slack", Real, lambda v: v >= 0, "a number >= 0")
        names = LOSS_PARITIES
        check_parameter(self, "fairness", str, names.__contains__, f"one of {sorted(names)}")
        check_parameter(self, "loss", str, LOSSES.__contains__, f"one of {sorted(LOSSES)}")

    def _needs_groups(self):
        return True

    @property
    def _row_loss(self):
        return LOSSES[self.loss]

    def _members(self, space):
        if len(space.groups) < 2:
            return []
        notion = LOSS_PARITIES[self.fairness](loss=self.loss)
        notion.name = self.fairness
        return [notion.bind(space, self.slack)]

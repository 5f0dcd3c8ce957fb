"""Classification with a penalty on mutual information (DP-FERMI)."""

from __future__ import annotations

from functools import partial

from fairconstrained.constraints import CONSTRAINTS, Parity
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.estimators._private import PrivateFairClassifier, least_rows
from fairconstrained.exceptions import PrivacyWarning, SmallGroupWarning, warn_caller
from fairconstrained.losses import log_loss
from fairconstrained.models.per_row import check_rows_independent
from fairconstrained.privacy import privacy_guarantee
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.membership import Members
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.private.fermi import AttributeFermi, RecordFermi
from fairconstrained.problems.private.secret_groups import COUNTS, SecretGroups, released_counts
from fairconstrained.solvers import FERMI, LabelRounds, NoisyTables, ReleasedMoments, solves

_NEVER_BINDS = 1.0  # no gap of rates is larger, so the notion is measured and not constrained
_NAMES = ("demographic_parity", "equalized_odds", "equal_opportunity")
_INDEPENDENCE = {name: CONSTRAINTS[name] for name in _NAMES}
_SMALL_FRACTION = 0.01  # a warning tells the weight 1 / sqrt(fraction) of smaller groups


class DPFermiClassifier(PrivateFairClassifier):
    r"""Logistic model or network with a penalty on the information between predictions and groups.

    .. math::

        \min_w \; \frac1n \sum_i \ell(f_w(x_i), y_i) + \frac{\alpha}{2} \lVert w \rVert^2
        + \lambda \Big( \sum_{j,r} \frac{\hat P(\hat y = j, s = r)^2}
            {\hat P(\hat y = j)\, \hat P(s = r)} - 1 \Big),

    with rates from mean class probabilities. The penalty is the exponential Renyi mutual
    information (chi-square) of prediction and group, which is zero if and only if they are
    independent. For equalized odds it is the mean over labels, weighted by their frequencies, of
    the information within each label. For equal opportunity it is that within the second (largest)
    label. By default training is differentially private for the sensitive features.

    Parameters
    ----------
    constraint : str or notion, default="demographic_parity"
        The independence that is penalised: ``"demographic_parity"``, ``"equalized_odds"``,
        ``"equal_opportunity"``, or an object such as ``DemographicParity(temperature=3.0)``. The
        temperature sharpens the class probabilities in the penalty. Those of the model
        (temperature 1) can be independent of the groups although predicted labels are not. Sharper
        ones follow the labels, but are harder to optimise. There is no slack, because nothing is
        constrained.
    penalty : float, default=1.0
        :math:`\lambda`. Loss and mutual information are means over samples, so the penalty does not
        depend on the size of the data or of batches. On Adult, 1 leaves a third of the gap of a fit
        without penalty, and 4 a tenth of it.
    epsilon : float, Budget or None, default=1.0
        Budget of differential privacy; None trains without privacy. Needs the extra ``privacy``. A
        :class:`fairconstrained.privacy.Budget` has its own delta and unit, which replace `delta`
        and `protect`.
    delta : float, default=1e-5
        Should be well below 1 / n.
    protect : {"sensitive_features", "record", "record_replacement"}, default="sensitive_features"
        Who is protected. "sensitive_features": replacing one row's sensitive features changes the
        probability of any outcome by at most a factor :math:`e^\epsilon`, up to ``delta``;
        features, labels and weights are *public*. "record": so does a whole record in place of a
        null record, which adds nothing, and "record_replacement": in place of any other record. The
        number of rows, the classes and the names of the groups are public.
    feature_range : (low, high), optional
        Publicly known range of the columns, with ``protect="record"``: see
        :class:`RateConstrainedClassifier`.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`. Default solvers without privacy are
        ``LabelRounds()`` for linear models, whose penalty answers to predicted labels, and
        ``FERMI()`` for networks. With privacy they are ``ReleasedMoments()`` for sensitive features
        and ``NoisyTables()`` for records. ``LBFGS()`` minimises the objective above as it stands.
        The method of the paper is ``DPFERMI()``. Parameters of an algorithm belong to its solver,
        as in ``FERMI(batch_size=64)``.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    classes_, groups_, model_, coef_, intercept_, module_, n_iter_, converged_, status_, residual_
        As in :class:`RateConstrainedClassifier`.
    violation_ : float
        The gap of predicted labels on the training data: demographic parity difference, equalized
        odds difference or equal opportunity difference. With ``epsilon`` it is a private estimate.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, multiplier, time (s).
        With ``epsilon`` the values are computed from released numbers and, if only sensitive
        features are protected, public data; nan where nothing was released.
    privacy_ : PrivacyGuarantee or None
        The guarantee of a private fit, and what it released.
    feasible_, violations_, excess_, excess_error_, multipliers_, constraints_
        True, the gap by name, nan, 0, and empty, because nothing is constrained.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning", Section 3.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> data = make_biased_classification(20_000, random_state=0)
    >>> def gap(clf):
    ...     clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    ...     return round(demographic_parity_difference(
    ...         data.target, clf.predict(data.data), sensitive_features=data.sensitive_features), 2)
    >>> gap(DPFermiClassifier(penalty=0.0, random_state=0)) > 0.2
    True
    >>> fair = DPFermiClassifier(penalty=20.0, random_state=0)
    >>> gap(fair) < 0.05 and fair.privacy_.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        constraint="demographic_parity",
        *,
        penalty=1.0,
        epsilon=1.0,
        delta=1e-5,
        protect="sensitive_features",
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
        self.penalty = penalty
        self.epsilon = epsilon
        self.delta = delta
        self.protect = protect
        self.feature_range = feature_range

    # ------------------------------------------------------------------ parameters

    _protects = ("sensitive_features", *PrivateFairClassifier._protects)

    def _notions(self):
        (notion,) = self._one_notion(_INDEPENDENCE, Parity)
        plain = notion.slack is None and notion.reference == "pairwise"
        if notion.name not in _NAMES or not plain:
            raise ValueError(
                f"DPFermiClassifier.constraint must be one of {sorted(_NAMES)}, without a slack "
                "or a reference of its own: it is penalised, not constrained; got "
                f"{notion!r}."
            )
        return [notion]

    def _bound(self, notion, space):
        return notion.bind(space, _NEVER_BINDS)

    def _default_solver(self):
        if self.epsilon is None:
            return LabelRounds() if self._is_linear() else FERMI()
        return NoisyTables() if self._protects_records() else ReleasedMoments()

    # ------------------------------------------------------------------ problems

    def _problem_class(self):
        if self.epsilon is None:
            return FermiERM
        if self._protects_records():
            return RecordFermi
        return SecretGroups if solves(self._chosen_solver(), SecretGroups) else AttributeFermi

    def _exact_problem(self, task):
        stack = self._exact_stack(task)
        rows = Members(task.data, stack)
        return task.posed_as(FermiERM, stack)(
            self._model(task),
            rows,
            MeanLoss(log_loss),
            stack,
            float(self.alpha),
            MutualInformation.within(stack, rows.counts()),
            float(self.penalty),
        )

    def _private_problem(self, task):
        data, rng = task.data, task.rng
        plan = self._plan(task)
        releases = Releases(plan)
        problem, of_record = self._problem_class(), self._protects_records()

        def pose(model, rows, stack, counts):
            if problem is SecretGroups:
                own = {"risk": MeanLoss(log_loss), "kind": task.posed_as(FermiERM, stack)}
            else:
                own = {"loss": log_loss, "n_rows": task.n_rows}
            return problem(
                model=model,
                data=rows,
                alpha=float(self.alpha),
                constraint=stack,
                counts=counts,
                information=MutualInformation.within(stack, counts),
                weight=float(self.penalty),
                releases=releases,
                **own,
            )

        model = self._trial_model(task) if of_record else self._model(task)
        if problem is AttributeFermi:
            self._check_rows(task.solver, model, data)
        self._refuse_early(task, partial(pose, model))
        self._spends(plan)
        if of_record:
            model = self._private_model(task, releases, model.n_params)
        cells = released_counts(data, task.space, releases, rng)
        return pose(model, data, *self._stack_on(task.space, cells, plan))

    def _plan(self, task):
        """Plan the noise of all releases; there are none if the only secret is a single group."""
        solver, n_rows, budget = task.solver, task.n_rows, self._budget()
        if len(task.space.groups) < 2 and self._problem_class() is SecretGroups:
            return privacy_guarantee([], delta=budget.delta, unit=budget.unit)
        plan = solver.plan(n_rows, budget)
        if not self._protects_records():  # else it is said together with the noise
            self._warn_of_delta(n_rows)
        if plan.epsilon > budget.epsilon:
            warn_caller(
                f"{type(solver).__name__} spends epsilon = {plan.epsilon:.3g}, more than "
                f"the {budget.epsilon:g} asked for: see privacy_.",
                PrivacyWarning,
            )
        return plan

    def _stack_on(self, space, cells, plan):
        """The notion that is measured and the counts of its parts, from released counts."""
        stack = self._stack(space, cells.round(), least_rows(self, plan.noise(COUNTS)))
        counts = stack.counts_of_cells(cells).clamp_min(1.0)
        used = stack.used_parts().to(counts.device)
        fractions = (counts / counts[used].sum()).tolist()
        for part, fraction, counted in zip(
            stack.part_cells(), fractions, used.tolist(), strict=True
        ):
            if counted and fraction < _SMALL_FRACTION:
                warn_caller(
                    f"{space.describe(part)} makes up {fraction:.2%} of the rows compared by the "
                    "released counts: its weight 1/sqrt(fraction) in the penalty is "
                    f"{fraction**-0.5:.0f}, and what noise there is grows with it. Set "
                    "min_group_size to leave it out.",
                    SmallGroupWarning,
                )
        return stack, counts

    def _check_rows(self, solver, model, data):
        """Check what gradients of single rows require."""
        if data.workers.any((data.weight != 1).any()):
            raise ValueError(
                f"sample_weight must be None with {type(solver).__name__}: it counts rows once."
            )
        if hasattr(model, "network"):
            check_rows_independent(model.network, data.X.shape[1])

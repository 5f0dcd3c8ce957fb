"""Classification with a penalty on mutual information (DP-FERMI)."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
import torch

from fairconstrained.constraints import CONSTRAINTS
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._checks import check_parameter, warn_caller
from fairconstrained.estimators._private import PrivateFairClassifier
from fairconstrained.estimators._promise import bounded, public_range, warn_of_delta
from fairconstrained.estimators._proportions import public_cells
from fairconstrained.exceptions import IncompatibleSolverError, PrivacyWarning, SmallGroupWarning
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models import as_private_model
from fairconstrained.models.per_row import check_rows_independent
from fairconstrained.privacy import ReleasePlan, privacy_guarantee
from fairconstrained.privacy.mechanisms import seed_from_system
from fairconstrained.problems.fermi import FermiERM, shares_of
from fairconstrained.problems.objectives import MeanLoss
from fairconstrained.problems.private.coordinates import release_coordinates
from fairconstrained.problems.private.fermi import (
    AttributeFermi,
    RecordFermi,
    SecretGroups,
    released_counts,
)
from fairconstrained.solvers import (
    FERMI,
    LBFGS,
    Budget,
    NoisyTables,
    ReleasedMoments,
)

__all__ = ["DPFermiClassifier"]

_FAIRNESS = ("demographic_parity", "equalized_odds", "equal_opportunity")
_UNITS = ("sensitive_features", "record")
_SMALL_SHARE = 0.01  # of a group, below which its weight 1 / sqrt(share) is named


class DPFermiClassifier(PrivateFairClassifier):
    r"""Logistic model or network that pays for what its predictions tell about groups.

    .. math::

        \min_w \; \frac1n \sum_i \ell(f_w(x_i), y_i) + \frac{\alpha}{2} \lVert w \rVert^2
        + \lambda \Big( \sum_{j,r} \frac{\hat P(\hat y = j, s = r)^2}
            {\hat P(\hat y = j)\, \hat P(s = r)} - 1 \Big),

    with rates from mean class probabilities: the exponential Renyi mutual information (chi-square)
    of prediction and group, zero if and only if they are independent. Within each label, weighted
    by its share, for equalized odds; within the second (largest) label for equal opportunity. By
    default training is differentially private for the sensitive features.

    Parameters
    ----------
    fairness : {"demographic_parity", "equalized_odds", "equal_opportunity"}
    penalty : float, default=1.0
        :math:`\lambda`. Loss and mutual information are means over rows, so that it does not
        depend on the size of the data or of batches. On Adult 1 halves the gap of a fit without
        penalty, and 16 leaves an eighth of it.
    epsilon : float or None, default=1.0
        Budget of differential privacy; None trains without privacy. Needs the extra ``privacy``.
    delta : float, default=1e-5
        Should be well below 1 / n.
    protect : {"sensitive_features", "record"}, default="sensitive_features"
        Who is protected. "sensitive_features": replacing one row's sensitive features changes the
        probability of any outcome by at most a factor :math:`e^\epsilon`, up to ``delta``;
        features, labels and weights are *public*. "record": so does adding or removing a whole
        row; the number of rows, the classes and the names of the groups are public.
    group_proportions : mapping or sequence, optional
        Public shares of the groups, ``{group: share}`` or in the order of ``groups_``; for notions
        within labels, shares of all rows, ``{label: {group: share}}``. Must add up to 1. Default:
        numbers of rows are released with a part of the budget. Not used without ``epsilon``.
    temperature : float, default=1.0
        Sharpness :math:`\tau` of the class probabilities in the penalty. Those of the model (1)
        can be independent of the groups where predicted labels are not quite; sharper ones follow
        the labels, and are harder to optimise.
    feature_range : (low, high), optional
        Publicly known range of the columns, with ``protect="record"``: see
        :class:`RateConstrainedClassifier`.
    batch_size, n_steps : int, optional
        Of stochastic training; giving either asks for it: ``FERMI`` without, ``NoisyTables`` with
        ``epsilon``. By default only networks and records are trained so.
    model, solver, alpha, fit_intercept, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`. Default solvers: without privacy ``LBFGS()`` for
        linear models and ``FERMI()`` for networks; ``ReleasedMoments()`` for sensitive features;
        ``NoisyTables()`` for records. The paper's method is ``DPFERMI()``.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    classes_, groups_, coef_, intercept_, module_, n_iter_, converged_, status_, residual_
        As in :class:`RateConstrainedClassifier`.
    violation_ : float
        The gap of the training labels predicted: demographic parity difference, equalized odds
        difference or equal opportunity difference; a private estimate with ``epsilon``.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, time (s). With
        ``epsilon`` from released numbers and, for sensitive features, public data; nan where
        nothing was released.
    privacy_ : PrivacyGuarantee or None
        What a private fit promises and released.
    feasible_, violations_, multipliers_, constraints_
        True, the gap by name, and empty: nothing is constrained.
    n_features_in_, feature_names_in_
        As usual.

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

    _private_solvers = "ReleasedMoments, NoisyTables or DPFERMI"

    def __init__(
        self,
        fairness="demographic_parity",
        *,
        penalty=1.0,
        epsilon=1.0,
        delta=1e-5,
        protect="sensitive_features",
        group_proportions=None,
        temperature=1.0,
        feature_range=None,
        batch_size=None,
        n_steps=None,
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
    ):
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
        self.penalty = penalty
        self.epsilon = epsilon
        self.delta = delta
        self.protect = protect
        self.group_proportions = group_proportions
        self.temperature = temperature
        self.feature_range = feature_range
        self.batch_size = batch_size
        self.n_steps = n_steps

    # ------------------------------------------------------------------ parameters

    def _check_own_parameters(self):
        check_parameter(self, "fairness", str, _FAIRNESS.__contains__, f"one of {list(_FAIRNESS)}")
        check_parameter(self, "penalty", Real, lambda v: 0 <= v < np.inf, "a finite number >= 0")
        check_parameter(self, "temperature", Real, lambda v: 0 < v < np.inf, "a finite number > 0")
        check_parameter(self, "protect", str, _UNITS.__contains__, f"one of {list(_UNITS)}")
        for name in ("batch_size", "n_steps"):
            if getattr(self, name) is not None:
                check_parameter(self, name, Integral, lambda v: v >= 1, "None or an integer >= 1")
                if self.solver is not None:
                    raise ValueError(
                        f"DPFermiClassifier.{name} is for the default solver; give it to the "
                        f"solver, {self.solver!r}, instead."
                    )
        if self.epsilon is not None:
            self._check_budget()
        if self.solver is not None and not self.solver.penalises:
            known = "LBFGS or FERMI" if self.epsilon is None else self._private_solvers
            raise IncompatibleSolverError(
                f"{type(self.solver).__name__} solves problems with constraints, and this one has "
                f"a penalty instead. Use {known}."
            )

    def _check_data(self, X, y, sensitive_features, sample_weight):
        if self.protect == "sensitive_features":  # then weights are public
            return FairClassifier._check_data(self, X, y, sensitive_features, sample_weight)
        return super()._check_data(X, y, sensitive_features, sample_weight)

    def _needs_groups(self):
        return True

    def _members(self, space):
        if len(space.groups) < 2:
            return []
        # A slack of 1 never binds: the notion is measured only.
        return [CONSTRAINTS[self.fairness]().bind(space, 1.0, self.temperature)]

    def _chosen_solver(self):
        if self.solver is not None:
            return self.solver
        sizes = {"batch_size": self.batch_size, "n_steps": self.n_steps}
        sizes = {name: size for name, size in sizes.items() if size is not None}
        if self.epsilon is None:
            return LBFGS() if self._is_linear() and not sizes else FERMI(**sizes)
        return NoisyTables(**sizes) if sizes or self.protect == "record" else ReleasedMoments()

    # ------------------------------------------------------------------ problems

    def _problem(self, data, space, solver, rng):
        if self.epsilon is None:
            return self._exact_problem(data, space)
        if self.random_state is None:
            seed_from_system(rng)
        if self.protect == "record":
            public = public_range(self, data.X.shape[1], data.weight)
            data = data._replace(X=bounded(data.X, public))
        cells = self._public_cells(space, data)
        plan = self._plan(solver, data, len(space.groups), with_counts=cells is None)
        if cells is None:
            cells = released_counts(data, space, plan.counts_noise, self.protect, rng)
        stack, counts = self._stack_on(space, cells, plan)
        secret = {
            "data": data,
            "alpha": float(self.alpha),
            "constraint": stack,
            "counts": counts,
            "information": MutualInformation.within(stack),
            "weight": float(self.penalty),
            "plan": plan,
        }
        if self.protect == "record":
            outputs = n_outputs(len(space.classes))
            coordinates = release_coordinates(data.X, public, plan.scaling_noise, rng)
            model = as_private_model(self.model, *coordinates, outputs, self.fit_intercept)
            self._warn_of_noise(plan, len(data.y), model.n_params)
            return RecordFermi(model=model, loss=log_loss, **secret)
        model = self._model(data, len(space.classes))
        if isinstance(solver, ReleasedMoments):
            return SecretGroups(model=model, risk=MeanLoss(log_loss), **secret)
        self._check_rows(solver, model, data)
        return AttributeFermi(model=model, loss=log_loss, **secret)

    def _exact_problem(self, data, space):
        stack = self._exact_stack(data, space)
        shares = shares_of(stack, data)
        return FermiERM(
            self._model(data, len(space.classes)),
            data,
            MeanLoss(log_loss),
            stack,
            float(self.alpha),
            information=MutualInformation.within(stack),
            shares=shares,
            part_counts=data.weight @ shares,
            weight=float(self.penalty),
        )

    def _plan(self, solver, data, n_groups, with_counts):
        """Noise of all releases; none where groups are the only secret, and there is but one."""
        if n_groups < 2 and isinstance(solver, ReleasedMoments):
            return ReleasePlan({}, privacy_guarantee([], delta=self.delta, unit=self.protect))
        n_rows = len(data.y)
        budget = Budget(self.epsilon, self.delta, self.protect, "gaussian")
        plan = solver.plan(n_rows, budget, with_counts)
        if self.protect == "sensitive_features":  # else it is said together with the noise
            warn_of_delta(self, n_rows)
        if plan.privacy.epsilon > self.epsilon:
            warn_caller(
                f"{type(solver).__name__} spends epsilon = {plan.privacy.epsilon:.3g}, more than "
                f"the {self.epsilon:g} asked for: see privacy_.",
                PrivacyWarning,
            )
        return plan

    def _public_cells(self, space, data):
        """Rows of each label and group by public proportions, or None."""
        if self.group_proportions is None or len(space.groups) < 2:
            return None
        per_label = self.fairness != "demographic_parity"
        shares = public_cells(self.group_proportions, space, per_label)
        return data.weight.sum() * torch.as_tensor(shares).to(data.weight)

    def _stack_on(self, space, cells, plan):
        """What is measured, and counts of its parts; all from released or public counts."""
        known = plan.counts_noise == np.inf
        # A group that noise of two deviations could have made up cannot be told from an empty one.
        least = 0 if known else int(np.ceil(2 * plan.counts_noise))
        stack = self._stack(space, cells.round(), max(self.min_group_size, least))
        counts = stack.counts_of_cells(cells).clamp_min(1.0)
        used = stack.used_parts().to(counts.device)
        shares = (counts / counts[used].sum()).tolist()
        for part, share, counted in zip(stack.part_cells(), shares, used.tolist(), strict=True):
            if counted and share < _SMALL_SHARE:
                warn_caller(
                    f"{space.describe(part)} makes up {share:.2%} of the rows compared by the "
                    f"{'public' if known else 'released'} counts: its weight 1/sqrt(share) in the "
                    f"penalty is {share**-0.5:.0f}, and what noise there is grows with it. Set "
                    "min_group_size to leave it out.",
                    SmallGroupWarning,
                )
        return stack, counts

    def _check_rows(self, solver, model, data):
        """What gradients of single rows ask for."""
        if not bool((data.weight == 1).all()):
            raise ValueError(
                f"sample_weight must be None with {type(solver).__name__}: it counts rows once."
            )
        if hasattr(model, "network"):
            check_rows_independent(model.network, data.X.shape[1])

    def _store(self, solution, problem, space):
        super()._store(solution, problem, space)
        self.constraints_ = []  # the notion is measured and has no multipliers

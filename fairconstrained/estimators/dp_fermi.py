"""Classification with a penalty on mutual information (DP-FERMI)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fairconstrained.constraints import CONSTRAINTS
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.notions import Parity, as_notions
from fairconstrained.estimators.base import PrivateFairClassifier
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.fit.columns import build_model
from fairconstrained.fit.exact import as_exact
from fairconstrained.fit.private import as_secret_groups, pose_by_releases, released_group_counts
from fairconstrained.fit.private_records import as_records
from fairconstrained.fit.task import Fit, Task, stack
from fairconstrained.models.network import check_rows_independent
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee, Unit
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.private.erm import AttributeFermi, RecordFermi
from fairconstrained.problems.private.secret_groups import SecretGroups
from fairconstrained.solvers.base import solves
from fairconstrained.solvers.fermi import FERMI, LabelRounds
from fairconstrained.solvers.private.dpfermi import NoisyTables
from fairconstrained.solvers.private.released_moments import ReleasedMoments

_NAMES = ("demographic_parity", "equalized_odds", "equal_opportunity")
_INDEPENDENCE = {name: CONSTRAINTS[name] for name in _NAMES}


@dataclass(kw_only=True, eq=False, repr=False)
class DPFermiClassifier(PrivateFairClassifier):
    r"""Logistic model or network with a penalty on the information between predictions and groups.

    .. math::

        \min_w \; \frac1n \sum_i \ell(f_w(x_i), y_i) + \frac{\alpha}{2} \lVert w \rVert^2
        + \lambda \Big( \sum_{j,r} \frac{\hat P(\hat y = j, s = r)^2}
            {\hat P(\hat y = j)\, \hat P(s = r)} - 1 \Big),

    with rates from mean class probabilities. The penalty is the exponential Renyi mutual
    information (chi-square) of prediction and group, which is zero if and only if they are
    independent. For equalized odds it is the mean over labels, weighted by their frequencies, of
    the information within each label, and for equal opportunity the information within the second
    (largest) label. By default training is differentially private for the sensitive features.

    Parameters
    ----------
    constraint : str or constraint object, default="demographic_parity"
        The independence that is penalised: ``"demographic_parity"``, ``"equalized_odds"``,
        ``"equal_opportunity"``, or an object such as ``DemographicParity(temperature=3.0)``. The
        temperature sharpens the class probabilities in the penalty: sharper ones follow the labels,
        but are harder to optimise. There is no slack, because nothing is constrained.
    penalty : float, default=1.0
        :math:`\lambda`. Loss and mutual information are means over samples. On Adult, 1 leaves a
        third of the gap of a fit without penalty, and 4 a tenth of it.
    epsilon : float, Budget or None, default=1.0
        Budget of differential privacy, as in :class:`RateConstrainedClassifier`; None trains
        without privacy.
    delta : float, default=1e-5
        Should be well below 1 / n.
    protect : {"sensitive_features", "record", "record_replacement"}, default="sensitive_features"
        Who is protected. "sensitive_features": replacing one row's sensitive features changes the
        probability of any outcome by at most a factor :math:`e^\epsilon`, up to ``delta``;
        features, labels and weights are *public*. "record": the same holds for a whole record in
        place of a null record, which adds nothing; "record_replacement": in place of any other
        record. The number of rows, the classes and the names of the groups are public.
    feature_range : (low, high), optional
        Publicly known range of the columns, with ``protect="record"``: see
        :class:`RateConstrainedClassifier`.
    model, solver, alpha, max_iter, tol, missing_sensitive, min_group_size
        As in :class:`RateConstrainedClassifier`. Default solvers without privacy are
        ``LabelRounds()`` for linear models, whose penalty follows predicted labels, and ``FERMI()``
        for networks. With privacy they are ``ReleasedMoments()`` for sensitive features and
        ``NoisyTables()`` for records. ``LBFGS()`` minimises exactly the objective above. The method
        of the paper is ``DPFERMI()``.
    callbacks, random_state, verbose, device, warm_start
        As in :class:`RateConstrainedClassifier`.

    Attributes
    ----------
    violation_ : float
        The gap of predicted labels: demographic parity difference, equalized odds difference or
        equal opportunity difference. With ``epsilon`` it is a private estimate.
    history_ : dict of ndarray
        Per iteration: objective, error, violation, soft_violation, residual, multiplier, time (s).
        With ``epsilon`` the values are computed from released numbers and, if only sensitive
        features are protected, public data; nan where nothing was released.
    feasible_, violations_, excess_, excess_error_, multipliers_, constraints_
        True, the gap by name, nan, 0, and empty, because nothing is constrained.
    all others
        As in :class:`RateConstrainedClassifier`.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning", Section 3.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> data = make_biased_classification(8000, random_state=0)
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

    constraint: Any = field(default="demographic_parity", kw_only=False)
    penalty: float = 1.0
    epsilon: float | Budget | None = 1.0
    delta: float = 1e-5
    protect: Unit = "sensitive_features"
    feature_range: Any = None

    _within_strata = False
    _protects = ("sensitive_features", *PrivateFairClassifier._protects)

    def _notions(self) -> list[Any]:
        (notion,) = as_notions(self, [self.constraint], _INDEPENDENCE, Parity)
        plain = notion.slack is notion.ratio is None
        plain &= (notion.reference, notion.attributes) == ("pairwise", "crossed")
        if notion.name not in _NAMES or not plain:
            raise ValueError(
                f"DPFermiClassifier.constraint must be one of {sorted(_NAMES)}, without a slack, "
                "a ratio, a reference or attributes: it is penalised, not constrained; "
                f"got {notion!r}."
            )
        return [notion]

    def _with_steps(self, task: Task) -> Task:
        # No gap of rates is larger: the criterion is measured and not constrained.
        task = replace(task, bounds=(1.0,))
        if task.budget is None:
            solver: Any = LabelRounds() if task.specification.is_linear else FERMI()
            return as_exact(task, solver=solver, problem_class=FermiERM, pose=pose)
        options: dict[str, Any] = {"warn_of_parts": warn_of_weights}
        in_steps: dict[str, Any] = {
            **options,
            "build": lambda fit, *posed: fit.task.problem_class(
                *posed, fit.task.alpha, fit.rows.n_rows, weight=float(self.penalty)
            ),
        }
        if task.budget.unit != "sensitive_features":
            return as_records(task, solver=NoisyTables(), problem_class=RecordFermi, **in_steps)
        if solves(task.solver or ReleasedMoments(), SecretGroups):
            return as_secret_groups(task, public=penalised, **options)
        in_steps["pose"] = pose_attribute_steps
        return as_secret_groups(task, problem_class=AttributeFermi, **in_steps)


def penalised(
    fit: Fit, model: Any, data: Any, constraint: MomentConstraint, counts: Tensor
) -> FermiERM:
    """Build the penalised problem on rows whose groups are known or estimated."""
    task = fit.task
    return FermiERM(
        *(model, data, task.risk(fit.rows), constraint, task.alpha),
        information=MutualInformation.within(constraint, counts),
        weight=float(task.params["penalty"]),
    )


def pose(fit: Fit) -> tuple[FermiERM, Sequence[str]]:
    """Build the problem without privacy; also return names of groups that are left out."""
    rows, data = fit.rows, fit.data
    constraint, left_out = stack(fit.task, rows, rows.cells, fit.task.min_group_size)
    return penalised(fit, build_model(fit), data, constraint, data.counts(constraint)), left_out


def pose_attribute_steps(fit: Fit) -> tuple[Any, Sequence[str]]:
    """Build the problem of noisy batches for a fit in which the groups alone are secret."""
    model, data, task = build_model(fit), fit.data, fit.task
    if any(data.workers.gather(bool((data.weight != 1).any()))):
        raise ValueError(
            f"sample_weight must be None with {type(task.solver).__name__}: it counts rows once."
        )
    if hasattr(model, "network"):
        check_rows_independent(model.network, data.X.shape[1])
    plan = task.plan(fit.rows.n_rows)
    return pose_by_releases(fit, plan, model, release_counts=released_group_counts)


def warn_of_weights(constraint: MomentConstraint, cells: Tensor, plan: PrivacyGuarantee) -> None:
    """Warn of parts with a large weight, by the released counts of labels and groups."""
    counts = constraint.partition.pooled(cells.reshape(-1)).clamp_min(1.0)
    fractions = (counts / counts.sum()).tolist()
    for part, fraction in zip(constraint.partition.cells(), fractions, strict=True):
        # A smaller group weighs more than ten times as much per row, 1 / sqrt(fraction).
        if fraction < 0.01:
            warn_caller(
                f"{constraint.space.describe(part)} makes up {fraction:.2%} of the rows that are "
                "compared, by the released counts, which are noisy: its weight 1/sqrt(fraction) in "
                f"the penalty is {fraction**-0.5:.0f}, and multiplies the noise. Set "
                "min_group_size to leave it out.",
                SmallGroupWarning,
            )

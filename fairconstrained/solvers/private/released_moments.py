"""Private training from released moments of the groups: the default for sensitive features."""

from __future__ import annotations

from collections.abc import Generator as Yields
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.models.features import clip_factors
from fairconstrained.models.linear import LinearModel
from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems.private.erm import COUNTS
from fairconstrained.problems.private.secret_groups import SecretGroups, principal_components
from fairconstrained.solvers.augmented_lagrangian import AugmentedLagrangian
from fairconstrained.solvers.base import NEARLY, Iterate, Solver, check_solves, count, solves
from fairconstrained.solvers.fermi import FERMI, LabelRounds
from fairconstrained.solvers.sgda import SGDA

_ROUND, _LABELS = "moments of round {}", "predicted labels"  # the releases
# Solvers for linear models and for networks: the first one that suits the problem is used.
_INNER = {True: (LabelRounds(), AugmentedLagrangian()), False: (FERMI(), SGDA())}


@dataclass(eq=False, repr=False, kw_only=True)
class ReleasedMoments(Solver):
    r"""Release moments of public features by group, few times; then solve without noise.

    Where only the sensitive features are secret, they enter the problem through sums
    :math:`\sum_i F_j(x_i) 1[s_i = r]` of public functions of the features. Each of a few rounds

    1. releases noisy sums of public vectors :math:`q_i` over the groups, once and of all rows: in
       the first round principal components of the features, later the class probabilities, the
       predicted labels and the directions :math:`F (1 - F) x` of the present model;
    2. estimates from all releases so far which fraction of each row belongs to which group
       (``fairconstrained.problems.private.secret_groups``);
    3. solves the problem with these fractions, to the end, without noise: under constraints
       (:class:`~fairconstrained.RateConstrainedClassifier`), or the loss plus ERMI.

    In the end predicted labels are released by group. Where they exceed a slack, the third step is
    done again for linear models with this release.

    Parameters
    ----------
    n_rounds : int, default=3
    n_components : int, default=128
        Most components of the first round; fewer where the noise would outweigh them (one for each
        ten rows in units of the noise).
    inner : Solver, optional
        For the third step. Defaults are ``AugmentedLagrangian()`` under constraints, and ``SGDA()``
        for networks; with the penalty ``LabelRounds()``, which answers to predicted labels by the
        fractions estimated, and ``FERMI()``.

    Notes
    -----
    The number of numbers released does not grow with the accuracy of the minimisation, where an
    iterative method pays for every step. Memory beyond the data: n times three times the number of
    components.

    References
    ----------
    The penalised objective is that of DP-FERMI; the method is not in the paper. The estimate is the
    linear Bayes estimate of the posterior mean given noisy linear measurements.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import ReleasedMoments
    >>> data = make_biased_classification(2000, random_state=0)
    >>> clf = DPFermiClassifier(epsilon=1.0, solver=ReleasedMoments(n_rounds=2), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.unit
    'sensitive_features'
    """

    requires = ("noisy_moments",)
    keeps_last = True  # choosing by exact quality would not be private
    scope = (
        "public features and secret groups: RateConstrainedClassifier and DPFermiClassifier with "
        "epsilon and protect='sensitive_features'"
    )

    n_rounds: int = count(3)
    n_components: int = count(128)
    inner: Solver | None = field(default=None, metadata={"kind": Solver})

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        """Calibrate the noise of all releases of a fit on `n_rows` rows to the budget."""
        super().check(None)
        if budget.unit != "sensitive_features":
            raise IncompatibleSolverError(
                "ReleasedMoments takes features and labels for public: use it with "
                "protect='sensitive_features'."
            )
        # Half of the rounds' budget is for the first, where every later one starts.
        first = 0.5 if self.n_rounds > 1 else 1.0
        # Fractions of the budget; 1 % is left because the accountant rounds up.
        for_counts, for_labels, left = 0.02, 0.05, 0.01
        rest = 1.0 - left - for_counts - for_labels
        fractions = {_ROUND.format(1): rest * first}
        for k in range(2, self.n_rounds + 1):
            fractions[_ROUND.format(k)] = rest * ((1.0 - first) / (self.n_rounds - 1))
        fractions |= {COUNTS: for_counts, _LABELS: for_labels}
        return plan_releases(fractions, budget)

    def check(self, problem: SecretGroups) -> None:
        """Raise ValueError if the inner solver cannot solve the released problem."""
        inner, unknown = self._inner(problem), problem.estimated()
        check_solves(inner, unknown)
        inner.check(unknown)

    def _inner(self, problem: SecretGroups) -> Solver:
        defaults = _INNER[isinstance(problem.model, LinearModel)]
        return self.inner or next(own for own in defaults if solves(own, type(problem.public)))

    def iterate(
        self, problem: SecretGroups, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the iterates of the inner solver, and the last one measured by its own release."""
        inner, planned = self._inner(problem), problem.plan.releases
        # Nothing is released where there are no groups.
        noise = problem.plan.noise(_ROUND.format(1)) if planned else 1.0
        # Each component costs noise in all others: one for each ten rows, in units of the noise.
        affordable = int(problem.n_rows / (10.0 * noise))
        components = principal_components(problem.data, max(1, min(self.n_components, affordable)))
        # Noise is in proportion to the longest row: 1.5 times the root mean square.
        longest = 1.5 * components.shape[1] ** 0.5
        components *= clip_factors(components.norm(dim=1), longest)[:, None]
        queries, n_rounds = components, max(1, len(planned) - len((COUNTS, _LABELS)))
        for k in range(1, n_rounds + 1):
            if planned:
                problem.release(_ROUND.format(k), queries, rng)
            # Intermediate rounds only choose the next queries.
            accuracy = tol if k == n_rounds else max(tol, 1e-2)
            found = yield from _solution(inner, problem, x, dual, accuracy, rng)
            x, dual = found.x, found.dual
            queries = _queries_of_model(problem, x, components)
        if planned:
            problem.release(_LABELS, problem.predictions(x)[1], rng)
        last = _measured(problem, found)
        # The release of the labels corrects them. A linear model's labels move little by that; a
        # network would be trained to other labels, about which nothing was released.
        if last.excess > NEARLY and isinstance(problem.model, LinearModel):
            found = yield from _solution(inner, problem, x, dual, tol, rng)
            last = _measured(problem, found)
        yield last


def _solution(
    inner: Solver, problem: SecretGroups, x: Tensor, dual: Tensor, accuracy: float, rng: Generator
) -> Yields[Iterate, None, Iterate]:
    """Yield the iterates of the inner solver on the estimated groups; return its solution."""
    found: list[Iterate] = []
    for iterate in inner.iterate(problem.estimated(), x, dual, accuracy, rng):
        found.append(iterate)
        yield iterate._replace(residual=torch.inf)
        if iterate.residual <= accuracy:
            return iterate
    return inner.select(found)


def _measured(problem: SecretGroups, found: Iterate) -> Iterate:
    """Evaluate a solution by all releases so far."""
    soft, hard = problem.estimated().evaluate(found.x)
    return found._replace(soft=soft, hard=hard)


def _queries_of_model(problem: SecretGroups, x: Tensor, components: Tensor) -> Tensor:
    """Return queries about a model: its predictions, and the directions in which they move."""
    soft, hard = problem.predictions(x)
    widths = problem.constraint.statistic.widths
    spread = (len(widths) - (soft**2).sum(dim=1, keepdim=True)).clamp_min(0.0)
    directions = spread / problem.mean(spread).clamp_min(1e-12) * components
    # The first of columns that add up to one is implied by the others.
    implied = {sum(widths[:i]) for i, width in enumerate(widths) if width > 1}
    free = [j for j in range(soft.shape[1]) if j not in implied]
    outputs = torch.cat((soft[:, free], hard[:, free]), dim=1)
    outputs = outputs - problem.mean(outputs)
    queries = torch.cat((components.shape[1] ** 0.5 * outputs, directions), dim=1)
    norms = queries.norm(dim=1)
    # Noise is in proportion to the longest query: a tenth of them are clipped.
    return queries * clip_factors(norms, problem.quantile(norms, 0.9))[:, None]

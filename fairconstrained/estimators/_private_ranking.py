"""Private AUCFairClassifier: a problem of released moments, without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fairconstrained.arrays import as_numpy
from fairconstrained.constraints import stacked
from fairconstrained.constraints.surrogates import Binormal
from fairconstrained.estimators._private import PrivateRecords
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.privacy import PrivacyGuarantee
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private.moments import (
    PrivateMomentERM,
    Released,
    count_deviation,
    made_up,
    plan_moments,
    release,
)
from fairconstrained.solvers import AugmentedLagrangian, Solver, check_solves

if TYPE_CHECKING:
    from fairconstrained.estimators.auc_fair import AUCFairClassifier

_MUCH_NOISE = 0.3  # on the mean of a cell, in units of the clipped rows


class PrivateRanking(PrivateRecords):
    """A fit from noisy group moments of the rows, which are released once."""

    estimator: AUCFairClassifier

    @property
    def problem_class(self) -> type:
        """The class of the problem of released moments."""
        return PrivateMomentERM

    def default_solver(self) -> Solver:
        """Return the solver of that problem, which is exact."""
        return AugmentedLagrangian()

    def plan(self, n_samples: int) -> PrivacyGuarantee:
        """Plan the noise of the releases, which does not depend on the number of rows."""
        return plan_moments(self.budget)

    def check(self) -> None:
        """Raise ValueError for parameters that a private ranking does not support."""
        clf = self.estimator
        binormal = isinstance(clf._surrogate(), Binormal)
        wanted = {
            "model": ("'linear'", self.is_linear),
            "objective": ("'auc'", clf.objective == "auc"),
            "constraint": ("a name or one with surrogate='binormal'", binormal),
        }
        for name, (allowed, holds) in wanted.items():
            if not holds:
                raise ValueError(
                    f"{type(clf).__name__}.{name} must be {allowed} with epsilon: a private "
                    f"ranking is computed from released moments; got {getattr(clf, name)!r}."
                )
        super().check()

    def pose(self) -> PrivateMomentERM:
        """Release the moments of all cells, and build the problem from them."""
        n_groups, plan = len(self.rows.space.groups), self.plan(self.n_rows)
        releases = Releases(plan)
        self.warn_of_delta()
        self._refuse_made_up(releases)
        self.spent = plan
        rows = self.data.X, self.n_rows, self._cell(), 2 * n_groups
        released = release(*rows, self.public.centre, self.public.scale, releases, self.rng)
        if released.far:
            self.warn_of_range()
        counts = released.counts.reshape(2, n_groups).round()
        self._warn_of_cells(released)
        constraint = self.stack(counts, self.least_rows(count_deviation(plan)))
        return PrivateMomentERM.of(released, constraint, self.alpha, releases)

    def refine(self, problem: PrivateMomentERM) -> PrivateMomentERM:
        """Correct released moments by a noisy table of the scores of their solution."""
        if not problem.constraint.members:
            return problem
        x, dual = problem.start(), self.data.weight.new_zeros(problem.n_constraints)
        x = self.run(problem, x, dual).solution.iterate.x
        return problem.corrected(x, self.data.X, self._cell(), self.rng)

    def attributes(self, problem: Any, w: Tensor) -> dict[str, Any]:
        """Coefficients of the original columns, from those in the released coordinates."""
        slope, offset = problem.log_odds_scale(w)
        coef = slope * problem.model.unpack(w)[0][:, 0] / problem.released.scale
        intercept = offset - coef @ problem.released.centre
        return {
            "coef_": as_numpy(coef[None]).copy(),
            "intercept_": as_numpy(intercept[None]).copy(),
        }

    def _cell(self) -> Tensor:
        """The (label, group) cell of each row."""
        cell: Tensor = self.data.y * len(self.rows.space.groups) + self.data.group
        return cell

    def _refuse_made_up(self, releases: Releases) -> None:
        """Pose the problem on made-up moments: a solver that does not suit is refused here."""
        space = self.rows.space
        released = made_up(space.n_cells, self.data.X.shape[1], self.n_rows)
        counts = released.counts.reshape(len(space.classes), len(space.groups))
        stack = stacked(space, [kept for kept, _ in self.kept(self.rows, counts, 1)])
        trial = PrivateMomentERM.of(released, stack, self.alpha, releases)
        check_solves(self.solver, trial)
        self.solver.check(trial)

    def _warn_of_cells(self, released: Released) -> None:
        """Name the cells whose means are mostly noise."""
        space, noise = self.rows.space, released.mean_deviation
        noisy = [
            f"{space.describe(cells)} (about {max(int(count), 0)} rows)"
            for cells, count, deviation in zip(
                np.eye(len(noise), dtype=bool).reshape(-1, 2, len(space.groups)),
                released.counts.tolist(),
                noise.tolist(),
                strict=True,
            )
            if deviation > _MUCH_NOISE
        ]
        if noisy:
            warn_caller(
                f"With epsilon={self.budget.epsilon:g} the noise on the mean of "
                f"{'; '.join(noisy)} is more than {_MUCH_NOISE:g} of the norm of a row: gaps there "
                "are mostly noise. Use more rows, fewer columns, larger groups or a larger "
                "epsilon.",
                PrivacyWarning,
            )

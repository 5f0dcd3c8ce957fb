"""Private training for estimators: the only file that turns data into private problems."""

from __future__ import annotations

import numpy as np

from fairconstrained.estimators._base import FairClassifier
from fairconstrained.estimators._checks import warn_caller
from fairconstrained.estimators._promise import (
    bounded,
    check_delta,
    check_promise,
    public_range,
    refuse_weights,
    warn_of_delta,
)
from fairconstrained.exceptions import PrivacyWarning, SmallGroupWarning
from fairconstrained.losses import log_loss, n_outputs
from fairconstrained.models import as_private_model
from fairconstrained.privacy.mechanisms import seed_from_system, with_gaussian_noise
from fairconstrained.problems.private.coordinates import release_coordinates
from fairconstrained.problems.private.erm import PrivateERM
from fairconstrained.solvers import DPSGDA, Budget, check_solves

__all__ = ["PrivateFairClassifier"]

_FEW_ROWS = 5  # of a group in an expected batch
_MUCH_NOISE = 0.3  # on the mean gradient of a training, in units of the clip


class PrivateFairClassifier(FairClassifier):
    """A FairClassifier whose ``epsilon`` may be a number: then the record is protected.

    Nothing that depends on the data leaves :meth:`fit` but what the accountant has priced. The
    number of rows, the classes and the names of the groups are taken for public.
    """

    def _check_own_parameters(self):
        check_delta(self)
        if self.epsilon is not None:
            check_promise(self)
            if self.solver is not None:
                check_solves(self.solver, PrivateERM)

    def _check_data(self, X, y, sensitive_features, sample_weight):
        refuse_weights(self, sample_weight)
        return super()._check_data(X, y, sensitive_features, sample_weight)

    def _chosen_solver(self):
        if self.epsilon is not None:
            return self.solver or DPSGDA()
        return super()._chosen_solver()

    def _problem(self, data, space, solver, rng):
        if self.epsilon is None:
            return super()._problem(data, space, solver, rng)
        if self.random_state is None:
            seed_from_system(rng)
        n_rows, n_features = data.X.shape
        public = public_range(self, n_features, data.weight)
        data = data._replace(X=bounded(data.X, public))
        outputs = n_outputs(len(space.classes))
        budget = Budget(self.epsilon, self.delta, "record")
        plan = solver.plan(n_rows, budget)
        center, scale = release_coordinates(data.X, public, plan.scaling_noise, rng)
        model = as_private_model(self.model, center, scale, outputs, self.fit_intercept)
        self._warn_of_noise(plan, n_rows, model.n_params)
        exact = space.count_cells(data.y, data.group).to(data.weight)
        counts = with_gaussian_noise(exact, plan.counts_noise, rng)
        # Treat noisy counts below two standard deviations as empty.
        least = int(max(self.min_group_size, np.ceil(2 * plan.counts_noise)))
        stack = self._stack(space, counts.round(), least)
        _warn_of_small_groups(stack, counts, plan.privacy.sampling_rate)
        parts = stack.counts_of_cells(counts).clamp_min(1.0)
        return PrivateERM(model, data, log_loss, stack, float(self.alpha), parts, plan)

    def _store(self, solution, problem, space):
        super()._store(solution, problem, space)
        if self.epsilon is not None:
            self.privacy_ = problem.plan.privacy
            # The time of a step tells the size of its batch, which is exact.
            self.history_["time"] = np.full(len(self.history_["time"]), np.nan)

    def _warn_of_noise(self, plan, n_rows, n_params):
        rate, n_steps = plan.privacy.sampling_rate, plan.privacy.n_steps
        noise = plan.gradient_noise * np.sqrt(n_params / n_steps) / (rate * n_rows)
        if noise > _MUCH_NOISE:
            warn_caller(
                f"With {n_rows} rows, {n_params} parameters and epsilon={self.epsilon:g} the noise "
                f"on the gradients, averaged over the training, is {noise:.2g} times what a row "
                "can contribute: little can be learnt. Use more rows, fewer features or a larger "
                "epsilon.",
                PrivacyWarning,
            )
        warn_of_delta(self, n_rows)


def _warn_of_small_groups(stack, counts, rate):
    small = [
        f"{stack.space.describe(cells)} (about {int(counts[cells].sum())} rows)"
        for cells in stack.part_cells()
        if 0 < rate * counts[cells].sum() < _FEW_ROWS
    ]
    if small:
        warn_caller(
            f"{'; '.join(small)}, by the released counts: fewer than {_FEW_ROWS} in an expected "
            "batch. Their rates are mostly noise; set min_group_size to leave them out.",
            SmallGroupWarning,
        )

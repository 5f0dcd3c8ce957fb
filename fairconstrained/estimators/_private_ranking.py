"""Private AUCFairClassifier: a problem of released moments, without rows."""

from __future__ import annotations

import numpy as np

from fairconstrained.arrays import as_numpy
from fairconstrained.constraints import Stack
from fairconstrained.constraints.surrogates import Binormal
from fairconstrained.estimators._private import least_rows
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private.moments import (
    PrivateMomentERM,
    count_deviation,
    made_up,
    plan_moments,
    release,
)
from fairconstrained.solvers import check_solves

_MUCH_NOISE = 0.3  # on the mean of a cell, in units of the clipped rows


def check_private_ranking(estimator):
    """Raise ValueError for parameters that a private ranking does not support."""
    wanted = {
        "model": ("'linear'", estimator._is_linear()),
        "objective": ("'auc'", estimator.objective == "auc"),
        "constraint": (
            "a name or one with surrogate='binormal'",
            isinstance(estimator._surrogate(), Binormal),
        ),
    }
    for name, (allowed, holds) in wanted.items():
        if not holds:
            raise ValueError(
                f"{type(estimator).__name__}.{name} must be {allowed} with epsilon: a private "
                f"ranking is computed from released moments; got {getattr(estimator, name)!r}."
            )


def released_problem(estimator, task):
    """Release the moments of all cells, and build the problem from them."""
    data, public = task.data, estimator._public_range(task.data)
    plan = plan_moments(estimator._budget())
    releases = Releases(plan)
    estimator._warn_of_delta(task.n_rows)
    n_groups = len(task.space.groups)
    _refuse_early(estimator, task, releases)
    estimator._spends(plan)
    cell = data.y * n_groups + data.group
    rows = data.X, task.n_rows, cell, 2 * n_groups
    released = release(*rows, public.centre, public.scale, releases, task.rng)
    if released.far:
        estimator._warn_of_range()
    counts = released.counts.reshape(2, n_groups).round()
    _warn_of_noise(estimator, released, task.space)
    constraint = estimator._stack(task.space, counts, least_rows(estimator, count_deviation(plan)))
    return PrivateMomentERM.of(released, constraint, float(estimator.alpha), releases)


def _refuse_early(estimator, task, releases):
    """Pose the problem on made-up moments: a solver that does not suit is refused here."""
    space, n_features = task.space, task.data.X.shape[1]
    released = made_up(space.n_cells, n_features, task.n_rows)
    counts = released.counts.reshape(len(space.classes), len(space.groups))
    stack = Stack(space, [kept for kept, _ in estimator._kept(space, counts, 1)])
    trial = PrivateMomentERM.of(released, stack, float(estimator.alpha), releases)
    check_solves(task.solver, trial)
    task.solver.check(trial)


def log_odds_of_columns(problem, w):
    """Coefficients of the original columns, from those in the released coordinates."""
    slope, offset = problem.log_odds_scale(w)
    coef = slope * problem.model.unpack(w)[0][:, 0] / problem.released.scale
    intercept = offset - coef @ problem.released.centre
    return {"coef_": as_numpy(coef[None]).copy(), "intercept_": as_numpy(intercept[None]).copy()}


def _warn_of_noise(estimator, released, space):
    noise = released.mean_deviation
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
            f"With epsilon={estimator._budget().epsilon:g} the noise on the mean of "
            f"{'; '.join(noisy)} is more than {_MUCH_NOISE:g} of the norm of a row: gaps there are "
            "mostly noise. Use more rows, fewer columns, larger groups or a larger epsilon.",
            PrivacyWarning,
        )

"""Private AUCFairClassifier: from a budget to a problem that holds released moments and no rows."""

from __future__ import annotations

import numpy as np

from fairconstrained.constraints.surrogates import Binormal
from fairconstrained.estimators._checks import warn_caller
from fairconstrained.estimators._promise import (
    bounded,
    check_promise,
    public_range,
    warn_of_delta,
)
from fairconstrained.exceptions import PrivacyWarning
from fairconstrained.privacy.mechanisms import seed_from_system
from fairconstrained.problems.private.moments import PrivateMomentERM, plan_moments, release
from fairconstrained.solvers import check_solves

__all__ = ["check_private_ranking", "log_odds_of_columns", "private_ranking_problem"]

_MUCH_NOISE = 0.3  # of a cell's mean, in units of the clipped rows


def check_private_ranking(estimator):
    """What a private ranking can be, before any work."""
    check_promise(estimator)
    wanted = {
        "model": ("'linear'", estimator._is_linear()),
        "objective": ("'auc'", estimator.objective == "auc"),
        "surrogate": ("None or 'binormal'", isinstance(estimator._surrogate(), Binormal)),
        "device": ("'cpu'", str(estimator.device) == "cpu"),
        "margin": ("0", estimator.margin == 0),
    }
    for name, (allowed, holds) in wanted.items():
        if not holds:
            raise ValueError(
                f"{type(estimator).__name__}.{name} must be {allowed} with epsilon: a private "
                f"ranking is computed from released moments; got {getattr(estimator, name)!r}."
            )
    if estimator.solver is not None:
        check_solves(estimator.solver, PrivateMomentERM)


def private_ranking_problem(estimator, data, space, solver, rng):
    """Release moments, solve, and correct the problem by the scores of that solution."""
    if estimator.random_state is None:
        seed_from_system(rng)
    n_rows, n_features = data.X.shape
    low, width = public = public_range(estimator, n_features, data.weight)
    X = bounded(data.X, public)
    plan = plan_moments(float(estimator.epsilon), float(estimator.delta))
    warn_of_delta(estimator, n_rows)
    n_groups = len(space.groups)
    cell = data.y * n_groups + data.group
    released = release(X, cell, 2 * n_groups, low, width, plan, rng)
    # A cell that noise of two deviations could have made up cannot be told from an empty one.
    least = int(max(estimator.min_group_size, np.ceil(2 * plan.count_deviation)))
    counts = released.counts.reshape(2, n_groups).round()
    _warn_of_noise(estimator, released, space)
    constraint = estimator._stack(space, counts, least)
    estimator._refuse_nothing(constraint)
    problem = PrivateMomentERM.of(released, constraint, float(estimator.alpha), plan)
    solution = estimator._solve(solver, problem, rng, space.classes)
    return problem.corrected(solution.iterate.x, X, cell, rng)


def log_odds_of_columns(problem, w):
    """Coefficients of the columns as given, from those of the released coordinates."""
    slope, offset = problem.log_odds_scale(w)
    coef = slope * problem.model.unpack(w)[0][:, 0] / problem.released.scale
    intercept = offset - coef @ problem.released.centre
    return {"coef_": coef[None].numpy().copy(), "intercept_": intercept[None].numpy().copy()}


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
            f"With epsilon={estimator.epsilon:g} the noise on the mean of {'; '.join(noisy)} is "
            f"more than {_MUCH_NOISE:g} of the length of a row: gaps there are mostly noise. Use "
            "more rows, fewer columns, larger groups or a larger epsilon.",
            PrivacyWarning,
        )

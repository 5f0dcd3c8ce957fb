"""Private fits that protect records: models from public ranges and noisy releases."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fairconstrained.constraints.tables import sum_by
from fairconstrained.distributed import ALONE
from fairconstrained.exceptions import PrivacyWarning, warn_caller
from fairconstrained.fit.columns import rows_on_device
from fairconstrained.fit.private import as_private, learn_table, pose_by_releases, with_noise
from fairconstrained.fit.task import Fit, Task
from fairconstrained.losses import n_outputs
from fairconstrained.models.features import Features, as_features, dense_features
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private.coordinates import (
    LARGEST,
    Coordinates,
    release_coordinates,
    release_scales,
)
from fairconstrained.problems.private.erm import COUNTS, GRADIENT, PrivateERM
from fairconstrained.solvers.private.dpsgda import DPSGDA

# Noise on a mean gradient, or on the mean of a cell of rows, in units of the clipping norm, which
# bounds both. Only warnings depend on it.
MUCH_NOISE = 0.3


class PublicRange(NamedTuple):
    """The public range of the columns, or None, and the coordinates derived from it."""

    ends: Any
    coordinates: Coordinates  # in which columns are in [0, 1]


def as_records(task: Task, **steps: Any) -> Task:
    """Return the task with the steps of a fit that protects records."""
    defaults = {
        "solver": DPSGDA(),
        "problem_class": PrivateERM,
        "learn": learn,
        "pose": pose,
        "build": lambda fit, *posed: fit.task.problem_class(
            *posed, fit.task.alpha, fit.rows.n_rows
        ),
    }
    return as_private(task, **{**defaults, **steps})


def learn(fit: Fit, default_range: Any = None) -> Fit:
    """Return the fit with its columns in memory, near their public range.

    The range comes from the model or the user, is the default, or will be released. Every sum over
    the columns is one release. Columns stay dense or sparse as they came: the two kinds of sums
    round differently, by many rows where a range is far from zero, and one entry must not decide.
    """
    fit = with_noise(fit)
    # A frozen model may warn of single rows, such as unknown categories.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, device = learn_table(fit), fit.task.device
        is_sparse = sparse.issparse(table)
        X = as_features(table, device) if is_sparse else dense_features(table, device)
        ranges = fit.task.specification.column_range, fit.task.feature_range, default_range
        ends = next((ends for ends in ranges if ends is not None), None)
        public = public_range(fit.task, ends, X.shape[1])
        if public.ends is None:  # the range of each column is yet to be released
            ends = torch.full_like(public.coordinates.scale, 2.0 * LARGEST)  # in the last bin
            X = X.bounded(-ends, ends)
        else:
            X = cut(X, public.coordinates)
        data = replace(rows_on_device(fit.rows, (X,), device=device), workers=ALONE)
    return replace(fit, data=data, learnt=public)


def cut(X: Features, public: Coordinates) -> Features:
    """Clip entries far from their range, row by row: a single one could make sums overflow."""
    reach = 1e6 * public.scale  # a million widths of the range
    return X.bounded(public.centre - reach, public.centre + public.scale + reach)


def public_range(task: Task, ends: Any, n_features: int) -> PublicRange:
    """Return the range and its coordinates; raise ValueError for another number of columns."""
    try:
        low, high = (
            np.broadcast_to(np.asarray(end, float), n_features)
            for end in ((0.0, 1.0) if ends is None else ends)
        )
    except ValueError as error:
        raise ValueError(
            f"{task.name}.feature_range must be None or a pair (low, high) of numbers or of "
            f"arrays of shape ({n_features},); got {ends!r}."
        ) from error
    low, high = torch.tensor(np.stack((low, high)), device=task.device)
    return PublicRange(ends, Coordinates(low, high - low))


def pose(fit: Fit) -> tuple[Any, Sequence[str]]:
    """Build the problem of noisy tables and gradients, and warn if there is too much noise."""
    task, n_rows, budget = fit.task, fit.rows.n_rows, fit.task.budget
    plan = task.plan(n_rows)
    model = model_in(fit, fit.learnt.coordinates)
    noise = plan.noise(GRADIENT) * np.sqrt(model.n_params / plan.n_steps)
    noise /= plan.sampling_rate * n_rows
    if noise > MUCH_NOISE:
        warn_caller(
            f"With {n_rows} rows, {model.n_params} parameters and "
            f"epsilon={budget.epsilon:g} the noise on the gradients, averaged over the "  # type: ignore[union-attr]
            f"training, is {noise:.2g} times what a row can contribute: little can be learnt. "
            "Use more rows, fewer features or a larger epsilon.",
            PrivacyWarning,
        )
    releases: Any = {"release_model": release_model, "release_counts": release_counts}
    return pose_by_releases(fit, plan, model, **releases)


def model_in(fit: Fit, coordinates: Coordinates) -> Any:
    """Build the model in these coordinates; it may use the public range, if there is one."""
    ends, public = fit.learnt
    centre, scale, _, runs = coordinates
    interval = None if ends is None else (public.centre, public.centre + public.scale)
    outputs = n_outputs(len(fit.rows.classes))
    return fit.task.specification.build_private(centre, scale, outputs, interval, runs)


def release_model(fit: Fit, releases: Releases) -> tuple[Fit, Any]:
    """Release the coordinates; return the fit with columns clipped, and the model in them."""
    n_rows, (ends, public), X = fit.rows.n_rows, fit.learnt, fit.data.X
    if ends is None:
        public = release_scales(X, n_rows, public, releases, fit.rng)
        X = cut(X, public)
        fit = replace(fit, data=replace(fit.data, blocks=(X,)))
        warn_of_cut(public)
    coordinates = release_coordinates(X, n_rows, public, releases, fit.rng)
    if coordinates.far:
        warn_of_range(fit)
    return fit, model_in(fit, coordinates)


def release_counts(fit: Fit, releases: Releases) -> Tensor:
    """Return the noisy number of rows with each label and group, (n_classes, n_groups)."""
    data, (n_labels, n_groups) = fit.data, fit.rows.space.shape
    cell = data.y * n_groups + data.group
    sums = sum_by(data.weight[:, None], cell, n_labels * n_groups)
    return releases.noisy(COUNTS, sums, 1.0, fit.rng).reshape(n_labels, n_groups)


def warn_of_cut(public: Coordinates) -> None:
    """Warn of columns whose entries are clipped to a constant, by the released counts."""
    columns = torch.nonzero(public.scale > LARGEST)[:, 0].tolist()
    if columns:
        warn_caller(
            f"By the released counts columns {columns} of X have entries beyond {LARGEST:.0e}, "
            "which are cut: larger values make no difference. Give these columns in other "
            "units.",
            PrivacyWarning,
        )


def warn_of_range(fit: Fit) -> None:
    """Warn that the columns need `feature_range`, as the releases show."""
    where = "(0, 1) in released scales" if fit.learnt.ends is None else "given, or (0, 1)"
    warn_caller(
        f"By the released norms most rows lie outside of {fit.task.name}.feature_range ({where}): "
        "columns of large numbers may then drown all others, and accuracy is lost. Give "
        "feature_range=(low, high), arrays of one number a column, from public knowledge.",
        PrivacyWarning,
    )

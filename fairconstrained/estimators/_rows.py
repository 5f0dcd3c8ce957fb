"""The samples of a fit, with labels and groups as indices, and the seed of its random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Generator

from fairconstrained.arrays import as_numpy, check_array
from fairconstrained.constraints import Space
from fairconstrained.estimators._callbacks import unwatched
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.problems import Batch
from fairconstrained.problems.moments import GroupMoments
from fairconstrained.problems.parted import class_in_parts
from fairconstrained.problems.parted_rows import PartedRows
from fairconstrained.solvers import Solver
from fairconstrained.workers import ALONE, Workers

_MANY_GROUPS = 20
_FEW_SAMPLES = 5
_COUNTED_ROWS = 1 << 20  # at a time


@dataclass(frozen=True)
class TrainingRows:
    """Samples with class and group indices, and the classes and groups behind the indices."""

    X: Any  # as the model takes it
    y: np.ndarray  # (n,) class indices
    group: np.ndarray  # (n,) group indices
    weight: np.ndarray  # (n,) positive
    classes: np.ndarray
    groups: np.ndarray | None  # None if there are no sensitive features
    moments: GroupMoments | None = None  # of a whole stream, if these rows are a sample of it
    routed: Mapping[str, Any] = field(default_factory=dict)  # for the fit of the user's classifier
    watch: Callable = unwatched  # called with the problem and each iterate
    workers: Workers = ALONE  # that have the other rows
    weight_range: tuple[float, float] | None = None  # of all workers; None: that of these rows

    in_parts: bool = False  # whether they are read in blocks, or are those of several workers

    @cached_property
    def cells(self):
        """Number of rows of each label and group, (n_classes, n_groups), of all workers."""
        own = torch.zeros((len(self.space.classes), len(self.space.groups)), dtype=torch.int64)
        for start in range(0, len(self.y), _COUNTED_ROWS):
            part = slice(start, start + _COUNTED_ROWS)
            columns = (torch.from_numpy(codes[part]).long() for codes in (self.y, self.group))
            own += self.space.count_cells(*columns)
        return self.workers.sum(own)

    @property
    def space(self) -> Space:
        """The labels and groups to which notions are bound."""
        return Space(self.classes, ["all"] if self.groups is None else self.groups)


@dataclass(frozen=True)
class Task:
    """The inputs from which a problem is built, and the solver."""

    data: Batch | PartedRows  # with the columns of the model
    space: Space
    solver: Solver
    rng: Generator  # the only source of randomness, except for dropout in networks
    cells: Callable  # () -> number of rows of each label and group, of all workers
    workers: Workers = ALONE  # that have the other rows
    moments: GroupMoments | None = None
    watch: Callable = unwatched  # called with the problem and each iterate

    @property
    def n_rows(self):
        """Number of rows of all workers."""
        return int(self.cells().sum())

    def posed_as(self, kind, constraint):
        """The class of a problem for these rows: `kind`, or its equal for rows in parts."""
        return class_in_parts(kind, constraint) if isinstance(self.data, PartedRows) else kind


def checked_weight(sample_weight, n_samples):
    """Validate sample weights: one non-negative number for each sample."""
    if sample_weight is None:
        return np.ones(n_samples)
    n_dims = np.asarray(as_numpy(sample_weight)).ndim
    if n_dims != 1:
        raise ValueError(
            f"sample_weight must be one-dimensional, one number for each of {n_samples} samples; "
            f"got {n_dims} dimensions."
        )
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        input_name="sample_weight",
        force_writeable=True,
    )
    if weight.shape != (n_samples,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_samples,)}!")
    if (weight < 0).any():
        raise ValueError("sample_weight must not be negative.")
    if not weight.any():
        raise ValueError("sample_weight is zero for all samples; at least one must be positive.")
    return weight


def relative_weight(weight, ends=None):
    """Weights as multiples of the largest, up to a factor of two; ones if all are equal.

    Only their ratios matter. Powers of two keep every digit, so integers remain exact. `ends` are
    the least and the largest weight, if other rows have such ones.
    """
    least, largest = (weight.min(), weight.max()) if ends is None else ends
    _, exponent = np.frexp(largest)
    if least == largest:
        return weight if weight[0] == 1 else np.ones_like(weight)
    return np.ldexp(weight, 1 - exponent)


def check_groups(name, labels, n_samples):
    """Refuse sensitive features that are a measurement, and warn of those that may be one.

    Raises
    ------
    ValueError
        If there are so many groups that most have fewer than five samples.
    """
    n_groups = len(labels)
    how = "Bin a measurement first, as by pandas.qcut(column, 4), and cross fewer columns."
    if n_groups > _MANY_GROUPS and _FEW_SAMPLES * n_groups > n_samples:
        raise ValueError(
            f"sensitive_features has {n_groups:,} groups in {n_samples:,} samples, most of them of "
            f"fewer than {_FEW_SAMPLES}: {name} cannot compare them. {how}"
        )
    if n_groups > _MANY_GROUPS and labels.dtype.kind in "fiu":
        warn_caller(
            f"sensitive_features has {n_groups} different numbers, each of which is taken for a "
            f"group. {how}",
            SmallGroupWarning,
        )


def random_seed(random_state):
    """A seed for torch from ``random_state``, as scikit-learn reads it."""
    return check_random_state(random_state).randint(np.iinfo(np.int32).max)

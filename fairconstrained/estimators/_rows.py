"""The samples of a fit, with labels and groups as indices, and its random numbers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state
from torch import Generator

from fairconstrained.constraints import Space
from fairconstrained.problems import Batch
from fairconstrained.problems.moments import GroupMoments
from fairconstrained.solvers import Solver

__all__ = ["Task", "TrainingRows", "checked_weight", "random_seed", "seeded"]


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

    @property
    def space(self) -> Space:
        """The labels and groups to which notions are bound."""
        return Space(self.classes, ["all"] if self.groups is None else self.groups)


@dataclass(frozen=True)
class Task:
    """The inputs from which a problem is built, and the solver."""

    data: Batch  # with the columns of the model
    space: Space
    solver: Solver
    rng: Generator  # the only source of randomness, except for dropout in networks
    moments: GroupMoments | None = None


def checked_weight(sample_weight, n_samples):
    """Validate sample weights: one non-negative number for each sample."""
    if sample_weight is None:
        return np.ones(n_samples)
    n_dims = np.asarray(sample_weight).ndim
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


def random_seed(random_state):
    """A seed for torch from ``random_state``, as scikit-learn reads it."""
    return check_random_state(random_state).randint(np.iinfo(np.int32).max)


@contextmanager
def seeded(seed):
    """Yield a generator, with the global generator of torch seeded alike in the meantime.

    Modules draw their initial parameters and their dropout from the global generator.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)

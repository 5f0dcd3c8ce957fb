"""The split into rows for training and rows for tests, within each group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.groups import encode_groups, group_name


def split_within_groups(
    sensitive_features: Any, n_samples: int, test_size: float, random_state: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random rows for training and for tests in each group; warns of groups of a single row."""
    rng = check_random_state(random_state)
    if sensitive_features is None:
        group, labels = np.zeros(n_samples, dtype=np.int64), np.array(["all"])
    else:
        group, labels = encode_groups(sensitive_features, n_samples)
    shuffled = rng.permutation(n_samples)
    shuffled = shuffled[np.argsort(group[shuffled], kind="stable")]
    sizes = np.bincount(group, minlength=len(labels))
    n_test = np.rint(test_size * sizes).astype(np.int64)
    n_test[sizes > 1] = np.clip(n_test, 1, np.maximum(sizes - 1, 1))[sizes > 1]
    n_test[sizes <= 1] = 0
    place = np.arange(n_samples) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    in_test = place < np.repeat(n_test, sizes)
    if (n_test == 0).any() and sensitive_features is not None:
        named = ", ".join(group_name(labels[g]) for g in np.flatnonzero(n_test == 0))
        warn_caller(
            f"The certificate says nothing about groups of a single row: {named}.",
            SmallGroupWarning,
        )
    return np.sort(shuffled[~in_test]), np.sort(shuffled[in_test])

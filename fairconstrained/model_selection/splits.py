"""Folds with equal proportions of labels and groups, and a split within each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from fairconstrained.arrays import in_rows
from fairconstrained.exceptions import SmallGroupWarning, ignoring, warn_caller
from fairconstrained.inputs.groups import encode_groups, group_name
from fairconstrained.inputs.labels import check_labels, encode_labels
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import listed


class StratifiedSensitiveKFold(StratifiedKFold):  # type: ignore[misc]
    """K folds with the same proportions of every label within every group.

    The strata of :class:`sklearn.model_selection.StratifiedKFold` are the combinations of label and
    group, so that the rates of each group can be measured in each fold.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether to shuffle each stratum before it is split.
    random_state : int, RandomState instance or None, default=None
        Seed of the shuffling.

    Notes
    -----
    With metadata routing enabled, scikit-learn's searches pass `sensitive_features`. Without it,
    pass them as ``groups=``.

    Examples
    --------
    >>> from fairconstrained.model_selection import StratifiedSensitiveKFold
    >>> y, sex = [0, 0, 0, 0, 1, 1, 1, 1], ["f", "f", "m", "m", "f", "f", "m", "m"]
    >>> cv = StratifiedSensitiveKFold(n_splits=2)
    >>> [test.tolist() for _, test in cv.split(y, y, sensitive_features=sex)]
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    """

    __metadata_request__split = {"sensitive_features": True}  # noqa: RUF012 (scikit-learn's way)

    def split(
        self, X: Any, y: ArrayLike, groups: Any = None, sensitive_features: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield indices of the training and test rows of each fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Only its length matters.
        y : array-like of shape (n_samples,)
        groups : array-like, optional
            Sensitive features, for callers that pass ``groups`` only.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns), optional
            One group per combination of values; of groups known with a probability the likeliest
            one counts. Without them, strata are the labels.

        Raises
        ------
        ValueError
            Both `groups` and `sensitive_features`, missing values, lengths that differ, or no
            stratum with as many rows as there are folds. A SmallGroupWarning names strata with
            fewer: some folds lack them.
        """
        if groups is not None and sensitive_features is not None:
            raise ValueError("Give sensitive_features or groups, not both: they mean the same.")
        sensitive = groups if sensitive_features is None else sensitive_features
        check_samples(X=X, y=y, sensitive_features=sensitive)
        (label,), classes = encode_labels(check_labels(y, "y"))
        if sensitive is None:
            strata, names = label, [f"label {c!r}" for c in classes]
        else:
            encoded = encode_groups(sensitive, len(label))
            labels = encoded.labels
            strata = label * (len(labels) + 1) + encoded.likeliest() % (len(labels) + 1)
            groups_named = [*(f"group {group_name(g)}" for g in labels), "an unknown group"]
            names = [f"label {c!r} in {group}" for c in classes for group in groups_named]
        counts = np.bincount(strata, minlength=len(names))
        small = (counts > 0) & (counts < self.n_splits)
        few = (f"{names[i]}: {in_rows(counts[i])}" for i in np.flatnonzero(small))
        words = listed(few, between="; ")
        if small.sum() == (counts > 0).sum():
            raise ValueError(
                f"n_splits={self.n_splits} is more than the rows of every stratum ({words})."
            )
        if small.any():
            message = f"Fewer rows than n_splits={self.n_splits}, hence missing in some folds: "
            warn_caller(message + words, SmallGroupWarning)
        with ignoring(UserWarning):  # scikit-learn's speaks of classes, not strata
            folds = list(super().split(X, strata))
        yield from folds

    def get_n_splits(
        self, X: Any = None, y: Any = None, groups: Any = None, sensitive_features: Any = None
    ) -> int:
        """Return the number of folds; the arguments, which searches pass, are ignored."""
        return int(self.n_splits)


def holdout_split(
    n_samples: int, test_size: float, random_state: Any, sensitive_features: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows at random, within each group, for training and tests; warn of single rows."""
    if n_samples == 0:
        raise ValueError("X must have rows to split for training and tests; got none.")
    groups = np.zeros(n_samples) if sensitive_features is None else sensitive_features
    group, labels = encode_groups(groups, n_samples).certain("CertifiedClassifier")
    group %= len(labels) + 1  # rows of unknown group are one more
    shuffled = check_random_state(random_state).permutation(n_samples)
    sizes = np.bincount(group, minlength=len(labels))
    wanted = np.rint(test_size * sizes).astype(np.int64)
    n_test = np.clip(wanted, np.minimum(1, sizes - 1), sizes - 1)
    in_order = shuffled[np.argsort(group[shuffled], kind="stable")]
    rows_of_groups = np.split(in_order, np.cumsum(sizes)[:-1])
    test = np.concatenate([rows[:n] for rows, n in zip(rows_of_groups, n_test, strict=True)])
    if (n_test[: len(labels)] == 0).any() and sensitive_features is not None:
        named = listed(group_name(labels[g]) for g in np.flatnonzero(n_test[: len(labels)] == 0))
        warn_caller(
            f"The certificate says nothing about groups of a single row: {named}.",
            SmallGroupWarning,
        )
    return np.setdiff1d(np.arange(n_samples), test), np.sort(test)

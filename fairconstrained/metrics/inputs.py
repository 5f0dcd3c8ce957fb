"""Checks of arguments, the table of counts of all rates, and predictions of fitted models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn import config_context

from fairconstrained import rates
from fairconstrained.arrays import Array, Floats, Ints, check_array, check_samples
from fairconstrained.engines.columns import where_rows_are
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.metrics.metric import GroupRates, standing_for_all
from fairconstrained.rates import Rate, Rates

UNSEEN = "another label"  # stands for the second class where only one label was seen
# Gaps in these rates are the same for either of two classes.
OF_EITHER = (rates.selection_rates, rates.odds, rates.predictive_values, rates.error_rates)


class GroupedRows(NamedTuple):
    """The group and the weight of rows whose group is known.

    A sample that belongs to groups by shares is a row of each, of so much weight.
    """

    row: Any  # its place among the samples: indices, or a slice of all
    share: Any  # of the sample in the group: 1, or an array
    group: Ints
    labels: list[Any]  # of the groups
    weight: Floats

    @property
    def names(self) -> list[str]:
        """Names of the groups in messages."""
        return [group_name(label) for label in self.labels]

    def sizes(self) -> Array:
        """Return the number of samples of each group, by shares."""
        if np.ndim(self.share):
            return np.bincount(self.group, self.share, len(self.labels))
        return np.bincount(self.group, minlength=len(self.labels))

    def by_sample(self, values: Array) -> Array:
        """Return values of rows (m, n_rows), summed over the rows of each sample."""
        if not np.ndim(self.share):
            return values
        first, of_row = np.unique(self.row, return_inverse=True)
        one = np.ones(len(of_row))
        samples = csr_array((one, (np.arange(len(of_row)), of_row)), (len(of_row), len(first)))
        return np.asarray(values @ samples)

    def products(self, cell: Ints, n_cells: int) -> Array | None:
        """Return sums of products of the weights of samples in two groups, by cell of the rows."""
        if isinstance(self.row, slice):
            return None
        shape, found = (int(self.row.max(initial=0)) + 1, len(self.labels)), []
        for c in range(n_cells):
            own = cell == c
            member = csr_array((self.weight[own], (self.row[own], self.group[own])), shape)
            found.append((member.T @ member).toarray())
        return np.stack(found)

    def sums(self, values: Array) -> Floats:
        """Return the weighted sum of each group."""
        weights: Floats = self.weight * values
        return np.asarray(np.bincount(self.group, weights, len(self.labels)), dtype=float)

    def effective(self) -> Floats:
        """Return the number of equally weighted rows that say as much, by group (Kish 1965)."""
        total, squares = self.sums(np.ones(1)), self.sums(self.weight)
        return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))


class Counts(NamedTuple):
    """Weight of the rows of each group with each true and each predicted label.

    With two classes the rates of the positive one are compared, with more those of each class. If
    the smaller of two labels is 1, either may be the positive one: scikit-learn and fairlearn take
    1 for predicted labels, and the larger label for scores. Gaps are equal for both.
    """

    table: Array  # (n_groups, n_classes true, n_classes predicted)
    groups: list[str]
    classes: list[Any]
    candidates: list[int]  # positions of the classes that are compared; of two, both if either may
    effective: Floats  # number of rows by group
    #: By cell of true and predicted label, sums of products of the weights of samples in two
    #: groups, (n_cells, n_groups, n_groups), unless each sample is in one known group.
    products: Array | None = None

    @property
    def targets(self) -> list[int]:
        """The same where it matters which of two classes is the positive one."""
        return self.decided().candidates

    def decided(self) -> Counts:
        """Return these counts if the positive one of two classes is known; raise otherwise."""
        if len(self.candidates) == len(self.classes) == 2:
            raise ValueError(
                f"pos_label must say which of the labels {self.classes} is the positive one; got "
                f"None. scikit-learn and fairlearn take 1, the larger label is {self.classes[1]!r}."
            )
        return self

    def definitions(self, notion: Rates) -> Iterator[Rate]:
        """Return the rates of a criterion on these classes."""
        return notion(self.classes, self.candidates if notion in OF_EITHER else self.targets)

    def rates(self, notion: Rates) -> GroupRates:
        """Return the rates of each group."""
        hits, possible, given = [], [], []
        for rate in self.definitions(notion):
            hits.append((self.table * rate.hits).sum(axis=(1, 2)))
            possible.append((self.table * rate.possible).sum(axis=(1, 2)))
            given.append(rate.given)
        return GroupRates(np.stack(hits, axis=1), np.stack(possible, axis=1), given, self.groups)


def check_labels(values: ArrayLike, name: str, n_samples: int | None = None) -> Array:
    """Return one-dimensional class labels without missing values; errors say `name`."""
    labels = check_array(values, ensure_2d=False, dtype=None, input_name=name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must have one label per row; got shape {labels.shape}.")
    if n_samples is not None and len(labels) != n_samples:
        raise ValueError(f"{name} has {len(labels)} rows, but y_true has {n_samples}.")
    if pd.isna(labels).any():
        raise ValueError(f"{name} has missing values.")
    if pd.api.types.infer_dtype(labels).startswith("mixed"):
        raise ValueError(f"{name} must hold labels of one type; got some text and some numbers.")
    if labels.dtype.kind == "f" and (fractions := labels[labels != np.floor(labels)]).size:
        raise ValueError(
            f"{name} must hold class labels; got {fractions[0]}. Turn scores or probabilities "
            "into labels first (scores > 0, probabilities > 0.5)."
        )
    return np.asarray(labels)


def check_scores(y_score: ArrayLike, n_samples: int | None = None) -> Floats:
    """Return one score per row: the only column, or that of the positive class of two."""
    scores = check_array(y_score, ensure_2d=False, dtype=np.float64, input_name="y_score")
    if scores.ndim == 2 and scores.shape[1] <= 2:
        scores = scores[:, -1]
    if scores.ndim != 1 or (n_samples is not None and len(scores) != n_samples):
        expected = "(n_samples,)" if n_samples is None else f"({n_samples},)"
        raise ValueError(
            f"y_score must have shape {expected}, one score per row, or two columns of "
            f"probabilities; got {scores.shape}."
        )
    return np.asarray(scores)


def check_weights(sample_weight: ArrayLike | None, n_samples: int) -> Floats:
    """Return non-negative weights, one per row; ones for None."""
    if sample_weight is None:
        return np.ones(n_samples)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight per row; got {weight.shape}."
        )
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative; got {weight.min()}.")
    return np.asarray(weight)


def grouped_rows(
    label: Ints | int, sensitive_features: Any, sample_weight: ArrayLike | None, **inputs: Any
) -> GroupedRows:
    """Check what all metrics take, and that `inputs` have the same samples in the same order.

    Rows of known group stand for all rows of their `label`, of which there may be none: then it is
    the number of samples.
    """
    label = np.zeros(label, dtype=np.int64) if isinstance(label, int) else label
    n_samples = len(label)
    check_samples(**inputs, sensitive_features=sensitive_features, sample_weight=sample_weight)
    weight = check_weights(sample_weight, n_samples)
    if sensitive_features is None:
        raise ValueError("sensitive_features must hold one group per row; got None.")
    groups = encode_groups(sensitive_features, n_samples)
    if not groups.known.all():
        weight = standing_for_all(groups.known, label, weight)
    row, group, share = groups.copies()
    return GroupedRows(row, share, group, groups.labels.tolist(), weight[row] * share)


def encode_labels(*arrays: Array) -> tuple[list[Ints], list[Any]]:
    """Return codes of the labels of each array in the sorted union of their labels."""
    kinds = {"text" if isinstance(array[0], str) else "numbers" for array in arrays}
    if len(kinds) > 1:
        raise ValueError(
            f"y_true and y_pred must hold the same kind of labels; got {arrays[0][0]!r} and "
            f"{arrays[-1][0]!r} in their first rows."
        )
    codes, seen = pd.factorize(np.concatenate(arrays), sort=True)
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return np.split(codes.astype(np.int64), ends), seen.tolist()


def classes_of(seen: list[Any], pos_label: Any) -> tuple[list[Any], list[int]]:
    """Return all classes (`seen` first), and the positions of those that a criterion looks at.

    With two classes this is the positive one (`pos_label`, or the larger), with more it is each. If
    only one label was seen, a second class without rows is added. 0, -1 and False are then the
    negative label, and anything else is the positive one.
    """
    if len(seen) == 1:
        negative = seen[0] in (0, -1) if pos_label is None else seen[0] != pos_label
        return [*seen, UNSEEN if pos_label is None else pos_label], [int(negative)]
    if pos_label is None:
        return seen, [1] if len(seen) == 2 else list(range(len(seen)))
    if pos_label not in seen:
        raise ValueError(f"pos_label must be one of the labels {seen}; got {pos_label!r}.")
    return seen, [seen.index(pos_label)]


def two_labels(y_true: ArrayLike, name: str, pos_label: Any) -> tuple[Ints, list[Any], int]:
    """Return the code of each row's label, the two labels, and the position of the positive one."""
    (codes,), seen = encode_labels(check_labels(y_true, name))
    classes, targets = classes_of(seen, pos_label)
    if len(classes) > 2:
        raise ValueError(f"{name} must have two labels; got {classes}.")
    return codes, classes, targets[0]


class Labels(NamedTuple):
    """Positions of true and predicted labels among the classes."""

    true: Ints
    predicted: Ints
    classes: list[Any]
    candidates: list[int]

    def of(self, rows: GroupedRows) -> Labels:
        """The labels of these rows."""
        return self._replace(true=self.true[rows.row], predicted=self.predicted[rows.row])


def read_labels(
    y_true: ArrayLike, y_pred: ArrayLike, pos_label: Any, known: Sequence[Any] = ()
) -> Labels:
    """Check labels, and find the classes that are compared; those `known` need not occur."""
    true = check_labels(y_true, "y_true")
    predicted = check_labels(y_pred, "y_pred", len(true))
    others = [np.asarray(known)] if len(known) else []
    (true, predicted, *_), seen = encode_labels(true, predicted, *others)
    classes, candidates = classes_of(seen, pos_label)
    if pos_label is None and len(seen) == 2 and seen[0] == 1:
        candidates = [0, 1]
    return Labels(true, predicted, classes, candidates)


def count_table(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Counts:
    """Count the rows of each group x true label x predicted label."""
    labels = read_labels(y_true, y_pred, pos_label)
    given = {"y_true": y_true, "y_pred": y_pred}
    rows = grouped_rows(labels.true, sensitive_features, sample_weight, **given)
    return counted(rows, labels.of(rows))


def counted(rows: GroupedRows, labels: Labels) -> Counts:
    """Count rows, in one pass."""
    true, predicted, classes, candidates = labels
    shape = (len(rows.labels), len(classes), len(classes))
    cell = np.ravel_multi_index((rows.group, true, predicted), shape)
    table = np.bincount(cell, weights=rows.weight, minlength=int(np.prod(shape))).reshape(shape)
    products = rows.products(true * len(classes) + predicted, len(classes) ** 2)
    return Counts(table, rows.names, classes, candidates, rows.effective(), products)


def last_step(estimator: Any) -> Any:
    """Return the estimator at the end of a pipeline, also of one within another; else itself."""
    while hasattr(estimator, "steps"):
        estimator = estimator[-1]
    return estimator


def predicted(estimator: Any, X: Any, sensitive_features: Any, method: str = "predict") -> Any:
    """Call a prediction method, with the groups if the last step reads them."""

    def output(X: Any, groups: Any) -> Any:
        if not getattr(last_step(estimator), "group_features", False):
            return getattr(estimator, method)(X)
        with config_context(enable_metadata_routing=True):
            return getattr(estimator, method)(X, sensitive_features=groups)

    return where_rows_are(output, estimator, X, sensitive_features)


def scores_of(estimator: Any, X: Any, sensitive_features: Any) -> Any:
    """Return its ``decision_function`` or, without one, the probabilities of the second class."""
    if hasattr(estimator, "decision_function"):
        return predicted(estimator, X, sensitive_features, "decision_function")
    return predicted(estimator, X, sensitive_features, "predict_proba")[:, 1]

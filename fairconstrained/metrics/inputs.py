"""Checks of arguments, the table of counts of all rates, and predictions of fitted models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn import config_context

from fairconstrained.arrays import Array, Floats, Ints, as_numpy, check_array, check_has
from fairconstrained.engines.columns import where_rows_are
from fairconstrained.inputs.groups import Groups, encode_groups, group_name, groups_by
from fairconstrained.inputs.labels import Classes, check_labels, classes_of, encode_labels
from fairconstrained.inputs.samples import check_length, check_samples, check_weights
from fairconstrained.metrics.metric import GroupRates, standing_for_all
from fairconstrained.rate_definitions import Rate, Rates, is_symmetric

# A model is nearly constant if at most this share of its predictions differ from the most frequent
# one: its gaps are small because it distinguishes nobody.
CONSTANT = 0.01


def nearly_constant(predictions: Any) -> bool:
    """Return whether all but a hundredth of the predictions, (n,) or (n, K), are the same."""
    values = as_numpy(predictions)
    rows = values if values.ndim == 1 else np.ascontiguousarray(values).view(f"V{values[0].nbytes}")
    _, counts = np.unique(rows, return_counts=True)
    return bool(counts.max() >= (1.0 - CONSTANT) * len(values))


class GroupedRows(NamedTuple):
    """The group and the weight of rows whose group is known.

    A sample with shares in several groups has a row in each, with its share of the weight.
    """

    row: Any  # its place among the samples: indices, or a slice of all
    share: Any  # of the sample in the group: 1, or an array
    group: Ints
    labels: list[Any]  # of the groups
    weight: Floats

    @property
    def names(self) -> list[str]:
        """Return the names of the groups in messages."""
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
        shape, sums = (int(self.row.max(initial=0)) + 1, len(self.labels)), []
        for c in range(n_cells):
            inside = cell == c
            places = self.row[inside], self.group[inside]
            member = csr_array((self.weight[inside], places), shape)
            sums.append((member.T @ member).toarray())
        return np.stack(sums)

    def sums(self, values: Array) -> Floats:
        """Return the weighted sum of each group."""
        weights: Floats = self.weight * values
        return np.asarray(np.bincount(self.group, weights, len(self.labels)), dtype=float)

    def effective(self) -> Floats:
        """Return the effective sample size of each group (Kish 1965)."""
        total, squares = self.sums(np.ones(1)), self.sums(self.weight)
        return np.asarray(total**2 / np.where(squares > 0, squares, 1.0))


class Counts(NamedTuple):
    """Weight of the rows of each group with each true and each predicted label.

    With two classes the rates of the favourable one are compared, with more those of each class.
    """

    table: Array  # (n_groups, n_classes true, n_classes predicted)
    groups: list[str]
    classes: Classes
    squares: Array  # the same table, of the squares of the weights
    rows: Ints  # the same, the number of rows that have a weight
    #: By cell of true and predicted label, sums of products of the weights of samples in two
    #: groups, (n_cells, n_groups, n_groups), unless each sample is in one known group.
    products: Array | None = None

    def definitions(self, notion: Rates, by_ratio: bool = False) -> Iterator[Rate]:
        """Define the rates of a criterion; the favourable label must be known if it matters."""
        if not is_symmetric(notion, by_ratio):
            self.classes.require_known()
        return notion(self.classes.labels, self.classes.targets)

    def rates(self, notion: Rates, by_ratio: bool = False) -> GroupRates:
        """Return the rates of each group, to be compared by differences or ratios."""
        return self.measured(list(self.definitions(notion, by_ratio)))

    def measured(self, rates: Sequence[Rate]) -> GroupRates:
        """Return the given rates of each group."""
        hits = [(self.table * rate.hits).sum(axis=(1, 2)) for rate in rates]
        rows = [(self.table * rate.possible).sum(axis=(1, 2)) for rate in rates]
        return GroupRates(
            np.stack(hits, axis=1),
            np.stack(rows, axis=1),
            [rate.condition for rate in rates],
            self.groups,
            [rate.event + rate.condition for rate in rates],
        )


def check_scores(y_score: ArrayLike) -> Floats:
    """Check scores and return one per row: the only column, or the second of two."""
    scores = check_array(y_score, ensure_2d=False, dtype=np.float64, input_name="y_score")
    if scores.ndim == 2 and scores.shape[1] <= 2:
        scores = scores[:, -1]
    if scores.ndim != 1:
        raise ValueError(
            "y_score must have shape (n_samples,), one score per row, or two columns of "
            f"probabilities; got {scores.shape}."
        )
    return np.asarray(scores)


def grouped_rows(
    label: Ints | int, sensitive_features: Any, sample_weight: ArrayLike | None, **inputs: Any
) -> GroupedRows:
    """Check the arguments that all metrics share, and return the rows by group.

    Rows of known group represent all rows of their `label`; where there are no labels, this is the
    number of samples.
    """
    label = np.zeros(label, dtype=np.int64) if isinstance(label, int) else label
    check_samples(**inputs, sensitive_features=sensitive_features, sample_weight=sample_weight)
    weight = check_weights(sample_weight, len(label))
    return rows_of_groups(encode_groups(sensitive_features, len(label)), label, weight)


def rows_of_groups(groups: Groups, label: Ints, weight: Floats) -> GroupedRows:
    """Return the rows of known group, weighted to represent all rows of their label."""
    if not groups.known.all():
        weight = standing_for_all(groups.known, label, weight)
    row, group, share = groups.copies()
    return GroupedRows(row, share, group, groups.labels.tolist(), weight[row] * share)


class Labels(NamedTuple):
    """Positions of true and predicted labels among the classes."""

    true: Ints
    predicted: Ints
    classes: Classes

    def of(self, rows: GroupedRows) -> Labels:
        """Select the labels of grouped rows."""
        return self._replace(true=self.true[rows.row], predicted=self.predicted[rows.row])


def read_labels(
    y_true: ArrayLike, y_pred: ArrayLike, pos_label: Any, known: Sequence[Any] = ()
) -> Labels:
    """Check labels and find the classes to compare; labels that are `known` need not occur."""
    true, predicted = check_labels(y_true, "y_true"), check_labels(y_pred, "y_pred")
    check_length("y_pred", len(predicted), len(true), "y_true")
    others = [np.asarray(known)] if len(known) else []
    (true, predicted, *_), seen = encode_labels(true, predicted, *others)
    return Labels(true, predicted, classes_of(seen, pos_label, y_true, y_pred))


def count_table(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Counts:
    """Check the arguments of a metric of rates and count the rows of each cell."""
    labels = read_labels(y_true, y_pred, pos_label)
    samples = {"y_true": y_true, "y_pred": y_pred}
    rows = grouped_rows(labels.true, sensitive_features, sample_weight, **samples)
    return counted(rows, labels.of(rows))


def counted(rows: GroupedRows, labels: Labels) -> Counts:
    """Count rows by group, true label and predicted label."""
    true, predicted, classes = labels
    n_classes, weight = len(classes.labels), rows.weight
    shape = (len(rows.labels), n_classes, n_classes)
    cell, n_cells = np.ravel_multi_index((rows.group, true, predicted), shape), int(np.prod(shape))
    table, squares, n_rows = (
        np.bincount(cell, values, n_cells).reshape(shape)
        for values in (weight, weight**2, weight != 0)
    )
    products = rows.products(true * n_classes + predicted, n_classes**2)
    return Counts(table, rows.names, classes, squares, n_rows.astype(np.int64), products)


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, nested or not, or any other estimator unchanged."""
    while hasattr(estimator, "steps"):
        estimator = estimator[-1]
    return estimator


def grouped_within(model: Any) -> list[Any]:
    """Return the models that know groups: a model itself, or those that it wraps."""
    model = last_step(model)
    if hasattr(model, "groups_"):
        return [model]
    one = ("best_estimator_", "estimator_", "estimator")
    several = ("calibrated_classifiers_", "estimators_")
    wrapped = [getattr(model, name) for name in one if hasattr(model, name)]
    wrapped += [inside for name in several for inside in getattr(model, name, ())]
    return [known for inside in wrapped for known in grouped_within(inside)]


def known_groups(
    model: Any, sensitive_features: Any, control_features: Any = None, place: int | None = None
) -> list[Any]:
    """Return the groups that a model knows in given columns, or in the column at `place` only."""
    columns = sensitive_features, control_features
    by_model = (groups_by(one, *columns, place) for one in grouped_within(model))
    return list(dict.fromkeys(group for groups in by_model for group in groups))


def predicted(estimator: Any, X: Any, sensitive_features: Any, method: str = "predict") -> Any:
    """Call a prediction method, with the groups if the last step reads them."""
    check_has("estimator", estimator, method)

    def output(X: Any, groups: Any) -> Any:
        if not getattr(last_step(estimator), "group_features", False):
            return getattr(estimator, method)(X)
        with config_context(enable_metadata_routing=True):
            return getattr(estimator, method)(X, sensitive_features=groups)

    return where_rows_are(output, estimator, X, sensitive_features)


def scores_of(estimator: Any, X: Any, sensitive_features: Any) -> Any:
    """Return the decision function of an estimator or, without one, the second probability."""
    check_has("estimator", estimator, "decision_function", "predict_proba")
    if hasattr(estimator, "decision_function"):
        return predicted(estimator, X, sensitive_features, "decision_function")
    return predicted(estimator, X, sensitive_features, "predict_proba")[:, 1]

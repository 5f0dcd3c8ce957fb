"""Fits on rows in parts: shards of workers, and blocks that are read in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples
from torch import Generator, Tensor

from fairconstrained.arrays import Array, rows_of
from fairconstrained.blocks import Blocks
from fairconstrained.distributed import ALONE, Workers, refuse_difference
from fairconstrained.estimators._inputs import (
    Given,
    TrainingRows,
    checked_weight,
    last_description,
)
from fairconstrained.inputs.groups import (
    UncertainGroups,
    columns_of,
    computed,
    encode_groups,
    joined,
    kind_of_labels,
    read_groups,
    recoded,
)
from fairconstrained.inputs.labels import order_of, plain_labels
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.short_forms import as_specification
from fairconstrained.models.specification import Specification
from fairconstrained.solvers.base import check_solves

if TYPE_CHECKING:
    from fairconstrained.estimators._base import FairClassifier
    from fairconstrained.estimators._training import Training

_ENCODED_ROWS = 1 << 20  # labels that are made indices at a time
_LINEAR = (
    "rows in parts (sharded_rows, Blocks) are for linear models. Private fits take those of "
    "sharded_rows. Networks on several workers: fairconstrained.training.train."
)
_UNCOMPARED = ("callbacks", "verbose", "random_state", "device")  # parameters that may differ


def check_parts(training: Training, X: Any) -> None:
    """Refuse a fit on rows in parts that is not exact, before any work."""
    name, specification = type(training.estimator).__name__, training.specification
    in_blocks, of_posteriors = isinstance(X, Blocks), isinstance(specification, Posteriors)
    refused = (
        ("epsilon must be None to read Blocks", in_blocks and training.is_private, _LINEAR),
        ("model must be linear or a fitted classifier", not training.is_linear, _LINEAR),
        ("model must be 'linear' with epsilon", of_posteriors and training.is_private, _LINEAR),
        ("model must be linear to read Blocks", in_blocks and of_posteriors, _LINEAR),
        (
            f"model cannot be {type(specification).__name__}",
            specification.needs_label_rates,
            _LINEAR,
        ),
    )
    for words, is_wrong, why in refused:
        if is_wrong:
            raise ValueError(f"{name}.{words}: {why}")
    if of_posteriors and not isinstance(specification.estimator, FrozenEstimator):
        raise ValueError(
            f"{name}.model must be 'linear' or a fitted classifier, FrozenEstimator(classifier), "
            "within sharded_rows: another would learn from the rows of one worker. Fit it before, "
            "to other rows than these; its constrained head is trained on the rows of all."
        )
    check_solves(training.solver, training.problem_class, in_memory=False)


def checked(blocks: Blocks, n_rows: int, check: Callable[[Any], Any]) -> Iterator[Any]:
    """Each block as an array or sparse matrix of numbers, which together must have `n_rows`."""
    n_read = 0
    for block in filled(blocks):
        X = check(block)
        n_read += X.shape[0]
        if n_read > n_rows:
            break
        yield X
    if n_read != n_rows:
        more = " or more" if n_read > n_rows else ""
        raise ValueError(
            f"the blocks of X have {n_read}{more} rows, but y has {n_rows}: labels are those of "
            "the rows of all blocks, one after the other."
        )


def filled(blocks: Iterable[Any]) -> Iterator[Any]:
    """Blocks that have rows: files and filters may give empty ones."""
    for block in blocks:
        shape = np.shape(block)
        if len(shape) != 2:
            raise ValueError(
                "Blocks.read must give blocks of two dimensions, rows and columns; got a "
                f"{type(block).__name__} of shape {shape}."
            )
        if shape[0]:
            yield block


def rows_of_blocks(estimator: FairClassifier, given: Given) -> TrainingRows:
    """Rows whose labels and groups are small integers, and whose X is read in every pass."""
    blocks, sample_weight = given.X, given.sample_weight
    first = next(filled(blocks), None)
    if first is None:
        raise ValueError("Blocks.read gives no rows.")
    y = check_array(column_or_1d(plain_labels(given.y), warn=True), ensure_2d=False, dtype=None)
    check_classification_targets(y)
    specification = as_specification(estimator.model)
    n_first = np.shape(first)[0]
    specification.training_rows(estimator, first, np.resize(y, n_first))
    X = Blocks(lambda: checked(blocks, len(y), partial(specification.new_rows, estimator)))
    for _ in X:  # validate all blocks before any work
        pass
    if sample_weight is None:
        weight = np.broadcast_to(1.0, len(y))
    else:
        weight = checked_weight(sample_weight, len(y))
        if not weight.all():
            raise ValueError("sample_weight must be positive with Blocks; leave these rows out.")
    codes, classes = encoded(y, len(y), "y")
    if (codes < 0).any():
        raise ValueError(f"y has missing values (first at row {int((codes < 0).argmax())}).")
    group = groups = names = None
    if given.sensitive_features is not None:
        columns = computed(given.sensitive_features)
        if not isinstance(columns, UncertainGroups):
            columns = columns_of(columns)
            if (before := last_description(estimator)) is not None:
                columns = before.in_order(columns, "sensitive_features")
            names = tuple(columns)
        one = next(iter(columns.values())) if isinstance(columns, dict) else columns
        n_given = _num_samples(one)
        if n_given != len(y):
            raise ValueError(f"sensitive_features has {n_given} rows, but y has {len(y)}.")
        group, groups = encoded(columns, len(y), "sensitive_features")
    rows = TrainingRows(X, codes, group, weight, classes, groups)
    return replace(rows, columns=names, order=order_of(given.y))


def encoded(values: Any, n_samples: int, name: str) -> tuple[Array, Array]:
    """Return codes as integers of few bytes, and labels, from some rows at a time."""
    if isinstance(values, UncertainGroups):
        return encode_groups(values)
    starts = range(0, n_samples, _ENCODED_ROWS)
    pieces = []
    for start in starts:
        some = rows_of(values, slice(start, start + _ENCODED_ROWS))
        (codes, labels), _ = read_groups(some, name=name)
        pieces.append((codes.astype(np.min_scalar_type(-len(labels) - 1)), labels))
    labels, places = joined([own for _, own in pieces])
    small = np.min_scalar_type(-len(labels) - 1)  # with a sign, as torch has it
    moved = [recoded(own, at).astype(small) for at, (own, _) in zip(places, pieces, strict=True)]
    return np.concatenate(moved), labels


def agreed(estimator: FairClassifier, rows: TrainingRows, workers: Workers) -> TrainingRows:
    """Return the rows with labels, groups and units of weight of all workers, which must agree."""
    found, params = vars(estimator), estimator.get_params(deep=False)
    names, start = found.get("feature_names_in_"), None
    if estimator.warm_start and "classes_" in found:  # a fingerprint of where it begins
        last = [found.get(name, ()) for name in ("coef_", "intercept_", "multipliers_")]
        start = float(np.linalg.norm(np.concatenate([np.ravel(part) for part in last])))
    same = {
        "parameters": plain({k: params[k] for k in sorted(params) if k not in _UNCOMPARED}),
        "last fits, where a warm start begins": start,
        "columns of X": (found.get("n_features_in_"), None if names is None else tuple(names)),
        "order of the labels in y": rows.order,
        "columns of sensitive_features": rows.columns,
        "numbers of control_features": rows.n_control,
    }
    ends = float(rows.weight.max()), float(rows.weight.min())
    kind = "shares" if np.ndim(rows.group) == 2 else kind_of_labels(rows.groups)
    said = workers.gather((same, rows.classes, rows.groups, kind, *ends))
    compared, all_classes, all_groups, kinds, heaviest, lightest = zip(*said, strict=True)
    refuse_other_kinds("labels in y", list(map(kind_of_labels, all_classes)))
    refuse_other_kinds("sensitive_features", kinds)
    for name in same:
        refuse_difference(name, [own[name] for own in compared])
    classes, places = joined(all_classes)
    rows = replace(rows, y=places[workers.rank][rows.y], classes=classes, workers=workers)
    if rows.groups is not None and rows.group.ndim == 2:
        refuse_difference("groups", [own.tolist() for own in all_groups])
    elif rows.groups is not None:
        groups, places = joined(all_groups)
        rows = replace(rows, group=recoded(rows.group, places[workers.rank]), groups=groups)
    return replace(rows, weight_range=(min(lightest), max(heaviest)))


def refuse_other_kinds(name: str, kinds: Sequence[str]) -> None:
    """Raise ValueError if labels of workers are of different kinds, except where one has none."""
    known = next(filter(None, kinds), "")
    refuse_difference(f"kinds of {name}", [kind or known for kind in kinds])


def plain(value: Any) -> Any:
    """Numbers and texts, also in arrays, sequences, mappings and parameters; else the type."""
    if isinstance(value, (Number, str, type(None))):
        return value if value == value else "nan"  # which is not equal to that of another worker
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, type):  # such as a dtype
        return value.__name__
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    name = type(value).__name__
    return [name, plain(value.get_params(deep=False))] if hasattr(value, "get_params") else name


def learnt_columns(
    specification: Posteriors, rows: TrainingRows, part_of_cell: Callable[[], Any], rng: Generator
) -> tuple[Any, Specification]:
    """The columns of the rows, and the specification that the first worker's rows have taught."""
    workers, table = rows.workers, None
    mine = replace(rows, workers=ALONE).cells
    refuse_lacking(rows, workers.gather(mine)[0], "the rows of the first worker")
    with workers.agreeing():
        if workers.rank == 0:
            table = specification.fit_transform(rows, part_of_cell, rng)
    fitted: Any = workers.gather(specification if workers.rank == 0 else None)[0]
    with workers.agreeing():
        if table is None:
            table = fitted.transform(rows.X)
    return table, fitted


def refuse_lacking(rows: TrainingRows, cells: Tensor, which: str) -> None:
    """Raise ValueError if some rows lack labels and groups that others have, given their cells."""
    lacking = ((rows.cells > 0) & (cells == 0)).numpy()
    lacking[:, len(rows.space.groups) :] = False  # nothing is learnt from rows of unknown group
    if lacking.any():
        without = np.eye(lacking.size, dtype=bool)[lacking.reshape(-1)].reshape(-1, *lacking.shape)
        raise ValueError(
            f"a classifier as model learns from {which}, which has no rows of "
            f"{'; '.join(map(rows.space.describe, without))}: shuffle the rows before they are "
            "divided."
        )

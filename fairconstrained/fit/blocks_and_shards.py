"""Rows in parts: blocks that are read in every pass, and shards of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from torch import Generator

from fairconstrained.arrays import Array, rows_of
from fairconstrained.blocks import Blocks
from fairconstrained.distributed import ALONE, Workers, refuse_difference
from fairconstrained.fit.rows import (
    FitInputs,
    TrainingRows,
    checked_weight,
    refuse_lacking,
    required,
    weightless_everywhere,
    with_rows,
)
from fairconstrained.fit.task import Task
from fairconstrained.inputs.groups import (
    UncertainGroups,
    coded_groups,
    columns_of,
    encode_groups,
    joined,
    recoded,
)
from fairconstrained.inputs.labels import order_of, plain_labels
from fairconstrained.inputs.samples import check_length
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.solvers.base import check_solves

# Labels that are made indices at a time: 8 MB of them, however many rows there are.
_ENCODED_ROWS = 1 << 20
_LINEAR = (
    "rows in parts (sharded_rows, Blocks) are for linear models. Private fits take those of "
    "sharded_rows. Networks on several workers: fairconstrained.training.train."
)
_UNCOMPARED = ("callbacks", "verbose", "random_state", "device")  # parameters that may differ


def check_parts(task: Task, X: Any) -> None:
    """Raise ValueError, before any work, unless a fit on rows in parts would be exact."""
    specification = task.specification
    in_blocks, wrapped = isinstance(X, Blocks), isinstance(specification, Posteriors)
    label_rates = specification.needs_label_rates
    refused = (
        ("epsilon must be None to read Blocks", in_blocks and task.is_private),
        ("model must be linear or a fitted classifier", not task.specification.is_linear),
        ("model must be 'linear' with epsilon", wrapped and task.is_private),
        ("model must be linear to read Blocks", in_blocks and wrapped),
        (f"model cannot be {type(specification).__name__}", label_rates),
    )
    for words, is_wrong in refused:
        if is_wrong:
            raise ValueError(f"{task.name}.{words}: {_LINEAR}")
    if wrapped and not isinstance(specification.estimator, FrozenEstimator):
        raise ValueError(
            f"{task.name}.model must be 'linear' or a fitted classifier, "
            "FrozenEstimator(classifier), within sharded_rows: any other would learn from one "
            "worker's rows alone. Fit it beforehand, on other rows; the constrained head is "
            "trained on the rows of all workers."
        )
    check_solves(task.solver, task.problem_class, in_memory=False)


def checked_blocks(blocks: Blocks, used: Array, check: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield the `used` rows of each block, as an array or sparse matrix of numbers."""
    n_read, n_rows = 0, len(used)
    for block in filled_blocks(blocks):
        X = check(block)
        n_read += X.shape[0]
        if n_read > n_rows:
            break
        rows = used[n_read - X.shape[0] : n_read]
        if rows.any():
            yield X if rows.all() else X[rows]
    if n_read != n_rows:
        more = " or more" if n_read > n_rows else ""
        raise ValueError(
            f"the blocks of X have {n_read}{more} rows, but y has {n_rows}: labels are those of "
            "the rows of all blocks, one after the other."
        )


def filled_blocks(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield blocks that have rows: files and filters may give empty ones."""
    named = set()
    for block in blocks:
        shape = np.shape(block)
        if len(shape) != 2:
            raise ValueError(
                "Blocks.read must give blocks of two dimensions, rows and columns; got a "
                f"{type(block).__name__} of shape {shape}."
            )
        if not shape[0]:
            continue
        named.add(hasattr(block, "columns"))
        if len(named) > 1:  # scikit-learn only warns, and columns may be in another order
            raise ValueError(
                "Blocks.read must give names of columns in all blocks or in none: DataFrames are "
                "mixed with arrays, whose columns may be in another order."
            )
        yield block


def rows_of_blocks(task: Task, estimator: Any, inputs: FitInputs) -> TrainingRows:
    """Return the rows of blocks, with labels and groups as small integers; X stays on disk."""
    blocks, specification = inputs.X, task.specification
    first = next(filled_blocks(blocks), None)
    if first is None:
        raise ValueError("Blocks.read gives no rows.")
    y = check_array(column_or_1d(plain_labels(inputs.y), warn=True), ensure_2d=False, dtype=None)
    check_classification_targets(y)
    specification.training_rows(estimator, first, np.resize(y, np.shape(first)[0]))
    check = partial(specification.new_rows, estimator)
    weight = np.broadcast_to(1.0, len(y))
    if inputs.sample_weight is not None:
        weight = checked_weight(inputs.sample_weight, len(y))
    used = weight > 0
    X = Blocks(lambda: checked_blocks(blocks, used, check))
    for _ in X:  # validate all blocks before any work
        pass
    group = groups = names = None
    weightless: tuple[Any, ...] = ()
    if inputs.sensitive_features is not None:
        columns = inputs.sensitive_features
        if not isinstance(columns, UncertainGroups):
            columns = columns_of(columns)
            if task.described is not None:
                columns = task.described.in_order(columns, "sensitive_features")
            names = tuple(columns)
        one = next(iter(columns.values())) if isinstance(columns, dict) else columns
        check_length("sensitive_features", len(one), len(y), "y")
        needed = required(task, inputs)
        group, groups = encoded(columns, len(y), "sensitive_features", needed)
    if not used.all():
        y, weight = y[used], weight[used]
        if group is not None and groups is not None:
            group, groups, weightless = with_rows(group[used], groups)
    codes, classes = encoded(y, len(y), "y")
    rows = TrainingRows(X, codes, group, weight, classes, groups)
    return replace(rows, columns=names, order=order_of(inputs.y), weightless=weightless)


def encoded(
    values: Any, n_samples: int, name: str, needed: int | None = None
) -> tuple[Array, Array]:
    """Return codes as integers of few bytes, and labels, reading some rows at a time."""
    if isinstance(values, UncertainGroups):
        return encode_groups(values)
    starts = range(0, n_samples, _ENCODED_ROWS)
    pieces = []
    for start in starts:
        piece = rows_of(values, slice(start, start + _ENCODED_ROWS))
        (codes, labels), _ = coded_groups(piece, name=name, required=needed)
        pieces.append((codes.astype(np.min_scalar_type(-len(labels) - 1)), labels))
    labels, places = joined([labels for _, labels in pieces], name)
    small = np.min_scalar_type(-len(labels) - 1)  # with a sign, as torch needs it
    each = zip(places, pieces, strict=True)
    return np.concatenate([recoded(codes, at).astype(small) for at, (codes, _) in each]), labels


def agreed(task: Task, estimator: Any, rows: TrainingRows, workers: Workers) -> TrainingRows:
    """Return the rows with the labels and groups of all workers, whose settings must agree."""
    # scikit-learn has noted the columns of X on the estimator.
    names, start = getattr(estimator, "feature_names_in_", None), None
    if task.last is not None:  # a fingerprint of its parameters
        last = [task.last.get(name, ()) for name in ("coef_", "intercept_", "multipliers_")]
        start = float(np.linalg.norm(np.concatenate([np.ravel(part) for part in last])))
    params = {k: value for k, value in sorted(task.params.items()) if k not in _UNCOMPARED}
    n_columns = getattr(estimator, "n_features_in_", None)
    form = None if rows.groups is None else "shares" if rows.group.ndim == 2 else "groups"
    same = {
        "parameters": plain(params),
        "last fits, where a warm start begins": start,
        "columns of X": (n_columns, None if names is None else tuple(names)),
        "order of the labels in y": rows.order,
        "kind of sensitive_features": form,
        "columns of sensitive_features": rows.columns,
        "numbers of control_features": rows.n_control,
    }
    ends = float(rows.weight.max()), float(rows.weight.min())
    answers = workers.gather((same, rows.classes, rows.groups, rows.weightless, *ends))
    compared, all_classes, all_groups, without, heaviest, lightest = zip(*answers, strict=True)
    for name in same:
        refuse_difference(name, [worker[name] for worker in compared])
    classes, places = joined(all_classes, "y")
    rows = replace(rows, y=places[workers.rank][rows.y], classes=classes, workers=workers)
    if rows.groups is not None and rows.group.ndim == 2:
        refuse_difference("groups", [labels.tolist() for labels in all_groups])
    elif rows.groups is not None:
        groups, places = joined(all_groups)
        rows = replace(rows, group=recoded(rows.group, places[workers.rank]), groups=groups)
        rows = replace(rows, weightless=weightless_everywhere(without, groups))
    return replace(rows, weight_range=(min(lightest), max(heaviest)))


def plain(value: Any) -> Any:
    """Return parameters as plain values that workers can compare, or the names of their types."""
    if isinstance(value, (Number, str, type(None))):
        return value if value == value else "nan"  # nan is not equal to another worker's nan
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


def columns_by_first_worker(
    specification: Posteriors, rows: TrainingRows, part_of_cell: Callable[[], Any], rng: Generator
) -> Any:
    """Return the columns of the rows, by models that the first worker fits for all."""
    workers, table = rows.workers, None
    cells = replace(rows, workers=ALONE).cells
    refuse_lacking(rows, workers.gather(cells)[0], "the rows of the first worker")
    with workers.agreeing():
        if workers.rank == 0:
            table = specification.fit_transform(rows, part_of_cell, rng)
    fitted: Any = workers.gather(specification.fitted_ if workers.rank == 0 else None)[0]
    specification.fitted_ = fitted
    with workers.agreeing():
        return specification.transform(rows.X) if table is None else table

"""Fits on rows in parts: shards of workers, and blocks that are read in every pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import NamedTuple

import numpy as np
import torch
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from fairconstrained.arrays import as_numpy, rows_of
from fairconstrained.blocks import Blocks
from fairconstrained.estimators._rows import TrainingRows, checked_weight
from fairconstrained.groups import Groups, computed, encode_groups
from fairconstrained.models import Posteriors
from fairconstrained.models.features import as_features
from fairconstrained.models.specification import LinearSpecification
from fairconstrained.problems.parted import PARTED
from fairconstrained.problems.parted_rows import PartedRows
from fairconstrained.solvers import check_solves
from fairconstrained.workers import ALONE, refuse_difference

_ENCODED_ROWS = 1 << 20  # labels that are made indices at a time
_UNCOMPARED = ("callbacks", "verbose", "random_state", "device")  # parameters that may differ
_KINDS = {"U": "text", "S": "text", "O": "objects"}  # of labels; all others are numbers


def check_parts(estimator, X):
    """Refuse a fit on rows in parts that is not exact, before any work."""
    name = type(estimator).__name__
    specification = estimator._specification()
    refused = {
        f"{name}.epsilon must be None to read Blocks": (
            isinstance(X, Blocks) and estimator.epsilon is not None
        ),
        f"{name}.model must be linear or a classifier": not isinstance(
            specification, LinearSpecification
        ),
        f"{name}.model must be linear to read Blocks": (
            isinstance(X, Blocks) and isinstance(specification, Posteriors)
        ),
    }
    wrong = [what for what, is_wrong in refused.items() if is_wrong]
    if wrong:
        raise ValueError(
            f"{wrong[0]}: rows in parts (sharded_rows, Blocks) are for linear models. Private "
            "fits take those of sharded_rows. Networks on several workers: "
            "fairconstrained.training.train."
        )
    kind = estimator._problem_class()
    check_solves(estimator._chosen_solver(), PARTED.get(kind, kind))  # private ones are sums


# ---------------------------------------------------------------------- blocks


def checked(blocks, n_rows, check):
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


def filled(blocks):
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


def rows_of_blocks(estimator, blocks, y, sensitive_features, sample_weight):
    """Rows whose labels and groups are small integers, and whose X is read in every pass."""
    first = next(filled(blocks), None)
    if first is None:
        raise ValueError("Blocks.read gives no rows.")
    y = check_array(column_or_1d(as_numpy(y), warn=True), ensure_2d=False, dtype=None)
    check_classification_targets(y)
    specification = estimator._specification()
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
    codes, classes = encoded(y, len(y), _encoded_labels)
    group = groups = None
    if sensitive_features is not None:
        given = computed(sensitive_features)
        n_given = _num_samples(next(iter(given.values())) if isinstance(given, dict) else given)
        if n_given != len(y):
            raise ValueError(f"sensitive_features has {n_given} rows, but y has {len(y)}.")
        group, groups = encoded(given, len(y), encode_groups)
    return TrainingRows(X, codes, group, weight, classes, groups, in_parts=True)


def encoded(values, n_samples, encode):
    """Codes as small integers, and labels, from some rows at a time."""
    starts = range(0, n_samples, _ENCODED_ROWS)
    pieces = [_small(encode(rows_of(values, slice(i, i + _ENCODED_ROWS)))) for i in starts]
    labels, places = joined([piece.labels for piece in pieces], encode)
    codes = (place[piece.codes] for place, piece in zip(places, pieces, strict=True))
    return np.concatenate([_small(Groups(own, labels)).codes for own in codes]), labels


def _small(piece):
    """Codes in as few bytes as their number takes, with a sign, as torch has it."""
    return piece._replace(codes=piece.codes.astype(np.min_scalar_type(-len(piece.labels))))


def joined(levels, encode):
    """All labels that occur in several lists of them, and where those of each list are in it."""
    of_tuples = levels[0].dtype == object and isinstance(levels[0][0], tuple)
    every = np.concatenate(levels)
    codes, labels = encode(np.array(every.tolist(), dtype=object) if of_tuples else every)
    return labels, np.split(codes, np.cumsum([len(own) for own in levels])[:-1])


def _encoded_labels(y):
    labels, codes = np.unique(y, return_inverse=True)
    return Groups(codes.reshape(-1), labels)


# ---------------------------------------------------------------------- workers


class _Said(NamedTuple):
    """What a worker says of its rows and parameters before training."""

    parameters: dict
    last_fit: float | None
    columns: tuple
    classes: np.ndarray
    groups: np.ndarray | None
    heaviest: float
    lightest: float


def agreed(estimator, rows, workers):
    """The rows with the labels, groups and units of weight of all workers.

    Raises
    ------
    ValueError
        If parameters, columns or types of labels and groups differ; on all workers alike.
    """
    if workers.size == 1:
        return rows
    found = vars(estimator)  # texts have neither
    names = found.get("feature_names_in_")
    columns = found.get("n_features_in_"), None if names is None else tuple(names)
    ends = float(rows.weight.max()), float(rows.weight.min())
    own = _comparable(estimator), _last_fit(estimator), columns
    said = workers.gather(_Said(*own, rows.classes, rows.groups, *ends))
    refuse_difference("parameters", [own.parameters for own in said])
    refuse_difference("last fits, where a warm start begins", [own.last_fit for own in said])
    refuse_difference("columns of X", [own.columns for own in said])
    refuse_difference("kinds of labels in y", [_kind(own.classes) for own in said])
    refuse_difference("kinds of sensitive_features", [_kind(own.groups) for own in said])
    classes, places = joined([own.classes for own in said], _encoded_labels)
    rows = replace(
        rows, y=places[workers.rank][rows.y], classes=classes, workers=workers, in_parts=True
    )
    if rows.groups is not None:
        groups, places = joined([own.groups for own in said], encode_groups)
        rows = replace(rows, group=places[workers.rank][rows.group], groups=groups)
    heaviest, lightest = max(own.heaviest for own in said), min(own.lightest for own in said)
    return replace(rows, weight_range=(lightest, heaviest))


def _comparable(estimator):
    """Parameters, of the estimator and of what it holds, as what can be compared."""
    params = estimator.get_params(deep=False)
    return _plain({name: params[name] for name in sorted(params) if name not in _UNCOMPARED})


def _plain(value):
    """Numbers and texts, also in arrays, sequences, mappings and parameters; else the type."""
    if isinstance(value, (Number, str, type(None))):
        return value if value == value else "nan"  # which is not equal to that of another worker
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if isinstance(value, type):  # such as a dtype
        return value.__name__
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    name = type(value).__name__
    return [name, _plain(value.get_params(deep=False))] if hasattr(value, "get_params") else name


def _last_fit(estimator):
    """Return a fingerprint of the solution at which a warm start begins: its norm."""
    if not estimator._is_warm():
        return None
    found = (getattr(estimator, name, ()) for name in ("coef_", "intercept_", "multipliers_"))
    return float(np.linalg.norm(np.concatenate([np.ravel(part) for part in found])))


def _kind(labels):
    if labels is None:
        return "none"
    return _KINDS.get(labels.dtype.kind, "numbers")


# ---------------------------------------------------------------------- columns


def learnt_columns(specification, rows, learn):
    """The columns of the rows, and the specification that has learnt them.

    A classifier learns from the rows of the first worker, and all get what it has learnt.
    """
    workers = rows.workers
    if not isinstance(specification, Posteriors) or workers.size == 1:
        return learn(specification), specification
    table = None
    _refuse_lack(rows)
    with workers.agreeing():
        if workers.rank == 0:
            table = learn(specification)
    specification = workers.gather(specification if workers.rank == 0 else None)[0]
    with workers.agreeing():
        if table is None:
            table = specification.transform(rows.X)
    return table, specification


def _refuse_lack(rows):
    """Refuse rows of which the first worker lacks a label and group that others have."""
    mine = replace(rows, workers=ALONE).cells
    lacking = rows.workers.gather((rows.cells > 0) & (mine == 0))[0].numpy()
    if lacking.any():
        named = [rows.space.describe(cell) for cell in _single_cells(lacking)]
        raise ValueError(
            "a classifier as model learns from the rows of the first worker, which has no rows of "
            f"{'; '.join(named)}: shuffle the rows before they are divided."
        )


def _single_cells(cells):
    """Each true entry as an array of its own."""
    for place in np.argwhere(cells):
        cell = np.zeros_like(cells)
        cell[tuple(place)] = True
        yield cell


def parted_rows(rows, table, columns, weight, device):
    """The rows as problems on rows in parts see them.

    Parameters
    ----------
    columns : callable
        Maps a table and the groups of its rows to the columns of the model. Those of blocks are
        made whenever a block is read.
    """

    def features(X, group):
        return as_features(columns(X, group), device)

    if isinstance(table, Blocks):
        blocks = Blocks(lambda: mapped(features, table, rows.group))
    else:
        blocks = [features(table, rows.group)]
    y, group = (torch.as_tensor(column, device=device) for column in (rows.y, rows.group))
    return PartedRows(blocks, y, group, _tensor(weight, device), rows.workers)


def mapped(function, blocks, group):
    """A function of each block and the groups of its rows."""
    stop = 0
    for X in blocks:
        start, stop = stop, stop + X.shape[0]
        yield function(X, group[start:stop])


def _tensor(weight, device):
    """Weights; ones that are one number in memory stay so."""
    if weight.strides == (0,):
        return torch.ones(1, dtype=torch.float64, device=device).expand(len(weight))
    return torch.as_tensor(weight, device=device)

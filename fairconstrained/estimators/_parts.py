"""Fits on rows in parts: shards of workers, and blocks that are read in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples
from torch import Generator

from fairconstrained.arrays import Array, as_numpy, rows_of
from fairconstrained.blocks import Blocks
from fairconstrained.distributed import ALONE, Workers, refuse_difference
from fairconstrained.estimators._inputs import Given, TrainingRows, checked_weight
from fairconstrained.groups import Groups, computed, encode_groups
from fairconstrained.models.features import Features
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Specification, as_specification
from fairconstrained.solvers.base import check_solves

if TYPE_CHECKING:
    from fairconstrained.estimators._base import FairClassifier
    from fairconstrained.estimators._training import Training

_ENCODED_ROWS = 1 << 20  # labels that are made indices at a time
_UNCOMPARED = ("callbacks", "verbose", "random_state", "device")  # parameters that may differ
_KINDS = {"U": "text", "S": "text", "O": "objects"}  # of labels; all others are numbers


def check_parts(training: Training, X: Any) -> None:
    """Refuse a fit on rows in parts that is not exact, before any work."""
    name, specification = type(training.estimator).__name__, training.specification
    in_blocks, of_posteriors = isinstance(X, Blocks), isinstance(specification, Posteriors)
    refused = {
        f"{name}.epsilon must be None to read Blocks": in_blocks and training.is_private,
        f"{name}.model must be linear or a fitted classifier": not training.is_linear,
        f"{name}.model must be linear to read Blocks": in_blocks and of_posteriors,
    }
    wrong = [words for words, is_wrong in refused.items() if is_wrong]
    if wrong:
        raise ValueError(
            f"{wrong[0]}: rows in parts (sharded_rows, Blocks) are for linear models. Private "
            "fits take those of sharded_rows. Networks on several workers: "
            "fairconstrained.training.train."
        )
    if of_posteriors and not isinstance(specification.estimator, FrozenEstimator):
        raise ValueError(
            f"{name}.model must be 'linear' or a fitted classifier, FrozenEstimator(classifier), "
            "within sharded_rows: another would learn from the rows of one worker. Fit it before, "
            "to other rows than these; its constrained head is trained on the rows of all."
        )
    check_solves(training.solver, training.problem_class, in_memory=False)


# ---------------------------------------------------------------------- blocks


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
    y = check_array(column_or_1d(as_numpy(given.y), warn=True), ensure_2d=False, dtype=None)
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
    codes, classes = encoded(y, len(y), _encoded_labels)
    group = groups = None
    if given.sensitive_features is not None:
        columns = computed(given.sensitive_features)
        one = next(iter(columns.values())) if isinstance(columns, dict) else columns
        n_given = _num_samples(one)
        if n_given != len(y):
            raise ValueError(f"sensitive_features has {n_given} rows, but y has {len(y)}.")
        group, groups = encoded(columns, len(y), encode_groups)
    return TrainingRows(X, codes, group, weight, classes, groups)


def encoded(values: Any, n_samples: int, encode: Callable[[Any], Groups]) -> tuple[Array, Array]:
    """Codes as small integers, and labels, from some rows at a time."""
    starts = range(0, n_samples, _ENCODED_ROWS)
    pieces = [_small(encode(rows_of(values, slice(i, i + _ENCODED_ROWS)))) for i in starts]
    labels, places = joined([piece.labels for piece in pieces], encode)
    codes = (place[piece.codes] for place, piece in zip(places, pieces, strict=True))
    return np.concatenate([_small(Groups(own, labels)).codes for own in codes]), labels


def _small(piece: Groups) -> Groups:
    """Codes in as few bytes as their number takes, with a sign, as torch has it."""
    return piece._replace(codes=piece.codes.astype(np.min_scalar_type(-len(piece.labels))))


def joined(levels: Sequence[Any], encode: Callable[[Any], Groups]) -> tuple[Array, list[Array]]:
    """All labels that occur in several lists of them, and where those of each list are in it."""
    of_tuples = levels[-1].dtype == object and isinstance(levels[-1][0], tuple)
    every = np.concatenate(levels)
    codes, labels = encode(np.array(every.tolist(), dtype=object) if of_tuples else every)
    return labels, np.split(codes, np.cumsum([len(own) for own in levels])[:-1])


def _encoded_labels(y: Array) -> Groups:
    labels, codes = np.unique(y, return_inverse=True)
    return Groups(codes.reshape(-1), labels)


# ---------------------------------------------------------------------- workers


class _Said(NamedTuple):
    """Message of a worker about its rows and parameters before training."""

    parameters: Any
    last_fit: float | None
    columns: tuple[Any, ...]
    classes: Array
    groups: Array | None
    heaviest: float
    lightest: float


def agreed(estimator: FairClassifier, rows: TrainingRows, workers: Workers) -> TrainingRows:
    """The rows with the labels, groups and units of weight of all workers.

    Raises
    ------
    ValueError
        If parameters, columns or types of labels and groups differ; on all workers alike.
    """
    found = vars(estimator)  # texts have neither
    names = found.get("feature_names_in_")
    columns = found.get("n_features_in_"), None if names is None else tuple(names)
    ends = float(rows.weight.max()), float(rows.weight.min())
    own = _comparable(estimator), _last_fit(estimator), columns
    said = workers.gather(_Said(*own, rows.classes, rows.groups, *ends))
    refuse_difference("parameters", [own.parameters for own in said])
    refuse_difference("last fits, where a warm start begins", [own.last_fit for own in said])
    refuse_difference("columns of X", [own.columns for own in said])
    refuse_difference("kinds of labels in y", [kind_of_labels(own.classes) for own in said])
    refuse_difference("kinds of sensitive_features", [kind_of_labels(own.groups) for own in said])
    classes, places = joined([own.classes for own in said], _encoded_labels)
    rows = replace(rows, y=places[workers.rank][rows.y], classes=classes, workers=workers)
    if rows.groups is not None:
        groups, places = joined([own.groups for own in said], encode_groups)
        rows = replace(rows, group=places[workers.rank][rows.group], groups=groups)
    heaviest, lightest = max(own.heaviest for own in said), min(own.lightest for own in said)
    return replace(rows, weight_range=(lightest, heaviest))


def _comparable(estimator: FairClassifier) -> Any:
    """Parameters, of the estimator and of what it holds, as what can be compared."""
    params = estimator.get_params(deep=False)
    return _plain({name: params[name] for name in sorted(params) if name not in _UNCOMPARED})


def _plain(value: Any) -> Any:
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


def _last_fit(estimator: FairClassifier) -> float | None:
    """Return a fingerprint of the solution at which a warm start begins: its norm."""
    if not (estimator.warm_start and hasattr(estimator, "classes_")):
        return None
    found = (getattr(estimator, name, ()) for name in ("coef_", "intercept_", "multipliers_"))
    return float(np.linalg.norm(np.concatenate([np.ravel(part) for part in found])))


def kind_of_labels(labels: Array | None) -> str:
    """Whether labels are texts, numbers or others."""
    if labels is None:
        return "none"
    return _KINDS.get(labels.dtype.kind, "numbers")


# ---------------------------------------------------------------------- columns


def learnt_columns(
    specification: Specification,
    rows: TrainingRows,
    part_of_cell: Callable[[], Any],
    rng: Generator,
) -> tuple[Any, Specification]:
    """The columns of the rows, and the specification that has learnt them.

    What a frozen classifier does not know, its calibration and the groups, is learnt from the rows
    of the first worker, and all get what it has learnt.
    """
    workers, table = rows.workers, None
    if not isinstance(specification, Posteriors) or workers.size == 1:
        return specification.fit_transform(rows, part_of_cell, rng), specification
    _refuse_lack(rows)
    with workers.agreeing():
        if workers.rank == 0:
            table = specification.fit_transform(rows, part_of_cell, rng)
    fitted = workers.gather(specification if workers.rank == 0 else None)[0]
    assert fitted is not None
    with workers.agreeing():
        if table is None:
            table = fitted.transform(rows.X)
    return table, fitted


def _refuse_lack(rows: TrainingRows) -> None:
    """Refuse rows of which the first worker lacks a label and group that others have."""
    mine = replace(rows, workers=ALONE).cells
    lacking = rows.workers.gather((rows.cells > 0) & (mine == 0))[0].numpy()
    if lacking.any():
        one = np.eye(lacking.size, dtype=bool)[lacking.reshape(-1)]
        named = [rows.space.describe(cell.reshape(lacking.shape)) for cell in one]
        raise ValueError(
            "a classifier as model learns from the rows of the first worker, which has no rows of "
            f"{'; '.join(named)}: shuffle the rows before they are divided."
        )


def mapped(
    function: Callable[[Any, Any], Features], blocks: Iterable[Any], group: Any
) -> Iterator[Features]:
    """A function of each block and the groups of its rows."""
    stop = 0
    for X in blocks:
        start, stop = stop, stop + X.shape[0]
        yield function(X, group[start:stop])

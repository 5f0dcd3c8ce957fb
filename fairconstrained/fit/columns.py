"""From inputs to rows, and from rows to the columns of the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Generator, Tensor

from fairconstrained.blocks import Blocks
from fairconstrained.distributed import Workers, one_thread, seeded
from fairconstrained.engines import Table
from fairconstrained.engines.columns import RowsToPredict
from fairconstrained.fit.blocks_and_shards import (
    agreed,
    check_parts,
    columns_by_first_worker,
    rows_of_blocks,
)
from fairconstrained.fit.engine_tables import (
    Columns,
    RowsOfTable,
    learnt_from_sample,
    rows_elsewhere,
    rows_of_table,
)
from fairconstrained.fit.rows import (
    Domains,
    FitInputs,
    TrainingRows,
    checked_rows,
    required,
    validated,
)
from fairconstrained.fit.task import Fit, Task, part_of_cell
from fairconstrained.inputs.groups import within_strata
from fairconstrained.inputs.samples import check_samples
from fairconstrained.losses import n_outputs
from fairconstrained.models.features import Features, as_features
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.problems.rows import Rows


def admitted(task: Task, inputs: FitInputs, control_features: Any, workers: Workers) -> FitInputs:
    """Return the inputs, with groups crossed with strata; refuse kinds that the task cannot fit."""
    if control_features is not None:
        if isinstance(inputs.X, Table):
            raise ValueError(
                f"control_features must be None if X is a table of {inputs.X.engine}, whose rows "
                "stay where they are: read them in Blocks, or train on one shard a worker."
            )
        for notion in task.notions:
            if not (task.within_strata and notion.within_strata):
                raise ValueError(
                    "control_features must be None: groups are compared within strata by parity of "
                    "rates and of losses (RateConstrainedClassifier, LossParityClassifier); got "
                    f"{task.name}(constraint={notion!r})."
                )
        check_samples(**inputs._asdict(), control_features=control_features)
        if inputs.sensitive_features is not None:  # a warning will say so
            crossed, n_control = within_strata(inputs.sensitive_features, control_features)
            inputs = inputs._replace(sensitive_features=crossed, n_control=n_control)
    # Poisson batches need every row at any step, and an engine that computes a lost partition again
    # would draw other rows.
    if task.is_private and isinstance(inputs.X, Table):
        inputs = Columns.named_by(inputs).inputs(RowsToPredict(inputs.X, {}).frame())
    if workers.size > 1 or isinstance(inputs.X, (Blocks, Table)):
        check_parts(task, inputs.X)
    return inputs


def read(
    task: Task, estimator: Any, inputs: FitInputs, workers: Workers, domains: Domains | None = None
) -> TrainingRows:
    """Validate the samples; return rows of positive weight, labels and groups as indices."""
    # The estimator is for scikit-learn alone, which notes the columns of X on it.
    with workers.agreeing():
        if isinstance(inputs.X, Table):
            rows: TrainingRows = rows_of_table(task, estimator, inputs)
        else:
            check_samples(**inputs._asdict())
            if isinstance(inputs.X, Blocks):
                rows = rows_of_blocks(task, estimator, inputs)
            else:
                needed = required(task, inputs)
                rows = validated(estimator, task.specification, inputs, task.described, needed)
        if inputs.n_control:
            rows = replace(rows, n_control=inputs.n_control)
    if workers.size > 1:
        rows = agreed(task, estimator, rows, workers)
    # After workers have agreed: groups of one worker alone may be small or single.
    return checked_rows(task, rows if domains is None else domains.widen(rows))


def random_seed(random_state: Any) -> int:
    """Return a seed for torch that is drawn from ``random_state``, as scikit-learn reads it."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def generator(task: Task, seed: int) -> AbstractContextManager[Generator]:
    """Return a context with a seeded generator; for modules torch's global one is seeded, too."""
    if task.specification.is_linear:
        return nullcontext(torch.Generator().manual_seed(seed))
    return seeded(seed, task.device)


def learn(fit: Fit) -> Fit:
    """Fit the specification of the model; return the fit with its columns, on the device."""
    task, rows, specification = fit.task, fit.rows, fit.task.specification
    parts, wrapped = partial(part_of_cell, task, rows), isinstance(specification, Posteriors)
    as_rows = partial(rows_on_device, device=task.device, expand=task.expand)
    if wrapped:
        task.risk(rows)  # raises for bad costs, before classifiers are fitted
    if isinstance(rows, RowsOfTable):
        learnt = learnt_from_sample(specification, rows, parts, fit.rng) if wrapped else []
        data: Rows = rows_elsewhere(rows, specification, as_rows, learnt)
        return replace(fit, data=data)
    # A classifier that each worker fits to its own rows would give columns that mean different
    # things.
    if wrapped and rows.workers.size > 1:
        table = columns_by_first_worker(specification, rows, parts, fit.rng)
    else:
        table = specification.fit_transform(rows, parts, fit.rng)
    return replace(fit, data=as_rows(rows, table))


def rows_on_device(rows: TrainingRows, table: Any, *, device: str, expand: Any = None) -> Rows:
    """Return the rows as problems see them, with the columns of a table or a tuple of blocks."""
    weight = rows.weight
    least, largest = rows.weight_range or (weight.min(), weight.max())
    if least < largest:  # as multiples of the largest, up to a factor of two: exactly
        weight = np.ldexp(weight, 1 - np.frexp(largest)[1])
    elif weight[0] != 1:
        weight = np.ones_like(weight)
    if weight.strides == (0,):  # one number in memory, and it stays so
        weight = weight[:1].copy()
    on_device = partial(torch.as_tensor, device=device)
    y, group, weights = map(on_device, (rows.y, rows.group, weight))
    blocks = table if isinstance(table, tuple) else _blocks(rows, table, device, expand)
    return Rows(blocks, y, group, weights.expand(len(y)), rows.workers)


def _blocks(rows: TrainingRows, table: Any, device: str, expand: Any) -> Any:
    """Return the columns of the model, block by block."""

    def columns() -> Iterator[Features]:  # made whenever a block is read
        stop = 0
        for X in table if isinstance(table, Blocks) else [table]:
            start, stop = stop, stop + X.shape[0]
            X = X if expand is None else expand(rows, X, rows.group[start:stop])
            yield as_features(X, device)

    return Blocks(columns) if isinstance(table, Blocks) else tuple(columns())


def build_model(fit: Fit) -> Any:
    """Build the model of flat parameters that solvers see."""
    data, outputs = fit.data, n_outputs(len(fit.rows.classes))
    return fit.task.specification.build(data.X, data.weight, outputs, fit.task.alpha)


def measure_training_rows(fit: Fit, problem: Any, x: Tensor) -> Tensor:
    """Return hard values by copies of a classifier that are fitted to the rows, and predict."""
    # The copies predict with the threads of the user, and the values are computed in one thread.
    task, rows = fit.task, fit.rows
    if isinstance(rows, RowsOfTable):
        as_rows = partial(rows_on_device, device=task.device, expand=task.expand)
        data: Rows = rows_elsewhere(rows, fit.task.specification, as_rows)
    else:
        # By all copies together, as new rows will be predicted, and not out of fold.
        head = None
        if problem.constraint.label_based and problem.sums_decide:
            linear = problem.model.attributes(x)
            head = linear["coef_"], linear["intercept_"]
        table = fit.task.specification.transform(rows.X, head)
        data = replace(fit.data, blocks=_blocks(rows, table, task.device, task.expand))
    with one_thread():
        hard: Tensor = replace(problem, data=data).evaluate(x).hard
    return hard

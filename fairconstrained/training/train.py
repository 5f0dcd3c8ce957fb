"""The training of any module under constraints, and its result."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from fairconstrained.arrays import check_number, in_rows, is_number
from fairconstrained.constraints.notions import Notion
from fairconstrained.distributed import Workers, check_device, refuse_difference, seeded
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.models.network import NetworkModel, materialize
from fairconstrained.solvers.base import Callback, Iterate, Solver
from fairconstrained.solvers.run import run
from fairconstrained.solvers.sgda import EarlyStoppedSGDA
from fairconstrained.training.data import Batch, Source, as_source
from fairconstrained.training.problem import (
    Function,
    FunctionConstraint,
    ModuleProblem,
    NotionConstraint,
    Term,
    risk,
)


@dataclass(frozen=True)
class Trained:
    """The result of training.

    Attributes
    ----------
    module : torch.nn.Module
        A trained copy of the module, in evaluation mode.
    multipliers : ndarray of shape (m,)
    values : ndarray of shape (m,)
        Constraint values of the trained module; at most zero if they hold.
    feasible : bool
        Whether all constraints hold: no value is above zero.
    history : dict of ndarray
        Per iteration: objective, values, multipliers, time (s).
    status : str
        Why training ended.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.training import train
    >>> X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> trained = train(torch.nn.Linear(2, 1), lambda z, batch: (z**2).mean(),
    ...                 lambda z, batch: z.mean(), (X,), random_state=0)
    >>> trained.feasible, trained.module.training
    (True, False)
    """

    module: nn.Module
    multipliers: NDArray[Any]
    values: NDArray[Any]
    feasible: bool
    history: dict[str, NDArray[Any]]
    status: str


def train(
    module: nn.Module,
    loss: Function,
    constraints: Any,
    data: Any,
    *,
    groups: Any = None,
    solver: Solver | None = None,
    alpha: float = 0.0,
    slack: float = 0.05,
    callbacks: Sequence[Callback] = (),
    random_state: int | None = None,
    device: Any = None,
) -> Trained:
    """Train a module under constraints.

    Parameters
    ----------
    module : torch.nn.Module
        Called with the first tensor of a batch: in training mode for steps, in evaluation mode,
        with batch statistics of all the data, for measuring. Lazy layers and compiled modules work.
        A copy is trained; the module itself is left unchanged.
    loss : callable
        ``loss(outputs, batch)``: one value, or one for each row.
    constraints : callable, constraint object, or list of them
        ``constraint(outputs, batch)`` returns values that must be at most zero, a vector or one
        number; or objects of :mod:`fairconstrained.constraints`, for which the second tensor of a
        batch must hold class indices, and outputs be scores (one column for two classes).
    data : tuple of tensors or arrays, Dataset or iterable of batches
        Tensors or numpy arrays of equal length, any data set with ``len`` and ``[i]`` (or
        ``__getitems__`` for several rows at once), or a loader, whose next batch each estimate
        takes, whatever the solver's batch size. Besides the data, memory holds one batch. Real
        numbers of arrays get the module's type.
    groups : array-like of shape (n_rows,) or (n_rows, n_columns), optional
        Batches for constraints have equally many rows of each group, so that a constraint can
        take means within groups. Not for loaders, which choose their own rows.
    solver : Solver, optional
        Default: ``EarlyStoppedSGDA()``, as for the networks of estimators. With a loader it holds
        no rows out: all of them judge.
    alpha : float, default=0.0
        Weight of half the squared norm of the weight matrices.
    slack : float, default=0.05
        Of constraint objects without their own.
    callbacks : sequence of callables
        Called with each :class:`fairconstrained.solvers.Iterate`. Returning True ends training.
    random_state : int, optional
        Seeds mini-batches and dropout; default: torch's global generator draws the seed.
    device : torch device, optional
        Where to train; batches are moved there. Default: where the module is.

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        If a parameter is not valid or cannot be used on this machine; if a loss or constraint
        returns the wrong shape, nan, or values without gradient; if data run out or a group is
        empty; if workers differ in their rows or groups.
    DivergenceError, WorkerError
        If training diverges; if a worker is gone or has raised an error.

    Notes
    -----
    Under ``torch.distributed`` (call ``init_process_group`` first, as ``torchrun`` programs do) all
    workers call this function with the same arguments, all rows among them, and train one module.
    Each takes its part of every draw of rows; moments and gradients are summed, so the result is
    that of one worker up to rounding, for criteria and for functions that are means over rows or
    groups. In a step, batch normalisation and dropout see only a worker's own rows. Every worker
    has its own loader, with batches of one size.

    Examples
    --------
    >>> import torch
    >>> from fairconstrained.training import train
    >>> rng = torch.Generator().manual_seed(0)
    >>> X = torch.randn(500, 3, generator=rng)
    >>> y = (X[:, 0] + torch.randn(500, generator=rng) > 0).float()
    >>> def loss(outputs, batch):
    ...     return torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], batch[1])
    >>> def few_positives(outputs, batch):
    ...     return torch.sigmoid(outputs).mean() - 0.2
    >>> trained = train(torch.nn.Linear(3, 1), loss, few_positives, (X, y), random_state=0)
    >>> trained.feasible, bool(trained.multipliers[0] > 0.1)
    (True, True)
    """
    workers = Workers.initialised()
    with workers.agreeing():
        _check_options(loss, slack, alpha, callbacks, random_state)
        network = _copied(module, device)
        first = next(p for p in network.parameters() if p.requires_grad)
        source = as_source(data, first.dtype)
        group, names = _group_index(groups, source)
        solver = EarlyStoppedSGDA() if solver is None else solver
        if not isinstance(solver, Solver):
            raise ValueError(
                f"solver must be an object of fairconstrained.solvers; got {solver!r}."
            )
    # Only loaders may have rows of their own.
    own = None if source.streams else (source.n_rows, group.bincount().tolist())
    refuse_difference(
        "numbers of rows and of those in each group (all give the same rows, or loaders of their "
        "own rows)",
        workers.gather(own),
    )
    seed = int(torch.randint(2**31, ())) if random_state is None else int(random_state)
    # One module on all workers begins at the same parameters.
    seed = int(workers.same(torch.tensor(seed, device=first.device)))
    with seeded(seed, first.device) as rng:
        # Lazy layers get their shapes from the first two rows, before parameters are counted.
        _, batch = next(iter(source.chunks()))
        network = materialize(network, batch[0][:2].to(first.device))  # shapes of lazy layers
        problem = ModuleProblem(
            NetworkModel(network),
            source,
            risk(loss),
            _as_constraints(constraints, source, group, names, slack),
            group,
            first.device,
            alpha,
            workers,
        )
        return _trained(problem, solver, rng, callbacks, workers)


def _check_options(loss: Any, slack: Any, alpha: Any, callbacks: Any, random_state: Any) -> None:
    """Raise ValueError for options that no training can use."""
    if not callable(loss):
        raise ValueError(f"loss must be a function of outputs and batch; got {loss!r}.")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a list of functions; got {callbacks!r}.")
    is_seed = is_number(random_state, Integral) and 0 <= random_state < 2**32
    if random_state is not None and not is_seed:
        raise ValueError(
            f"random_state must be None or an integer from 0 to 2**32 - 1; got {random_state!r}."
        )
    check_number("slack", slack, "a number >= 0", lambda value: value >= 0)
    check_number("alpha", alpha, "a finite number >= 0", lambda value: 0 <= value < np.inf)


def _copied(module: Any, device: Any) -> nn.Module:
    if not isinstance(module, nn.Module) or not any(p.requires_grad for p in module.parameters()):
        raise ValueError(f"module must be an nn.Module with parameters to train; got {module!r}.")
    low = {p.dtype for p in module.parameters()} & {torch.bfloat16, torch.float16}
    if low:
        raise ValueError(
            f"module must have parameters of float32 or float64; got {low.pop()}, in which small "
            "steps and sums over rows are lost. Use torch.autocast in its forward for speed."
        )
    check_device("device", next(module.parameters()).device if device is None else device)
    # The user's module keeps its parameters, also if training fails.
    copied: nn.Module = copy.deepcopy(module)
    return copied if device is None else copied.to(device)


def _group_index(groups: Any, source: Source) -> tuple[Tensor, Any]:
    """Return the group of each row, and the labels of groups; without groups zeros and None."""
    if groups is None:
        return torch.zeros(source.n_rows, dtype=torch.long), None
    if source.streams:
        raise ValueError("groups cannot be used with a loader: it chooses its rows itself.")
    encoded = encode_groups(groups, name="groups").certain("train")
    if not encoded.known.all():
        raise ValueError(
            f"groups has {(~encoded.known).sum()} missing values (first at row "
            f"{int(encoded.known.argmin())}). Drop these rows or make them a group."
        )
    index = torch.as_tensor(encoded.codes)
    if len(index) != source.n_rows:
        raise ValueError(f"groups has {in_rows(len(index))}, but data has {source.n_rows}.")
    return index, encoded.labels


def _as_constraints(
    constraints: Any, source: Source, group: Tensor, names: Any, slack: float
) -> list[Term]:
    notions: list[Notion] = []
    terms: list[Term] = []
    for item in constraints if isinstance(constraints, (list, tuple)) else [constraints]:
        if isinstance(item, Notion):
            notions.append(item)
        elif callable(item) and not isinstance(item, type):
            terms.append(FunctionConstraint(item))
        else:
            raise ValueError(
                "constraints must be functions of outputs and batch, or objects of "
                f"fairconstrained.constraints; got {item!r}."
            )
    if notions:
        if source.streams or names is None:
            raise ValueError(
                f"{notions[0]!r} needs groups, and data that can be indexed; got "
                f"{'a loader' if source.streams else 'groups=None'}."
            )
        # Chunk by chunk: features of data sets on disk need not fit into memory.
        labels = torch.cat([_class_indices(batch) for _, batch in source.chunks()])
        terms.append(NotionConstraint(notions, labels, group, names, slack))
    return terms


def _class_indices(batch: Batch) -> Tensor:
    """Return the second tensor of a batch; raise ValueError unless it holds class indices."""
    labels = batch[1].cpu() if len(batch) > 1 else torch.zeros(0, 0)
    index = labels.long()
    if labels.ndim != 1 or bool((index != labels).any()) or bool((index < 0).any()):
        raise ValueError(
            "data must have the class indices 0, 1, ... of the rows as their second tensor, of one "
            "dimension, for objects of fairconstrained.constraints."
        )
    return index


def _recorded(iterate: Iterate) -> tuple[float, NDArray[Any], NDArray[Any]]:
    """Return an iterate's objective, constraint values and multipliers for the history."""
    values, dual = iterate.hard[1:].cpu().numpy(), iterate.dual.cpu().numpy()
    return float(iterate.soft[0]), values, dual


def _trained(
    problem: ModuleProblem,
    solver: Solver,
    rng: Generator,
    callbacks: Sequence[Callback],
    workers: Workers,
) -> Trained:
    x = workers.same(problem.start())
    dual = torch.zeros(problem.n_constraints, dtype=x.dtype, device=x.device)
    asked = workers.agreed_callbacks(callbacks)
    solution = run(
        solver, problem, x, dual, rng, max_iter=None, tol=1e-4, callbacks=asked, record=_recorded
    )
    x = solution.iterate.x
    objective, constraints, duals = map(np.stack, zip(*solution.history, strict=True))
    _, values, multipliers = _recorded(solution.iterate)
    problem.update_batch_norm(x)
    return Trained(
        module=problem.model.attributes(x)["module_"].to(x.device),
        multipliers=multipliers,
        values=values,
        feasible=bool((values <= 0.0).all()),
        history={
            "objective": objective,
            "values": constraints,
            "multipliers": duals,
            "time": np.array(solution.times),
        },
        status=solution.status.value,
    )

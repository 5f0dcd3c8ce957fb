"""Time of a step of stochastic solvers, in turns with steps of plain torch.

    python -m benchmarks.speed.steps
    python -m benchmarks.speed.steps --problems network private --rounds 5

Processor milliseconds of one thread. A fit is made with few steps and with many: both evaluate all
rows equally often, so the difference is that of the steps. Problems:

* ``network``: the benchmark of paper 5 in size, 14,333 rows, 9 features, a network 64-32, a loss
  gap; draws of 128 rows. Beside it one forward and backward pass of 128 rows in single precision,
  and where ``humancompatible-train`` 0.3 is installed the public code of the paper on as many rows
  (ours draw three times 128 rows in double precision).
* ``module``: ``training.train`` on a user's module with the loss of 256 rows and a gap of losses on
  128 rows of two groups, by the default solver; beside it a loop by hand that does the same.
* ``private``: a linear model on 36,631 rows of 102 columns, batches of 512 rows, a Poisson batch,
  clipped gradients, noise of the system, and for ``DPSGDA`` a noisy table of demographic parity.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import results
from benchmarks.command import command
from fairconstrained import DPFermiClassifier, LossParityClassifier, RateConstrainedClassifier
from fairconstrained.distributed import one_thread
from fairconstrained.models import Network
from fairconstrained.solvers import (
    ALM,
    DPFERMI,
    DPSGDA,
    SSLALM,
    EarlyStoppedSGDA,
    StochasticGhost,
    SwitchingSubgradient,
)
from fairconstrained.training import train

FEW, MANY = 60, 660  # steps of a fit
KEY = ["problem", "round", "method", "ms"]
Timed = Callable[[], float]  # processor milliseconds of a step
PRIVATE_ROWS, PRIVATE_COLUMNS, BATCH = 36_631, 102, 512


def of_fits(fit: Callable[[int, Callable[[Any], None]], object], parts: float = 30) -> float:
    """Return the time of a step, of a fit whose first callback follows one part of its steps."""
    spans = []
    for n_steps in (FEW, MANY):
        times: list[float] = []
        fit(n_steps, lambda iterate, times=times: times.append(time.process_time()))
        spans.append(times[-1] - times[0])
    return 1e3 * (spans[1] - spans[0]) / ((MANY - FEW) * (1 - 1 / parts))


def of_loop(step: Callable[[], object]) -> float:
    """Return the time of a step, of a loop by hand."""
    start = time.process_time()
    for _ in range(MANY - FEW):
        step()
    return 1e3 * (time.process_time() - start) / (MANY - FEW)


def perceptron(n_features: int) -> nn.Module:
    """Return a network 64-32 in single precision."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )


# ---------------------------------------------------------------------- networks


def networks() -> Iterator[tuple[str, Timed]]:
    """Give the algorithms of paper 5."""
    n_rows, n_features = 14_333, 9
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n_rows, n_features)), rng.integers(2, size=n_rows)
    group = (np.arange(n_rows) >= 10_680).astype(int)

    def fit(kind: Any, n_steps: int, callback: Callable[[Any], None]) -> None:
        model = LossParityClassifier(
            slack=0.005,
            model=Network((64, 32), n_bins=None),
            solver=kind(n_steps=n_steps),
            alpha=0.0,
            callbacks=[callback],
            random_state=0,
        )
        model.fit(X, y, sensitive_features=group)

    yield from by_hand(torch.as_tensor(X).float(), torch.as_tensor(y).float()[:, None])
    for kind in (ALM, SSLALM, SwitchingSubgradient, StochasticGhost):
        yield kind.__name__, partial(of_fits, partial(fit, kind))


def by_hand(X: Tensor, y: Tensor) -> Iterator[tuple[str, Timed]]:
    """Give a step of plain torch, and steps of the paper's public code if it is installed."""

    def losses(network: nn.Module) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(X), (128,))
        rowwise = F.binary_cross_entropy_with_logits(network(X[rows]), y[rows], reduction="none")
        return rowwise.mean(), rowwise[:64].mean() - rowwise[64:].mean()

    def plain(network: nn.Module, optimizer: Any) -> None:
        optimizer.zero_grad()
        risk, gap = losses(network)
        (risk + gap.clamp_min(0.0)).backward()
        optimizer.step()

    def augmented_lagrangian(network: nn.Module, optimizer: Any) -> None:
        risk, gap = losses(network)
        for i, value in enumerate((gap - 0.005, -gap - 0.005)):
            optimizer.dual_step(i, value)
        optimizer.step(risk)
        optimizer.zero_grad()

    def switching(network: nn.Module, optimizer: Any) -> None:
        risk, gap = losses(network)
        worst = gap.abs() - 0.005
        worst.backward(retain_graph=True)
        optimizer.dual_step(0)
        optimizer.zero_grad()
        risk.backward()
        optimizer.step(worst)
        optimizer.zero_grad()

    def loop(step: Callable[[nn.Module, Any], None], kind: Any, **options: Any) -> Timed:
        network = perceptron(X.shape[1])
        return partial(of_loop, partial(step, network, kind(network.parameters(), **options)))

    yield "plain torch", loop(plain, torch.optim.SGD, lr=0.01)
    try:
        from humancompatible.train import optim
    except ImportError:
        return
    yield "public SSLALM", loop(augmented_lagrangian, optim.SSLALM, m=2, lr=0.01, dual_lr=0.05)
    yield "public SSG", loop(switching, optim.SSG, m=1, lr=0.5, dual_lr=0.05)


# ---------------------------------------------------------------------- a user's module


def modules() -> Iterator[tuple[str, Timed]]:
    """Give the default solver of ``train``, and a loop for the same loss, constraint and rule."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randn((20_000, 30), generator=rng)
    y = (X[:, 0] + torch.randn(len(X), generator=rng) > 0).float()
    rows = (X, y, torch.randint(2, (len(X),), generator=rng))

    def loss(outputs: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1])

    def gap(outputs: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1], reduction="none")
        difference = losses[batch[2] == 1].mean() - losses[batch[2] == 0].mean()
        return torch.stack((difference - 0.02, -difference - 0.02))

    def fit(n_steps: int, callback: Callable[[Any], None]) -> None:
        solver = EarlyStoppedSGDA(n_steps=n_steps, patience=1_000)
        given = {"groups": rows[2], "solver": solver, "callbacks": [callback], "random_state": 0}
        train(perceptron(30), loss, gap, rows, **given)

    yield "by hand", partial(of_loop, descent_ascent(perceptron(30), rows, loss, gap))
    yield "train", partial(of_fits, fit, parts=np.inf)  # the start is evaluated too


def descent_ascent(
    module: nn.Module, rows: tuple[Tensor, ...], loss: Any, gap: Any
) -> Callable[[], None]:
    """Return an augmented Lagrangian step by AdamW, with averaged weights."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.0015)
    averages = [parameter.detach().clone() for parameter in module.parameters()]
    groups = [torch.nonzero(rows[2] == g)[:, 0] for g in (0, 1)]
    dual = torch.zeros(2)

    def step() -> None:
        nonlocal dual
        drawn = torch.randint(len(rows[0]), (256,))
        halves = torch.cat([own[torch.randint(len(own), (128,))] for own in groups])
        one, other = ([column[index] for column in rows] for index in (drawn, halves))
        optimizer.zero_grad()
        value = gap(module(other[0]), other)
        penalty = 0.5 * (dual + value).clamp_min(0.0).square().sum()
        (loss(module(one[0]), one) + penalty).backward()
        optimizer.step()
        with torch.no_grad():
            dual = (dual + 0.1 * value.detach()).clamp(0.0, 100.0)
            for average, parameter in zip(averages, module.parameters(), strict=True):
                average.lerp_(parameter, 0.005)

    return step


# ---------------------------------------------------------------------- private


def private() -> Iterator[tuple[str, Timed]]:
    """Give private solvers, and a step of SGD by hand."""
    rng = np.random.default_rng(0)
    X = rng.random((PRIVATE_ROWS, PRIVATE_COLUMNS))
    y, group = rng.integers(2, size=(2, PRIVATE_ROWS))
    rate = BATCH / PRIVATE_ROWS

    def of_rates(n_steps: int) -> Any:
        solver = DPSGDA(n_steps=n_steps, sampling_rate=rate)
        ranges = {"feature_range": (np.zeros(PRIVATE_COLUMNS), np.ones(PRIVATE_COLUMNS))}
        return RateConstrainedClassifier(epsilon=1.0, delta=1e-5, solver=solver, **ranges)

    def penalised(protect: str, n_steps: int) -> Any:
        solver = DPFERMI(n_steps=n_steps, batch_size=BATCH)
        return DPFermiClassifier(epsilon=1.0, delta=1e-5, protect=protect, solver=solver)

    def fit(made: Callable[[int], Any], n_steps: int, callback: Callable[[Any], None]) -> None:
        model = made(n_steps).set_params(callbacks=[callback])
        model.fit(X, y, sensitive_features=group)

    yield "plain SGD", partial(of_loop, sgd(torch.as_tensor(X).float(), torch.as_tensor(y).float()))
    yield "DPSGDA", partial(of_fits, partial(fit, of_rates))
    for unit in ("record", "sensitive_features"):
        yield f"DPFERMI, {unit}", partial(of_fits, partial(fit, partial(penalised, unit)))


def sgd(X: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a step of SGD on the log loss of a linear model."""
    w = torch.zeros(X.shape[1], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.01)

    def step() -> None:
        batch = torch.randint(len(X), (BATCH,))
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(X[batch] @ w, y[batch]).backward()
        optimizer.step()

    return step


PROBLEMS = {"network": networks, "module": modules, "private": private}


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print milliseconds a step, the methods in turns."""
    parser = command(__doc__)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(argv)
    rows = []
    with one_thread():
        for problem in options.problems:
            methods = dict(PROBLEMS[problem]())
            for i in range(-1, options.rounds):  # the first one loads libraries
                for name, timed in methods.items():
                    rows.append(dict(zip(KEY, (problem, i, name, timed()), strict=True)))
    found = results.save(options.output / "steps.csv", [row for row in rows if row["round"] >= 0])
    times = found.groupby(["problem", "method"], sort=False)["ms"]
    print(times.quantile([0.0, 0.5]).unstack().round(3).to_string())


if __name__ == "__main__":
    main()

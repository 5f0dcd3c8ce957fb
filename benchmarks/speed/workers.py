"""Time of a training step by one worker and by several, and that they train the same module.

    python -m benchmarks.speed.workers
    torchrun --standalone --nproc-per-node 2 -m benchmarks.speed.workers

A network of `--width` hidden units twice, 20 features, batches of `--batch` rows, demographic
parity by the augmented Lagrangian, one thread a worker. The first worker prints its processor
milliseconds of a step and the values that training ends with, and adds them to workers.csv.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.command import command
from benchmarks.results import append
from benchmarks.speed import as_worker
from fairconstrained.constraints import DemographicParity
from fairconstrained.solvers import ALM
from fairconstrained.training import train

_ROWS, _FEATURES = 4_000, 20
KEY = ["width", "batch", "steps", "workers"]


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels and groups."""
    rng = torch.Generator().manual_seed(0)
    group = torch.randint(2, (_ROWS,), generator=rng)
    X = torch.randn(_ROWS, _FEATURES, generator=rng, dtype=torch.float64)
    y = (X[:, 0] + 0.5 * group + 0.5 * torch.randn(_ROWS, generator=rng) > 0).long()
    return X, y, group


def log_loss(outputs: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
    """Of the labels in the batch."""
    return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1].to(outputs))


def main(argv: Sequence[str] | None = None) -> None:
    """Train, alone or with the others that torchrun has started."""
    parser = command(__doc__)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args(argv)
    asked = {"width": options.width, "batch": options.batch, "steps": options.steps}
    with as_worker() as (rank, size):
        row = {**asked, "workers": size, **trained(**asked)}
        if rank == 0:
            print(f"workers: {size}; processor ms a step: {row['processor ms']:.2f}")
            print(f"constraint values: {row['values']}")
            append(options.output / "workers.csv", row, list(row), KEY)


def trained(width: int, batch: int, steps: int) -> dict[str, Any]:
    """Train, and return the time of a step with its part of the evaluations."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(_FEATURES, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
        nn.Linear(width, 1),
    ).double()  # fmt: skip
    X, y, group = data()
    ends: list[float] = []
    found = train(
        network,
        log_loss,
        DemographicParity(0.05),
        (X, y, group),
        groups=group,
        solver=ALM(n_steps=steps, batch_size=batch),
        random_state=0,
        callbacks=[lambda iterate: ends.append(time.process_time())],
    )
    values = ", ".join(f"{value:.12f}" for value in found.values)
    return {"processor ms": 1e3 * (ends[-1] - ends[0]) / steps, "values": values}


if __name__ == "__main__":
    main()

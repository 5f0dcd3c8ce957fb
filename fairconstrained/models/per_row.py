"""Gradients of single rows through a network: their norms without them, or chunks of them.

For networks whose parameters all belong to linear layers, the norm of a row's gradient follows from
the layers' inputs and the gradients at their outputs ("ghost norms", Goodfellow 2015): one more
backward pass in place of n gradients. Other networks (convolutions, group and layer normalisation)
are differentiated row by row with ``vmap``, in chunks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from fairconstrained.models.base import clip_factors

__all__ = [
    "check_rows_independent",
    "clipped_sum",
    "ghost_layers",
    "ghost_norms",
    "ghosts_hold",
    "recorded",
]

_CHUNK_NUMBERS = 1 << 24  # of gradients held at a time: 128 MB


def check_rows_independent(network: nn.Module, n_features: int) -> None:
    """Raise ValueError if a row's scores depend on other rows, of its batch or of earlier ones.

    Tried on random rows at random parameters, not on data: layers that are known to mix rows are
    named, others found.
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"model has batch normalisation ({name}: {type(module).__name__}), which mixes "
                "rows: one row's gradient cannot be bounded, and private training is not possible. "
                "Use group normalisation (torch.nn.GroupNorm) or layer normalisation instead."
            )
    trial = at_random(network)
    rows = _random_rows(trial, 6, n_features)
    before = [buffer.clone() for buffer in trial.buffers()]
    mixes = _mixes_rows(trial.eval(), rows) or _mixes_rows(trial.train(), rows)
    kept = all(torch.equal(a, b) for a, b in zip(before, trial.buffers(), strict=True))
    if mixes or not kept:
        raise ValueError(
            "model gives a row other scores when other rows are in its batch, or keeps statistics "
            "of batches: private training is not possible. Use layers that treat every row by "
            "itself and remember none."
        )


def _mixes_rows(network: nn.Module, rows: Tensor) -> bool:
    """Whether scores of single rows differ from those of all together; dropout cannot be told."""
    with torch.no_grad():
        together = network(rows)
        if not _close(network(rows), together):
            return False  # random numbers are drawn
        alone = torch.cat([network(row[None]) for row in rows])
    return not _close(alone.reshape(together.shape), together)


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)


def at_random(network: nn.Module) -> nn.Module:
    """A copy with random parameters: initial ones may be zero, and then hide what layers do."""
    trial, rng = copy.deepcopy(network), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trial.parameters():
            noise = torch.randn(parameter.shape, generator=rng).to(parameter)
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.copy_(noise / fan**0.5)
    return trial


def _random_rows(network: nn.Module, n_rows: int, n_features: int) -> Tensor:
    rows = torch.randn(n_rows, n_features, generator=torch.Generator().manual_seed(1))
    return rows.to(next(network.parameters()))


def ghost_layers(network: nn.Module, rows: Tensor) -> list[nn.Linear]:
    """The linear layers if they hold all parameters and each sees (n, d) inputs once, else none."""
    layers = [
        module
        for module in network.modules()
        # A subclass may do more than its weights say.
        if type(module) is nn.Linear and any(p.requires_grad for p in module.parameters())
    ]
    held = {id(p) for layer in layers for p in layer.parameters()}
    if any(p.requires_grad and id(p) not in held for p in network.parameters()):
        return []
    if any(not p.requires_grad for layer in layers for p in layer.parameters()):
        return []
    with torch.no_grad(), recorded(layers) as calls:
        network(rows)
    seen = [layer for layer, _, _ in calls]
    flat = all(x.ndim == 2 for _, x, _ in calls)
    return layers if flat and len(seen) == len(layers) == len(held_once(seen)) else []


def held_once(layers: list[nn.Linear]) -> set[int]:
    """Identities of the weights: fewer than layers if some are shared."""
    return {id(layer.weight) for layer in layers}


@contextmanager
def recorded(layers: list[nn.Linear]) -> Iterator[list[tuple[nn.Linear, Tensor, Tensor]]]:
    """Collect (layer, input, output) of every call inside the context."""
    calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def record(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        calls.append((layer, inputs[0].detach(), output))
        return output.clone()  # what works in place leaves the recorded one alone

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def ghost_norms(
    calls: list[tuple[nn.Linear, Tensor, Tensor]], scores: Tensor, cotangent: Tensor
) -> Tensor:
    """Norms of the rows' gradients of <scores, cotangent>, (n,), from one backward pass.

    The gradient of a layer's weight is the outer product of the gradient at its output and its
    input; its norm is the product of theirs.
    """
    at_outputs = torch.autograd.grad(
        scores, [output for _, _, output in calls], cotangent, retain_graph=True
    )
    squares = [
        (g**2).sum(dim=1) * ((x**2).sum(dim=1) + (layer.bias is not None))
        for (layer, x, _), g in zip(calls, at_outputs, strict=True)
    ]
    return torch.stack(squares).sum(dim=0).sqrt()


def ghosts_hold(network: nn.Module, layers: list[nn.Linear], n_features: int) -> bool:
    """Whether ghost norms are those of the rows' gradients, tried at random.

    They are not where a layer's weight is also used otherwise.
    """
    positions = [i for i, module in enumerate(network.modules()) if module in layers]
    trial = at_random(network).eval()
    modules = list(trial.modules())
    own = [module for module in map(modules.__getitem__, positions) if type(module) is nn.Linear]
    rows = _random_rows(trial, 4, n_features)
    with recorded(own) as calls:
        scores = trial(rows)
    scores = scores.reshape(len(rows), -1)
    cotangent = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2)).to(scores)
    norms = ghost_norms(calls, scores, cotangent)
    used = [p for p in trial.parameters() if p.requires_grad]
    exact = [
        torch.autograd.grad(row @ c, used, retain_graph=True, materialize_grads=True)
        for row, c in zip(scores, cotangent, strict=True)
    ]
    true = [torch.cat([g.reshape(-1) for g in gradient]).norm() for gradient in exact]
    return _close(norms, torch.stack(true))


def clipped_sum(
    score: Callable[[Tensor, Tensor], Tensor],
    w: Tensor,
    X: Tensor,
    cotangent: Tensor,
    max_norm: float | Tensor,
) -> Tensor:
    """Sum of the rows' clipped gradients, from chunks of gradients.

    `score` maps parameters and one row (1, d) to its scores (1, K). Where the network draws random
    numbers (dropout), gradients are those of a new draw.
    """

    def of_row(w: Tensor, row: Tensor, c: Tensor) -> Tensor:
        return (score(w, row[None])[0] * c).sum()

    per_row: Any = vmap(grad(of_row), in_dims=(None, 0, 0), randomness="different")
    size = max(1, _CHUNK_NUMBERS // len(w))
    total = torch.zeros_like(w)
    if len(X) == 0:  # a Poisson batch may be empty, and vmap refuses it
        return total
    bounds = torch.as_tensor(max_norm, dtype=w.dtype, device=w.device).expand(len(X))
    for rows, c, C in zip(*(torch.split(t, size) for t in (X, cotangent, bounds)), strict=True):
        gradients = per_row(w, rows, c).nan_to_num(0.0, 0.0, 0.0)
        total += clip_factors(gradients.norm(dim=1), C) @ gradients
    return total

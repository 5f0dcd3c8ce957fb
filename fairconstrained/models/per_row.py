"""Gradients of single rows through a network: their norms without them, or chunks of them.

In a sequence of linear layers and functions without parameters the norm of a row's gradient follows
from the layers' inputs and the gradients at their outputs ("ghost norms", Goodfellow 2015), by one
more backward pass. Such networks are known by the types of their layers, because no trial can show
what a network does with other rows. All others are differentiated row by row, in chunks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.features import clip_factors

# Functions of each row by itself, without parameters and without a derivative that is infinite.
_OF_ROWS = (
    *(Standardize, PiecewiseLinear, nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU),
    *(nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus),
)

_CHUNK_NUMBERS = 1 << 24  # of gradients held at a time: 128 MB


def check_rows_independent(network: nn.Module, n_features: int) -> None:
    """Raise ValueError if a row's scores depend on other rows, of its batch or of earlier ones.

    This is tried on random rows at random parameters, not on data.
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"model has batch normalisation ({name}: {type(module).__name__}), which mixes "
                "rows: one row's gradient cannot be bounded, and private training is not possible. "
                "Use group normalisation (torch.nn.GroupNorm) or layer normalisation instead."
            )
    rng = torch.Generator().manual_seed(0)
    trial = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in trial.parameters():  # initial ones may be zero, and hide what layers do
            noise = torch.randn(parameter.shape, generator=rng).to(parameter)
            fan = parameter[0].numel() if parameter.ndim > 1 else 4
            parameter.copy_(noise / fan**0.5)
    rows = torch.randn(6, n_features, generator=rng).to(next(trial.parameters()))
    before = [buffer.clone() for buffer in trial.buffers()]
    mixes = _mixes_rows(trial.eval(), rows) or _mixes_rows(trial.train(), rows)
    kept = all(torch.equal(a, b) for a, b in zip(before, trial.buffers(), strict=True))
    if mixes or not kept:
        raise ValueError(
            "model gives a row other scores when other rows are in its batch, or keeps statistics "
            "of batches: private training is not possible. Use layers that treat every row by "
            "itself and remember none."
        )
    parameters = {name: p.detach() for name, p in trial.named_parameters()}

    def of_row(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        total: Tensor = functional_call(trial, parameters, (row[None],)).sum()
        return total

    try:  # after a release it would be too late
        vmap(grad(of_row), in_dims=(None, 0), randomness="different")(parameters, rows)
    except RuntimeError as error:
        raise ValueError(
            "model cannot be differentiated row by row (torch.func.vmap), which private training "
            f"needs of modules that are no plain sequence of layers: {error}"
        ) from error


def _mixes_rows(network: nn.Module, rows: Tensor) -> bool:
    """Whether single rows have other scores than in a batch; with dropout this is not known."""
    equal = partial(torch.allclose, rtol=1e-4, atol=1e-6, equal_nan=True)
    with torch.no_grad():
        together, again = network(rows), network(rows)
        single = torch.cat([network(row[None]) for row in rows]).view_as(together)
    return equal(together, again) and not equal(together, single)  # else random numbers are drawn


def ghost_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a plain sequence of them and of functions of a row, else none.

    A subclass, a hook or a shared weight may do more than the rule for norms knows.
    """
    layers = plain_sequence(network) or []
    linear = [layer for layer in layers if type(layer) is nn.Linear]
    known = all(type(layer) in (nn.Linear, *_OF_ROWS) for layer in layers)
    parameters = [p for layer in linear for p in layer.parameters()]
    used_once = len(set(map(id, parameters))) == len(parameters)
    return linear if known and used_once and all(p.requires_grad for p in parameters) else []


def plain_sequence(network: nn.Module) -> list[nn.Module] | None:
    """Return the modules that a network calls one after the other; None if it may do more."""
    hooks = (network._forward_hooks, network._forward_pre_hooks, network._backward_hooks)
    if any(hooks) or network._backward_pre_hooks or "forward" in vars(network):
        return None
    if type(network) is not nn.Sequential:
        return [network]
    parts = [plain_sequence(part) for part in network._modules.values() if part is not None]
    if any(part is None for part in parts):
        return None
    return [module for part in parts if part is not None for module in part]


@contextmanager
def recorded(layers: list[nn.Linear]) -> Iterator[list[tuple[nn.Linear, Tensor, Tensor]]]:
    """Collect (layer, input, output) of every call inside the context."""
    calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def record(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        calls.append((layer, inputs[0].detach(), output))
        return output.clone()  # operations in place leave the recorded one alone

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def ghost_norms(
    calls: list[tuple[nn.Linear, Tensor, Tensor]], scores: Tensor, cotangent: Tensor
) -> Tensor:
    """Return norms of the rows' gradients of <scores, cotangent>, (n,), from one backward pass.

    The gradient of a weight is the outer product of those of its layer's output and input.
    """
    at_outputs = torch.autograd.grad(
        scores, [output for _, _, output in calls], cotangent, retain_graph=True
    )
    squares = [
        (g**2).sum(dim=1) * ((x**2).sum(dim=1) + (layer.bias is not None))
        for (layer, x, _), g in zip(calls, at_outputs, strict=True)
    ]
    return torch.stack(squares).sum(dim=0).sqrt()


def row_scores(score: Callable[[Tensor, Tensor], Tensor], w: Tensor, X: Tensor) -> Tensor:
    """Return scores (n, K) of each row by itself: other rows cannot change them."""
    if len(X) == 0:  # a Poisson batch may be empty, and vmap refuses it
        return score(w, X)

    def of_row(row: Tensor) -> Tensor:
        return score(w, row[None])[0]

    by_row: Any = vmap(of_row, randomness="different")
    with torch.no_grad():
        return torch.cat([by_row(rows) for rows in torch.split(X, _chunk_rows(w))])


def clipped_sum(
    score: Callable[[Tensor, Tensor], Tensor],
    w: Tensor,
    X: Tensor,
    cotangent: Tensor,
    max_norm: float | Tensor,
) -> Tensor:
    """Return the sum of the rows' clipped gradients, from chunks of gradients.

    `score` maps parameters and one row (1, d) to its scores (1, K), with new draws of dropout.
    """

    def of_row(w: Tensor, row: Tensor, c: Tensor) -> Tensor:
        return (score(w, row[None])[0] * c).sum()

    per_row: Any = vmap(grad(of_row), in_dims=(None, 0, 0), randomness="different")
    size, total = _chunk_rows(w), torch.zeros_like(w)
    if len(X) == 0:  # a Poisson batch may be empty, and vmap refuses it
        return total
    bounds = torch.as_tensor(max_norm, dtype=w.dtype, device=w.device).expand(len(X))
    for rows, c, C in zip(*(torch.split(t, size) for t in (X, cotangent, bounds)), strict=True):
        gradients = per_row(w, rows, c).nan_to_num(0.0, 0.0, 0.0)
        total += clip_factors(gradients.norm(dim=1), C) @ gradients
    return total


def _chunk_rows(w: Tensor) -> int:
    return max(1, _CHUNK_NUMBERS // len(w))

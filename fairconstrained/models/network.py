"""Any ``nn.Module`` as a function of one flat parameter vector, and gradients of single rows.

In a sequence of linear layers and functions without parameters the norm of a row's gradient follows
from the layers' inputs and the gradients at their outputs ("ghost norms", Goodfellow 2015), by one
more backward pass. Such networks are known by the types of their layers, because no trial can show
the network's outputs for other rows. All others are differentiated row by row, in chunks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.parameter import is_lazy

from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.features import (
    ClippedPullback,
    DenseFeatures,
    Features,
    Penalty,
    Pullback,
    attribute,
    clip_factors,
)
from fairconstrained.numerics import PIECE_ROWS

# Functions of each row by itself, without parameters and without a derivative that is infinite.
_OF_ROWS = (
    *(Standardize, PiecewiseLinear, nn.Identity, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU),
    *(nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus),
)


def materialize(network: nn.Module, rows: Tensor) -> nn.Module:
    """Initialise lazy layers, which take their shapes from the first rows that they see."""
    if any(map(is_lazy, (*network.parameters(), *network.buffers()))):
        with torch.no_grad():
            network.eval()(rows)
    return network


class NetworkModel:
    """Any ``nn.Module`` as a function of one flat parameter vector.

    The module maps (n, d) to (n, K), or to (n,) where K = 1. Its buffers (batch statistics) change
    while it trains, its parameters do not.
    """

    def __init__(self, network: nn.Module):
        self.network = network
        # A copy that has seen no row: a module may keep rows that go through it.
        self._unused = copy.deepcopy(network)
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._ghosts = ghost_layers(network)
        self._names = [name for name, _ in named]
        # Every module that has a parameter, which may be shared, its name there, and its index
        self._places = [
            (owner, name, i)
            for i, (_, parameter) in enumerate(named)
            for owner in network.modules()
            for name, own in owner.named_parameters(recurse=False, remove_duplicate=False)
            if own is parameter
        ]
        self._shapes = [p.shape for _, p in named]
        self._sizes = [p.numel() for _, p in named]
        self.n_params = sum(self._sizes)
        self._first = torch.cat([p.detach().reshape(-1) for _, p in named])
        # As usual, matrices are penalised; biases and normalisation gains are not.
        penalised = [torch.full_like(p.detach(), p.ndim > 1).reshape(-1) for _, p in named]
        self._penalised = torch.cat(penalised)
        last = [module for module in network.modules() if not list(module.children())][-1]
        biased = isinstance(last, nn.Linear) and named[-1][1] is last.bias
        first = self.n_params - (self._sizes[-1] if biased else 0)
        self.offsets = torch.arange(first, self.n_params, device=self._first.device)
        self._batch_norms = [
            module
            for module in network.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
        ]

    def for_ranking(self) -> NetworkModel:
        """Return the network with a last layer that :meth:`rescaled` can set."""
        identity = Standardize(self._first.new_zeros(1), self._first.new_ones(1))
        return NetworkModel(nn.Sequential(self.network, identity))

    def rescaled(self, attributes: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        attributes["module_"][-1].then(slope, offset)
        return attributes

    def init(self) -> Tensor:
        return self._first.clone()

    def scores(self, w: Tensor, X: Features) -> Tensor:
        """Return scores (n, K) in evaluation mode, in chunks of rows."""
        self.network.eval()
        with torch.no_grad():
            return torch.cat([self._score(w, rows.to_dense()) for rows in _chunks(X)])

    def differentiable(self, w: Tensor) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
        """Return the network in training mode as a function of rows, and its parameters."""
        if not self.network.training:  # walking through all modules takes as long as a layer
            self.network.train()
        leaves = [leaf.detach().requires_grad_() for leaf in self._unflatten(w).values()]

        def scores(rows: Tensor) -> Tensor:
            # As ``functional_call``, whose walk through all modules takes longer than a small pass.
            held = [(own, name, own._parameters[name]) for own, name, _ in self._places]
            try:
                for owner, name, i in self._places:
                    owner._parameters[name] = leaves[i]  # type: ignore[assignment]
                return _column(self.network(rows))
            finally:
                for owner, name, parameter in held:
                    owner._parameters[name] = parameter

        return scores, leaves

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return scores in training mode, and their pullback by reverse-mode differentiation."""
        function, leaves = self.differentiable(w)
        scores = function(X.to_dense())
        return scores.detach(), lambda cotangent: flat_gradient(scores, leaves, cotangent)

    def linearize_rows(self, w: Tensor, X: Features) -> tuple[Tensor, ClippedPullback]:
        """Return scores in training mode, and the sum of the rows' clipped gradients.

        No row changes another one's scores or gradient, whatever numbers it has.
        """
        self.network.train()
        dense, w = X.to_dense(), w.detach()

        def by_chunks(cotangent: Tensor, max_norm: float | Tensor) -> Tensor:
            return clipped_sum(self._score, w, dense, cotangent, max_norm)

        if not self._ghosts:
            return row_scores(self._score, w, dense), by_chunks
        leaf = w.requires_grad_()
        with recorded(self._ghosts) as calls:
            scores = self._score(leaf, dense)

        def by_ghost_norms(cotangent: Tensor, max_norm: float | Tensor) -> Tensor:
            factors = clip_factors(ghost_norms(calls, scores, cotangent), max_norm)
            scaled = cotangent * factors[:, None]
            (gradient,) = torch.autograd.grad(scores, leaf, scaled, retain_graph=True)
            # Zero times infinity, where a row overflows: then rows have to be cut one by one.
            return gradient if gradient.isfinite().all() else by_chunks(cotangent, max_norm)

        return scores.detach(), by_ghost_norms

    def prepared(self, X: Features) -> tuple[NetworkModel, Features]:
        """Return the model itself: the norms of gradients change with the parameters."""
        return self, DenseFeatures(X.to_dense()) if X.better_dense else X

    def penalty(self, w: Tensor) -> Penalty:
        penalised = self._penalised * w
        return Penalty(0.5 * penalised @ w, penalised)

    def update_batch_norm(self, w: Tensor, X: Features) -> None:
        self.average_batch_norm(w, (rows.to_dense() for rows in _chunks(X)))

    def average_batch_norm(self, w: Tensor, chunks: Iterable[Tensor]) -> None:
        """Recompute batch statistics as the average over chunks of rows at parameters `w`."""
        if not self._batch_norms:
            return
        momenta = [norm.momentum for norm in self._batch_norms]
        for norm in self._batch_norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average
        # Only the normalisations learn here: dropout would change what they see in prediction.
        self.network.eval()
        for norm in self._batch_norms:
            norm.train()
        parameters = self._unflatten(w)
        with torch.no_grad():
            for rows in chunks:
                self._forward(parameters, rows)
        for norm, momentum in zip(self._batch_norms, momenta, strict=True):
            norm.momentum = momentum

    def attributes(self, w: Tensor) -> dict[str, Any]:
        """Return ``module_``: a network with these parameters, ready for prediction.

        The trained network may hold rows, so only its parameters and buffers are copied.
        """
        fresh = copy.deepcopy(self._unused)
        with torch.no_grad():
            for name, value in self._unflatten(w).items():
                fresh.get_parameter(name).copy_(value)
            for name, parameter in self.network.named_parameters():
                if not parameter.requires_grad:
                    fresh.get_parameter(name).copy_(parameter)
            for name, buffer in self.network.named_buffers():
                fresh.get_buffer(name).copy_(buffer)
        return {"module_": fresh.eval().cpu()}

    def restore(self, attributes: Mapping[str, Any]) -> Tensor:
        """Return the parameters of a ``module_``, whose buffers replace the network's own."""
        fitted = attribute(attributes, "module_")
        self.network.load_state_dict(fitted.state_dict())
        parameters = dict(self.network.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self._names])

    def _unflatten(self, w: Tensor) -> dict[str, Tensor]:
        pieces = zip(self._names, torch.split(w, self._sizes), self._shapes, strict=True)
        return {name: piece.reshape(shape) for name, piece, shape in pieces}

    def _score(self, w: Tensor, X: Tensor) -> Tensor:
        """Compute scores without changing buffers or parameters that are not trained."""
        state = (*self.network.named_buffers(), *self.network.named_parameters())
        copies = {name: tensor.clone() for name, tensor in state if not tensor.requires_grad}
        return self._forward({**copies, **self._unflatten(w)}, X)

    def _forward(self, parameters: dict[str, Tensor], X: Tensor) -> Tensor:
        return _column(functional_call(self.network, parameters, (X,)))


def flat_gradient(values: Tensor, leaves: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the gradient of the weighted sum of values in all leaves, as one vector."""
    gradients = torch.autograd.grad(
        values, leaves, weights, retain_graph=True, materialize_grads=True
    )
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _column(scores: Tensor) -> Tensor:
    return scores[:, None] if scores.ndim == 1 else scores


def _chunks(X: Features) -> Iterator[Features]:
    # Chunks of nearly equal size: their plain average is the rows' average, and none has one row.
    index = torch.arange(X.shape[0]).tensor_split(-(-X.shape[0] // PIECE_ROWS))
    return (X.rows(rows) for rows in index)


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
    row_gradient = grad(lambda weights, row: functional_call(trial, weights, (row[None],)).sum())
    try:  # after a release it would be too late
        vmap(row_gradient, in_dims=(None, 0), randomness="different")(parameters, rows)
    except RuntimeError as error:
        raise ValueError(
            "model cannot be differentiated row by row (torch.func.vmap), which private training "
            f"needs of modules that are not plain sequences of layers: {error}"
        ) from error


def _mixes_rows(network: nn.Module, rows: Tensor) -> bool:
    """Return whether rows score differently alone than in a batch; False if scores are random."""
    equal = partial(torch.allclose, rtol=1e-4, atol=1e-6, equal_nan=True)
    with torch.no_grad():
        together, again = network(rows), network(rows)
        single = torch.cat([network(row[None]) for row in rows]).view_as(together)
    return equal(together, again) and not equal(together, single)  # else random numbers are drawn


def ghost_layers(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a plain sequence of such layers and row functions, else none."""
    # A subclass, a hook or a shared weight may do more than the rule for norms knows.
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
    """Return norms of the rows' gradients of <scores, cotangent>, (n,), from one backward pass."""
    # The gradient of a weight is the outer product of its layer's gradient at the output and input.
    at_outputs = torch.autograd.grad(
        scores, [output for _, _, output in calls], cotangent, retain_graph=True
    )
    squares = [
        (g**2).sum(dim=1) * ((x**2).sum(dim=1) + (layer.bias is not None))
        for (layer, x, _), g in zip(calls, at_outputs, strict=True)
    ]
    return torch.stack(squares).sum(dim=0).sqrt()


def row_scores(score: Callable[[Tensor, Tensor], Tensor], w: Tensor, X: Tensor) -> Tensor:
    """Return scores (n, K), computed row by row so that no row changes another's."""
    if len(X) == 0:  # a Poisson batch may be empty, and vmap refuses it
        return score(w, X)

    def score_row(row: Tensor) -> Tensor:
        return score(w, row[None])[0]

    by_row: Any = vmap(score_row, randomness="different")
    with torch.no_grad():
        return torch.cat([by_row(rows) for rows in torch.split(X, _chunk_rows(w))])


def clipped_sum(
    score: Callable[[Tensor, Tensor], Tensor],
    w: Tensor,
    X: Tensor,
    cotangent: Tensor,
    max_norm: float | Tensor,
) -> Tensor:
    """Return the sum of the rows' clipped gradients, computed in chunks of rows."""

    def weighted_score(w: Tensor, row: Tensor, c: Tensor) -> Tensor:
        return (score(w, row[None])[0] * c).sum()

    per_row: Any = vmap(grad(weighted_score), in_dims=(None, 0, 0), randomness="different")
    size, total = _chunk_rows(w), torch.zeros_like(w)
    if len(X) == 0:  # a Poisson batch may be empty, and vmap refuses it
        return total
    bounds = torch.as_tensor(max_norm, dtype=w.dtype, device=w.device).expand(len(X))
    for rows, c, C in zip(*(torch.split(t, size) for t in (X, cotangent, bounds)), strict=True):
        gradients = per_row(w, rows, c).nan_to_num(0.0, 0.0, 0.0)
        total += clip_factors(gradients.norm(dim=1), C) @ gradients
    return total


def _chunk_rows(w: Tensor) -> int:
    # 128 MB of gradients are held at a time.
    return max(1, (1 << 24) // len(w))

"""Any ``nn.Module`` as a function of one flat parameter vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from fairconstrained.models.encodings import Standardize
from fairconstrained.models.features import (
    ClippedPullback,
    DenseFeatures,
    Features,
    Penalty,
    Pullback,
    attribute,
    clip_factors,
)
from fairconstrained.models.per_row import (
    clipped_sum,
    ghost_layers,
    ghost_norms,
    recorded,
    row_scores,
)

# Rows that a network evaluates at a time outside training: bounds the memory of its activations.
_CHUNK_ROWS = 16_384


def materialize(network: nn.Module, rows: Tensor) -> nn.Module:
    """Give lazy layers their shapes, which they take from the first rows that they see."""
    tensors = [*network.parameters(), *network.buffers()]
    if any(map(is_lazy, tensors)):
        with torch.no_grad():
            network.eval()(rows)
    return network


class NetworkModel:
    """Any ``nn.Module`` as a function of one flat parameter vector.

    It maps (n, d) to (n, K), or to (n,) where K = 1. Its buffers (batch statistics) change while it
    trains, its parameters do not.
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
        self._penalised = torch.cat(
            [torch.full_like(p.detach(), p.ndim > 1).reshape(-1) for _, p in named]
        )
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
        """The network with a last layer that :meth:`rescaled` can set."""
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
        """Return scores in training mode, and reverse-mode differentiation of the network."""
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
        """Compute batch statistics afresh, as the average over these chunks at `w`."""
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

        The one that was trained may hold rows: parameters and buffers alone are taken over.
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
        """Return the parameters of a ``module_``; its buffers replace those of the network."""
        fitted = attribute(attributes, "module_")
        self.network.load_state_dict(fitted.state_dict())
        parameters = dict(self.network.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self._names])

    def _unflatten(self, w: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(w, self._sizes)
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self._names, pieces, self._shapes, strict=True)
        }

    def _score(self, w: Tensor, X: Tensor) -> Tensor:
        """Scores that leave no trace in buffers and in parameters that are not trained."""
        state = (*self.network.named_buffers(), *self.network.named_parameters())
        copies = {name: tensor.clone() for name, tensor in state if not tensor.requires_grad}
        return self._forward({**copies, **self._unflatten(w)}, X)

    def _forward(self, parameters: dict[str, Tensor], X: Tensor) -> Tensor:
        return _column(functional_call(self.network, parameters, (X,)))


def flat_gradient(values: Tensor, leaves: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the gradient of the weighted sum of values by all leaves, as one vector."""
    gradients = torch.autograd.grad(
        values, leaves, weights, retain_graph=True, materialize_grads=True
    )
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _column(scores: Tensor) -> Tensor:
    return scores[:, None] if scores.ndim == 1 else scores


def _chunks(X: Features) -> Iterator[Features]:
    # Chunks of nearly equal size: their plain average is that of the rows, and none has one row.
    index = torch.arange(X.shape[0]).tensor_split(-(-X.shape[0] // _CHUNK_ROWS))
    return (X.rows(rows) for rows in index)

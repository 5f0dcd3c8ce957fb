"""Multilayer perceptrons with backpropagation in closed form, pickled without code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.features import Features, Pullback
from fairconstrained.models.network import NetworkModel, plain_sequence


class PerceptronModel(NetworkModel):
    """A first layer without parameters, then linear layers with rectifiers between them.

    It computes the same as :class:`NetworkModel` without autograd, in half the time for a step on a
    small batch. ``contains_linear`` says whether every linear model is among the perceptrons.
    """

    def __init__(self, network: nn.Sequential):
        super().__init__(network)
        *hidden, n_outputs = (
            len(layer.weight) for layer in network if isinstance(layer, nn.Linear)
        )
        self.contains_linear = min(hidden) >= 2 * n_outputs
        self._first_layer: PiecewiseLinear | Standardize = network[0]  # type: ignore[assignment]

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Return scores, and their pullback by backpropagation."""
        parameters = list(self._unflatten(w).values())
        weights, biases = parameters[::2], parameters[1::2]
        inputs = [self._first_layer.forward(X.to_dense())]
        for weight, bias in zip(weights[:-1], biases, strict=False):
            inputs.append(torch.addmm(bias, inputs[-1], weight.T).relu_())
        scores = torch.addmm(biases[-1], inputs[-1], weights[-1].T)

        def pullback(cotangent: Tensor) -> Tensor:
            weighted = cotangent.nonzero()
            if not len(weighted):
                return torch.zeros_like(w)
            # Some rows of a step are for values only and have no weight.
            rows = slice(int(weighted[0, 0]), int(weighted[-1, 0]) + 1)
            at_output = cotangent[rows]
            pieces = _gradients(at_output, inputs[-1][rows])
            for i in range(len(inputs) - 1, 0, -1):
                # Rectified inputs are non-negative: their sign is 0 or 1.
                at_output = (at_output @ weights[i]).mul_(inputs[i][rows].sign())
                pieces = _gradients(at_output, inputs[i - 1][rows]) + pieces
            return torch.cat(pieces)

        return scores, pullback

    def from_linear(self, coef: Tensor, intercept: Tensor) -> Tensor:
        """Return parameters that reproduce the scores of a linear model: (K, d) and (K,).

        A positive and a negative part of each score pass through the first units of all layers;
        weights on the outputs of all other units are zero.
        """
        parameters = [parameter.clone() for parameter in self._unflatten(self._first).values()]
        weights, biases = parameters[::2], parameters[1::2]
        on_first, constant = self._first_layer.linear(coef)
        n = 2 * len(coef)
        weights[0][:n] = torch.cat((on_first, -on_first))
        biases[0][:n] = torch.cat((intercept + constant, -intercept - constant))
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            weight[:n] = torch.eye(n, weight.shape[1]).to(weight)
            bias[:n] = 0.0
        both = torch.eye(len(coef)).to(coef)
        weights[-1].zero_()[:, :n] = torch.cat((both, -both), dim=1)
        biases[-1].zero_()
        return torch.cat([parameter.reshape(-1) for parameter in parameters])


def _gradients(at_output: Tensor, at_input: Tensor) -> list[Tensor]:
    """Return the flat gradients of a linear layer's weight and bias."""
    return [(at_output.T @ at_input).reshape(-1), at_output.sum(dim=0)]


class Layers(nn.Sequential):
    """Layers of this package, pickled as names and arrays for readers that refuse to run code."""

    def __getstate__(self) -> dict[str, Any]:
        return _record(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__(*(_layer(record) for record in state["layers"]))
        self.eval()


def auditable(module: nn.Module) -> nn.Module:
    """Return a perceptron of this package as :class:`Layers`; any other module as it is."""
    layers = plain_sequence(module) or [module]
    # A record says nothing of subclasses and of layers without a bias.
    known = all(type(layer) in _KINDS and getattr(layer, "bias", 0) is not None for layer in layers)
    ours = known and isinstance(layers[0], (Standardize, PiecewiseLinear))
    return Layers(*module.children()).eval() if ours else module


def _record(layer: nn.Module) -> dict[str, Any]:
    """Return the class name and the arrays of a layer."""
    if isinstance(layer, nn.Sequential):
        return {"kind": "Sequential", "layers": [_record(part) for part in layer]}
    arrays = {key: tensor.detach().cpu().numpy() for key, tensor in layer.state_dict().items()}
    return {"kind": type(layer).__name__, "arrays": arrays}


def _layer(record: dict[str, Any]) -> nn.Module:
    if record["kind"] == "Sequential":
        return nn.Sequential(*(_layer(part) for part in record["layers"]))
    make = next(make for kind, make in _KINDS.items() if kind.__name__ == record["kind"])
    return make(**{name: torch.tensor(array) for name, array in record["arrays"].items()})


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], len(weight), dtype=weight.dtype)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


# The layers of perceptrons, and functions that make them from their arrays.
_KINDS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    Standardize: Standardize,
    PiecewiseLinear: PiecewiseLinear,
    nn.Linear: _linear,
    nn.ReLU: nn.ReLU,
}

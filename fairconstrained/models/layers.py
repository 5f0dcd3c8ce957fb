"""Fitted perceptrons whose files hold names of layers and arrays, and no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairconstrained.models.per_row import plain_sequence
from fairconstrained.models.piecewise_linear import PiecewiseLinear
from fairconstrained.models.platt import Rescale
from fairconstrained.models.standardize import Standardize


class Layers(nn.Sequential):
    """A sequence of layers of this package, pickled as their names and arrays.

    A pickled torch module is code that runs when it is loaded. Readers that refuse to run code,
    such as skops, can read and check this one.
    """

    def __getstate__(self) -> dict[str, Any]:
        return _record(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__(*(_layer(record) for record in state["layers"]))
        self.eval()


def auditable(module: nn.Module) -> nn.Module:
    """A perceptron of this package as :class:`Layers`; any other module as it is."""
    layers = plain_sequence(module) or [module]
    known = type(layers[0]) in _FIRST and all(map(_is_known, layers))
    return Layers(*module.children()).eval() if known else module


def _is_known(layer: nn.Module) -> bool:
    """Whether :func:`_layer` makes the same one of its name and arrays."""
    return type(layer) in _BLANK and getattr(layer, "bias", layer) is not None


def _record(layer: nn.Module) -> dict[str, Any]:
    """Name and contents of a layer."""
    if isinstance(layer, nn.Sequential):
        return {"kind": "Sequential", "layers": [_record(part) for part in layer]}
    arrays = {key: tensor.detach().cpu().numpy() for key, tensor in layer.state_dict().items()}
    return {"kind": type(layer).__name__, "arrays": arrays}


def _layer(record: dict[str, Any]) -> nn.Module:
    if record["kind"] == "Sequential":
        return nn.Sequential(*(_layer(part) for part in record["layers"]))
    tensors = {name: torch.tensor(array) for name, array in record["arrays"].items()}
    layer = _BLANK[_KINDS[record["kind"]]](tensors)
    layer.load_state_dict(tensors)
    return layer


def _blank_linear(tensors: dict[str, Tensor]) -> nn.Linear:
    n_outputs, n_inputs = tensors["weight"].shape
    return nn.Linear(n_inputs, n_outputs, dtype=tensors["weight"].dtype)


_FIRST = (Standardize, PiecewiseLinear)  # what perceptrons of this package begin with
# What makes a layer of each kind for tensors of given shapes.
_BLANK: dict[type[nn.Module], Callable[[dict[str, Tensor]], nn.Module]] = {
    Standardize: lambda tensors: Standardize(tensors["centre"], tensors["scale"]),
    PiecewiseLinear: lambda tensors: PiecewiseLinear(**tensors),
    nn.Linear: _blank_linear,
    nn.ReLU: lambda tensors: nn.ReLU(),
    Rescale: lambda tensors: Rescale().to(tensors["slope"]),
}
_KINDS = {kind.__name__: kind for kind in _BLANK}

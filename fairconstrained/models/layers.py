"""Fitted perceptrons whose files hold names of layers and arrays, and no code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.per_row import plain_sequence


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
    """Return a perceptron of this package as :class:`Layers`; any other module as it is."""
    layers = plain_sequence(module) or [module]
    # A record says nothing of subclasses and of layers without a bias.
    known = all(type(layer) in _KINDS and getattr(layer, "bias", 0) is not None for layer in layers)
    ours = known and isinstance(layers[0], (Standardize, PiecewiseLinear))
    return Layers(*module.children()).eval() if ours else module


def _record(layer: nn.Module) -> dict[str, Any]:
    """Return name and contents of a layer."""
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


# The layers of perceptrons, and functions that make them of their arrays.
_KINDS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    Standardize: Standardize,
    PiecewiseLinear: PiecewiseLinear,
    nn.Linear: _linear,
    nn.ReLU: nn.ReLU,
}

"""Rectified layers as a function of one flat parameter vector, with derivatives written down."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairconstrained.models.base import Pullback
from fairconstrained.models.features import Features
from fairconstrained.models.network import NetworkModel

__all__ = ["PerceptronModel"]


class PerceptronModel(NetworkModel):
    """A first layer without parameters, then linear layers with rectifiers between them.

    As :class:`Module`, but backpropagation is by hand: of a step on a small batch, autograd and
    the calls of modules take half the time.

    Parameters
    ----------
    network : nn.Sequential
        As :func:`fairconstrained.models.specification.multilayer_perceptron` gives it.
    """

    def __init__(self, network: nn.Sequential):
        super().__init__(network)
        self._first_layer = network[0]

    def linearize(self, w: Tensor, X: Features) -> tuple[Tensor, Pullback]:
        """Scores, and backpropagation: `inputs` are the layers' inputs, all but the first >= 0."""
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
            # Of a step's draws some are for values only.
            rows = slice(int(weighted[0, 0]), int(weighted[-1, 0]) + 1)
            at_output = cotangent[rows]
            pieces = _gradients(at_output, inputs[-1][rows])
            for i in range(len(inputs) - 1, 0, -1):
                at_output = (at_output @ weights[i]).mul_(inputs[i][rows].sign())  # 0 or 1
                pieces = _gradients(at_output, inputs[i - 1][rows]) + pieces
            return torch.cat(pieces)

        return scores, pullback


def _gradients(at_output: Tensor, at_input: Tensor) -> list[Tensor]:
    """Of a linear layer's weight and bias, flat."""
    return [(at_output.T @ at_input).reshape(-1), at_output.sum(dim=0)]

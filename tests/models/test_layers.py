"""Perceptrons as records of layers: the same function, and of no other module."""

import pytest
import torch
from torch import nn

from fairconstrained.models import Standardize
from fairconstrained.models.perceptron import auditable

D = 3


def first():
    return Standardize(torch.ones(D), torch.full((D,), 2.0))


class Residual(nn.Module):
    """The layers of a perceptron, and more than one after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.hidden, self.last = first(), nn.Linear(D, D), nn.Linear(D, 1)

    def forward(self, X):
        X = self.first(X)
        return self.last(X + self.hidden(X))


class Linear(nn.Linear):
    """Of the same name as a layer of a perceptron."""

    def forward(self, X):
        return super().forward(X) ** 2


@pytest.mark.parametrize(
    "module",
    [
        Residual(),
        nn.Sequential(first(), Linear(D, 1)),
        nn.Sequential(first(), nn.Linear(D, 1, bias=False)),
        nn.Sequential(nn.Linear(D, 1)),
        nn.Linear(D, 1),
    ],
    ids=["residual", "other class", "no bias", "no first layer", "one layer"],
)
def test_other_modules_stay_as_they_are(module):
    assert auditable(module) is module

"""Models that the parameter `model` names: perceptrons, modules of the user, bad ones."""

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from fairconstrained.models import Posteriors, as_specification
from fairconstrained.models.features import DenseFeatures
from tests.helpers.numeric import badly_scaled, tensor

X = badly_scaled(n=30)
WEIGHT = tensor(np.random.default_rng(1).exponential(size=30) + 0.1)


def built(spec, n_outputs=1, features=None):
    torch.manual_seed(0)
    return as_specification(spec).build(features or DenseFeatures(X), WEIGHT, n_outputs, 1e-3)


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, Posteriors])
def test_a_class_instead_of_an_object_is_refused(kind):
    with pytest.raises(ValueError, match=rf"give an object of it, {kind.__name__}\(\)"):
        as_specification(kind)


def test_a_perceptron_does_not_depend_on_the_units_of_the_columns():
    scale, shift = tensor([1e-3, 1.0, 10.0, 1e3, -1.0]), tensor([5.0, 0.0, 1.0, -3.0, 2.0])
    scores = [
        (m := built((4, 3), features=DenseFeatures(A))).scores(m.init(), DenseFeatures(A))
        for A in (X, X * scale.abs() + shift)
    ]
    torch.testing.assert_close(*scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("layers", "n_outputs", "message"),
    [
        (nn.Linear(5, 2), 1, r"scores of shape \(n, 1\); for 2 rows it gave \(2, 2\)"),
        (nn.Linear(5, 1), 3, r"scores of shape \(n, 3\); for 2 rows it gave \(2, 1\)"),
        (nn.Sequential(nn.Linear(5, 3), nn.Flatten(0)), 3, r"gave \(6,\)"),
        (nn.Linear(5, 1).requires_grad_(False), 1, "with parameters to train"),
    ],
)
def test_networks_of_the_wrong_shape_are_refused(layers, n_outputs, message):
    with pytest.raises(ValueError, match=message):
        built(lambda d, k: layers, n_outputs)

"""Lazy and compiled modules, arrays of numpy, low precision: they work, or a sentence says why."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.solvers import ALM, SGDA
from fairconstrained.training import train
from tests.helpers.fits import table
from tests.helpers.modules import log_loss, weights

X, Y, GROUP = table()
DATA = torch.tensor(X).float(), torch.tensor(Y)
SHORT = ALM(n_steps=60, batch_size=64)


def few_positives(outputs, batch):
    return torch.sigmoid(outputs).mean() - 0.9


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(X.shape[1], 3), nn.Tanh(), nn.Linear(3, 1))


def trained(network, data=DATA):
    return train(network, log_loss, few_positives, data, solver=SHORT, random_state=0)


def test_arrays_of_numpy_train_as_tensors_of_the_modules_type_do():
    assert not X.flags.writeable
    assert torch.equal(weights(trained(module(), (X, Y))), weights(trained(module())))


def test_arrays_of_text_are_refused():
    with pytest.raises(ValueError, match="data must hold numbers; got an array of dtype <U3"):
        trained(module(), (X, np.array(["yes", "no"])[Y]))


def test_lazy_layers_take_their_shape_from_the_data():
    lazy = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1))
    result = trained(lazy)
    assert result.module[0].weight.shape == (3, X.shape[1])
    assert torch.equal(weights(result), weights(trained(lazy)))  # the seed is of both
    assert isinstance(lazy[0].weight, nn.UninitializedParameter)


def test_low_precision_is_refused():
    with pytest.raises(ValueError, match=r"or float64; got torch.float16, in which small steps"):
        trained(module().half())


# --- estimators -----------------------------------------------------------------------------------


def fitted(model):
    clf = RateConstrainedClassifier(model=model, solver=SGDA(n_steps=60), slack=0.5, random_state=0)
    return clf.fit(X, Y, sensitive_features=GROUP)


def lazy(n_features, n_outputs):
    return nn.LazyLinear(n_outputs)


def low_precision(n_features, n_outputs):
    return nn.Linear(n_features, n_outputs).bfloat16()


def test_lazy_layers_can_be_pickled():
    clf = fitted(lazy)
    read = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(read.decision_function(X), clf.decision_function(X))


def test_estimators_compute_in_double_precision_whatever_the_factory_gives():
    assert {p.dtype for p in fitted(low_precision).module_.parameters()} == {torch.float64}


def test_a_module_is_no_factory():
    message = "function that makes a module, .* It got a module, Linear"
    with pytest.raises(ValueError, match=message):
        fitted(nn.Linear(X.shape[1], 1))

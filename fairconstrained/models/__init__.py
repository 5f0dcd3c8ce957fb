"""Models: from flat parameters to scores, and from cotangents on scores back to parameters.

Solvers see parameters as one vector; constraints and losses see scores. A model is the map between
the two and knows nothing else.
"""

from fairconstrained.models.base import Model, Penalty, Pullback
from fairconstrained.models.build import (
    Standardize,
    as_model,
    as_private_model,
    multilayer_perceptron,
)
from fairconstrained.models.linear import Linear, ScaledLinear, whitener
from fairconstrained.models.module import Module

__all__ = [
    "Linear",
    "Model",
    "Module",
    "Penalty",
    "Pullback",
    "ScaledLinear",
    "Standardize",
    "as_model",
    "as_private_model",
    "multilayer_perceptron",
    "whitener",
]

"""Models: from flat parameters to scores, and from cotangents on scores back to parameters."""

from fairconstrained.models.boosting import Boosting
from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.features import Model, Penalty, Pullback
from fairconstrained.models.group_probabilities import estimate_group_probabilities
from fairconstrained.models.linear import LinearModel, whitener
from fairconstrained.models.network import NetworkModel
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.single_fit import SingleFit
from fairconstrained.models.specification import Linear, Network, Specification

__all__ = [
    "Boosting",
    "Linear",
    "LinearModel",
    "Model",
    "Network",
    "NetworkModel",
    "Penalty",
    "PiecewiseLinear",
    "Posteriors",
    "Pullback",
    "SingleFit",
    "Specification",
    "Standardize",
    "estimate_group_probabilities",
    "whitener",
]

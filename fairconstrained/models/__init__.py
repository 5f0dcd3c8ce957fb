"""Models: from flat parameters to scores, and from cotangents on scores back to parameters.

Solvers see parameters as one vector; constraints and losses see scores. A model is the map between
the two and knows nothing else.
"""

from typing import Any

from torch import nn

from fairconstrained.models.base import Model, Penalty, Pullback
from fairconstrained.models.cross_fitting import is_scoring_classifier
from fairconstrained.models.encodings import PiecewiseLinear, Standardize
from fairconstrained.models.linear import LinearModel, whitener
from fairconstrained.models.network import NetworkModel
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import (
    Linear,
    Network,
    Specification,
    are_sizes,
)

__all__ = [
    "Linear",
    "LinearModel",
    "Model",
    "Network",
    "NetworkModel",
    "Penalty",
    "PiecewiseLinear",
    "Posteriors",
    "Pullback",
    "Specification",
    "Standardize",
    "as_specification",
    "whitener",
]


def as_specification(model: Any) -> Specification:
    """Return the specification that a ``model`` parameter stands for.

    Parameters
    ----------
    model : "linear", sequence of int, callable, classifier, or Specification

    Raises
    ------
    ValueError
        If it is none of these, or the class of a classifier instead of an object.

    Examples
    --------
    >>> from fairconstrained.models import as_specification
    >>> as_specification("linear"), as_specification((8, 4))
    (Linear(), Network(layers=(8, 4)))
    """
    if isinstance(model, Specification):
        return model
    if isinstance(model, str) and model == "linear":
        return Linear()
    if isinstance(model, type) and not issubclass(model, nn.Module):
        raise ValueError(f"model is a class; give an object of it, {model.__name__}().")
    if not isinstance(model, type) and is_scoring_classifier(model):
        return Posteriors(model)
    if callable(model) or are_sizes(model):
        return Network(model)
    raise ValueError(
        "model must be 'linear', a tuple of hidden sizes such as (64, 32), a callable (n_features, "
        "n_outputs) -> nn.Module, a scikit-learn classifier, or an object of "
        f"fairconstrained.models; got {model!r}."
    )

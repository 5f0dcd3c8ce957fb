"""Short forms of the parameter ``model``: each stands for a specification."""

from __future__ import annotations

from typing import Any

from torch import nn

from fairconstrained.models.cross_fitting import is_scoring_classifier
from fairconstrained.models.posteriors import Posteriors
from fairconstrained.models.specification import Linear, Network, Specification, are_sizes


def as_specification(model: Any) -> Specification:
    """Return the specification that a ``model`` parameter stands for."""
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

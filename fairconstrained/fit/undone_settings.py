"""Settings of a classifier that a constrained head undoes, wherever they are inside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

# Parameters that give the rows of some labels another weight, and their neutral values.
_WEIGHTS: Mapping[str, tuple[Any, ...]] = {
    "class_weight": (None,),
    "scale_pos_weight": (None, 1),
    "is_unbalance": (None, False),
    "unbalance": (None, False),  # the other name in LightGBM
    "unbalanced_sets": (None, False),
    "pos_bagging_fraction": (None, 1),
    "neg_bagging_fraction": (None, 1),
    "auto_class_weights": (None, "None"),
    "class_weights": (None,),
    "sampling_strategy": (),  # of samplers, and of ensembles that sample
    "priors": (None,),
    "class_prior": (None,),
    "fit_prior": (True,),
}


def undone_settings(model: Any) -> list[str]:
    """List the settings of a classifier, or of any model inside of it, that move its threshold.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> undone_settings(make_pipeline("passthrough", LogisticRegression(class_weight="balanced")))
    ["class_weight='balanced' of LogisticRegression"]
    """
    return list(dict.fromkeys(_settings(model)))


def _settings(value: Any) -> Iterator[str]:
    """Yield descriptions of the settings of a value, and of all values inside of a container."""
    if isinstance(value, Mapping):
        for key, inner in value.items():  # a grid of a search, or steps by name
            yield from _weights(str(key).rpartition("__")[2], inner, "a grid")
            yield from _settings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _settings(inner)
    elif hasattr(value, "get_params") and not isinstance(value, type):
        name = type(value).__name__
        if isinstance(value, TunedThresholdClassifierCV):
            yield f"the threshold of {name}"
        if isinstance(value, FixedThresholdClassifier) and value.threshold != "auto":
            yield f"threshold={value.threshold!r} of {name}"
        if hasattr(value, "fit_resample") and not hasattr(value, "sampling_strategy"):
            yield f"the sampler {name}"
        for parameter, inner in value.get_params(deep=False).items():
            yield from _weights(parameter, [inner], name)
            yield from _settings(inner)


def _weights(parameter: str, values: Any, owner: str) -> Iterator[str]:
    """Yield a description of a parameter if one of its values weighs labels differently."""
    if parameter not in _WEIGHTS or not isinstance(values, (list, tuple, np.ndarray)):
        return
    for value in values:
        by_label = list(value.values()) if isinstance(value, Mapping) else value
        if isinstance(by_label, (list, tuple, np.ndarray)):
            neutral = all(weight == 1 for weight in by_label)
        else:
            neutral = any(value is none or value == none for none in _WEIGHTS[parameter])
        if not neutral:
            yield f"{parameter}={value!r} of {owner}"
            return

"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

import importlib
from typing import TYPE_CHECKING

from fairconstrained._version import __version__

if TYPE_CHECKING:
    from fairconstrained.estimators import (
        AUCFairClassifier,
        DPFermiClassifier,
        LossParityClassifier,
        PartialParityClassifier,
        RateConstrainedClassifier,
    )
else:
    # The estimators load torch, which takes seconds. Metrics, data sets and model selection do
    # without it, so the estimators are imported when the first of them is asked for (PEP 562).
    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("fairconstrained.estimators"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AUCFairClassifier",
    "DPFermiClassifier",
    "LossParityClassifier",
    "PartialParityClassifier",
    "RateConstrainedClassifier",
    "__version__",
]

"""Accurate classifiers that keep fairness constraints, as scikit-learn estimators."""

import importlib
from typing import TYPE_CHECKING

from fairconstrained._version import __version__

if TYPE_CHECKING:
    from fairconstrained.audit.facts import report
    from fairconstrained.audit.pages import Audit
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
    # The audit, too, because nothing else needs it.
    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "audit.facts" if name in ("Audit", "report") else "estimators"
        return getattr(importlib.import_module(f"fairconstrained.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AUCFairClassifier",
    "Audit",
    "DPFermiClassifier",
    "LossParityClassifier",
    "PartialParityClassifier",
    "RateConstrainedClassifier",
    "__version__",
    "report",
]

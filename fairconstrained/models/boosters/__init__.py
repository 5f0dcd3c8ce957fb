"""Boosters whose rounds take gradients of ours: one file for each library."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairconstrained.models.boosters.family import Family

__all__ = ["FAMILIES", "Family", "family_of"]

# The file with the family of a class, and of its subclasses, by the library and the class. A file
# imports its library, which may not be installed.
FAMILIES = {
    "sklearn.HistGradientBoostingClassifier": "hist_gradient",
    "lightgbm.LGBMClassifier": "light_gbm",
    "xgboost.XGBClassifier": "xg_boost",
}


def family_of(estimator: Any) -> Family | None:
    """Return the family that a booster belongs to, or None for other models."""
    for cls in type(estimator).__mro__:
        file = FAMILIES.get(f"{cls.__module__.partition('.')[0]}.{cls.__name__}")
        if file is not None:
            family: Family = import_module(f"{__name__}.{file}").FAMILY
            return family
    return None

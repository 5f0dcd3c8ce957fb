"""Splits, choices, trade-off curves and certificates for models with fairness constraints."""

from fairconstrained.model_selection.certified import CertifiedClassifier
from fairconstrained.model_selection.choice import pareto_front, select_feasible, tradeoff_curve
from fairconstrained.model_selection.columns import SensitiveColumnsClassifier
from fairconstrained.model_selection.private_search import PrivateGridSearch
from fairconstrained.model_selection.smallest_gap import SmallestGapClassifier
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold

__all__ = [
    "CertifiedClassifier",
    "PrivateGridSearch",
    "SensitiveColumnsClassifier",
    "SmallestGapClassifier",
    "StratifiedSensitiveKFold",
    "pareto_front",
    "select_feasible",
    "tradeoff_curve",
]

"""Splits, choices, trade-off curves and certificates for models with fairness constraints."""

from fairconstrained.model_selection.certified import CertifiedClassifier
from fairconstrained.model_selection.choice import pareto_front, select_feasible
from fairconstrained.model_selection.columns import SensitiveColumnsClassifier
from fairconstrained.model_selection.curves import tradeoff_curve
from fairconstrained.model_selection.private_search import PrivateGridSearch
from fairconstrained.model_selection.splits import StratifiedSensitiveKFold
from fairconstrained.privacy.search import epsilon_per_fit, search_privacy_cost

__all__ = [
    "CertifiedClassifier",
    "PrivateGridSearch",
    "SensitiveColumnsClassifier",
    "StratifiedSensitiveKFold",
    "epsilon_per_fit",
    "pareto_front",
    "search_privacy_cost",
    "select_feasible",
    "tradeoff_curve",
]

"""The estimators, one file each."""

from fairconstrained.estimators.auc_fair import AUCFairClassifier
from fairconstrained.estimators.dp_fermi import DPFermiClassifier
from fairconstrained.estimators.loss_parity import LossParityClassifier
from fairconstrained.estimators.partial_parity import PartialParityClassifier
from fairconstrained.estimators.rate_constrained import RateConstrainedClassifier

__all__ = [
    "AUCFairClassifier",
    "DPFermiClassifier",
    "LossParityClassifier",
    "PartialParityClassifier",
    "RateConstrainedClassifier",
]

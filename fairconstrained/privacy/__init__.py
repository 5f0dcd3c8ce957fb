"""Differential privacy: what releases cost, and how much noise a budget asks for.

Needs dp-accounting: ``python -m pip install 'fairconstrained[privacy]'``.
"""

from fairconstrained.privacy.accounting import (
    Budget,
    Gaussian,
    Laplace,
    Phase,
    PrivacyGuarantee,
    Unit,
    privacy_guarantee,
    privacy_spent,
)
from fairconstrained.privacy.calibration import calibrate
from fairconstrained.privacy.plans import (
    ReleasePlan,
    TrainingPlan,
    one_off_gaussian,
    plan_releases,
    plan_training,
)

__all__ = [
    "Budget",
    "Gaussian",
    "Laplace",
    "Phase",
    "PrivacyGuarantee",
    "ReleasePlan",
    "TrainingPlan",
    "Unit",
    "calibrate",
    "one_off_gaussian",
    "plan_releases",
    "plan_training",
    "privacy_guarantee",
    "privacy_spent",
]

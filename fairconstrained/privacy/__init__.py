"""Differential privacy: what releases cost, and how much noise a budget asks for.

Needs dp-accounting: ``pip install dp-accounting``.
"""

from fairconstrained.privacy.accounting import (
    Budget,
    Gaussian,
    Laplace,
    Phase,
    PrivacyGuarantee,
    Unit,
)
from fairconstrained.privacy.plans import calibrate, privacy_guarantee, privacy_spent

__all__ = [
    "Budget",
    "Gaussian",
    "Laplace",
    "Phase",
    "PrivacyGuarantee",
    "Unit",
    "calibrate",
    "privacy_guarantee",
    "privacy_spent",
]

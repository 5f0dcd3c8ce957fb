"""Differential privacy: the cost of noisy releases, and the noise that a budget requires.

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

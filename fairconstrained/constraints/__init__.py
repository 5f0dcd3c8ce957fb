"""Criteria of fairness, and the constraints on scores to which they are bound."""

from fairconstrained.constraints.auc import AUCS, AUCParity
from fairconstrained.constraints.loss_parity import LOSS_PARITIES, LossParity
from fairconstrained.constraints.notions import Cap, Event, Notion, Parity
from fairconstrained.constraints.partial_notions import (
    PARTIAL,
    PARTIAL_PRIVATE,
    PartialDemographicParity,
    PartialEqualizedOdds,
    PartialEqualOpportunity,
    PartialGroupAUC,
    PartialRankParity,
    PartialStatisticalParity,
    PartialStatisticalParityInBins,
)
from fairconstrained.constraints.predictive import FalseOmissionRateParity, PredictiveParity
from fairconstrained.constraints.rates import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    ExpectedCost,
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    RateConstraint,
    RejectionRate,
)
from fairconstrained.constraints.robust import RobustParity
from fairconstrained.constraints.surrogates import Binormal, Quadratic, SoftBins
from fairconstrained.constraints.tables import Space

# The names that RateConstrainedClassifier accepts. Tests cover all of this table.
CONSTRAINTS: dict[str, type[Notion]] = {
    notion().name: notion
    for notion in (
        DemographicParity,
        EqualizedOdds,
        EqualOpportunity,
        ErrorRateParity,
        FalseNegativeRate,
        FalseOmissionRateParity,
        FalsePositiveRate,
        FalsePositiveRateParity,
        PredictiveParity,
        RejectionRate,
        LossParity,
    )
}

__all__ = [
    "AUCS",
    "CONSTRAINTS",
    "LOSS_PARITIES",
    "PARTIAL",
    "PARTIAL_PRIVATE",
    "AUCParity",
    "Binormal",
    "Cap",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "Event",
    "ExpectedCost",
    "FalseNegativeRate",
    "FalseOmissionRateParity",
    "FalsePositiveRate",
    "FalsePositiveRateParity",
    "LossParity",
    "Notion",
    "Parity",
    "PartialDemographicParity",
    "PartialEqualOpportunity",
    "PartialEqualizedOdds",
    "PartialGroupAUC",
    "PartialRankParity",
    "PartialStatisticalParity",
    "PartialStatisticalParityInBins",
    "PredictiveParity",
    "Quadratic",
    "RateConstraint",
    "RejectionRate",
    "RobustParity",
    "SoftBins",
    "Space",
]

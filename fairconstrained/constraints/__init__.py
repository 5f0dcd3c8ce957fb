"""Criteria of fairness, and the constraints on scores to which they are bound."""

from fairconstrained.constraints.auc import AUCS, AUCConstraint, AUCParity
from fairconstrained.constraints.expected_cost import ExpectedCost
from fairconstrained.constraints.linear import LinearMoments
from fairconstrained.constraints.loss_parity import LOSS_PARITIES, LossParity
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.notions import Cap, Event, Notion, Parity, as_notion
from fairconstrained.constraints.partial_notions import (
    PARTIAL,
    PARTIAL_PRIVATE,
    PartialDemographicParity,
    PartialEqualizedOdds,
    PartialEqualOpportunity,
    PartialGroupAUC,
    PartialNotion,
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
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    RateConstraint,
    RejectionRate,
)
from fairconstrained.constraints.robust import RobustParity
from fairconstrained.constraints.stack import Stack, stacked
from fairconstrained.constraints.surrogates import Binormal, Quadratic, SoftBins
from fairconstrained.constraints.tables import Placement, Space

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
    "AUCConstraint",
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
    "LinearMoments",
    "LossParity",
    "MomentConstraint",
    "Notion",
    "Parity",
    "PartialDemographicParity",
    "PartialEqualOpportunity",
    "PartialEqualizedOdds",
    "PartialGroupAUC",
    "PartialNotion",
    "PartialRankParity",
    "PartialStatisticalParity",
    "PartialStatisticalParityInBins",
    "Placement",
    "PredictiveParity",
    "Quadratic",
    "RateConstraint",
    "RejectionRate",
    "RobustParity",
    "SoftBins",
    "Space",
    "Stack",
    "as_notion",
    "stacked",
]

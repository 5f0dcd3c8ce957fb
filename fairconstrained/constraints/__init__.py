"""What a classifier can be asked to keep: one notion is one small object in score space."""

from fairconstrained.constraints.auc import AUCConstraint, AUCParity
from fairconstrained.constraints.loss_parity import LossParity
from fairconstrained.constraints.moments import (
    BoundConstraint,
    LinearMoments,
    MomentConstraint,
    Space,
)
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
from fairconstrained.constraints.rates import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    RateConstraint,
)
from fairconstrained.constraints.stack import Stack
from fairconstrained.constraints.surrogates import Binormal, Quadratic, SoftBins

# The names that estimators accept. Tests run over this table, so a row buys them all.
CONSTRAINTS: dict[str, type[Notion]] = {
    notion.name: notion
    for notion in (
        DemographicParity,
        EqualizedOdds,
        EqualOpportunity,
        ErrorRateParity,
        FalseNegativeRate,
        FalsePositiveRate,
        FalsePositiveRateParity,
        LossParity,
    )
}

__all__ = [
    "CONSTRAINTS",
    "PARTIAL",
    "PARTIAL_PRIVATE",
    "AUCConstraint",
    "AUCParity",
    "Binormal",
    "BoundConstraint",
    "Cap",
    "DemographicParity",
    "EqualOpportunity",
    "EqualizedOdds",
    "ErrorRateParity",
    "Event",
    "FalseNegativeRate",
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
    "PartialRankParity",
    "PartialStatisticalParity",
    "PartialStatisticalParityInBins",
    "Quadratic",
    "RateConstraint",
    "SoftBins",
    "Space",
    "Stack",
]

"""What the tests of partial constraints share: bound notions, extra variables, metrics."""

import numpy as np
import torch

from fairconstrained import metrics
from fairconstrained.constraints import (
    PARTIAL,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    PartialDemographicParity,
    PartialEqualizedOdds,
    PartialEqualOpportunity,
)
from tests.helpers.notions import bound as bound_to

INTERVALS = [(0.05, 0.4), (0.0, 1.0), [(0.0, 0.2), (0.3, 0.8)]]
RATES = {
    "demographic_parity": (PartialDemographicParity, DemographicParity),
    "equal_opportunity": (PartialEqualOpportunity, EqualOpportunity),
    "equalized_odds": (PartialEqualizedOdds, EqualizedOdds),
}
CONVEX = [name for name in PARTIAL if name != "group_auc"]
METRICS = {
    name: getattr(metrics, f"partial_{name}")
    for name in ("statistical_parity", *RATES, "group_auc")
} | {"rank_parity": metrics.ccdf_gap}


def bound(notion, n_groups=3, temperature=1.5, slack=0.05):
    return bound_to(notion, (2, n_groups), temperature, slack)


def variables(constraint, rows):
    """Extra variables near those of the start, in no order."""
    noise = torch.as_tensor(np.random.default_rng(0).normal(size=constraint.n_aux))
    return constraint.init_aux(rows.scores, rows.on(constraint)) + noise


def rates_of(rows, values):
    """Weighted means of each of two groups."""
    masks = (rows.group == 0, rows.group == 1)
    return [np.average(values[mask], axis=0, weights=rows.weight[mask]) for mask in masks]

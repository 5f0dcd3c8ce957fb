"""Fairness metrics of predictions, and scorers of them for scikit-learn's searches.

Metrics are ``metric(y_true, y_pred, *, sensitive_features, sample_weight=None, ...) -> float``.
"""

from fairconstrained.metrics.auc import (
    auc_between,
    bpsn_bnsp_gap,
    group_auc_gap,
    inter_group_auc_gap,
    intra_group_auc_gap,
    negative_equality_gap,
    positive_equality_gap,
)
from fairconstrained.metrics.certificates import certify
from fairconstrained.metrics.dependence import (
    exponential_renyi_mutual_information,
    independence_gap,
    separation_gap,
    sufficiency_gap,
)
from fairconstrained.metrics.intervals import confidence_interval
from fairconstrained.metrics.parity import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    error_rate_difference,
    false_omission_rate_difference,
    false_omission_rate_ratio,
    false_positive_rate_difference,
    predictive_parity_difference,
    predictive_parity_ratio,
)
from fairconstrained.metrics.partial import (
    ccdf_gap,
    partial_demographic_parity,
    partial_equal_opportunity,
    partial_equalized_odds,
    partial_group_auc,
    partial_statistical_parity,
)
from fairconstrained.metrics.populations import Proportions, Weights
from fairconstrained.metrics.probabilities import loss_gap, wasserstein_distance_between_groups
from fairconstrained.metrics.report import group_report
from fairconstrained.metrics.scorers import (
    bpsn_bnsp_scorer,
    demographic_parity_ratio_scorer,
    demographic_parity_scorer,
    equal_opportunity_scorer,
    equalized_odds_scorer,
    error_rate_parity_scorer,
    fairness_scorer,
    false_omission_rate_parity_scorer,
    false_positive_rate_parity_scorer,
    group_auc_scorer,
    inter_group_auc_scorer,
    intra_group_auc_scorer,
    loss_gap_scorer,
    mutual_information_scorer,
    negative_equality_scorer,
    positive_equality_scorer,
    predictive_parity_scorer,
)
from fairconstrained.metrics.statements import Certificate
from fairconstrained.metrics.worst_rates import (
    expected_cost,
    false_negative_rate,
    false_positive_rate,
    rejection_rate,
)

__all__ = [
    "Certificate",
    "Proportions",
    "Weights",
    "auc_between",
    "bpsn_bnsp_gap",
    "bpsn_bnsp_scorer",
    "ccdf_gap",
    "certify",
    "confidence_interval",
    "demographic_parity_difference",
    "demographic_parity_ratio",
    "demographic_parity_ratio_scorer",
    "demographic_parity_scorer",
    "equal_opportunity_difference",
    "equal_opportunity_ratio",
    "equal_opportunity_scorer",
    "equalized_odds_difference",
    "equalized_odds_ratio",
    "equalized_odds_scorer",
    "error_rate_difference",
    "error_rate_parity_scorer",
    "expected_cost",
    "exponential_renyi_mutual_information",
    "fairness_scorer",
    "false_negative_rate",
    "false_omission_rate_difference",
    "false_omission_rate_parity_scorer",
    "false_omission_rate_ratio",
    "false_positive_rate",
    "false_positive_rate_difference",
    "false_positive_rate_parity_scorer",
    "group_auc_gap",
    "group_auc_scorer",
    "group_report",
    "independence_gap",
    "inter_group_auc_gap",
    "inter_group_auc_scorer",
    "intra_group_auc_gap",
    "intra_group_auc_scorer",
    "loss_gap",
    "loss_gap_scorer",
    "mutual_information_scorer",
    "negative_equality_gap",
    "negative_equality_scorer",
    "partial_demographic_parity",
    "partial_equal_opportunity",
    "partial_equalized_odds",
    "partial_group_auc",
    "partial_statistical_parity",
    "positive_equality_gap",
    "positive_equality_scorer",
    "predictive_parity_difference",
    "predictive_parity_ratio",
    "predictive_parity_scorer",
    "rejection_rate",
    "separation_gap",
    "sufficiency_gap",
    "wasserstein_distance_between_groups",
]

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
from fairconstrained.metrics.dependence import exponential_renyi_mutual_information
from fairconstrained.metrics.intervals import confidence_interval
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
from fairconstrained.metrics.rates import (
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    error_rate_difference,
    expected_cost,
    false_negative_rate,
    false_omission_rate_difference,
    false_omission_rate_ratio,
    false_positive_rate,
    false_positive_rate_difference,
    independence_gap,
    predictive_parity_difference,
    predictive_parity_ratio,
    rejection_rate,
    separation_gap,
    sufficiency_gap,
)
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

__all__ = ["Certificate", "Proportions", "Weights", "certify"]
__all__ += ["confidence_interval", "fairness_scorer", "group_report"]
__all__ += ["demographic_parity_difference", "demographic_parity_ratio", "independence_gap"]
__all__ += ["equal_opportunity_difference", "equal_opportunity_ratio"]
__all__ += ["equalized_odds_difference", "equalized_odds_ratio", "separation_gap"]
__all__ += ["error_rate_difference", "false_positive_rate_difference"]
__all__ += ["false_omission_rate_difference", "false_omission_rate_ratio"]
__all__ += ["predictive_parity_difference", "predictive_parity_ratio", "sufficiency_gap"]
__all__ += ["expected_cost", "false_negative_rate", "false_positive_rate", "rejection_rate"]
__all__ += ["exponential_renyi_mutual_information"]
__all__ += ["auc_between", "group_auc_gap", "inter_group_auc_gap", "intra_group_auc_gap"]
__all__ += ["bpsn_bnsp_gap", "negative_equality_gap", "positive_equality_gap"]
__all__ += ["ccdf_gap", "partial_group_auc", "partial_statistical_parity"]
__all__ += ["partial_demographic_parity", "partial_equal_opportunity", "partial_equalized_odds"]
__all__ += ["loss_gap", "wasserstein_distance_between_groups"]
__all__ += ["demographic_parity_ratio_scorer", "demographic_parity_scorer"]
__all__ += ["equal_opportunity_scorer", "equalized_odds_scorer", "error_rate_parity_scorer"]
__all__ += ["false_omission_rate_parity_scorer", "false_positive_rate_parity_scorer"]
__all__ += ["bpsn_bnsp_scorer", "group_auc_scorer", "inter_group_auc_scorer"]
__all__ += ["intra_group_auc_scorer", "loss_gap_scorer", "mutual_information_scorer"]
__all__ += ["negative_equality_scorer", "positive_equality_scorer", "predictive_parity_scorer"]

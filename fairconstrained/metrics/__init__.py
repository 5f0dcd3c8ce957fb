"""Fairness metrics of predictions, and scorers of them for scikit-learn's searches.

``METRICS`` holds, by name, every metric that compares groups in predicted labels:
``metric(y_true, y_pred, *, sensitive_features, sample_weight=None, ...) -> float``.
"""

from collections.abc import Callable

from fairconstrained.metrics import gaps, rates
from fairconstrained.metrics._certificate import Certificate
from fairconstrained.metrics._scorers import (
    bpsn_bnsp_scorer,
    demographic_parity_ratio_scorer,
    demographic_parity_scorer,
    equal_opportunity_scorer,
    equalized_odds_scorer,
    error_rate_parity_scorer,
    fairness_scorer,
    false_positive_rate_parity_scorer,
    group_auc_scorer,
    inter_group_auc_scorer,
    intra_group_auc_scorer,
    loss_gap_scorer,
    mutual_information_scorer,
    negative_equality_scorer,
    positive_equality_scorer,
    scorers,
)
from fairconstrained.metrics.auc import (
    auc_between,
    bpsn_bnsp_gap,
    group_auc_gap,
    inter_group_auc_gap,
    intra_group_auc_gap,
    negative_equality_gap,
    positive_equality_gap,
    roc_auc_score_group_min,
)
from fairconstrained.metrics.certificates import certify
from fairconstrained.metrics.gaps import (
    independence_gap,
    separation_gap,
    sufficiency_gap,
    wasserstein_distance_between_groups,
)
from fairconstrained.metrics.information import (
    exponential_renyi_mutual_information,
)
from fairconstrained.metrics.intervals import bias_corrected, confidence_interval
from fairconstrained.metrics.losses import (
    log_loss_group_max,
    loss_gap,
    mean_absolute_error_group_max,
    mean_squared_error_group_max,
    r2_score_group_min,
)
from fairconstrained.metrics.partial import (
    ccdf_gap,
    partial_demographic_parity,
    partial_equal_opportunity,
    partial_equalized_odds,
    partial_group_auc,
    partial_statistical_parity,
)
from fairconstrained.metrics.rates import (
    accuracy_score_difference,
    accuracy_score_group_min,
    accuracy_score_ratio,
    balanced_accuracy_score_group_min,
    demographic_parity_difference,
    demographic_parity_ratio,
    equal_opportunity_difference,
    equal_opportunity_ratio,
    equalized_odds_difference,
    equalized_odds_ratio,
    error_rate_difference,
    f1_score_group_min,
    false_negative_rate,
    false_negative_rate_difference,
    false_negative_rate_ratio,
    false_positive_rate,
    false_positive_rate_difference,
    false_positive_rate_ratio,
    precision_score_group_min,
    recall_score_group_min,
    selection_rate_difference,
    selection_rate_ratio,
    true_negative_rate_difference,
    true_negative_rate_ratio,
    true_positive_rate_difference,
    true_positive_rate_ratio,
    zero_one_loss_difference,
    zero_one_loss_group_max,
    zero_one_loss_ratio,
)
from fairconstrained.metrics.report import group_report

METRICS: dict[str, Callable[..., float]] = {
    name: getattr(module, name)
    for module in (rates, gaps)
    for name in module.__all__
    if name != "wasserstein_distance_between_groups"  # of scores
} | {"exponential_renyi_mutual_information": exponential_renyi_mutual_information}

__all__ = [
    "METRICS",
    "Certificate",
    "accuracy_score_difference",
    "accuracy_score_group_min",
    "accuracy_score_ratio",
    "auc_between",
    "balanced_accuracy_score_group_min",
    "bias_corrected",
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
    "exponential_renyi_mutual_information",
    "f1_score_group_min",
    "fairness_scorer",
    "false_negative_rate",
    "false_negative_rate_difference",
    "false_negative_rate_ratio",
    "false_positive_rate",
    "false_positive_rate_difference",
    "false_positive_rate_parity_scorer",
    "false_positive_rate_ratio",
    "group_auc_gap",
    "group_auc_scorer",
    "group_report",
    "independence_gap",
    "inter_group_auc_gap",
    "inter_group_auc_scorer",
    "intra_group_auc_gap",
    "intra_group_auc_scorer",
    "log_loss_group_max",
    "loss_gap",
    "loss_gap_scorer",
    "mean_absolute_error_group_max",
    "mean_squared_error_group_max",
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
    "precision_score_group_min",
    "r2_score_group_min",
    "recall_score_group_min",
    "roc_auc_score_group_min",
    "scorers",
    "selection_rate_difference",
    "selection_rate_ratio",
    "separation_gap",
    "sufficiency_gap",
    "true_negative_rate_difference",
    "true_negative_rate_ratio",
    "true_positive_rate_difference",
    "true_positive_rate_ratio",
    "wasserstein_distance_between_groups",
    "zero_one_loss_difference",
    "zero_one_loss_group_max",
    "zero_one_loss_ratio",
]

"""Metrics of predicted labels by name, and those that measure the violation of a notion."""

import inspect

from fairconstrained import metrics
from fairconstrained.metrics import certify, confidence_interval, group_report

METRICS = {
    name: function
    for name, function in vars(metrics).items()
    if inspect.isfunction(function) and "y_pred" in inspect.signature(function).parameters
    if function not in (certify, confidence_interval, group_report)
}
METRIC_OF_NOTION = {
    "demographic_parity": metrics.demographic_parity_difference,
    "equalized_odds": metrics.equalized_odds_difference,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "false_positive_rate_parity": metrics.false_positive_rate_difference,
    "error_rate_parity": metrics.error_rate_difference,
    "false_negative_rate": metrics.false_negative_rate,
    "false_positive_rate": metrics.false_positive_rate,
    "rejection_rate": metrics.rejection_rate,
    "predictive_parity": metrics.predictive_parity_difference,
    "false_omission_rate_parity": metrics.false_omission_rate_difference,
}

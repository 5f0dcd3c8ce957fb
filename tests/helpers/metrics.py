"""Metrics of predicted labels, and of partial parity, by name."""

import inspect

from fairconstrained import metrics
from fairconstrained.constraints import PARTIAL
from fairconstrained.metrics import certify, confidence_interval, group_report

METRICS = {
    name: function
    for name, function in vars(metrics).items()
    if inspect.isfunction(function) and "y_pred" in inspect.signature(function).parameters
    if function not in (certify, confidence_interval, group_report)
}
PARTIAL_METRICS = {
    name: metrics.ccdf_gap if name == "rank_parity" else getattr(metrics, f"partial_{name}")
    for name in PARTIAL
}

"""Metrics of predicted labels by name."""

import inspect

from fairconstrained import metrics
from fairconstrained.metrics import certify, confidence_interval, group_report

METRICS = {
    name: function
    for name, function in vars(metrics).items()
    if inspect.isfunction(function) and "y_pred" in inspect.signature(function).parameters
    if function not in (certify, confidence_interval, group_report)
}

"""Watching the decisions of a deployed model, after every row if need be."""

from fairconstrained.monitoring.monitor import FairnessMonitor

__all__ = ["FairnessMonitor"]

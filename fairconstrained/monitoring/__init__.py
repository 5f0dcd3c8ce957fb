"""Monitors for the decisions of a deployed model, read after every row if need be."""

from fairconstrained.monitoring.monitor import FairnessMonitor

__all__ = ["FairnessMonitor"]

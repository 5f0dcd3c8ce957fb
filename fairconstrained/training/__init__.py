"""Constrained training of any torch module, without an estimator."""

from fairconstrained.training.train import Trained, train

__all__ = ["Trained", "train"]

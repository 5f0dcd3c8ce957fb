"""Constrained training of any torch module, for those who do not want an estimator."""

from fairconstrained.training.train import Trained, train

__all__ = ["Trained", "train"]

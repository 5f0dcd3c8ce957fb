"""DPFermiClassifier with an l2 penalty that brings scores near a constant: the fairest points."""

from benchmarks.solvers.dp_fermi import OBJECTIVES, epsilons, fit_with

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "DPFermiClassifier, alpha 0.03"
fit = fit_with(alpha=0.03)

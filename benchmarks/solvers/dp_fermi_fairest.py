"""DPFermiClassifier with nearly labels in the penalty, and an l2 penalty that keeps them so."""

from benchmarks.solvers.dp_fermi import OBJECTIVES, epsilons, fit_with

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "DPFermiClassifier, temperature 5, alpha 0.01"
fit = fit_with(temperature=5.0, alpha=0.01)

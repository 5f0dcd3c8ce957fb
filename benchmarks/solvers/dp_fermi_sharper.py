"""DPFermiClassifier with class probabilities in the penalty that are nearly labels."""

from benchmarks.solvers.dp_fermi import OBJECTIVES, epsilons, fit_with

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "DPFermiClassifier, temperature 5"
fit = fit_with(temperature=5.0)

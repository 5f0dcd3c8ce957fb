"""DPFermiClassifier with sharper class probabilities in the penalty."""

from benchmarks.solvers.dp_fermi import OBJECTIVES, epsilons, fit_with

__all__ = ["METHOD", "OBJECTIVES", "epsilons", "fit"]

METHOD = "DPFermiClassifier, temperature 3"
fit = fit_with(temperature=3.0)

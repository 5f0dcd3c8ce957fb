"""DPFermiClassifier, private and not: as a user gets it, and its fairest points."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from benchmarks.objectives.dp_fermi import DELTA
from benchmarks.objectives.rate_constrained import ALPHA, Fitted
from fairconstrained import DPFermiClassifier
from fairconstrained.constraints import CONSTRAINTS


def epsilons(unit: str, asked: list[float]) -> list[float]:
    """Every budget; and none, once."""
    return [*asked, math.nan] if unit == "sensitive_features" else asked


def method(name: str, *, temperature: float = 1.0, alpha: float = ALPHA) -> SimpleNamespace:
    """The classifier with these parameters, all others being the default."""

    def fit(
        X: Any,
        y: Any,
        sensitive_features: Any,
        *,
        notion: str,
        unit: str,
        epsilon: float,
        penalty: float,
        seed: int,
    ) -> Fitted:
        model = DPFermiClassifier(
            CONSTRAINTS[notion](temperature=temperature),
            penalty=penalty,
            epsilon=None if math.isnan(epsilon) else epsilon,
            delta=DELTA,
            protect=unit,
            alpha=alpha,
            random_state=seed,
        )
        model.fit(X, y, sensitive_features=sensitive_features)
        return Fitted(lambda X, groups: model.predict(X).astype(float), model.converged_)

    return SimpleNamespace(METHOD=name, OBJECTIVES=["dp_fermi"], epsilons=epsilons, fit=fit)


SOLVERS = {
    "dp_fermi": method("DPFermiClassifier"),
    # A larger l2 penalty brings scores near a constant: the fairest points.
    "dp_fermi_alpha_0_03": method("DPFermiClassifier, alpha 0.03", alpha=0.03),
    "dp_fermi_alpha_0_05": method("DPFermiClassifier, alpha 0.05", alpha=0.05),
    "dp_fermi_alpha_0_5": method("DPFermiClassifier, alpha 0.5", alpha=0.5),
    # Sharper class probabilities in the penalty, which are nearly labels at 5.
    "dp_fermi_sharp": method("DPFermiClassifier, temperature 3", temperature=3.0),
    "dp_fermi_sharper": method("DPFermiClassifier, temperature 5", temperature=5.0),
    # Nearly labels in the penalty, and an l2 penalty that keeps them so.
    "dp_fermi_fairest": method(
        "DPFermiClassifier, temperature 5, alpha 0.01", temperature=5.0, alpha=0.01
    ),
}

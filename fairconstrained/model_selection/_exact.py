"""Warnings of searches and comparisons whose numbers no epsilon covers."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from fairconstrained.exceptions import PrivacyWarning, warn_caller


def check_steps(candidates: list[Any], unit: str) -> None:
    """Warn of noise that is not every fit's own, and of steps that read the rows exactly."""
    seeds: dict[str, None] = {}  # in order, each once
    learning: dict[str, None] = {}
    for candidate in candidates:
        for step in _steps(candidate):
            if _is_private(step):
                seed = step.get_params(deep=False).get("random_state")
                seeds |= {} if seed is None else {repr(seed): None}
            elif unit != "sensitive_features" and get_tags(step).requires_fit:
                learning[type(step).__name__] = None
    if seeds:
        warn_caller(
            f"The fits of this search are seeded (random_state={', '.join(seeds)}): they are not "
            "independent, differences between them can cancel their noise, and the bound for all "
            "of them does not hold. Use random_state=None.",
            PrivacyWarning,
        )
    if learning:
        warn_caller(
            f"The pipeline fits {', '.join(learning)} on the protected rows, exactly: what it "
            "learns of them is part of every model and in no epsilon. Give it public numbers, or "
            "leave it out and give feature_range.",
            PrivacyWarning,
        )


def warn_of_exact_scores(estimator: Any, what: str) -> None:
    """Warn of private fits that are made several times, and compared by exact numbers."""
    params = estimator.get_params()
    if any(name.split("__")[-1] == "epsilon" and params[name] is not None for name in params):
        warn_caller(
            f"{what} fits a private estimator several times, and what it tells of held-out rows is "
            "exact: no epsilon covers its result. Hold out public rows, and publish one fit that "
            "was not chosen by others, or use PrivateGridSearch.",
            PrivacyWarning,
        )


def _steps(estimator: Any) -> list[Any]:
    """The estimators that a pipeline fits one after the other."""
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)]


def _is_private(estimator: Any) -> bool:
    return {"epsilon", "delta"} <= set(estimator.get_params(deep=False))

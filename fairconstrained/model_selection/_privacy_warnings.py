"""Warnings of searches and comparisons whose numbers no epsilon covers."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from fairconstrained.exceptions import PrivacyWarning, warn_caller


def warn_of_seeds_and_exact_steps(candidates: list[Any], unit: str) -> None:
    """Warn of seeded noise, which fits would share, and of steps that read the rows exactly."""
    steps = [step for candidate in candidates for step in _steps(candidate)]
    private = [step for step in steps if {"epsilon", "delta"} <= set(step.get_params(deep=False))]
    given = (step.get_params(deep=False).get("random_state") for step in private)
    seeds = dict.fromkeys(repr(seed) for seed in given if seed is not None)
    if seeds:
        warn_caller(
            f"The fits of this search are seeded (random_state={', '.join(seeds)}): they are not "
            "independent, differences between them can cancel their noise, and the bound for all "
            "of them does not hold. Use random_state=None.",
            PrivacyWarning,
        )
    others = [step for step in steps if step not in private and get_tags(step).requires_fit]
    if others and unit != "sensitive_features":
        learning = dict.fromkeys(type(step).__name__ for step in others)
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
    """Return the estimators that a pipeline fits one after the other."""
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)]

"""Find who calls a private fit: trainers that repeat it, and steps that learn from its rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from sklearn import config_context
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object

from fairconstrained.exceptions import PrivacyWarning, warn_caller

# Modules of scikit-learn whose functions train an estimator once, as it is.
_NO_TRAINERS = {"sklearn"} | {
    f"sklearn.{name}" for name in ("base", "pipeline", "utils", "callback", "_config")
}


def _callers() -> Iterator[tuple[str, Any]]:
    """Yield the module, such as "sklearn.base", and the object of each caller, innermost first."""
    frame = sys._getframe().f_back
    while frame is not None:
        is_method = frame.f_code.co_varnames[:1] == ("self",)
        owner = frame.f_locals.get("self") if is_method else None
        yield ".".join(frame.f_globals.get("__name__", "").split(".")[:2]), owner
        frame = frame.f_back


def trainer_above() -> str:
    """Name scikit-learn's outermost meta-estimator or function that trains, or "" without one."""
    name = ""
    for module, owner in _callers():
        if module.partition(".")[0] == "sklearn" and module not in _NO_TRAINERS:
            name = module if owner is None else type(owner).__name__
    return name


def pipeline_steps_above() -> list[Any]:
    """List the steps before the last one of all pipelines that are fitting, subclasses included."""
    pipelines = {id(owner): owner for _, owner in _callers() if isinstance(owner, Pipeline)}
    return [step for pipeline in pipelines.values() for step in steps_before(pipeline)]


def steps_before(pipeline: Pipeline) -> list[Any]:
    """List the steps of a pipeline before its last one."""
    return [step for _, step in pipeline.steps[:-1] if step not in (None, "passthrough")]


def refuse_steps_with_groups(steps: Sequence[Any]) -> None:
    """Raise ValueError if a step before a private fit requests the sensitive features."""
    with config_context(enable_metadata_routing=True):
        asking = {type(step).__name__: None for step in steps if _asks_for_groups(step)}
    if asking:
        raise ValueError(
            "a pipeline of a private estimator must have no steps that request "
            f"sensitive_features, as {', '.join(asking)} does: they would learn from the groups "
            "exactly, and no epsilon covers that. Leave the step out, or fit it to public rows and "
            "freeze it (FrozenEstimator)."
        )


def warn_of_learning_steps(steps: Sequence[Any]) -> None:
    """Warn of steps that learn from rows that the private fit after them protects."""
    learns = [step for step in steps if not isinstance(step, FrozenEstimator)]
    learning = dict.fromkeys(type(step).__name__ for step in learns if get_tags(step).requires_fit)
    if learning:
        warn_caller(
            f"The pipeline fits {', '.join(learning)} on the protected rows, exactly: what it "
            "learns is part of every model, and no epsilon covers it. Give it public numbers, or "
            "leave it out and give feature_range.",
            PrivacyWarning,
        )


def _asks_for_groups(step: Any) -> bool:
    """Return whether a step, or one within it, requests the sensitive features in a fit."""
    routing = get_routing_for_object(step)
    methods = ("fit", "fit_transform", "transform")
    return any(routing.consumes(method, ["sensitive_features"]) for method in methods)

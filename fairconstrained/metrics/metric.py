"""Metrics from two functions: one reads the arguments, and one measures the inputs.

Metrics with the same arguments share the first, and all share sections of their docstrings.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

Metric = TypeVar("Metric", bound=Callable[..., float])
Inputs = TypeVar("Inputs")
Arguments = ParamSpec("Arguments")

PARAMETERS = {
    "y_true": """array-like of shape (n_samples,)
    True labels: numbers, booleans or strings.""",
    "y_pred": """array-like of shape (n_samples,)
    Predicted labels.""",
    "y_proba": """array-like of shape (n_samples,) or (n_samples, n_classes)
    Predicted probabilities: of the positive class, or of every class.""",
    "y_score": """array-like of shape (n_samples,)
    Scores that grow with the chance of the positive class. The Wasserstein distance also takes
    a column for every class.""",
    "constraint": """{"demographic_parity", "equalized_odds", "equal_opportunity"}
    What predictions should be independent of groups given: nothing, the label, or that the
    label is positive.""",
    "order": """float, default=1.0
    The power p to which differences are raised, at least 1.""",
    "interval": """pair of float, list of pairs, or dict
    Ranks ``(alpha, beta)`` in [0, 1], counted from the top; a list of such pairs that do not
    overlap; or a dict with one of these for every group.""",
    "threshold": """float, default=0.0
    Scores above it are positive decisions.""",
    "sensitive_features": """array-like of shape (n_samples,) or (n_samples, n_columns)
    One group per combination of values that occurs.""",
    "method": """{"between_groups", "to_overall"}, default="between_groups"
    Compare the groups with each other, or each group with all samples together.""",
    "agg": """{"worst_case", "mean"}, default="worst_case"
    The worst of the rates that the metric compares, or the mean over them.""",
    "loss": """{"log", "brier"}, default="log"
    Minus the log of the probability of the true label, or half the squared distance of the
    probabilities to the one-hot label.""",
    "sample_weight": """array-like of shape (n_samples,), optional
    Non-negative weights of the rows.""",
    "pos_label": """label, optional
    The class whose rates are compared; by default the larger of two labels, and the worst of
    more than two. Where only one label occurs, 0, -1 and False are the negative one. Needed for
    predicted labels that are 1 and a larger number, where conventions differ.""",
    "labels": """sequence of labels, optional
    The classes in the order of the columns of `y_proba`, as in ``classes_``; by default the sorted
    labels of `y_true`. Needed where some class does not occur in `y_true`.""",
}

_RAISES = """Raises
------
ValueError
    Lengths that differ, missing values, negative weights, an unknown option, two labels of which
    either may be the positive one.

Warns
-----
SmallGroupWarning
    Names each group without rows (or without rows of a label) that the metric needs, or the
    only group where there is nothing to compare.

"""


def documented(metric: Metric) -> Metric:
    """Insert the sections that metrics share into the docstring of `metric`.

    "Parameters" (the names in the signature, described in ``PARAMETERS``) goes before "Returns",
    "Raises" and "Warns" before "Examples".
    """
    doc = inspect.getdoc(metric) or ""
    entries = [f"{name} : {PARAMETERS[name]}" for name in inspect.signature(metric).parameters]
    section = "\n".join(["Parameters", "----------", *entries])
    doc = doc.replace("Returns\n---", f"{section}\n\nReturns\n---", 1)
    metric.__doc__ = doc.replace("Examples\n---", f"{_RAISES}Examples\n---", 1)
    return metric


def metric_of(
    read: Callable[Arguments, Inputs], *without: str
) -> Callable[[Callable[[Inputs], float]], Callable[Arguments, float]]:
    """Decorator: a function of the inputs that `read` returns becomes a metric of its arguments.

    The metric has no parameters `without`, which keep their defaults. doctest does not find
    functions that were made here: modules of metrics list them in ``__test__``.
    """
    signature = inspect.signature(read)
    kept = [p for name, p in signature.parameters.items() if name not in without]
    signature = signature.replace(parameters=kept, return_annotation="float")

    def decorate(measure: Callable[[Inputs], float]) -> Callable[Arguments, float]:
        @functools.wraps(measure)
        def metric(*args: Arguments.args, **kwargs: Arguments.kwargs) -> float:
            signature.bind(*args, **kwargs)  # raises TypeError
            return measure(read(*args, **kwargs))

        metric.__signature__ = signature  # type: ignore[attr-defined]
        return documented(metric)

    return decorate


def examples(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics among the names of a module, for doctest."""
    return {name: value for name, value in names.items() if hasattr(value, "__wrapped__")}

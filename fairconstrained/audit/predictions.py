"""Decisions and scores of any fitted model."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fairconstrained.arrays import as_numpy
from fairconstrained.engines.columns import where_rows_are
from fairconstrained.inputs.labels import best_of
from fairconstrained.inputs.outcomes import favourable_values
from fairconstrained.metrics.inputs import predicted

# In this order: XGBoost's Booster predicts arrays by the first; modules and functions are called.
_METHODS = ("inplace_predict", "predict", "__call__")


def decisions_and_scores(
    model: Any, X: Any, groups: Any, *, threshold: float | None, pos_label: Any, orders: Any = ()
) -> tuple[Any, Any]:
    """Return the decisions and scores of a model; with a threshold, its outputs are scores."""
    if X is None:
        raise ValueError(f"X must hold the rows for {type(model).__name__} to predict; got None.")
    output = where_rows_are(partial(_output, model), model, X, groups)
    if threshold is not None:
        scores = np.asarray(output, dtype=float)
        if scores.ndim == 2 and scores.shape[1] <= 2:
            scores = scores[:, -1]
        if scores.ndim != 1:
            raise ValueError(
                f"With threshold={threshold!r} a model must give one score per row; got an output "
                f"of shape {scores.shape}."
            )
        return scores > threshold, scores
    output = np.asarray(output)
    fractional = output.dtype.kind == "f" and (output != np.floor(output)).any()
    if output.squeeze().ndim != 1 or fractional:
        raise ValueError(
            "threshold must be given for a model whose output is scores; scores above it are "
            f"favourable decisions. The output of {type(model).__name__} has shape {output.shape}."
        )
    if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
        return output.reshape(-1), None
    classes = list(model.classes_)
    best = best_of(classes, *orders) if pos_label is None else pos_label
    good = favourable_values(classes, best, "classes_")
    probabilities = np.asarray(predicted(model, X, groups, "predict_proba"))
    return output.reshape(-1), probabilities[:, [c in good for c in classes]].sum(axis=1)


def is_model(values: Any) -> bool:
    """Return whether a value is a model or a function rather than predictions."""
    return callable(values) or hasattr(values, "predict")


def _output(model: Any, X: Any, groups: Any) -> Any:
    method = next(name for name in _METHODS if hasattr(model, name))
    if not hasattr(model, "parameters"):
        return as_numpy(predicted(model, X, groups, method))
    import torch  # the model is a module of it

    like, training = next(model.parameters(), torch.zeros(1)), model.training
    with torch.inference_mode():
        outputs = model.eval()(torch.as_tensor(np.asarray(X), dtype=like.dtype, device=like.device))
    model.train(training)
    return as_numpy(outputs)

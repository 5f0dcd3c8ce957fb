"""What private fits of all estimators check and say of their promise: plain functions."""

from __future__ import annotations

from numbers import Real

import numpy as np
import torch

from fairconstrained.estimators._checks import check_parameter, warn_caller
from fairconstrained.exceptions import PrivacyWarning
from fairconstrained.problems.private.coordinates import Coordinates

__all__ = [
    "bounded",
    "check_delta",
    "check_promise",
    "public_range",
    "refuse_weights",
    "refuse_with_epsilon",
    "warn_of_delta",
]

_FAR = 1e6  # widths of the public range


def check_delta(estimator):
    """The parameter, whether it is used or not."""
    check_parameter(estimator, "delta", Real, lambda v: 1e-10 <= v < 1, "a number in [1e-10, 1)")


def check_promise(estimator):
    """Parameters of a private fit."""
    check_parameter(estimator, "epsilon", Real, lambda v: 0 < v < np.inf, "None or a number > 0")
    check_delta(estimator)
    if estimator.warm_start:
        raise ValueError(
            f"{type(estimator).__name__}.warm_start must be False with epsilon: every fit spends "
            "the whole budget, and the promise of this one would not cover the last one."
        )


def refuse_weights(estimator, sample_weight):
    """Rows of a private fit count once."""
    if estimator.epsilon is not None and sample_weight is not None:
        raise ValueError(
            "sample_weight must be None with epsilon: a row of weight w would need w times the "
            "noise."
        )


def refuse_with_epsilon(estimator, refused, offered):
    """Raise ValueError for a parameter that reads more than a private fit may release."""
    wrong = [parameter for parameter, is_wrong in refused.items() if is_wrong]
    if estimator.epsilon is not None and wrong:
        raise ValueError(
            f"{type(estimator).__name__}.epsilon must be None with {wrong[0]}; private training "
            f"needs {offered}."
        )


def public_range(estimator, n_features, like):
    """Coordinates from ``feature_range`` and not from the data: columns in [0, 1]."""
    given, name = estimator.feature_range, type(estimator).__name__
    try:
        low, high = (0.0, 1.0) if given is None else given
        ends = np.stack([np.broadcast_to(np.asarray(b, float), n_features) for b in (low, high)])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}.feature_range must be None or a pair (low, high) of numbers or of arrays of "
            f"shape ({n_features},); got {given!r}."
        ) from error
    if not (np.isfinite(ends).all() and (ends[0] < ends[1]).all()):
        raise ValueError(
            f"{name}.feature_range must be finite with low < high in every column; got {given!r}."
        )
    low, high = torch.tensor(ends, device=like.device)
    return Coordinates(low, high - low)


def bounded(X, public):
    """Features cut far outside of their public range, row by row.

    Of larger entries squares and sums overflow, and one row would decide whether a fit ends.
    """
    reach = _FAR * public.scale
    return X.bounded(public.center - reach, public.center + public.scale + reach)


def warn_of_delta(estimator, n_rows):
    """Warn where delta is so large that the promise means little."""
    if estimator.delta >= 1 / n_rows:
        warn_caller(
            f"delta={estimator.delta:g} is not below 1/n = {1 / n_rows:.1g}: a mechanism that "
            "publishes a random row in full would keep such a promise. Choose a smaller delta.",
            PrivacyWarning,
        )

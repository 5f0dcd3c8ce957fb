"""Checks of the parameters of all estimators, one for each name."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Integral, Real

import numpy as np

from fairconstrained.losses import LOSSES
from fairconstrained.models import as_specification
from fairconstrained.percentiles import read_intervals
from fairconstrained.privacy import Budget
from fairconstrained.process import check_device
from fairconstrained.solvers import Solver


def check_parameters(estimator):
    """Raise ValueError for the first parameter that is not valid, before any work."""
    for name, value in estimator.get_params(deep=False).items():
        CHECKS[name](estimator, name, value)


def given_callbacks(callbacks):
    """The callables in a ``callbacks`` parameter, or None if it holds anything else."""
    given = [callbacks] if callable(callbacks) else callbacks or ()
    return given if isinstance(given, (list, tuple)) and all(map(callable, given)) else None


def refuse(estimator, name, value, wording):
    """Raise the ValueError that all parameters have in common."""
    raise ValueError(f"{type(estimator).__name__}.{name} must be {wording}; got {value!r}.")


def _is(kind, allowed, wording):
    """Make a check for an instance of `kind`; booleans are no numbers."""

    def check(estimator, name, value):
        is_bool = isinstance(value, (bool, np.bool_)) and kind in (Real, Integral)
        if is_bool or not isinstance(value, kind) or not allowed(value):
            refuse(estimator, name, value, wording)

    return check


def _positive(wording):
    return _is(Real, lambda v: 0 < v < inf, wording)


def _one_of(*names):
    def check(estimator, name, value):
        if not (isinstance(value, str) and value in names):
            refuse(estimator, name, value, f"one of {sorted(names)}")

    return check


def _optional(check):
    def check_unless_none(estimator, name, value):
        if value is not None:
            check(estimator, name, value)

    return check_unless_none


def _anything(estimator, name, value):
    """No check here, because the code that reads the parameter checks it."""


def _protect(estimator, name, value):
    _one_of(*estimator._protects)(estimator, name, value)


def _epsilon(estimator, name, value):
    if isinstance(value, Budget):
        _positive("a finite number > 0")(estimator, f"{name}.epsilon", value.epsilon)
        CHECKS["delta"](estimator, f"{name}.delta", value.delta)
        _protect(estimator, f"{name}.unit", value.unit)
    elif value is not None:
        _positive("None or a finite number > 0")(estimator, name, value)


def _constraint(estimator, name, value):
    estimator._notions()


def _model(estimator, name, value):
    as_specification(value).check()


def _device(estimator, name, value):
    check_device(f"{type(estimator).__name__}.{name}", value)


def _callbacks(estimator, name, value):
    if given_callbacks(value) is None:
        refuse(estimator, name, value, "a callable or a list of callables")


def _feature_range(estimator, name, value):
    try:
        low, high = (np.asarray(end, dtype=float) for end in value)
        with np.errstate(all="ignore"):
            squares = np.square(high - low)  # norms of rows in units of the range need them
            finite = np.isfinite([low + high, 1.0 / squares, squares])
        valid = bool(finite.all() and (low < high).all())
    except (TypeError, ValueError):
        valid = False
    if not valid:
        refuse(
            estimator,
            name,
            value,
            "None or a pair (low, high) of finite numbers or of arrays of shape (n_features,), "
            "with low < high in every column, and widths whose squares are finite",
        )


def _min_group_size(estimator, name, value):
    if not (isinstance(value, str) and value == "auto"):
        _is(Integral, lambda v: v >= 0, "'auto' or an integer >= 0")(estimator, name, value)


def _interval(estimator, name, value):
    if not (isinstance(value, str) and value == "auto"):
        read_intervals(value, list(value) if isinstance(value, dict) else ["all"])


_flag = _is((bool, np.bool_), lambda v: True, "True or False")
_count = _is(Integral, lambda v: v >= 1, "an integer >= 1")
_finite_nonnegative = _is(Real, lambda v: 0 <= v < inf, "a finite number >= 0")

CHECKS: dict[str, Callable] = {
    # of the model and the algorithm
    "model": _model,
    "solver": _optional(
        _is(
            Solver,
            lambda v: True,
            "None or a solver object, such as fairconstrained.solvers.SGDA()",
        )
    ),
    "alpha": _finite_nonnegative,
    "max_iter": _optional(_is(Integral, lambda v: v >= 1, "None or an integer >= 1")),
    "tol": _is(Real, lambda v: v > 0, "a number > 0"),
    "callbacks": _callbacks,
    "random_state": _anything,
    "verbose": _is((Integral, np.bool_), lambda v: v >= 0, "an integer >= 0"),
    "device": _device,
    "warm_start": _flag,
    # of the constraints on groups
    "constraint": _constraint,
    "slack": _is(Real, lambda v: v >= 0, "a number >= 0"),
    "margin": _finite_nonnegative,
    "missing_sensitive": _one_of("warn", "raise"),
    "min_group_size": _min_group_size,
    "group_features": _flag,
    "interval": _interval,
    "penalty": _finite_nonnegative,
    # of what is minimised
    "loss": _one_of(*LOSSES),
    "objective": _one_of("auc", "log"),
    "stream_memory": _count,
    # of differential privacy
    "epsilon": _epsilon,
    "delta": _is(Real, lambda v: 1e-10 <= v < 1, "a number in [1e-10, 1)"),
    "feature_range": _optional(_feature_range),
    "protect": _protect,
}

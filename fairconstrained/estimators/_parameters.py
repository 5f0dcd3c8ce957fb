"""Checks of the parameters of all estimators, one for each name."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np

from fairconstrained.losses import LOSSES
from fairconstrained.models import as_specification
from fairconstrained.percentiles import read_intervals
from fairconstrained.privacy.accounting import Budget
from fairconstrained.process import check_device
from fairconstrained.solvers.base import Solver

Check = Callable[[Any, str, Any], None]  # of an estimator, a parameter's name and value


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for the first parameter that is not valid, before any work."""
    for name, value in estimator.get_params(deep=False).items():
        CHECKS[name](estimator, name, value)


def given_callbacks(callbacks: Any) -> list[Callable[..., object]] | None:
    """The callables in a ``callbacks`` parameter, or None if it holds anything else."""
    given = [callbacks] if callable(callbacks) else callbacks or ()
    valid = isinstance(given, (list, tuple)) and all(map(callable, given))
    return list(given) if valid else None


def _must_be(wording: str, valid: Callable[[Any], bool]) -> Check:
    """Make the check that all parameters have in common: refuse what is not valid, in words."""

    def check(estimator: Any, name: str, value: Any) -> None:
        if not valid(value):
            raise ValueError(f"{type(estimator).__name__}.{name} must be {wording}; got {value!r}.")

    return check


def _number(kind: type, allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is an allowed number of this kind; booleans are none."""
    return lambda v: isinstance(v, kind) and not isinstance(v, (bool, np.bool_)) and allowed(v)


def _one_of(*names: str) -> Check:
    return _must_be(f"one of {sorted(names)}", lambda v: isinstance(v, str) and v in names)


def _anything(estimator: Any, name: str, value: Any) -> None:
    """No check here, because the code that reads the parameter checks it."""


def _protect(estimator: Any, name: str, value: Any) -> None:
    _one_of(*estimator._protects)(estimator, name, value)


def _epsilon(estimator: Any, name: str, value: Any) -> None:
    positive = _number(Real, lambda v: 0 < v < inf)
    if isinstance(value, Budget):
        _must_be("a finite number > 0", positive)(estimator, f"{name}.epsilon", value.epsilon)
        CHECKS["delta"](estimator, f"{name}.delta", value.delta)
        _protect(estimator, f"{name}.unit", value.unit)
    elif value is not None:
        _must_be("None or a finite number > 0", positive)(estimator, name, value)


def _constraint(estimator: Any, name: str, value: Any) -> None:
    estimator._notions()


def _model(estimator: Any, name: str, value: Any) -> None:
    as_specification(value).check()


def _device(estimator: Any, name: str, value: Any) -> None:
    check_device(f"{type(estimator).__name__}.{name}", value)


def _is_range(value: Any) -> bool:
    if value is None:
        return True
    try:
        low, high = (np.asarray(end, dtype=float) for end in value)
        with np.errstate(all="ignore"):
            squares = np.square(high - low)  # norms of rows in units of the range need them
            finite = np.isfinite([low + high, 1.0 / squares, squares])
        return bool(finite.all() and (low < high).all())
    except (TypeError, ValueError):
        return False


def _interval(estimator: Any, name: str, value: Any) -> None:
    if not (isinstance(value, str) and value == "auto"):
        read_intervals(value, list(value) if isinstance(value, dict) else ["all"])


_flag = _must_be("True or False", lambda v: isinstance(v, (bool, np.bool_)))
_at_least_one = _number(Integral, lambda v: v >= 1)
_nonnegative_count = _number(Integral, lambda v: v >= 0)
_finite_nonnegative = _must_be("a finite number >= 0", _number(Real, lambda v: 0 <= v < inf))

CHECKS: dict[str, Check] = {
    # of the model and the algorithm
    "model": _model,
    "solver": _must_be(
        "None or a solver object, such as fairconstrained.solvers.SGDA()",
        lambda v: v is None or isinstance(v, Solver),
    ),
    "alpha": _finite_nonnegative,
    "max_iter": _must_be("None or an integer >= 1", lambda v: v is None or _at_least_one(v)),
    "tol": _must_be("a number > 0", _number(Real, lambda v: v > 0)),
    "callbacks": _must_be(
        "a callable or a list of callables", lambda v: given_callbacks(v) is not None
    ),
    "random_state": _anything,
    "verbose": _must_be(
        "an integer >= 0", lambda v: isinstance(v, (bool, np.bool_)) or _nonnegative_count(v)
    ),
    "device": _device,
    "warm_start": _flag,
    # of the constraints on groups
    "constraint": _constraint,
    "slack": _must_be("a number >= 0", _number(Real, lambda v: v >= 0)),
    "margin": _finite_nonnegative,
    "missing_sensitive": _one_of("warn", "raise"),
    "min_group_size": _must_be(
        "'auto' or an integer >= 0",
        lambda v: (isinstance(v, str) and v == "auto") or _nonnegative_count(v),
    ),
    "group_features": _flag,
    "interval": _interval,
    "penalty": _finite_nonnegative,
    # of what is minimised
    "loss": _one_of(*LOSSES),
    "objective": _one_of("auc", "log"),
    "stream_memory": _must_be("an integer >= 1", _at_least_one),
    # of differential privacy
    "epsilon": _epsilon,
    "delta": _must_be("a number in [1e-10, 1)", _number(Real, lambda v: 1e-10 <= v < 1)),
    "feature_range": _must_be(
        "None or a pair (low, high) of finite numbers or of arrays of shape (n_features,), with "
        "low < high in every column, and widths whose squares are finite",
        _is_range,
    ),
    "protect": _protect,
}

"""What fit does around the work: checks of its input, restoring on errors, a progress bar."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from tqdm.auto import tqdm

from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.solvers import Solver, Status

__all__ = [
    "check_common_parameters",
    "check_parameter",
    "checked_callbacks",
    "checked_weight",
    "present_groups",
    "progress",
    "report",
    "unchanged_on_error",
    "warn_caller",
]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def warn_caller(message, category):
    """Warn at the line outside of this package that led here."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def present_groups(index, labels):
    """Groups that still have rows, renumbered."""
    seen, index = np.unique(index, return_inverse=True)
    return index.reshape(-1), labels[seen]


def checked_weight(sample_weight, n_samples):
    if sample_weight is None:
        return np.ones(n_samples)
    n_dims = np.asarray(sample_weight).ndim
    if n_dims != 1:
        raise ValueError(
            f"sample_weight must be one-dimensional, one number for each of {n_samples} rows; got "
            f"{n_dims} dimensions."
        )
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        input_name="sample_weight",
        force_writeable=True,
    )
    if weight.shape != (n_samples,):
        raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n_samples,)}!")
    if (weight < 0).any():
        raise ValueError("sample_weight must not be negative.")
    if not weight.any():
        raise ValueError("sample_weight is zero for all samples; at least one must be positive.")
    return weight


def check_parameter(estimator, name, kind, allowed, wording):
    value = getattr(estimator, name)
    is_bool = isinstance(value, (bool, np.bool_)) and kind in (Real, Integral)
    if is_bool or not isinstance(value, kind) or not allowed(value):
        raise ValueError(f"{type(estimator).__name__}.{name} must be {wording}; got {value!r}.")


def check_common_parameters(estimator):
    """Parameters that all estimators share, before any work."""
    check_parameter(estimator, "alpha", Real, lambda v: 0 <= v < np.inf, "a finite number >= 0")
    check_parameter(estimator, "tol", Real, lambda v: v > 0, "a number > 0")
    check_parameter(estimator, "min_group_size", Integral, lambda v: v >= 0, "an integer >= 0")
    check_parameter(
        estimator, "missing_sensitive", str, {"warn", "raise"}.__contains__, "'warn' or 'raise'"
    )
    check_parameter(estimator, "fit_intercept", (bool, np.bool_), lambda v: True, "True or False")
    check_parameter(estimator, "warm_start", (bool, np.bool_), lambda v: True, "True or False")
    check_parameter(estimator, "verbose", (Integral, np.bool_), lambda v: v >= 0, "an integer >= 0")
    checked_callbacks(estimator)
    if estimator.max_iter is not None:
        check_parameter(
            estimator, "max_iter", Integral, lambda v: v >= 1, "None or an integer >= 1"
        )
    if estimator.solver is not None:
        check_parameter(
            estimator,
            "solver",
            Solver,
            lambda v: True,
            "None or a solver object, such as fairconstrained.solvers.SGDA()",
        )
    try:
        if torch.device(estimator.device).type == "meta":
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=torch.device(estimator.device))
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"{type(estimator).__name__}.device must be a torch device that this machine has, such "
            f"as 'cpu'; got {estimator.device!r} ({error})."
        ) from error


def checked_callbacks(estimator):
    callbacks = estimator.callbacks
    given = [callbacks] if callable(callbacks) else callbacks or ()
    if not isinstance(given, (list, tuple)) or not all(map(callable, given)):
        raise ValueError(
            f"{type(estimator).__name__}.callbacks must be a callable or a list of callables; got "
            f"{callbacks!r}."
        )
    return given


@contextmanager
def unchanged_on_error(estimator):
    before = dict(vars(estimator))
    try:
        yield
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        error.add_note(f"This {type(estimator).__name__} is as it was before this call.")
        raise


@contextmanager
def progress(name, length, verbose):
    with tqdm(total=length, desc=name, disable=not verbose, unit="it") as bar:

        def tick(iterate):
            violation = float(iterate.hard[1:].max()) if len(iterate.hard) > 1 else np.nan
            bar.set_postfix(
                objective=f"{float(iterate.soft[0]):.4f}",
                error=f"{float(iterate.hard[0]):.4f}",
                excess=f"{violation:+.4f}",
            )
            bar.update()

        yield tick


def report(estimator, solution, iterate, excess):
    """Warn of a fit that ended outside of its slacks or before it was done."""
    if not estimator.feasible_:
        worst = int(iterate.hard[1:].argmax())
        warn_caller(
            f"{estimator.constraints_[worst]}: exceeds its slack by {excess:.4f} on the training "
            "data. Try a larger slack, more iterations (max_iter), a richer model, or "
            "min_group_size to leave small groups out.",
            ConstraintNotSatisfiedWarning,
        )
    if solution.status is Status.MAX_ITER:
        warn_caller(
            f"{type(estimator).__name__} stopped after {solution.n_iter} iterations with residual "
            f"{iterate.residual:.1e} > tol={estimator.tol:g}. Increase max_iter, or tol.",
            ConvergenceWarning,
        )

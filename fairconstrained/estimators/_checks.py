"""What fit does around the work: checks of its input, restoring on errors, a progress bar."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array
from tqdm.auto import tqdm

__all__ = [
    "check_parameter",
    "checked_callbacks",
    "checked_weight",
    "present_groups",
    "progress",
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
        error.add_note(f"This {type(estimator).__name__} is as it was before fit was called.")
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

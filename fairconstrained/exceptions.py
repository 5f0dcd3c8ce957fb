"""Warnings and errors of the package, each raised in one place and documented here.

Examples
--------
A fit that runs unattended must not go on without groups:

>>> import warnings
>>> from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
>>> with warnings.catch_warnings(action="error", category=MissingSensitiveFeaturesWarning):
...     pass  # clf.fit(X, y) would raise here
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "ConstraintNotSatisfiedWarning",
    "DivergenceError",
    "IncompatibleSolverError",
    "InfeasibleError",
    "InputWarning",
    "MissingSensitiveFeaturesWarning",
    "NoUsefulModelError",
    "NotCertifiedError",
    "PrivacyWarning",
    "SmallGroupWarning",
    "UndoneSettingWarning",
    "WorkerError",
]

_PACKAGE = f"{Path(__file__).parent}{os.sep}"


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the line outside of this package that called it."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def ignoring(*categories: type[Warning]) -> Iterator[None]:
    """Ignore warnings of these categories inside the context."""
    with warnings.catch_warnings():
        for category in categories:
            warnings.simplefilter("ignore", category)
        yield


class MissingSensitiveFeaturesWarning(UserWarning):
    """Sensitive features are not given, or missing for some rows.

    In ``fit`` the constraints between groups cannot be imposed, or rows of known group
    represent all rows of their label, as in metrics.
    """


class ConstraintNotSatisfiedWarning(UserWarning):
    """The fitted model exceeds a constraint on its own training data."""


class SmallGroupWarning(UserWarning):
    """A group, or a group within a label, has too few rows, or no other to be compared with.

    Constraints, metrics, certificates and audits leave it out by the same rule:
    :doc:`/guide/compared`.
    """


class InputWarning(UserWarning):
    """Inputs may mean other rows, groups or labels than assumed."""


class UndoneSettingWarning(UserWarning):
    """A setting of the wrapped classifier has no effect: its head undoes it."""


class PrivacyWarning(UserWarning):
    """An assumption of a privacy guarantee is violated, or the guarantee is weak."""


class IncompatibleSolverError(ValueError):
    """The solver cannot solve this estimator's problem; raised before any work starts."""


class InfeasibleError(ValueError):
    """The solver found no point that meets its constraints."""


class DivergenceError(ArithmeticError):
    """The objective or the parameters became NaN or infinite; the fit was abandoned."""


class NoUsefulModelError(ValueError):
    """A search found only models that predict nearly the same for everybody."""


class NotCertifiedError(RuntimeError):
    """No candidate could be certified, and the caller asked for an error."""


class WorkerError(RuntimeError):
    """A process of a joint training is gone; the message names it."""

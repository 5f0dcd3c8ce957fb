"""Warnings and errors of the package, each raised in one place and documented here."""

import os
import sys
import warnings
from pathlib import Path

__all__ = [
    "ConstraintNotSatisfiedWarning",
    "DivergenceError",
    "IncompatibleSolverError",
    "MissingSensitiveFeaturesWarning",
    "NotCertifiedError",
    "PrivacyWarning",
    "SmallGroupWarning",
    "WorkerError",
]

_PACKAGE = f"{Path(__file__).parent}{os.sep}"


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this package that led here."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class MissingSensitiveFeaturesWarning(UserWarning):
    """``fit`` got no sensitive features: constraints between groups cannot be imposed.

    Examples
    --------
    >>> from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
    >>> issubclass(MissingSensitiveFeaturesWarning, UserWarning)
    True
    """


class ConstraintNotSatisfiedWarning(UserWarning):
    """The fitted model exceeds a constraint on its own training data.

    Examples
    --------
    >>> from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
    >>> issubclass(ConstraintNotSatisfiedWarning, UserWarning)
    True
    """


class SmallGroupWarning(UserWarning):
    """A group, or a group within a label, has too few rows and is left out of a constraint.

    Examples
    --------
    >>> from fairconstrained.exceptions import SmallGroupWarning
    >>> issubclass(SmallGroupWarning, UserWarning)
    True
    """


class PrivacyWarning(UserWarning):
    """An assumption of a privacy guarantee is violated, or the guarantee is weak.

    Examples
    --------
    >>> from fairconstrained.exceptions import PrivacyWarning
    >>> issubclass(PrivacyWarning, UserWarning)
    True
    """


class IncompatibleSolverError(ValueError):
    """The solver cannot solve this estimator's problem; raised before any work starts.

    Examples
    --------
    >>> from fairconstrained.exceptions import IncompatibleSolverError
    >>> issubclass(IncompatibleSolverError, ValueError)
    True
    """


class DivergenceError(ArithmeticError):
    """The objective or the parameters became NaN or infinite; the fit was abandoned.

    Examples
    --------
    >>> from fairconstrained.exceptions import DivergenceError
    >>> issubclass(DivergenceError, ArithmeticError)
    True
    """


class NotCertifiedError(RuntimeError):
    """No candidate could be certified, and the caller asked for an error.

    Examples
    --------
    >>> from fairconstrained.exceptions import NotCertifiedError
    >>> issubclass(NotCertifiedError, RuntimeError)
    True
    """


class WorkerError(RuntimeError):
    """A process of a joint training is gone; the message names it.

    Examples
    --------
    >>> from fairconstrained.exceptions import WorkerError
    >>> issubclass(WorkerError, RuntimeError)
    True
    """

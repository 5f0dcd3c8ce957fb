"""Warnings and errors of the package, each raised in one place and documented here."""

__all__ = [
    "ConstraintNotSatisfiedWarning",
    "DivergenceError",
    "IncompatibleSolverError",
    "MissingSensitiveFeaturesWarning",
    "PrivacyWarning",
    "SmallGroupWarning",
    "WorkerError",
]


class MissingSensitiveFeaturesWarning(UserWarning):
    """``fit`` got no sensitive features: constraints between groups cannot be imposed."""


class ConstraintNotSatisfiedWarning(UserWarning):
    """The fitted model exceeds a constraint on its own training data."""


class SmallGroupWarning(UserWarning):
    """A group, or a group within a label, has too few rows and is left out of a constraint."""


class PrivacyWarning(UserWarning):
    """A promise of privacy rests on something that does not hold, or is worth little."""


class IncompatibleSolverError(ValueError):
    """The solver cannot solve this estimator's problem; raised before any work starts."""


class DivergenceError(ArithmeticError):
    """The objective or the parameters became NaN or infinite; the fit was abandoned."""


class WorkerError(RuntimeError):
    """A process of a joint training is gone; the message names it."""

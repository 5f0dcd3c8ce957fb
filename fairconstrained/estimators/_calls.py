"""The call of ``fit``: its arguments, the state after errors, and scikit-learn's callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fairconstrained.solvers.base import Iterate

if TYPE_CHECKING:
    from fairconstrained.estimators._training import Training

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
    from sklearn.callback import with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing, where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


Method = TypeVar("Method", bound=Callable[..., Any])


def data_by_position(*names: str) -> Callable[[Method], Method]:
    """Refuse more positional arguments than these, in the words of the user's call."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def checked(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) > len(names):
                taken = ", ".join(names)
                raise TypeError(
                    f"{type(estimator).__name__}.{method.__name__} takes {taken} by position; got "
                    f"{len(args)} arguments. Name the others, as in "
                    f"{method.__name__}({taken}, sensitive_features=groups)."
                )
            return method(estimator, *args, **kwargs)

        return cast("Method", checked)

    return decorate


@contextmanager
def unchanged_on_error(estimator: object) -> Iterator[None]:
    before = dict(vars(estimator))
    try:
        yield
    except BaseException as error:
        vars(estimator).clear()
        vars(estimator).update(before)
        error.add_note(f"This {type(estimator).__name__} is as it was before this call.")
        raise


# To decorate `fit` itself would put a line of scikit-learn between `fit` and its caller, to which
# our warnings would then point.
@with_callbacks  # type: ignore[untyped-decorator]
def _tear_down(estimator: Any) -> None:
    """Nothing itself: scikit-learn ends the callbacks of a fit after what it decorates."""


def unwatched(problem: Any, iterate: Iterate) -> None:
    """Do nothing: the callback where nobody watches."""


@contextmanager
def fit_task(
    training: Training, X: Any, y: Any, sample_weight: Any
) -> Iterator[Callable[..., object]]:
    """Tell scikit-learn's callbacks that a fit begins and ends; yield what tells of iterations.

    A callback gets the rows as the user gave them, and the model of the moment if it asks for it.
    On private fits it gets neither: a monitor scores rows exactly, and no budget covers that.

    Yields
    ------
    callable
        ``watch(problem, iterate) -> bool``; a true answer ends the training.
    """
    estimator = training.estimator
    if not hasattr(estimator, "_skl_callbacks"):
        yield unwatched
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    rows = {} if training.is_private else {"X": X, "y": y, "metadata": metadata}

    def watch(problem: Any, iterate: Iterate) -> object:
        iteration = fit.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(estimator=estimator, **rows)
        model = (lambda: training.fitted(problem, iterate.x)) if rows else None
        return iteration.call_on_fit_task_end(
            estimator=estimator, **rows, reconstruction_attributes=model
        )

    try:
        fit = estimator._init_callback_context(max_subtasks=None)
        fit.call_on_fit_task_begin(estimator=estimator, **rows)
        yield watch
        none: Any = {} if rows else None
        fit.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes=none)
    finally:
        _tear_down(estimator)

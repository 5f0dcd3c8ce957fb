"""scikit-learn's callbacks (1.9 and later): a fit is a task, and its iterations are the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fairconstrained.solvers import Iterate

if TYPE_CHECKING:
    from fairconstrained.estimators._training import Training

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Nothing, where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Return the method as it is."""
        return method


# To decorate `fit` itself would put a line of scikit-learn between `fit` and its caller, to which
# our warnings would then point.
@with_callbacks
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
        none = {} if rows else None
        fit.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes=none)
    finally:
        _tear_down(estimator)

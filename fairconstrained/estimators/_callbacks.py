"""scikit-learn's callbacks (1.9 and later): a fit is a task, and its iterations are the parts."""

from __future__ import annotations

from contextlib import contextmanager

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Nothing, where scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "fit_task", "unwatched", "with_callbacks"]


def unwatched(problem, iterate):
    """Tell nobody of an iteration."""


@contextmanager
def fit_task(estimator, X, y, sample_weight):
    """Tell scikit-learn's callbacks that a fit begins and ends; yield what tells of iterations.

    A callback gets the rows as the user gave them, and the model of the moment if it asks for it.
    On private fits it gets neither: a monitor scores rows exactly, and no budget covers that.

    Yields
    ------
    callable
        ``watch(problem, iterate) -> bool``; a true answer ends the training.
    """
    if not hasattr(estimator, "_skl_callbacks"):
        yield unwatched
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    private = estimator.epsilon is not None
    rows = {} if private else {"X": X, "y": y, "metadata": metadata}
    fit = estimator._init_callback_context(max_subtasks=None)

    def watch(problem, iterate):
        iteration = fit.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(estimator=estimator, **rows)
        model = None if private else lambda: estimator._fitted(problem, iterate.x)
        return iteration.call_on_fit_task_end(
            estimator=estimator, **rows, reconstruction_attributes=model
        )

    fit.call_on_fit_task_begin(estimator=estimator, **rows)
    yield watch
    model = None if private else {}
    fit.call_on_fit_task_end(estimator=estimator, **rows, reconstruction_attributes=model)

"""Error against violation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairconstrained.arrays import as_numpy, is_number
from fairconstrained.display._style import axes_of, finished, new_label, next_style, slack_line
from fairconstrained.metrics.bounds import wilson
from fairconstrained.metrics.inputs import read_labels
from fairconstrained.metrics.intervals import confidence_interval
from fairconstrained.metrics.rates import demographic_parity_difference
from fairconstrained.metrics.scorers import GROW_WITH_FAIRNESS, name_of
from fairconstrained.model_selection.choice import pareto_front, violations_of

_OVER_SPLITS = "{} (mean ± sd over splits)"


@dataclass(kw_only=True, eq=False, repr=False)
class TradeoffDisplay:
    """Error against violation of a fairness constraint, one point per model.

    A line joins the points on the Pareto front; all others are pale, as the legend says.

    Parameters
    ----------
    error, violation : array-like of shape (n_points,)
        Smaller values are better.
    error_std, violation_std : array-like of shape (n_points,) or (2, n_points), optional
        Lengths of the error bars, such as standard deviations over splits. Two rows are the
        lengths below and above the point.
    chosen : int, optional
        Place of the point that was chosen, to be marked by a ring; -1 is the last point.
    slack : float, optional
        A bound on the violation, drawn as a line.
    name : str, optional
        Name of the method in the legend.
    error_name, violation_name : str
        Labels of the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    points_ : list of two ErrorbarContainer
        Points on the front and points behind it.
    front_ : Line2D
    slack_ : Line2D or None
    chosen_ : PathCollection or None

    See Also
    --------
    fairconstrained.model_selection.tradeoff_curve : Computes the points.

    Examples
    --------
    >>> from fairconstrained.display import TradeoffDisplay
    >>> display = TradeoffDisplay(error=[0.1, 0.2, 0.3], violation=[0.3, 0.1, 0.2], slack=0.15)
    >>> display.plot(name="ours").front_.get_label()
    'ours'
    """

    error: ArrayLike
    violation: ArrayLike
    error_std: ArrayLike | None = None
    violation_std: ArrayLike | None = None
    chosen: int | None = None
    slack: float | None = None
    name: str | None = None
    error_name: str = "error"
    violation_name: str = "violation"

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> TradeoffDisplay:
        """Draw the points, in the next style on used axes, and return this display.

        Parameters
        ----------
        ax : matplotlib Axes, default=axes of a new figure
        name : str, optional
            Name of the method in the legend; by default that of the display.
        **kwargs
            Keywords of matplotlib's ``errorbar`` for the points, such as ``color`` and ``marker``.
        """
        violation, error = np.asarray(self.violation), np.asarray(self.error)
        front = pareto_front(error, violation)
        self._check(len(front))
        ax = axes_of(ax)
        # Every display that is on the axes has two containers.
        style = {**next_style(len(ax.containers) // 2), "elinewidth": 0.8, "capsize": 2}
        style |= {"linestyle": "none", **kwargs}
        line = {"color": style["color"], "marker": style["marker"]}
        pale = {**style, "alpha": 0.3}
        self.points_ = [self._draw(ax, front, style), self._draw(ax, ~front, pale)]
        if not front.all():
            self.points_[1].set_label(new_label(ax, "pale: behind the line"))
        order = np.flatnonzero(front)[np.argsort(violation[front], kind="stable")]
        (self.front_,) = ax.plot(
            *(violation[order], error[order]),
            drawstyle="steps-post",
            linewidth=1.2,
            alpha=0.7,
            label=self.name if name is None else name,
            **line,
        )
        self.slack_ = slack_line(ax.axvline, self.slack)
        self.chosen_ = None
        if self.chosen is not None:
            point = violation[self.chosen], error[self.chosen]
            ring = {"s": 120, "facecolors": "none", "edgecolors": "0.15", "linewidths": 1.4}
            self.chosen_ = ax.scatter(*point, zorder=3, label=new_label(ax, "chosen"), **ring)
        ax.set(xlabel=self.violation_name, ylabel=self.error_name)
        return finished(self, ax)

    def _check(self, n: int) -> None:
        """Raise ValueError unless the other arguments fit the number of points."""
        chosen: Any = self.chosen
        if chosen is not None and not (is_number(chosen, Integral) and -n <= chosen < n):
            raise ValueError(f"chosen must be the place of one of {n} points; got {chosen!r}.")
        for name in ("error_std", "violation_std"):
            lengths = getattr(self, name)
            if lengths is not None and np.shape(lengths) not in ((n,), (2, n)):
                raise ValueError(
                    f"{name} must have one length, or two, for each of {n} points; got the shape "
                    f"{np.shape(lengths)}."
                )

    def _draw(self, ax: Any, rows: NDArray[np.bool_], style: dict[str, Any]) -> Any:
        x, y, x_std, y_std = (
            None if values is None else np.asarray(values, dtype=float)[..., rows]
            for values in (self.violation, self.error, self.violation_std, self.error_std)
        )
        return ax.errorbar(x, y, xerr=x_std, yerr=y_std, **style)

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Mapping[str, Any],
        *,
        score: str = "accuracy",
        violation: str = "dp",
        chosen: int | None = None,
        slack: float | None = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> TradeoffDisplay:
        """Draw the candidates of a search, or the rows of a trade-off curve.

        Parameters
        ----------
        cv_results : dict or DataFrame
            ``search.cv_results_``, or the result of
            :func:`~fairconstrained.model_selection.tradeoff_curve`.
        score, violation : str
            Names in the `scoring` of the search. The plot shows 1 - score, for scores of at most 1,
            and the negated violation, because fairness scorers return negated gaps.
        chosen, slack, name
            As in the class; `chosen` may be ``search.best_index_``.
        ax, **kwargs
            As in :meth:`plot`.
        """
        keys = [f"{what}_test_{which}" for which in (score, violation) for what in ("mean", "std")]
        if missing := [key for key in keys if key not in cv_results]:
            raise ValueError(f"cv_results has no {missing}; it has {list(cv_results)}.")
        mean, std, _, violation_std = (np.asarray(cv_results[key], dtype=float) for key in keys)
        error = "error rate" if score == "accuracy" else f"1 - {_in_words(score)}"
        display = cls(
            error=1 - mean,
            violation=violations_of(cv_results, violation),
            error_std=std,
            violation_std=violation_std,
            chosen=chosen,
            slack=slack,
            name=name,
            error_name=_OVER_SPLITS.format(error),
            violation_name=_OVER_SPLITS.format(_in_words(violation)),
        )
        return display.plot(ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_preds: Sequence[ArrayLike],
        *,
        sensitive_features: Any,
        metric: Any = demographic_parity_difference,
        sample_weight: ArrayLike | None = None,
        confidence: float | None = 0.95,
        chosen: int | None = None,
        slack: float | None = None,
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> TradeoffDisplay:
        """Draw the predictions of several models on the same samples, such as a test set.

        Error bars are confidence intervals: of the error Wilson's, of the violation
        :func:`~fairconstrained.metrics.confidence_interval`.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
        y_preds : sequence of array-like of shape (n_samples,)
            Predicted labels, one array per model.
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        metric : callable, default=demographic_parity_difference
            A gap from :mod:`fairconstrained.metrics`.
        sample_weight : array-like of shape (n_samples,), optional
        confidence : float or None, default=0.95
            The confidence of the intervals; None leaves them out.
        chosen, slack, ax, name, **kwargs
            As in :meth:`from_cv_results`.
        """
        if not len(y_preds) or not all(map(np.ndim, y_preds)):
            raise ValueError("y_preds must be a sequence with an array of labels for each model.")
        if name_of(metric).endswith(GROW_WITH_FAIRNESS):
            raise ValueError(
                "metric must be a gap, such as demographic_parity_difference, which is small where "
                f"a model is fair; got {name_of(metric)}."
            )
        arguments = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        violations = np.array([metric(y_true, y_pred, **arguments) for y_pred in y_preds])
        labels = [read_labels(y_true, y_pred, None) for y_pred in y_preds]
        wrong = np.array([each.true != each.predicted for each in labels])
        weight = np.ones(wrong.shape[1]) if sample_weight is None else as_numpy(sample_weight)
        errors = np.average(wrong, axis=1, weights=weight)
        error_bars = violation_bars = None
        if confidence is not None:
            options = {"confidence": confidence, "random_state": 0, **arguments}
            ends = [confidence_interval(metric, y_true, y_pred, **options) for y_pred in y_preds]
            low, high = np.transpose(ends)
            # On small groups a gap can lie above its own interval, which corrects its bias.
            violation_bars = np.maximum([violations - low, high - violations], 0.0)
            effective = weight.sum() ** 2 / (weight**2).sum()
            low, high = wilson(errors * effective, effective, confidence)
            error_bars = np.array([errors - low, high - errors])
        interval = "" if confidence is None else f" ({100 * confidence:g} % interval)"
        display = cls(
            error=errors,
            violation=violations,
            error_std=error_bars,
            violation_std=violation_bars,
            chosen=chosen,
            slack=slack,
            name=name,
            error_name=f"error rate{interval}",
            violation_name=f"{_in_words(name_of(metric))}{interval}",
        )
        return display.plot(ax, **kwargs)


def _in_words(name: str) -> str:
    return "demographic parity difference" if name == "dp" else name.replace("_", " ")

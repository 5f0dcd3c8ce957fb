"""Rates of groups with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairconstrained.display._style import axes_of, legend, next_style
from fairconstrained.metrics.inputs import predicted
from fairconstrained.metrics.report import group_report


@dataclass(kw_only=True, eq=False, repr=False)
class GroupReportDisplay:
    """Rates of each group as points with error bars, and the overall rate as a band.

    Parameters
    ----------
    report : DataFrame
        The result of :func:`~fairconstrained.metrics.group_report`.
    rates : sequence of str, default=("selection_rate",)
        Columns of the report.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : list of ErrorbarContainer
        One per rate.
    overall_ : list of Polygon
        One per rate: the interval of the overall rate.

    Examples
    --------
    >>> from fairconstrained.display import GroupReportDisplay
    >>> display = GroupReportDisplay.from_predictions(
    ...     [0, 1, 0, 1, 1], [0, 1, 1, 1, 1], sensitive_features=list("aaabb"))
    >>> [text.get_text() for text in display.ax_.get_yticklabels()]
    ['a (3)', 'b (2)']
    """

    report: pd.DataFrame
    rates: Sequence[str] = ("selection_rate",)

    def plot(self, ax: Any = None, **kwargs: Any) -> GroupReportDisplay:
        """Draw: a line per group, named with its number of samples.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default, the axes of a new figure.
        **kwargs
            Keywords of matplotlib's ``errorbar``.

        Returns
        -------
        GroupReportDisplay
            Itself.

        Raises
        ------
        ValueError
            If the report has no such rate.
        """
        known = [name for name in self.report if f"{name}_low" in self.report]
        if missing := [rate for rate in self.rates if rate not in known]:
            raise ValueError(f"rates must be among {known}; got {missing}.")
        ax = axes_of(ax, layout="constrained")
        groups, overall = self.report.iloc[:-1], self.report.iloc[-1]
        place = np.arange(len(groups), dtype=float)
        self.points_, self.overall_ = [], []
        for i, rate in enumerate(self.rates):
            style = {**next_style(i), "linestyle": "none", "capsize": 2, **kwargs}
            middle = groups[rate].to_numpy()
            ends = np.abs([groups[f"{rate}_low"] - middle, groups[f"{rate}_high"] - middle])
            offset = 0.16 * (i - (len(self.rates) - 1) / 2)
            label = rate.replace("_", " ")
            self.points_.append(
                ax.errorbar(middle, place + offset, xerr=ends, label=label, **style)
            )
            band = overall[f"{rate}_low"], overall[f"{rate}_high"]
            self.overall_.append(ax.axvspan(*band, color=style["color"], alpha=0.15, linewidth=0))
        names = [
            f"{name} ({int(n)})" for name, n in zip(groups.index, groups["samples"], strict=True)
        ]
        ax.set_yticks(place, names)
        ax.invert_yaxis()
        ax.set_xlabel("rate, with its interval; shaded: overall")
        legend(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        sensitive_features: Any,
        rates: Sequence[str] = ("selection_rate",),
        y_score: ArrayLike | None = None,
        confidence: float = 0.95,
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> GroupReportDisplay:
        """Draw given predictions.

        Parameters
        ----------
        y_true, y_pred, sensitive_features, y_score, confidence, sample_weight
            As in :func:`~fairconstrained.metrics.group_report`.
        rates : sequence of str, default=("selection_rate",)
        ax : matplotlib Axes, optional
        **kwargs
            Keywords of matplotlib's ``errorbar``.

        Returns
        -------
        GroupReportDisplay
        """
        report = group_report(
            y_true,
            y_pred,
            sensitive_features=sensitive_features,
            y_score=y_score,
            confidence=confidence,
            sample_weight=sample_weight,
        )
        return cls(report=report, rates=rates).plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, sensitive_features: Any, **kwargs: Any
    ) -> GroupReportDisplay:
        """Draw the predictions of a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        **kwargs
            As in :meth:`from_predictions`.

        Returns
        -------
        GroupReportDisplay
        """
        y_pred = predicted(estimator, X, sensitive_features)
        return cls.from_predictions(y, y_pred, sensitive_features=sensitive_features, **kwargs)

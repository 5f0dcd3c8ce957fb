"""Plots by group: distributions of scores, ranks against ranks, and rates with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from fairconstrained.arrays import Floats, check_number
from fairconstrained.display._style import axes_of, finished, in_legend, next_style
from fairconstrained.metrics.inputs import last_step, predicted, scores_of
from fairconstrained.metrics.partial import read_scored
from fairconstrained.metrics.report import group_report


@dataclass(kw_only=True, eq=False, repr=False)
class _ScoreDisplay:
    """Base of the displays of scores by group, with an optional interval of ranks."""

    y_score: ArrayLike
    sensitive_features: Any
    interval: Any = None
    sample_weight: ArrayLike | None = None

    def _read(self) -> Any:
        whole = (0.0, 1.0) if self.interval is None else self.interval
        arguments = {"sensitive_features": self.sensitive_features, "interval": whole}
        return read_scored(None, self.y_score, sample_weight=self.sample_weight, **arguments)

    @classmethod
    def from_predictions(
        cls,
        y_score: ArrayLike,
        *,
        sensitive_features: Any,
        interval: Any = None,
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Draw scores that are already computed.

        Parameters
        ----------
        y_score, sensitive_features, interval, sample_weight, ax, **kwargs
            As in the class and in :meth:`plot`.
        """
        columns = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        display: Any = cls(y_score=y_score, interval=interval, **columns)
        return display.plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, sensitive_features: Any, interval: Any = None, **kwargs: Any
    ) -> Any:
        """Draw the scores of a fitted binary classifier of any library.

        The scores are its ``decision_function``, or the probabilities of the second class.

        Parameters
        ----------
        estimator : fitted estimator
            If it is a pipeline, its last step says which interval it has, and whether scores depend
            on the sensitive features.
        X : array-like of shape (n_samples, n_features)
        sensitive_features, interval, **kwargs
            As in :meth:`from_predictions`; the interval is by default the estimator's own, if it
            has one.
        """
        check_is_fitted(estimator)
        fitted = getattr(last_step(estimator), "interval_", None)
        return cls.from_predictions(
            scores_of(estimator, X, sensitive_features),
            sensitive_features=sensitive_features,
            interval=fitted if interval is None else interval,
            **kwargs,
        )


class GroupScoreDisplay(_ScoreDisplay):
    """Distribution of the scores of each group, shaded where ranks are in the interval.

    Parameters
    ----------
    y_score : array-like of shape (n_samples,)
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
    interval : pair, list of pairs, or dict, optional
        Ranks ``(alpha, beta)``, counted from the top.
    sample_weight : array-like of shape (n_samples,), optional

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of StepPatch
        The outline of each group.
    shades_ : list of StepPatch
        The part of each group in the interval.

    Examples
    --------
    >>> from fairconstrained.display import GroupScoreDisplay
    >>> display = GroupScoreDisplay.from_predictions(
    ...     [0.1, 0.5, 0.9, 0.3], sensitive_features=list("aabb"), interval=(0, 0.5))
    >>> len(display.lines_)
    2
    """

    def plot(self, ax: Any = None, *, bins: int = 50, **kwargs: Any) -> GroupScoreDisplay:
        """Draw the histograms of all groups on the same axes, and return this display.

        Parameters
        ----------
        ax : matplotlib Axes, default=axes of a new figure
        bins : int, default=50
        **kwargs
            Keywords of matplotlib's ``stairs`` for the outlines.
        """
        ax = axes_of(ax)
        data = self._read()
        edges = _edges(data.scores, bins)  # common ones: groups are compared bin by bin
        ranks = data.ranks()
        # Ranks just below each edge: a bin contains its lower edge, and the last bin both edges.
        rank = ranks.rank[:, np.searchsorted(ranks.thresholds, edges, "left") - 1]
        rank[:, -1] = 0.0
        covered = data.intervals.fraction(rank) * data.intervals.lengths[:, None]
        density, inside = (-np.diff(above, axis=1) / np.diff(edges) for above in (rank, covered))
        self.lines_, self.shades_ = [], []
        for g, name in enumerate(data.rows.names):
            style = {"color": next_style(g)["color"], "linewidth": 1.4}
            style |= {"label": in_legend(name), **kwargs}
            self.lines_.append(ax.stairs(density[g], edges, **style))
            if self.interval is not None:
                shade = ax.stairs(
                    inside[g], edges, fill=True, alpha=0.25, color=self.lines_[-1].get_edgecolor()
                )
                self.shades_.append(shade)
        ax.set(xlabel="score", ylabel="density")
        return finished(self, ax)


def _edges(scores: Floats, bins: int) -> Floats:
    """Return the edges of bins of equal width; raise ValueError if doubles are too coarse."""
    check_number("bins", bins, "an integer >= 1", lambda n: n >= 1 and n % 1 == 0)
    low, high = scores.min(), scores.max()
    with np.errstate(all="ignore"):
        room = 0.5 * (low == high)
        edges = np.linspace(low - room, high + room, int(bins) + 1)
        heights = 1.0 / np.diff(edges)
    if not np.isfinite(heights).all():
        raise ValueError(
            f"bins={bins} is more than numbers can tell apart from {low:g} to {high:g}, the range "
            "of y_score: give fewer bins, or y_score in other units."
        )
    return edges


class ParityCurveDisplay(_ScoreDisplay):
    """Ranks of each group against the first group's, over all thresholds.

    On the diagonal the distributions agree (Figure 2 of the partial-parity paper).

    Parameters
    ----------
    y_score, sensitive_features, interval, sample_weight
        As in :class:`GroupScoreDisplay`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of Line2D
        One for each group but the first.
    diagonal_ : Line2D
    shades_ : list of matplotlib artists
        The intervals on the axis of the first group.

    Examples
    --------
    >>> from fairconstrained.display import ParityCurveDisplay
    >>> display = ParityCurveDisplay.from_predictions(
    ...     [0.1, 0.5, 0.9, 0.3], sensitive_features=list("aabb"))
    >>> display.lines_[0].get_ydata()
    array([0. , 0.5, 0.5, 1. , 1. ])
    """

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> ParityCurveDisplay:
        """Draw the curves, in the next colours on used axes, and return this display.

        Parameters
        ----------
        ax : matplotlib Axes, default=axes of a new figure
        name : str, optional
            Name of the scores in the legend, in front of the name of the group.
        **kwargs
            Keywords of matplotlib's ``plot`` for the curves.
        """
        ax = axes_of(ax)
        data = self._read()
        drawn = len(ax.lines)
        # From the lowest rank on, so that curves run from the left.
        rank = data.ranks().rank[:, ::-1]
        self.lines_ = []
        for g, group in enumerate(data.rows.names[1:], start=1):
            label = group if name is None else f"{name}, {group}"
            style = {"color": next_style(drawn + g - 1)["color"], "linewidth": 1.4}
            style["label"] = in_legend(label)
            self.lines_ += ax.plot(rank[0], rank[g], **{**style, **kwargs})
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], color="0.35", linestyle="--", linewidth=1)
        ends = zip(data.intervals.lower[0], data.intervals.upper[0], strict=True)
        shaded = [(a, b) for a, b in ends if b > a and self.interval is not None]
        style = {"color": "0.5", "alpha": 0.15, "linewidth": 0}
        self.shades_ = [ax.axvspan(a, b, **style) for a, b in shaded]
        ax.set(
            xlabel=f"fraction above threshold, {data.rows.names[0]}",
            ylabel="fraction above threshold",
            aspect="equal",
        )
        return finished(self, ax)


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
    ax_, figure_ : matplotlib Axes and Figure
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
        """Draw a line per group, named with its number of samples, and return this display.

        Parameters
        ----------
        ax : matplotlib Axes, default=axes of a new figure
        **kwargs
            Keywords of matplotlib's ``errorbar``.

        Raises
        ------
        ValueError
            If the report has no such rate.
        """
        known = [name for name in self.report if f"{name}_low" in self.report]
        if not set(self.rates) <= set(known):
            raise ValueError(f"rates must be a list of some of {known}; got {self.rates!r}.")
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
        ax.set_yticks(place, names, parse_math=False)
        ax.invert_yaxis()
        confidence = self.report.attrs.get("confidence")  # which a stored report has lost
        percent = f"{100 * confidence:g} % " if confidence else ""
        ax.set_xlabel(f"rate, with its {percent}interval; shaded: overall")
        return finished(self, ax)

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
        pos_label: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> GroupReportDisplay:
        """Draw predictions that are already computed.

        Parameters
        ----------
        y_true, y_pred, sensitive_features, y_score, confidence, sample_weight, pos_label
            As in :func:`~fairconstrained.metrics.group_report`.
        rates, ax, **kwargs
            As in the class and in :meth:`plot`.
        """
        report = group_report(
            y_true,
            y_pred,
            sensitive_features=sensitive_features,
            y_score=y_score,
            confidence=confidence,
            sample_weight=sample_weight,
            pos_label=pos_label,
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
        y, sensitive_features, **kwargs
            As in :meth:`from_predictions`.
        """
        y_pred = predicted(estimator, X, sensitive_features)
        return cls.from_predictions(y, y_pred, sensitive_features=sensitive_features, **kwargs)

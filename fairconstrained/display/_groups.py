"""Plots of the scores of groups: their distributions, and ranks of one group against another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from fairconstrained.display._style import axes_of, legend, next_style
from fairconstrained.metrics.inputs import last_step, scores_of
from fairconstrained.metrics.partial import read_scored


@dataclass(kw_only=True, eq=False, repr=False)
class _OfScores:
    """Base of the displays of scores by group, with an optional interval of ranks."""

    y_score: ArrayLike
    sensitive_features: Any
    interval: Any = None
    sample_weight: ArrayLike | None = None

    def plot(self, ax: Any = None, **kwargs: Any) -> Any:
        """Draw; see the subclass."""
        raise NotImplementedError

    def _read(self) -> Any:
        whole = (0.0, 1.0) if self.interval is None else self.interval
        return read_scored(
            None,
            self.y_score,
            sensitive_features=self.sensitive_features,
            interval=whole,
            sample_weight=self.sample_weight,
        )

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
        """Draw given scores.

        Parameters
        ----------
        y_score : array-like of shape (n_samples,)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        interval : pair, list of pairs, or dict, optional
            Ranks to mark, as in :class:`fairconstrained.PartialParityClassifier`.
        sample_weight : array-like of shape (n_samples,), optional
        ax : matplotlib Axes, optional
        **kwargs
            As in :meth:`plot`.

        Returns
        -------
        display
        """
        columns = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        return cls(y_score=y_score, interval=interval, **columns).plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        sensitive_features: Any,
        interval: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Draw the scores of a fitted binary classifier of any library.

        The scores are its ``decision_function`` or, without one, the probabilities of the second
        class.

        Parameters
        ----------
        estimator : fitted estimator
            If it is a pipeline, its last step gives the interval and tells whether scores depend on
            the sensitive features.
        X : array-like of shape (n_samples, n_features)
        sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        interval : pair, list of pairs, or dict, optional
            By default the estimator's own, if it has one.
        **kwargs
            `sample_weight` and others, as in :meth:`from_predictions`.

        Returns
        -------
        display
        """
        check_is_fitted(estimator)
        own = getattr(last_step(estimator), "interval_", None)
        return cls.from_predictions(
            scores_of(estimator, X, sensitive_features),
            sensitive_features=sensitive_features,
            interval=own if interval is None else interval,
            **kwargs,
        )


class GroupScoreDisplay(_OfScores):
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
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
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
        """Draw the histograms of all groups on the same axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default, the axes of a new figure.
        bins : int, default=50
        **kwargs
            Keywords of matplotlib's ``stairs`` for the outlines.

        Returns
        -------
        GroupScoreDisplay
            This display.
        """
        ax = axes_of(ax)
        data = self._read()
        edges = np.histogram_bin_edges(data.scores, bins)
        ranks = data.ranks()
        # Ranks just below each edge: a bin contains its lower edge, and the last bin both edges.
        rank = ranks.rank[:, np.searchsorted(ranks.thresholds, edges, "left") - 1]
        rank[:, -1] = 0.0
        covered = data.intervals.fraction(rank) * data.intervals.lengths[:, None]
        density, inside = (-np.diff(above, axis=1) / np.diff(edges) for above in (rank, covered))
        self.lines_, self.shades_ = [], []
        for g, name in enumerate(data.rows.names):
            style = {"color": next_style(g)["color"], "linewidth": 1.4, "label": name, **kwargs}
            self.lines_.append(ax.stairs(density[g], edges, **style))
            if self.interval is not None:
                shade = ax.stairs(
                    inside[g], edges, fill=True, alpha=0.25, color=self.lines_[-1].get_edgecolor()
                )
                self.shades_.append(shade)
        ax.set(xlabel="score", ylabel="density")
        legend(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ParityCurveDisplay(_OfScores):
    """Ranks of each group against those of the first group, over all thresholds.

    On the diagonal the distributions agree (Figure 2 of the partial-parity paper). The interval is
    shaded.

    Parameters
    ----------
    y_score : array-like of shape (n_samples,)
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
    interval : pair, list of pairs, or dict, optional
        Ranks ``(alpha, beta)``, counted from the top.
    sample_weight : array-like of shape (n_samples,), optional

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
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
        """Draw the curves, in the next colours if the axes already hold another display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default, the axes of a new figure.
        name : str, optional
            Name of the scores in the legend, in front of the name of the group.
        **kwargs
            Keywords of matplotlib's ``plot`` for the curves.

        Returns
        -------
        ParityCurveDisplay
            This display.
        """
        ax = axes_of(ax)
        data = self._read()
        drawn = len(ax.lines)
        rank = data.ranks().rank[:, ::-1]
        self.lines_ = []
        for g, group in enumerate(data.rows.names[1:], start=1):
            label = group if name is None else f"{name}, {group}"
            style = {"color": next_style(drawn + g - 1)["color"], "linewidth": 1.4, "label": label}
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
        legend(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

"""Plots of the convergence of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from fairconstrained.display._style import axes_of, finished, new_label, next_style, slack_line
from fairconstrained.metrics.claims import slacks_of
from fairconstrained.metrics.metric import choose

# Panels of ConvergenceDisplay from top to bottom, with the entries of the history in each.
_PANELS = {
    "objective": ["objective"],
    "violation": ["violation", "soft_violation"],
    "residual": ["residual"],
    "multiplier": ["multiplier"],
}
_X_AXES = {"iteration": "iteration", "time": "time (s)"}


@dataclass(kw_only=True, eq=False, repr=False)
class ConvergenceDisplay:
    """Objective, violation and largest multiplier over the course of a fit.

    Parameters
    ----------
    history : dict of str to array-like of shape (n_records,)
        It needs `objective`, `violation` and, for the time axis, `time` in seconds. Optional
        entries are `soft_violation` (dotted), `residual` (logarithmic), `multiplier` (the largest)
        and `iteration`, the iteration of each record.
    slack : float, optional
        The bound on the violation, drawn as a line.
    name : str, optional
        Name of the solver in the legend.

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes
        One per panel that the history has data for.
    figure_ : matplotlib Figure
    lines_ : list of Line2D
    slack_ : Line2D or None

    Examples
    --------
    >>> from fairconstrained.display import ConvergenceDisplay
    >>> history = {"objective": [0.7, 0.5], "violation": [0.0, 0.1], "time": [0.0, 0.2]}
    >>> ConvergenceDisplay(history=history, slack=0.05).plot(x="time").ax_.shape
    (2,)
    """

    history: Mapping[str, ArrayLike]
    slack: float | None = None
    name: str | None = None

    def plot(
        self, ax: Any = None, *, x: str = "iteration", name: str | None = None, **kwargs: Any
    ) -> ConvergenceDisplay:
        """Draw the panels, in the next colour on used axes, and return this display.

        Parameters
        ----------
        ax : array of matplotlib Axes, optional
            One per panel, such as `ax_` of another display; by default those of a new figure.
        x : {"iteration", "time"}, default="iteration"
            The horizontal axis.
        name : str, optional
            Name of the solver in the legend; by default that of the display.
        **kwargs
            Keywords of matplotlib's ``plot`` for the lines.
        """
        if missing := [key for key in ("objective", "violation") if key not in self.history]:
            raise ValueError(f"The history has no {missing}; it has {list(self.history)}.")
        at = self._positions(x)
        panels = {
            title: [key for key in keys if key in self.history] for title, keys in _PANELS.items()
        }
        titles = [title for title, keys in panels.items() if keys]
        size = (6.4, 1.2 + 1.8 * len(titles))
        new = {"nrows": len(titles), "sharex": True, "figsize": size, "layout": "constrained"}
        axes = np.ravel(axes_of(ax, **new))
        if len(axes) != len(titles):
            panels_named = ", ".join(titles)
            raise ValueError(f"ax must hold one Axes per panel ({panels_named}); got {len(axes)}.")
        axes[0].figure.align_ylabels(axes)
        color = next_style(len(axes[0].lines))["color"]  # a display has one line on the first axes
        style = {"color": color, "linewidth": 1.2, **kwargs}
        drawn = [
            self._draw(panel, at, panels[title], style)
            for panel, title in zip(axes, titles, strict=True)
        ]
        drawn[0][0].set_label(self.name if name is None else name)
        self.slack_ = slack_line(axes[titles.index("violation")].axhline, self.slack)
        for panel, title in zip(axes, titles, strict=True):
            panel.set_ylabel(title)
        axes[-1].set_xlabel(_X_AXES[x])
        self.lines_ = [line for lines in drawn for line in lines]
        return finished(self, axes)

    def _draw(
        self, panel: Any, at: NDArray[Any], keys: list[str], style: dict[str, Any]
    ) -> list[Any]:
        if keys == ["residual"]:  # single finite values need a marker to be visible
            style = {"marker": ".", **style}
        lines = panel.plot(at, np.asarray(self.history[keys[0]]), **style)
        for key in keys[1:]:
            values = np.asarray(self.history[key])
            label = new_label(panel, key.replace("_", " "))
            lines += panel.plot(at, values, label=label, **{**style, "linestyle": ":"})
        if keys == ["residual"]:
            panel.set_yscale("log", nonpositive="mask")
        return list(lines)

    def _positions(self, x: str) -> NDArray[Any]:
        choose(_X_AXES, "x", x)
        if x in self.history and not np.isnan(self.history[x]).all():
            return np.asarray(self.history[x])
        if x == "time" and x in self.history:
            raise ValueError(
                "The times of a private fit are not released, because they tell the sizes of its "
                'batches; plot x="iteration".'
            )
        if x == "time":
            raise ValueError(f"The history has no time; it has {list(self.history)}.")
        return np.arange(1, len(np.asarray(self.history["objective"])) + 1)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        x: str = "iteration",
        ax: Any = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> ConvergenceDisplay:
        """Draw the `history_` of a fitted estimator, and the slack if all criteria share one.

        Parameters
        ----------
        estimator : fitted estimator
            One of this package.
        x, ax, name, **kwargs
            As in :meth:`plot`.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "history_"):
            raise ValueError(
                f"{type(estimator).__name__} has no history_: give an estimator of this package, "
                "or the one that is within a pipeline, a search or CertifiedClassifier."
            )
        slacks = slacks_of(estimator) if hasattr(estimator, "slack") else []
        # A slack for each column or group is no line.
        same = all(isinstance(one, Real) for one in slacks) and len(set(slacks)) == 1
        slack = slacks[0] if same else None
        return cls(history=estimator.history_, slack=slack, name=name).plot(ax, x=x, **kwargs)

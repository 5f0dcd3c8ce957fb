"""Plots of the history of a monitor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.display._style import finished, new_label, next_style, panels_of, slack_line


@dataclass(kw_only=True, eq=False, repr=False)
class MonitorDisplay:
    """The violation with its bounds, and the evidence, over the rows of a stream.

    Parameters
    ----------
    history : dict of str to array-like of shape (n_records,)
        `rows`, `estimate`, `low`, `high` and `evidence`, as in ``FairnessMonitor.history_``.
    slack : float, optional
        The bound on the violation, drawn as a line.
    threshold : float, optional
        The evidence at which the alarm is raised, drawn as a line.
    name : str, optional
        Name of the stream in the legend.

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes
        That of the violation and that of the evidence.
    figure_ : matplotlib Figure
    lines_ : list of Line2D
        Of the violation and of the evidence.
    band_ : PolyCollection
        Between the bounds.
    slack_, threshold_ : Line2D or None

    Examples
    --------
    >>> from fairconstrained.display import MonitorDisplay
    >>> history = {"rows": [100, 200], "estimate": [0.1, 0.12], "low": [0.0, 0.01],
    ...            "high": [0.3, 0.25], "evidence": [1.2, 5.0]}
    >>> MonitorDisplay(history=history, slack=0.05, threshold=20).plot().ax_.shape
    (2,)
    """

    history: Mapping[str, ArrayLike]
    slack: float | None = None
    threshold: float | None = None
    name: str | None = None

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> MonitorDisplay:
        """Draw both panels, in the next colour on the axes of another display, and return this.

        Parameters
        ----------
        ax : array of two matplotlib Axes, optional
            Such as `ax_` of another display; by default those of a new figure.
        name : str, optional
            Name of the stream in the legend; by default that of the display.
        **kwargs
            Keywords of matplotlib's ``plot`` for the lines.
        """
        axes = panels_of(ax, ["violation", "evidence"])
        style = {"color": next_style(len(axes[1].lines) // 2)["color"], "linewidth": 1.2, **kwargs}
        rows, estimate, low, high, evidence = (
            np.asarray(self.history[key], dtype=float)
            for key in ("rows", "estimate", "low", "high", "evidence")
        )
        label = self.name if name is None else name
        self.band_ = axes[0].fill_between(rows, low, high, color=style["color"], alpha=0.2, lw=0)
        self.lines_ = [
            *axes[0].plot(rows, estimate, label=label, **style),
            *axes[1].plot(rows, evidence, **style),
        ]
        self.slack_ = slack_line(axes[0].axhline, self.slack)
        self.threshold_ = None
        if self.threshold is not None:
            alarm = {"color": "0.35", "linestyle": "--", "linewidth": 1}
            label = new_label(axes[1], f"alarm at {self.threshold:g}")
            self.threshold_ = axes[1].axhline(self.threshold, label=label, **alarm)
        axes[0].set_ylabel("violation and bounds")
        axes[1].set(xlabel="rows", ylabel="evidence", yscale="log")
        return finished(self, axes)

    @classmethod
    def from_monitor(
        cls, monitor: Any, *, ax: Any = None, name: str | None = None, **kwargs: Any
    ) -> MonitorDisplay:
        """Draw the history of a :class:`~fairconstrained.monitoring.FairnessMonitor`.

        Parameters
        ----------
        monitor : FairnessMonitor
            One that has seen rows.
        ax, name, **kwargs
            As in :meth:`plot`.
        """
        if not getattr(monitor, "history_", {}).get("rows"):
            raise ValueError(f"monitor must have seen rows before it is drawn; got {monitor!r}.")
        display = cls(
            history=monitor.history_,
            slack=monitor.limit_,
            threshold=1.0 / (1.0 - monitor.confidence),
            name=name,
        )
        return display.plot(ax, **kwargs)

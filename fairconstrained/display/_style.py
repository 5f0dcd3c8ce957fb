"""Colours, markers, legends and the import of matplotlib for all displays."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

import numpy as np

from fairconstrained.arrays import check_number

Display = TypeVar("Display")
# The colours of Okabe and Ito, which are distinct for any colour vision, without yellow, which is
# too light for lines; and markers for print without colours.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def next_style(n_drawn: int) -> dict[str, str]:
    """Return colour and marker of the next display on axes that already have `n_drawn` displays."""
    return {"color": _COLORS[n_drawn % len(_COLORS)], "marker": _MARKERS[n_drawn % len(_MARKERS)]}


def slack_line(draw: Any, slack: float | None) -> Any:
    """Draw a line at the slack, if any, with `draw`: the axes' ``axvline`` or ``axhline``."""
    if slack is None:
        return None
    slack = check_number("slack", slack, "a number", lambda bound: not np.isnan(bound))
    label = new_label(draw.__self__, f"slack {slack:g}")
    return draw(slack, color="0.35", linestyle="--", linewidth=1, label=label)


def in_legend(name: str) -> str:
    """Return a label that legends show: they leave out labels that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def new_label(ax: Any, label: str) -> str | None:
    """Return `label`, or None if the legend already has it."""
    return None if label in ax.get_legend_handles_labels()[1] else label


def finished(display: Display, axes: Any) -> Display:
    """Draw legends with entries, store the axes and their figure, and return the display."""
    for panel in np.ravel(axes):
        words = [panel.xaxis.label, panel.yaxis.label]
        if panel.get_legend_handles_labels()[1]:
            words += panel.legend().get_texts()
        for text in words:  # "$" in names is no mathematics
            text.set_parse_math(False)
    display.ax_, display.figure_ = axes, np.ravel(axes)[0].figure  # type: ignore[attr-defined]
    return display


def axes_of(ax: Any, **figure: Any) -> Any:
    """Return `ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("Displays need matplotlib: pip install matplotlib.") from error
    return pyplot.subplots(**figure)[1]

"""Output of the quick start: tables of text, and plots."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairconstrained import metrics
from fairconstrained.groups import encode_groups, group_name
from fairconstrained.quickstart.methods import Result
from fairconstrained.quickstart.tables import Table

Chosen = tuple[str, float]  # method and slack
# The rates of a group that are printed; the file has all of them.
_PRINTED = ("base_rate", "selection_rate", "true_positive_rate", "error")


def headline(table: Table, train: Table, test: Table, options: argparse.Namespace) -> str:
    """Data, groups and constraint of this run."""
    codes, labels = encode_groups(train.groups)
    sizes = zip(labels, np.bincount(codes), strict=True)
    groups = ", ".join(f"{group_name(label)} ({size})" for label, size in sizes)
    lines = [
        f"{table.name}: {len(train.y)} training rows, {len(test.y)} held-out rows, "
        f"{table.X.shape[1]} features",
        f"favourable: {table.positive} ({table.y.mean():.1%} of the rows)",
        f"groups: {groups}",
        f"constraint: {options.notion}, wanted violation at most {options.max_violation:g}",
        *table.notes,
    ]
    return "\n".join(lines)


def results_table(results: list[Result], chosen: Chosen) -> str:
    """A line for each fit."""
    lines = [f"{'':23}{'slack':>6}  {'error':25}{'violation':25}{'fit (s)':>8}"]
    for r in results:
        slack = "" if np.isnan(r.slack) else f"{r.slack:g}"
        mark = "  <- chosen" if (r.method, r.slack) == chosen else ""
        error = f"{r.error:.4f} ({r.error_low:.4f}, {r.error_high:.4f})"
        violation = f"{r.violation:.4f} ({r.violation_low:.4f}, {r.violation_high:.4f})"
        lines.append(f"{r.method:23}{slack:>6}  {error:25}{violation:25}{r.fit_time:8.2f}{mark}")
    return "\n".join(lines)


def groups_table(model: Any, test: Table) -> tuple[pd.DataFrame, str]:
    """Rates of each group with their intervals: all of them, and as text those that matter most."""
    score = model.predict_proba(test.X)[:, 1]
    report = metrics.group_report(
        test.y, model.predict(test.X), sensitive_features=test.groups, y_score=score
    )
    lines = pd.DataFrame({"samples": report["samples"].astype(int)})
    for rate in _PRINTED:
        ends = zip(report[rate], report[f"{rate}_low"], report[f"{rate}_high"], strict=True)
        lines[rate.replace("_", " ")] = [
            f"{value:.3f} ({low:.3f}, {high:.3f})" for value, low, high in ends
        ]
    return report, lines.to_string()


def draw_tradeoff(
    results: list[Result], chosen: Chosen, options: argparse.Namespace, path: Path
) -> None:
    """Error against violation, on the folds and on the held-out rows."""
    # Imported here: everything else works without matplotlib.
    from matplotlib.figure import Figure

    from fairconstrained.display import TradeoffDisplay

    table = pd.DataFrame(results)
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for ax, (rows, part) in zip(axes, table.groupby("rows", sort=False), strict=True):
        for method, points in part.groupby("method", sort=False):
            ours = method == chosen[0]
            TradeoffDisplay(
                error=points["error"],
                violation=points["violation"],
                error_std=_reach(points, "error"),
                violation_std=_reach(points, "violation"),
                chosen=int(np.flatnonzero(points["slack"] == chosen[1])[0]) if ours else None,
                slack=options.max_violation if ours else None,
                name=str(method),
                violation_name=f"violation of {options.notion.replace('_', ' ')}",
            ).plot(ax)
        ax.set_title(str(rows))
        ax.get_legend().remove()
    # The held-out rows show all methods.
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside right center")
    figure.savefig(path, dpi=120)


def draw_groups(report: pd.DataFrame, path: Path) -> None:
    """Selection rate and error of each group, with their intervals."""
    from matplotlib.figure import Figure

    from fairconstrained.display import GroupReportDisplay

    figure = Figure(figsize=(6, 1.5 + 0.4 * len(report)), layout="constrained")
    display = GroupReportDisplay(report=report, rates=("selection_rate", "error"))
    display.plot(figure.subplots())
    figure.savefig(path, dpi=120)


def _reach(points: pd.DataFrame, name: str) -> Any:
    """How far the bars reach below and above; a gap can lie above its own interval."""
    value = points[name]
    ends = value - points[f"{name}_low"], points[f"{name}_high"] - value
    return np.maximum(np.array(ends), 0.0)

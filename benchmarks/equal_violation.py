"""Boosted trees beside other methods, from the runs of ``benchmarks.any_classifier``."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import frontier

__all__ = ["CASE", "MEASURED", "UNCONSTRAINED", "advantage_kept", "at_equal_violation", "report"]

CASE = ["dataset", "without_group", "notion"]
MEASURED = [
    *("train_error", "test_error", "train_violation", "test_violation"),
    *("cpu", "base_cpu", "wall"),
]
UNCONSTRAINED = ["trees, unconstrained", "linear, unconstrained"]
OURS = {"trees, constrained", "trees, unconstrained"}

Floats = NDArray[np.float64]


def report(table: pd.DataFrame) -> str:
    """Our error at the violation of each other method, what is kept of trees, and means."""
    keys = ["dataset", "without_group", "notion", "method", "slack"]
    means = table.groupby(keys, dropna=False)[MEASURED].mean().round(4).reset_index()
    tables = at_equal_violation(table), advantage_kept(table), means
    return "\n\n".join(frontier.markdown(rows) for rows in tables)


def at_equal_violation(table: pd.DataFrame) -> pd.DataFrame:
    """Our test error minus that of each peer at the peer's mean test violation.

    The standard deviation is that of the peer's test error over the splits, mean over slacks.
    """
    rows = []
    for case, runs in table.groupby(CASE):
        for peer in sorted(set(runs["method"]) - OURS):
            gained, splits = _gained(runs, peer)
            own = runs[runs["method"] == peer]
            spread = own.groupby("slack", dropna=False)["test_error"].std().mean()
            found = gained[np.isfinite(gained)]
            numbers = {"mean": found.mean(), "worst": found.max()} if len(found) else {}
            rows.append(
                dict(zip(CASE, case, strict=True))
                | {"peer": peer, "splits": splits, "compared": len(found)}
                | {name: f"{value:+.4f}" for name, value in numbers.items()}
                | {"standard deviation": f"{spread:.4f}", "peer's cpu": f"{own['cpu'].mean():.1f}"}
            )
    return pd.DataFrame(rows).fillna("")


def advantage_kept(table: pd.DataFrame) -> pd.DataFrame:
    """By how much trees are better than a linear model on test rows, without and with constraint.

    With constraint: at the violation of the linear model.
    """
    rows = []
    for case, runs in table.groupby(CASE):
        free = runs[runs["method"].isin(UNCONSTRAINED)].pivot_table(
            index="seed", columns="method", values="test_error"
        )
        gained = _gained(runs, "linear, constrained")[0] if len(free.columns) == 2 else np.empty(0)
        if not np.isfinite(gained).any():
            continue
        of_trees, of_linear = (free.dropna()[name].mean() for name in UNCONSTRAINED)
        without, within = of_linear - of_trees, -float(np.nanmean(gained))
        rows.append(
            dict(zip(CASE, case, strict=True))
            | {"unconstrained": f"{without:+.4f}", "constrained": f"{within:+.4f}"}
            | {"kept": f"{within / without:.2f}" if without > 0 else ""}
        )
    return pd.DataFrame(rows)


def _gained(runs: pd.DataFrame, peer: str) -> tuple[Floats, int]:
    """Our test error minus a peer's, at its violation for each slack, and the number of splits.

    Frontiers are those of the means over the splits that both have; ours has the unconstrained
    trees at its end.
    """
    seeds = set(runs.loc[runs["method"] == peer, "seed"])
    seeds &= set(runs.loc[runs["method"] == "trees, constrained", "seed"])
    both = runs[runs["seed"].isin(seeds)]
    means = both.groupby(["method", "slack"], dropna=False)[MEASURED].mean().reset_index()
    ours, theirs = means[means["method"].isin(OURS)], means[means["method"] == peer]
    if ours.empty:
        return np.full(len(theirs), np.nan), 0
    at = frontier.error_at(ours["test_violation"], ours["test_error"], theirs["test_violation"])
    return at - theirs["test_error"].to_numpy(), len(seeds)

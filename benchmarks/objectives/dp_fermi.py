"""Classification with a penalty on mutual information: curves of error against gap.

A solver's file gives, besides ``METHOD`` and ``OBJECTIVES``, ``epsilons(unit, asked)``: the budgets
to run for a unit of privacy (nan for none), and ``fit(X, y, sensitive_features, *, notion, unit,
epsilon, penalty, seed) -> Fitted``. delta is 1e-5. The report sets the curves beside the published
ones of DP-FERMI and its baselines, whose setting is the unit ``sensitive_features``.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frontier import markdown
from benchmarks.objectives import rate_constrained
from benchmarks.objectives.rate_constrained import COLUMNS, Rows, prepare
from benchmarks.published import published

__all__ = ["COLUMNS", "DELTA", "PARAMETERS", "cells", "measure", "prepare", "report"]

DELTA = 1e-5
PARAMETERS: dict[str, list[Any]] = {
    "notion": ["demographic_parity", "equalized_odds"],
    "unit": ["sensitive_features", "record"],
    "epsilon": [0.5, 1.0, 3.0, 9.0],
    "penalty": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0],
}
_CURVE = ["dataset", "notion", "method", "unit", "epsilon"]


def cells(solver: ModuleType, asked: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Parameters of the runs of one solver."""
    return [
        {"notion": notion, "unit": unit, "epsilon": epsilon, "penalty": penalty}
        for notion in asked["notion"]
        for unit in asked["unit"]
        for epsilon in solver.epsilons(unit, asked["epsilon"])
        for penalty in asked["penalty"]
    ]


def measure(
    solver: ModuleType,
    split: tuple[Rows, Rows],
    seed: int,
    *,
    notion: str,
    unit: str,
    epsilon: float,
    penalty: float,
) -> dict[str, Any]:
    """Train and test once."""

    def fit(*train: Any, notion: str, slack: float, seed: int) -> Any:
        return solver.fit(
            *train, notion=notion, unit=unit, epsilon=epsilon, penalty=penalty, seed=seed
        )

    private: Any = SimpleNamespace(fit=fit)
    return rate_constrained.measure(private, split, seed, notion=notion, slack=math.nan)


def report(results: pd.DataFrame, output: Path) -> str:
    """All curves, and our error at the gap of each published point."""
    results = results.assign(epsilon=results["epsilon"].fillna(np.inf))
    return "\n\n".join(
        [
            "## Curves: test error and test gap, mean ± deviation over splits, delta 1e-5",
            markdown(_curves(results)),
            "## Error at the gap of published points",
            "Ours is interpolated along its curve over the penalty, split by split; 'below' says "
            "that every point of the curve has a smaller gap, and the error is that without "
            "penalty; 'not reached' that none has.",
            markdown(_comparison(results)),
        ]
    )


def _curves(results: pd.DataFrame) -> pd.DataFrame:
    groups = results.groupby([*_CURVE, "penalty"], sort=True)
    rows = []
    for key, runs in groups:
        named = dict(zip([*_CURVE, "penalty"], key, strict=True))
        cells = {
            name: f"{runs[column].mean():.4f} ± {runs[column].std(ddof=0):.4f}"
            for name, column in (("error", "test_error"), ("gap", "test_violation"))
        }
        rows.append({**named, **cells, "splits": len(runs), "s": round(runs["fit_time"].mean(), 1)})
    return pd.DataFrame(rows)


def _comparison(results: pd.DataFrame) -> pd.DataFrame:
    """One row for each published point and each of our curves of the same epsilon."""
    points, rows = published("dp_fermi"), []
    for key, runs in results.groupby(_CURVE, sort=True):
        named = dict(zip(_CURVE, key, strict=True))
        # Curves are means over splits: all their points must be over the same ones.
        complete = runs.groupby("seed")["penalty"].transform("nunique")
        runs = runs[complete == complete.max()]
        matching = points[
            (points["dataset"] == named["dataset"])
            & (points["notion"] == named["notion"])
            & (points["epsilon"] == named["epsilon"])
        ]
        for point in matching.itertuples():
            errors, where = _errors_at(runs, float(point.gap))
            rows.append(
                {
                    **named,
                    "published": point.method,
                    "its gap": point.gap,
                    "its error": point.error,
                    "our error": f"{np.mean(errors):.4f} ± {np.std(errors):.4f}",
                    "ours - its": f"{np.mean(errors) - point.error:+.4f}",
                    "where": where,
                    "splits": runs["seed"].nunique(),
                }
            )
    return pd.DataFrame(rows)


def _errors_at(runs: pd.DataFrame, gap: float) -> tuple[list[float], str]:
    """Error of the mean curve at a gap, moved to each split by its error's difference there."""
    mean = runs.groupby("penalty")[["test_violation", "test_error"]].mean()
    # From the fair end on: the least error of all points with at most this gap.
    by_gap = mean.sort_values("test_violation")
    gaps, errors = by_gap["test_violation"].to_numpy(), by_gap["test_error"].cummin().to_numpy()
    if gap < gaps[0]:
        return [math.nan], f"not reached (least gap {gaps[0]:.4f})"
    at = float(np.interp(gap, gaps, errors))
    nearest = by_gap.index[int(np.argmin(np.abs(gaps - gap)))]
    own = runs.loc[runs["penalty"] == nearest, "test_error"]
    where = "below" if gap > gaps[-1] else "interpolated"
    return list(at + own - own.mean()), where

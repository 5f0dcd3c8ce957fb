"""Tables and pictures of error against violation, from the table of runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairconstrained.display import TradeoffDisplay
from fairconstrained.model_selection import pareto_front

__all__ = [
    "comparison_table",
    "differences",
    "error_at",
    "markdown",
    "pictures",
    "summary_table",
    "violation_table",
]

_CASE = ["dataset", "notion"]
_MEASURED = [
    *("train_error", "train_violation", "test_error", "test_violation"),
    *("draw_error", "draw_violation", "fit_time"),
]


def error_at(violation: ArrayLike, error: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Error on the frontier of the points at given violations.

    Linear between the points that no other point beats; beyond the largest violation the error of
    that point, which is allowed there too; nan below the smallest.
    """
    violation, error, at = (np.asarray(v, dtype=float) for v in (violation, error, at))
    front = pareto_front(error, violation)
    order = np.argsort(violation[front], kind="stable")
    return np.interp(at, violation[front][order], error[front][order], left=np.nan)


def violation_table(results: pd.DataFrame, method: str, tolerance: float) -> str:
    """Largest training violation over the seeds, at each slack."""
    ours = results[results["method"] == method]

    def entry(runs: pd.DataFrame) -> str:
        excess = runs["train_violation"] > runs["slack"] + tolerance
        silent = " **without a warning**" if (excess & ~runs["warned"].astype(bool)).any() else ""
        exceeds = f" **exceeds**{silent}" if excess.any() else ""
        return f"{runs['train_violation'].max():.4f}{exceeds}"

    table = pd.DataFrame(
        [
            {"data set": dataset, "notion": notion, "slack": slack, "entry": entry(runs)}
            for (dataset, notion, slack), runs in ours.groupby([*_CASE, "slack"])
        ]
    )
    wide = table.pivot(index=["data set", "notion"], columns="slack", values="entry")
    return markdown(wide.reset_index())


def comparison_table(results: pd.DataFrame, method: str, baseline: str = "unconstrained") -> str:
    """Difference of error at the peer's violation, training and test: mean and standard deviation.

    The frontier of `method` is that of its slacks in one seed, and the unconstrained model, which
    is what it gives for a large slack.
    """
    rows = []
    for case, runs in results.groupby(_CASE):
        for peer in sorted(set(runs["method"]) - {method, baseline}):
            found = pd.DataFrame(differences(runs, method, peer, baseline))
            if found.empty:
                continue
            row = dict(zip(_CASE, case, strict=True)) | {"peer": peer, "points": len(found)}
            for part in ("train", "test"):
                seeds = found.groupby("seed")[part].mean()
                row[part] = _pair(seeds.mean(), seeds.std(), "+.4f")
                row[f"{part}, worst point"] = _number(found[part].max(), "+.4f")
                row[f"{part}, compared"] = int(found[part].notna().sum())
            peers = runs[runs["method"] == peer]
            row["standard deviation of the other"] = _number(
                peers.groupby("slack")["test_error"].std().mean(), ".4f"
            )
            ours = runs[runs["method"] == method]["fit_time"]
            row["times faster"] = f"{peers['fit_time'].mean() / ours.mean():.1f}"
            rows.append(row)
    return markdown(pd.DataFrame(rows)) if rows else "No peers in the table."


def differences(
    runs: pd.DataFrame, method: str, peer: str, baseline: str = "unconstrained"
) -> Iterator[dict[str, float]]:
    """Give the error of `method` minus that of a peer at each violation that the peer reached."""
    for seed, of_seed in runs.groupby("seed"):
        ours = of_seed[of_seed["method"].isin((method, baseline))]
        peers = of_seed[of_seed["method"] == peer]
        if not (ours["method"] == method).any():
            continue
        at = {
            part: error_at(
                ours[f"{part}_violation"], ours[f"{part}_error"], peers[f"{part}_violation"]
            )
            - peers[f"{part}_error"].to_numpy()
            for part in ("train", "test")
        }
        for train, test in zip(at["train"], at["test"], strict=True):
            yield {"seed": seed, "train": train, "test": test}


def summary_table(results: pd.DataFrame) -> str:
    """Mean and standard deviation over the seeds of all that was measured."""
    keys = [*_CASE, "method", "slack"]
    measured = [name for name in _MEASURED if name in results]
    groups = results.groupby(keys, dropna=False)[measured]
    mean, std = groups.mean(), groups.std()
    table = pd.DataFrame(index=mean.index)
    for name in measured:
        digits = ".2f" if name == "fit_time" else ".4f"
        pairs = zip(mean[name], std[name], strict=True)
        table[name.replace("_", " ")] = [_pair(m, s, digits) for m, s in pairs]
    return markdown(table.reset_index())


def pictures(results: pd.DataFrame, output: Path) -> list[Path]:
    """Test error against test violation, one picture for each data set and notion."""
    import matplotlib.pyplot as plt

    paths = []
    for (dataset, notion), runs in results.groupby(_CASE):
        figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        for method, of_method in runs.groupby("method"):
            points = of_method.groupby("slack", dropna=False)[["test_error", "test_violation"]]
            mean, std = points.mean(), points.std().fillna(0.0)
            TradeoffDisplay(
                error=mean["test_error"],
                violation=mean["test_violation"],
                error_std=std["test_error"],
                violation_std=std["test_violation"],
                name=str(method),
                error_name="test error",
                violation_name=f"test violation of {notion.replace('_', ' ')}",
            ).plot(ax)
        ax.set_title(f"{dataset}, {runs['seed'].nunique()} seeds")
        paths.append(output / f"{dataset}-{notion}.png")
        figure.savefig(paths[-1], dpi=120)
        plt.close(figure)
    return paths


def _pair(mean: float, std: float, digits: str = ".4f") -> str:
    deviation = _number(std, digits.removeprefix("+"))
    return _number(mean, digits) + (f" ± {deviation}" if deviation else "")


def _number(value: float, digits: str) -> str:
    return "" if np.isnan(value) else f"{value:{digits}}"


def markdown(table: pd.DataFrame) -> str:
    """Give a table in markdown; cells without a value stay empty."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [
        ["" if pd.isna(value) else str(value) for value in row] for row in table.to_numpy(object)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

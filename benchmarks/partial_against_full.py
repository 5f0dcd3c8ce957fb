"""Partial against full parity at the same partial fairness.

    python -m benchmarks.partial_against_full --datasets law_school other_bottom --seeds 0 1 2

For each slack a model under full parity is trained, its gap inside the interval is measured on the
training rows, and a model under partial parity is trained with that gap as its slack. What full
parity asks for beyond the interval is the only difference: the table gives what partial parity
gains in training loss, in accuracy on training and on test rows, and both models' fairness inside
the interval on test rows, as means and deviations over splits. The gap is that of Definition 4.2,
or with ``--notion rank_parity`` that of the paper's tables.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import results
from benchmarks.objectives.partial_parity import Rows, Scores, Split, prepare
from benchmarks.run import component
from benchmarks.solvers.partial_parity import under_full_parity, within_interval
from fairconstrained import metrics

GAPS = {
    "statistical_parity": metrics.partial_statistical_parity,
    "rank_parity": metrics.ccdf_gap,
}


def pair(split: Split, notion: str, slack: float) -> dict[str, Any]:
    """Train both models and compare them."""
    train, _, test = split.parts

    def gap_inside(scores: Scores, rows: Rows) -> float:
        options = {"sensitive_features": rows.groups, "interval": split.task.interval}
        return float(GAPS[notion](None, scores(rows.X, rows.groups), **options))

    full = under_full_parity(train, split.task, notion, slack)
    gap = gap_inside(full, train)
    partial = within_interval(train, split.task, notion, gap)
    row: dict[str, Any] = {
        "gap of full": gap,
        "gap of partial": gap_inside(partial, train),
    }
    row["loss saved"] = log_loss(full, train) - log_loss(partial, train)
    for part, rows in (("train", train), ("test", test)):
        row[f"{part} accuracy gained"] = accuracy(partial, rows) - accuracy(full, rows)
    row["test fairness of full"] = 1.0 - gap_inside(full, test)
    row["test fairness of partial"] = 1.0 - gap_inside(partial, test)
    return row


def log_loss(scores: Scores, rows: Rows) -> float:
    """Mean over the rows."""
    return float(np.logaddexp(0.0, (1 - 2 * rows.y) * scores(rows.X, rows.groups)).mean())


def accuracy(scores: Scores, rows: Rows) -> float:
    """At the threshold 0."""
    return float(np.mean((scores(rows.X, rows.groups) > 0) == rows.y))


def main() -> None:
    """Train all pairs, write them and print their means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", nargs="+", default=["law_school", "other_bottom"])
    parser.add_argument("--notion", choices=sorted(GAPS), default="statistical_parity")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--slacks", nargs="+", type=float, default=[0.1, 0.05, 0.02])
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    rows = []
    for dataset in options.datasets:
        data = component("datasets", dataset).load()
        for seed in options.seeds:
            split = prepare(data, seed)
            for slack in options.slacks:
                key = {"dataset": dataset, "notion": options.notion, "slack": slack, "seed": seed}
                rows.append({**key, **pair(split, options.notion, slack)})
    found = results.save(options.output / "partial_against_full.csv", rows)
    for dataset, of in found.groupby("dataset", sort=False):
        print(f"{dataset}\n{table(of)}\n")


def table(found: pd.DataFrame) -> str:
    """Markdown: means and deviations over splits."""
    by_slack = found.drop(columns="seed").groupby("slack", sort=False)
    mean = by_slack.mean(numeric_only=True)
    deviation = by_slack.std(numeric_only=True).fillna(0.0)
    lines = [["slack of full parity", *mean.columns], ["---"] * (1 + mean.shape[1])]
    for slack in mean.index:
        pairs = zip(mean.loc[slack], deviation.loc[slack], strict=True)
        lines.append([f"{slack}", *(f"{m:+.4f} ± {d:.4f}" for m, d in pairs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()

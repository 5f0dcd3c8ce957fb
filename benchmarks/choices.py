"""Choices that the architecture page gives numbers for: one setting varied, all else equal.

    python -m benchmarks.choices temperature private_memory
    python -m benchmarks.choices ranking_penalty --seeds 0 1 2 3 4

Splits, measures and l2 penalty are those of the objective of the same data in
``benchmarks/objectives``. A row is the mean over splits, notions and slacks; the excess is that of
the gap over the slack, negative ones counted as zero.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
from tqdm.auto import tqdm

from benchmarks import frontier, results
from benchmarks.objectives import auc_fair, rate_constrained
from benchmarks.objectives.private_rates import DELTA
from benchmarks.objectives.rate_constrained import ALPHA
from benchmarks.run import component
from fairconstrained import AUCFairClassifier, RateConstrainedClassifier
from fairconstrained.constraints import CONSTRAINTS, AUCParity
from fairconstrained.solvers import DPSGDA

COLUMNS = ["train_error", "train_violation", "test_error", "test_violation", "fit_time"]


def labels(notion: str, temperature: float | None = None, **settings: Any) -> tuple[Any, Any]:
    """A classifier, and what the objective of rates asks of it."""
    constraint = notion if temperature is None else CONSTRAINTS[notion](temperature=temperature)
    model = RateConstrainedClassifier(constraint, **{"alpha": ALPHA, **settings})
    return model, lambda: rate_constrained.Fitted(lambda X, groups: model.predict(X).astype(float))


def scores(notion: str, surrogate: str = "soft_bins", **settings: Any) -> tuple[Any, Any]:
    """A ranker, and what the objective of AUCs asks of it."""
    constraint = AUCParity(notion, surrogate=surrogate)
    model = AUCFairClassifier(constraint, **{"alpha": ALPHA, **settings})
    return model, lambda: auc_fair.Fitted(lambda X, groups: model.decision_function(X))


class Choice(NamedTuple):
    """A setting and its values, and where they are compared."""

    objective: Any
    build: Any
    datasets: list[str]
    notions: list[str]
    slacks: list[float]
    variants: list[dict[str, Any]]


AUCS = ["group_auc", "inter_group", "intra_group"]
CHOICES = {
    "temperature": Choice(
        *(rate_constrained, labels, ["adult"], ["demographic_parity"], [0.05]),
        [{"temperature": value} for value in (1.0, 2.0, 5.0)],
    ),
    "private_memory": Choice(
        *(rate_constrained, labels, ["adult"], ["demographic_parity"], [0.02]),
        [
            {"epsilon": 1.0, "delta": DELTA, "random_state": 0, "solver": DPSGDA(memory=value)}
            for value in (0.0, 0.5, 0.9)
        ],
    ),
    "ranking_objective": Choice(
        *(auc_fair, scores, ["a9a", "bank", "compas_scores"], AUCS, [0.01]),
        [
            {"objective": "log", "surrogate": "binormal"},
            {"objective": "auc", "surrogate": "binormal"},
            {"objective": "auc", "surrogate": "soft_bins"},
        ],
    ),
    "ranking_penalty": Choice(
        *(auc_fair, scores, ["bank", "compas_scores"], AUCS, [0.01, 0.02, 0.05, 0.1]),
        [{"alpha": value} for value in (1e-4, 1e-3, 1e-2)],
    ),
}


def measured(choice: Choice, split: Any, seed: int, notion: str, slack: float, variant: Any) -> Any:
    """One fit."""

    def fit(X: Any, y: Any, sensitive_features: Any, **asked: Any) -> Any:
        model, fitted = choice.build(notion, slack=slack, **variant)
        model.fit(X, y, sensitive_features=sensitive_features)
        return fitted()

    solver: Any = SimpleNamespace(fit=fit)
    return choice.objective.measure(solver, split, seed, notion=notion, slack=slack)


def compared(choice: Choice, datasets: list[str], seeds: list[int]) -> Iterator[dict[str, Any]]:
    """A row for each fit: each data set, split, notion, slack and variant."""
    for dataset, seed in tqdm(list(product(datasets, seeds)), unit="split"):
        split = choice.objective.prepare(component("datasets", dataset).load(), seed)
        for notion, slack, variant in product(choice.notions, choice.slacks, choice.variants):
            row = measured(choice, split, seed, notion, slack, variant)
            named = ", ".join(f"{name}={value}" for name, value in variant.items())
            excess = max(0.0, row["test_violation"] - slack)
            kept = {name: row[name] for name in COLUMNS}
            key = {"data": dataset, "notion": notion, "with": named, "seed": seed, "slack": slack}
            yield {**key, **kept, "excess": excess}


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Means over splits and slacks: a row for each data set, notion and variant."""
    by = ["data", "notion", "with"]
    means = found.groupby(by, sort=False, as_index=False)[[*COLUMNS, "excess"]].mean()
    return means.round(4)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the fits of each choice, and print their means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("choices", nargs="+", choices=sorted(CHOICES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--datasets", nargs="+", help="in place of the choice's own")
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    for name in options.choices:
        choice = CHOICES[name]
        rows = compared(choice, options.datasets or choice.datasets, options.seeds)
        found = results.save(options.output / f"{name}.csv", rows)
        print(frontier.markdown(summary(found)), flush=True)


if __name__ == "__main__":
    main()

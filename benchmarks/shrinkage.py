"""Small groups: is a gap of shrunken rates nearer to the true one than that of measured rates?

    python -m benchmarks.shrinkage --seeds 0 1 2

Linear models of 4,000 rows of Adult and ACSIncome, in 2 to 40 groups, under demographic parity and
equalized odds. All other rows, ten times as many of Adult and three times as many of ACSIncome, say
which rates are true: for each pair of groups with 50 of them (within a label) the squared
difference of rates, less the variances of both, is an estimate without bias of the true one.
"squared" is the mean over pairs and labels, "largest" the largest difference. Groups "by chance"
are twenty others at random: no model makes differences between them.

"measured" is the constraint as it is, "groups of 100" leaves out those of fewer training rows,
"margin" narrows the slack by one standard error, and "shrunken" is the same constraint with
``shrinkage="empirical_bayes"``. All but the second leave out what ``min_group_size="auto"`` does.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from benchmarks.results import append, finished
from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, EqualizedOdds
from fairconstrained.datasets import load_dataset

N_ROWS, LEAST = 4_000, 50
SLACKS = (0.05, 0.1)
NOTIONS = {"demographic_parity": DemographicParity, "equalized_odds": EqualizedOdds}
WAYS: dict[str, dict[str, Any]] = {
    "measured": {},
    "groups of 100": {"min_group_size": 100},
    "margin": {"margin": 1.0},
    "shrunken": {},
}
COLUMNS_OF = {  # sex, race, married, schooling and age
    "adult": ("sex", "race", "marital-status", "education-num", "age"),
    "acs_income_ok": ("SEX", "RAC1P", "MAR", "SCHL", "AGEP"),
}
MARRIED = {"adult": ("Married-civ-spouse",), "acs_income_ok": (1,)}
SCHOOLING = {"adult": (8, 9, 12), "acs_income_ok": (15, 17, 20)}  # less, school, some college, more
AGES = (25, 35, 45, 55)
KEY = ("data", "groups", "criterion", "slack", "way", "seed")
MEASURED = ("n_groups", "smallest", "error", "squared", "largest", "said", "seconds")
COLUMNS = (*KEY, *MEASURED)


def groupings(name: str, raw: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Groups of each row, by what they are crossed of."""
    sex, race, married, schooling, age = (raw[column] for column in COLUMNS_OF[name])
    parts = {
        "sex": sex.astype(str),
        "race": race.astype(str),
        "marriage": married.isin(MARRIED[name]).astype(str),
        "schooling": np.searchsorted(SCHOOLING[name], schooling).astype(str),
        "age": np.searchsorted(AGES, age).astype(str),
    }
    crossed = ("sex",), ("race",), ("race", "sex"), ("race", "sex", "marriage")
    found = {}
    for columns in (*crossed, ("sex", "schooling", "age")):
        labels = pd.DataFrame({column: np.asarray(parts[column]) for column in columns})
        found[", ".join(columns)] = labels.agg(" ".join, axis=1).to_numpy()
    own = found["race, sex, marriage"]
    return {**found, "chance": np.random.default_rng(0).permutation(own)}


def gaps(hits: NDArray[Any], group: NDArray[Any]) -> tuple[float, int, float]:
    """Sum of estimated squared gaps of pairs of groups, their number, and the largest gap."""
    own = pd.DataFrame({"hit": hits, "group": group}).groupby("group")["hit"].agg(["mean", "size"])
    own = own[own["size"] >= LEAST]
    variance = own["mean"] * (1.0 - own["mean"]) / (own["size"] - 1)
    pairs = list(combinations(zip(own["mean"], variance, strict=True), 2))
    squares = [(a - b) ** 2 - v - w for (a, v), (b, w) in pairs]
    return float(sum(squares)), len(pairs), float(np.ptp(own["mean"]))


def measured(criterion: str, y: Any, predicted: Any, group: Any) -> dict[str, float]:
    """Error, mean squared gap without bias, and the largest gap."""
    parts = [y >= 0] if criterion == "demographic_parity" else [y == 0, y == 1]
    found = [gaps(predicted[own], group[own]) for own in parts]
    squares, pairs, largest = zip(*found, strict=True)
    return {
        "error": float((predicted != y).mean()),
        "squared": sum(squares) / sum(pairs),
        "largest": max(largest),
    }


def fits(data: str, seed: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Keys of the fits of one table, each with a function that fits."""
    raw = load_dataset(data)
    table = load_dataset(data, preprocess="one_hot")
    X, y = table.data, np.unique(np.asarray(table.target), return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:N_ROWS], order[N_ROWS:]
    for groups, group in groupings(data, raw.frame).items():
        sizes = np.unique(group[train], return_counts=True)[1]
        for criterion, notion in NOTIONS.items():

            def run(
                slack: float,
                way: str,
                notion: Any = notion,
                criterion: str = criterion,
                group: Any = group,
                sizes: Any = sizes,
            ) -> dict[str, Any]:
                shrinkage = "empirical_bayes" if way == "shrunken" else None
                clf = RateConstrainedClassifier(
                    notion(slack, shrinkage=shrinkage), **WAYS.get(way, {})
                )
                begin = time.process_time()
                clf.fit(X[train], y[train], sensitive_features=group[train])
                return {
                    "n_groups": len(sizes),
                    "smallest": int(sizes.min()),
                    **measured(criterion, y[test], clf.predict(X[test]), group[test]),
                    "said": clf.violation_,
                    "seconds": time.process_time() - begin,
                }

            key = {"data": data, "groups": groups, "criterion": criterion, "seed": seed}
            yield {**key, "slack": 1.0, "way": "none"}, run
            for slack in SLACKS:
                for way in WAYS:
                    yield {**key, "slack": slack, "way": way}, run


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=list(COLUMNS_OF), default=list(COLUMNS_OF))
    parser.add_argument("--ways", nargs="+", choices=["none", *WAYS], default=["none", *WAYS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("results/shrinkage.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = finished(options.output, KEY)
    for seed in options.seeds:
        for data in options.data:
            for key, run in tqdm(list(fits(data, seed)), desc=f"{data} {seed}", unit="fit"):
                wanted = key["way"] in options.ways
                if wanted and tuple(str(key[name]) for name in KEY) not in done:
                    found = run(key["slack"], key["way"])
                    append(options.output, {**key, **found}, COLUMNS, KEY)


if __name__ == "__main__":
    main()

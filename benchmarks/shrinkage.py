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

import time
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.command import Job, command, complete
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
    "none": {},
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


def fits(data: str, seed: int) -> Iterator[Job]:
    """Keys of the fits of one table, each with a function that fits."""
    raw = load_dataset(data)
    table = load_dataset(data, preprocess="one_hot")
    X, y = table.data, np.unique(np.asarray(table.target), return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:N_ROWS], order[N_ROWS:]

    def fitted(group: NDArray[Any], criterion: str, slack: float, way: str) -> dict[str, Any]:
        shrinkage = "empirical_bayes" if way == "shrunken" else None
        notion = NOTIONS[criterion](slack, shrinkage=shrinkage)
        clf = RateConstrainedClassifier(notion, **WAYS[way])
        begin = time.process_time()
        clf.fit(X[train], y[train], sensitive_features=group[train])
        sizes = np.unique(group[train], return_counts=True)[1]
        return {
            "n_groups": len(sizes),
            "smallest": int(sizes.min()),
            **measured(criterion, y[test], clf.predict(X[test]), group[test]),
            "said": clf.violation_,
            "seconds": time.process_time() - begin,
        }

    known = [("none", 1.0), *((way, slack) for slack in SLACKS for way in WAYS if way != "none")]
    for (groups, group), criterion in product(groupings(data, raw.frame).items(), NOTIONS):
        for way, slack in known:
            values = (data, groups, criterion, slack, way, seed)
            yield values, partial(fitted, group, criterion, slack, way)


def main() -> None:
    """Run what is missing."""
    parser = command(__doc__, "results/shrinkage.csv")
    parser.add_argument("--data", nargs="+", choices=list(COLUMNS_OF), default=list(COLUMNS_OF))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed, data in product(options.seeds, options.data):
        jobs = (job for job in fits(data, seed) if job[0][4] in options.ways)
        complete(options.output, KEY, MEASURED, jobs)


if __name__ == "__main__":
    main()

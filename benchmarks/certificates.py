"""Do certificates hold? Trials on samples of a population on which everything is known.

    python -m benchmarks.certificates --trials 100
    python -m benchmarks.certificates --populations acs_income_ok --rows 1000 10000
    python -m benchmarks.certificates --report

Each trial draws n rows (with replacement) from a population, a million generated rows or the table
ACSIncome (Oklahoma, men and women), and trains on them

- ``certified``: CertifiedClassifier around RateConstrainedClassifier,
- ``quasi_seldonian``: the published algorithm (``benchmarks/seldonian.py``),
- ``uncertified``: RateConstrainedClassifier on all rows, with the slack as its own,

and measures violation and error on the population. ``--report`` prints, per cell, the fraction of
trials with a certificate, of those with a certificate that violates (at most 1 - confidence, with
its exact interval), and the mean error of those with one; errors are also compared on the trials
where both methods have a certificate. Trials that are in the file are not run again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from benchmarks.results import append, finished, table
from benchmarks.seldonian import QuasiSeldonian
from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import load_dataset, make_biased_classification
from fairconstrained.groups import encode_groups
from fairconstrained.metrics.bounds import clopper_pearson
from fairconstrained.model_selection import CertifiedClassifier

__all__ = ["Population", "report", "trial"]

CONFIDENCE = 0.95
SLACK = {  # or the cap
    ("generated", "demographic_parity"): 0.1,
    ("generated", "equalized_odds"): 0.1,
    ("generated", "false_negative_rate"): 0.2,
    ("acs_income_ok", "demographic_parity"): 0.05,
    ("acs_income_ok", "equalized_odds"): 0.1,
    ("acs_income_ok", "false_negative_rate"): 0.2,
}
CONSTRAINTS = ["demographic_parity", "equalized_odds", "false_negative_rate"]
METHODS = ("certified", "quasi_seldonian", "uncertified")
KEY = ("population", "constraint", "n_rows", "trial", "method")
COLUMNS = (*KEY, "certified", "violation", "error", "seconds")


class Population(NamedTuple):
    """All rows there are; two labels, groups 0, 1, ..."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    group: NDArray[np.int64]

    def violation(self, constraint: str, predicted: NDArray[np.int64]) -> float:
        """Of predictions for all rows: from one table of counts, a million rows in no time."""
        cell = 4 * self.group + 2 * self.y + predicted
        table = np.bincount(cell, minlength=4 * (self.group.max() + 1)).reshape(-1, 2, 2)
        if constraint == "demographic_parity":
            return float(np.ptp(table[:, :, 1].sum(axis=1) / table.sum(axis=(1, 2))))
        if constraint == "equalized_odds":
            return float(np.ptp(table[:, :, 1] / table.sum(axis=2), axis=0).max())
        return float(table[:, 1, 0].sum() / table[:, 1].sum())


def population(name: str) -> Population:
    """Generate it, or read the table: nine columns, standardised."""
    if name == "generated":
        data = make_biased_classification(
            1_000_000, n_features=6, bias=0.4, imbalance=0.4, random_state=0
        )
        group = encode_groups(data.sensitive_features).codes
        return Population(name, data.data, data.target.astype(int), group)
    data = load_dataset("acs_income_ok")
    X = data.data[["AGEP", "SCHL", "WKHP"]].astype(float)
    X["age2"] = X["AGEP"] ** 2
    X["married"] = data.data["MAR"] == 1
    X["employed"] = data.data["COW"] <= 5
    X["reference"] = data.data["RELP"] <= 1
    X["manager"] = data.data["OCCP"] < 3600
    y = np.asarray(data.target).astype(int)
    X["woman"] = data.data["SEX"] == 2
    group = X["woman"].to_numpy().astype(int)
    return Population(name, StandardScaler().fit_transform(X.astype(float)), y, group)


def trial(of: Population, constraint: str, n_rows: int, number: int, method: str) -> dict[str, Any]:
    """Train on a sample, measure on the population."""
    rows = np.random.default_rng(number).integers(len(of.y), size=n_rows)
    X, y, group = of.X[rows], of.y[rows], of.group[rows]
    slack = SLACK[of.name, constraint]
    start = time.process_time()
    if method == "certified":
        inner = RateConstrainedClassifier(constraint, slack=slack)
        model: Any = CertifiedClassifier(inner, confidence=CONFIDENCE, random_state=number)
    elif method == "quasi_seldonian":
        model = QuasiSeldonian(constraint, slack, CONFIDENCE, number)
    else:
        model = RateConstrainedClassifier(constraint, slack=slack)
    model.fit(X, y, sensitive_features=group)
    seconds = time.process_time() - start
    predicted = np.asarray(model.predict(of.X)).astype(int)
    return {
        "certified": bool(getattr(model, "certified_", False)),
        "violation": of.violation(constraint, predicted),
        "error": float((predicted != of.y).mean()),
        "seconds": round(seconds, 3),
    }


def report(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per population, constraint, number of rows and method."""
    runs = runs.assign(
        slack=[SLACK[cell] for cell in zip(runs["population"], runs["constraint"], strict=True)]
    )
    runs["violates"] = runs["violation"] > runs["slack"]
    key = ["population", "constraint", "n_rows"]
    wide = runs.pivot_table(index=[*key, "trial"], columns="method", values="certified")
    both = wide.reindex(columns=list(METHODS[:2])).fillna(0).eq(1).all(axis=1).rename("both")
    runs = runs.join(both, on=[*key, "trial"])
    table = []
    for cell, of in runs.groupby([*key, "method"]):
        claimed = of if cell[-1] == "uncertified" else of[of["certified"]]
        wrong = int(claimed["violates"].sum())
        low, high = (float(end) for end in clopper_pearson(wrong, len(claimed), 0.025))
        table.append(
            {
                **dict(zip((*key, "method"), cell, strict=True)),
                "trials": len(of),
                "with a certificate": float(of["certified"].mean()),
                "violating of these": wrong / len(claimed) if len(claimed) else np.nan,
                "low": low,
                "high": high,
                "violating of all": wrong / len(of),
                "error": claimed["error"].mean(),
                "error where both": of.loc[of["both"], "error"].mean(),
                "seconds": of["seconds"].mean(),
            }
        )
    return pd.DataFrame(table)


def main() -> None:
    """Run the trials that are missing, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--populations", nargs="+", default=["generated", "acs_income_ok"])
    add("--constraints", nargs="+", choices=CONSTRAINTS, default=CONSTRAINTS)
    add("--rows", nargs="+", type=int, default=[1_000, 3_000, 10_000, 30_000, 100_000])
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--trials", type=int, default=100)
    add("--first", type=int, default=0, help="number of the first trial")
    add("--output", type=Path, default=Path("results/certificates.csv"))
    add("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        print(report(table(options.output, KEY, COLUMNS)).round(4).to_string(index=False))
        return
    warnings.simplefilter("ignore")
    done = finished(options.output, KEY)
    jobs = [
        (name, constraint, n_rows, number, method)
        for number in range(options.first, options.trials)
        for n_rows in options.rows
        for name in options.populations
        for constraint in options.constraints
        for method in options.methods
    ]
    jobs = [job for job in jobs if tuple(map(str, job)) not in done]
    populations = {name: population(name) for name in options.populations}
    with threadpool_limits(1):
        for job in tqdm(jobs, unit="trial"):
            name, *rest = job
            found = trial(populations[name], *rest)
            append(options.output, {**dict(zip(KEY, job, strict=True)), **found}, COLUMNS, KEY)


if __name__ == "__main__":
    main()

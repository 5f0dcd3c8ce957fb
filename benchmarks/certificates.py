"""Do certificates hold? Trials on samples of a population on which everything is known.

    python -m benchmarks.certificates --trainings 20 --draws 50 --rows 1000 2000 10000
    python -m benchmarks.certificates --trainings 10 --draws 100 --rows 100000

Populations are a million generated rows and the table ACSIncome (Oklahoma, men and women). Samples
of n rows are drawn with replacement. One part of a sample trains, the other one certifies:

- ``certified``: the candidates of CertifiedClassifier around RateConstrainedClassifier, one half
  each,
- ``uncertified``: RateConstrainedClassifier on all rows, with the slack as its own,
- ``seldonian-engine`` ran on the same samples once (at db6ec783).

Training takes most of the time, and the rows of certification are independent of it. So each
training sample meets the certifying parts of several samples: each is a trial. Violation and error
are measured on the whole population. The evidence counts the trials whose certified model violates
the constraint: at most a fraction of 1 - confidence (a sum of independent trials with different
probabilities is no more variable than a binomial number, Hoeffding 1956). Trainings that are in the
file are not run again.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations, product, tee
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.command import command, complete
from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import load_dataset, make_biased_classification
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.metrics.bounds import clopper_pearson, excludes_difference
from fairconstrained.model_selection.certified import CAUTION, FRACTIONS, in_sequences, sequences
from fairconstrained.rate_definitions import CAPS

Array = NDArray[Any]
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
KEY = ("population", "constraint", "n_rows", "training", "draws", "method")
MEASURED = ("certified", "violating", "better", "error", "seconds")


class Rates(NamedTuple):
    """Of each group (row) and event (column): of how many rows how many."""

    hits: Array
    rows: Array

    def violation(self) -> float:
        """Return the largest gap between groups, or the rate of a single group."""
        rate = self.hits / self.rows
        return float(rate.max() if len(rate) == 1 else np.ptp(rate, axis=0).max())

    def certified(self, slack: float, alpha: float = 1 - CONFIDENCE) -> bool:
        """As ``certify`` decides, without the bounds that it reports."""
        if len(self.rows) == 1:
            return bool(clopper_pearson(self.hits, self.rows, alpha)[1] <= slack)
        if not self.rows.all():  # with two groups there is nothing to compare
            return False
        return all(
            excludes_difference((k[g], k[h]), (n[g], n[h]), slack, alpha)
            for k, n in zip(self.hits.T.tolist(), self.rows.T.tolist(), strict=True)
            for g, h in permutations(range(len(k)), 2)
        )


class Population(NamedTuple):
    """All rows there are; two labels, groups 0, 1, ..."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    group: NDArray[np.int64]

    def constant_error(self, constraint: str) -> float:
        """Return the error of the best constant that keeps the constraint: 1 never misses."""
        always_one = 1.0 - self.y.mean()
        return float(always_one if constraint in CAPS else min(always_one, self.y.mean()))

    def rates(self, constraint: str, predicted: Array, rows: Any = slice(None)) -> Rates:
        """Return the rates of predictions for some rows, from one table of counts."""
        cell = 4 * self.group[rows] + 2 * self.y[rows] + predicted[rows]
        table = np.bincount(cell, minlength=4 * (self.group.max() + 1)).reshape(-1, 2, 2)
        if constraint == "demographic_parity":
            return Rates(table[:, :, 1].sum(axis=1)[:, None], table.sum(axis=(1, 2))[:, None])
        if constraint == "equalized_odds":
            return Rates(table[:, :, 1], table.sum(axis=2))
        positive = table[:, 1].sum(axis=0)
        return Rates(positive[None, :1], positive.sum(keepdims=True)[None])


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


class Sample(NamedTuple):
    """Rows that train, and draws of rows that certify."""

    of: Population
    constraint: str
    train: Array
    tests: list[Array]

    @property
    def slack(self) -> float:
        """Of the constraint, or the cap."""
        return SLACK[self.of.name, self.constraint]

    def trained(self, parameters: Mapping[str, float]) -> RateConstrainedClassifier:
        """Fit the constrained model to the rows that train."""
        of, rows = self.of, self.train
        model = RateConstrainedClassifier(self.constraint, **parameters)
        return model.fit(of.X[rows], of.y[rows], sensitive_features=of.group[rows])

    def labels(self, model: Any) -> Array:
        """Predict the labels of the whole population."""
        return np.asarray(model.predict(self.of.X)).astype(int)

    def kept(self, labels: Array, rows: Array, **alpha: float) -> bool:
        """Return whether these rows certify the constraint."""
        return self.of.rates(self.constraint, labels, rows).certified(self.slack, **alpha)


def draws(of: Population, n_rows: int, training: int, n_draws: int) -> Array:
    """Samples of the population, (n_draws, n_rows): the same ones for every method."""
    rng = np.random.default_rng(training)
    return rng.integers(len(of.y), size=(n_draws, n_rows))


class Kept(NamedTuple):
    """A model, and how many of the draws keep it."""

    labels: Array  # of the whole population
    n_draws: int


def certificates(
    of: Population, constraint: str, n_rows: int, training: int, n_draws: int, method: str
) -> dict[str, Any]:
    """Train on the first part of a sample, certify on the last parts of all, measure."""
    start = time.process_time()
    judge, size = JUDGES[method]
    n_train = n_rows - int(size * n_rows)
    samples = draws(of, n_rows, training, n_draws)
    sample = Sample(of, constraint, samples[0, :n_train], list(samples[:, n_train:]))
    kept = judge(sample)
    n_kept = np.array([model.n_draws for model in kept], dtype=int)
    errors = np.array([(model.labels != of.y).mean() for model in kept])
    gaps = np.array([of.rates(constraint, model.labels).violation() for model in kept])
    return {
        "certified": n_kept.sum(),
        "violating": n_kept[gaps > sample.slack].sum(),
        "better": n_kept[errors < of.constant_error(constraint)].sum(),
        "error": float(np.average(errors, weights=n_kept)) if kept else np.nan,
        "seconds": round(time.process_time() - start, 3),
    }


def _in_sequences(sample: Sample) -> list[Kept]:
    """As CertifiedClassifier: two sequences, each until one fails; the most accurate is kept.

    A candidate is trained if some draw has got as far.
    """
    of, train = sample.of, sample.train

    def holds(model: Any) -> bool:
        alpha = CAUTION * (1 - CONFIDENCE)
        return sample.kept(sample.labels(model), train, alpha=alpha)

    candidates = [{"slack": fraction * sample.slack} for fraction in FRACTIONS]
    ordered = sequences(
        candidates, sample.trained, None if sample.constraint in CAPS else holds, of.X[train]
    )
    # Each draw goes through the same models: `tee` keeps those that another one has asked for.
    copies = zip(*(tee(models, len(sample.tests)) for models in ordered), strict=True)
    labels: dict[str, Array] = {}
    chosen = Counter(
        _most_accurate(sample, rows, models, labels)
        for rows, models in zip(sample.tests, copies, strict=True)
    )
    return [Kept(labels[name], n_draws) for name, n_draws in chosen.items() if name is not None]


def _most_accurate(
    sample: Sample, rows: Array, models: Any, labels: dict[str, Array]
) -> str | None:
    """Return the name of the most accurate model that these rows certify; `labels` is a cache."""
    accuracy: dict[str, float] = {}

    def passes(parameters: Mapping[str, Any], model: Any, fraction: float) -> bool:
        name = str(parameters)
        if name not in labels:
            labels[name] = sample.labels(model)
        kept = sample.kept(labels[name], rows, alpha=fraction * (1 - CONFIDENCE))
        if kept:
            accuracy[name] = float((labels[name][rows] == sample.of.y[rows]).mean())
        return kept

    in_sequences(*models, passes)
    return max(accuracy, key=accuracy.__getitem__, default=None)


def _without_test(sample: Sample) -> list[Kept]:
    """Train with the slack of the constraint, and test nothing."""
    return [Kept(sample.labels(sample.trained({"slack": sample.slack})), 1)]


# How models are kept, and the fraction of the rows that certify.
JUDGES: Mapping[str, tuple[Callable[[Sample], list[Kept]], float]] = {
    "certified": (_in_sequences, 0.5),  # the default of CertifiedClassifier
    "uncertified": (_without_test, 0.0),
}


def main() -> None:
    """Run the trials that are missing."""
    parser = command(__doc__, "results/certificates.csv")
    add = parser.add_argument
    add("--populations", nargs="+", default=["generated", "acs_income_ok"])
    add("--constraints", nargs="+", choices=CONSTRAINTS, default=CONSTRAINTS)
    add("--rows", nargs="+", type=int, default=[1_000, 10_000, 100_000])
    add("--methods", nargs="+", choices=JUDGES, default=list(JUDGES))
    add("--trainings", type=int, default=100)
    add("--first", type=int, default=0, help="number of the first training sample")
    add("--draws", type=int, default=10, help="of rows that certify, for each training sample")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    populations = {name: population(name) for name in options.populations}
    samples = [
        (training, n_rows, name)
        for training in range(options.first, options.trainings)
        for n_rows, name in product(options.rows, options.populations)
    ]
    jobs = []
    for (training, n_rows, name), constraint, method in product(
        samples, options.constraints, options.methods
    ):
        given = (constraint, n_rows, training, options.draws, method)
        jobs.append(((name, *given), partial(certificates, populations[name], *given)))
    with threadpool_limits(1):
        complete(options.output, KEY, MEASURED, jobs)


if __name__ == "__main__":
    main()

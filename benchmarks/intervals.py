"""Coverage of ``confidence_interval``: how often does the interval contain the truth?

    python -m benchmarks.intervals --cases populations
    python -m benchmarks.intervals --cases populations --rows 500 --metrics ccdf_gap --trials 100

Generated populations: groups of unequal size whose scores are normal, shifted by the label and by
the group. "fair": two groups, alike; "one": five groups, of which one is shifted. The truth is the
metric on weighted quantiles of each group and label. A row has the fraction of intervals that
contain the truth, those that lie wholly below and above it, the mean length, and the mean of the
metric less the truth. An interval is made of 1,000 draws here instead of 10,000, in less time:
whether it covers depends little on that. Metrics whose rows are resampled take a second and more
for each interval, and run only if they are named.

    python -m benchmarks.intervals --cases groups --trials 1000

Groups of given sizes and rates, such as a small one with the largest rate: whether the true value
is among those that are not rejected, and not below what a pair of groups proves. Equalized odds:
the same rates for both labels, of as many rows each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.command import Job, command, complete
from fairconstrained import metrics
from fairconstrained.metrics import intervals

BASE_RATE = 0.4
N_DRAWS = 1_000
_READ = {  # metrics by the column that they read
    "label": [
        *("demographic_parity_difference", "demographic_parity_ratio"),
        *("equalized_odds_difference", "equal_opportunity_difference", "error_rate_difference"),
        *("false_negative_rate", "separation_gap", "exponential_renyi_mutual_information"),
    ],
    "probability": ["loss_gap"],
    "score": [
        *("group_auc_gap", "intra_group_auc_gap", "inter_group_auc_gap"),
        *("partial_statistical_parity", "ccdf_gap", "wasserstein_distance_between_groups"),
    ],
}
METRICS = {name: column for column, names in _READ.items() for name in names}
AT_THE_TOP = ("partial_statistical_parity", "ccdf_gap")
BY_COMPONENTS = [name for name in METRICS if getattr(metrics, name) in intervals.READERS]
SHIFTS = {"fair": (0.0, 0.0), "one": (0.5, 0.0, 0.0, 0.0, 0.0)}  # of scores, by group
KEY = ("metric", "population", "n_groups", "n_rows", "method", "trials", "seed")
MEASURED = ("truth", "covered", "below", "above", "length", "bias")


class Population:
    """Labels, scores and groups, as many rows as asked for."""

    def __init__(self, name: str) -> None:
        self.shift = np.array(SHIFTS[name])
        size = np.linspace(1.0, 2.0, len(self.shift))
        self.proportions = size / size.sum()

    def quantiles(self, n_quantiles: int = 20_000) -> dict[str, NDArray[Any]]:
        """Give columns and weights that stand for the population: its metrics are the truth."""
        cells = np.indices((len(self.proportions), 2, n_quantiles)).reshape(3, -1)
        group, label, place = cells
        score = norm.ppf((place + 0.5) / n_quantiles) + 1.2 * label - 0.9 + self.shift[group]
        weight = self.proportions[group] * np.where(label, BASE_RATE, 1.0 - BASE_RATE)
        return {**_read(group, label > 0, score), "weight": weight}

    def draw(self, n_rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Give the columns that metrics read."""
        group = rng.choice(len(self.proportions), size=n_rows, p=self.proportions)
        label = rng.random(n_rows) < BASE_RATE
        return _read(group, label, rng.normal(size=n_rows) + 1.2 * label - 0.9 + self.shift[group])


def _read(group: Any, label: Any, score: Any) -> dict[str, NDArray[Any]]:
    columns = {"group": group, "true": label, "score": score, "label": score > 0}
    return {**columns, "probability": 1.0 / (1.0 + np.exp(-score))}


def coverage(name: str, of: str, n_rows: int, trials: int, seed: int) -> dict[str, float]:
    """Draw samples, and count the intervals that contain the metric of the population."""
    population = Population(of)
    metric, reads = getattr(metrics, name), METRICS[name]
    if name in AT_THE_TOP:
        metric = partial(metric, interval=(0.0, 0.3))
    rng = np.random.default_rng(seed)
    rows = population.quantiles()
    truth = metric(
        rows["true"], rows[reads], sensitive_features=rows["group"], sample_weight=rows["weight"]
    )
    found = np.empty((trials, 3))
    for t in range(trials):
        rows = population.draw(n_rows, rng)
        given = rows["true"], rows[reads], rows["group"]
        observed = metric(*given[:2], sensitive_features=given[2])
        options = {"sensitive_features": given[2], "n_draws": N_DRAWS, "random_state": t}
        found[t] = *metrics.confidence_interval(metric, *given[:2], **options), observed
    low, high, observed = found.T
    return {
        "truth": truth,
        "covered": float(((low <= truth) & (truth <= high)).mean()),
        "below": float((high < truth).mean()),
        "above": float((low > truth).mean()),
        "length": float((high - low).mean()),
        "bias": float(observed.mean() - truth),
    }


class Groups(NamedTuple):
    """Sizes of groups, and their true rates of positive decisions."""

    sizes: tuple[int, ...]
    rates: tuple[float, ...]

    def tables(self, rng: np.random.Generator, n_labels: int) -> NDArray[Any]:
        """Draw the numbers of rows by group, label and decision."""
        hits = rng.binomial(self.sizes, self.rates, size=(n_labels, len(self.sizes))).T
        return np.stack((np.array(self.sizes)[:, None] - hits, hits), axis=-1)


MIXED = (15, 20, 30, 50, 80, 120, 200, 300, 500, 700, 1000, 1000)
GROUPS = {
    "a small extreme one": Groups((300, 300, 20), (0.4, 0.3, 0.55)),
    "a small one inside": Groups((1000, 1000, 32), (0.6, 0.25, 0.4)),
    "two": Groups((84, 27), (0.4, 0.5)),
    "two small ones": Groups((15, 15), (0.9, 0.6)),
    "two, few hits": Groups((30, 1000), (0.1, 0.2)),
    "two, fifteen rows of one": Groups((15, 1000), (0.3, 0.5)),
    "three, rare hits": Groups((15, 200, 1000), (0.05, 0.1, 0.3)),
    "six, the smallest extreme": Groups((20, 20, 60, 60, 500, 500), (0.2, 0.6, *(0.4,) * 4)),
    "twelve equal ones": Groups((30,) * 12, (0.4,) * 12),
    "twelve of mixed sizes, equal": Groups(MIXED, (0.4,) * 12),
    "twelve of mixed sizes, one apart": Groups(MIXED, (*(0.4,) * 8, 0.6, *(0.4,) * 3)),
    "twelve of mixed sizes, two apart": Groups(MIXED, (0.2, *(0.4,) * 10, 0.6)),
    "twelve of mixed sizes, all apart": Groups(MIXED, tuple(np.linspace(0.05, 0.95, 12)[::-1])),
}
BY_RATES = {  # metrics, their true size, and the labels that they are about
    "demographic_parity_difference": (np.ptp, 1),
    "demographic_parity_ratio": (lambda rates: 1.0 - np.min(rates) / np.max(rates), 1),
    "false_negative_rate": (lambda rates: 1.0 - np.min(rates), 1),
    "equalized_odds_difference": (np.ptp, 2),
}


def of_groups(name: str, case: str, trials: int, seed: int) -> dict[str, float]:
    """Draw decisions, and count how often the true value is rejected."""
    groups, (truth_of, n_labels) = GROUPS[case], BY_RATES[name]
    truth, below, above = float(truth_of(groups.rates)), 0, 0
    read = intervals.READERS[getattr(metrics, name)]
    cells = np.indices((len(groups.sizes), n_labels, 2)).reshape(3, -1)
    for trial in range(trials):
        rows = groups.tables(np.random.default_rng([seed, trial]), n_labels).ravel()
        group, label, decision = (np.repeat(of, rows) for of in cells)
        label = label if n_labels == 2 else np.ones_like(label)
        draws = intervals.Draws(np.random.RandomState(trial), N_DRAWS)
        rated = read(label, decision, sensitive_features=group, pos_label=1)
        inverted = intervals._Inverted(intervals.COMPONENTS[type(rated)](rated, draws))
        proven = inverted.summary.proven(inverted.values, inverted.errors, 0.05)
        below += inverted.too_large(truth, 0.05)
        above += inverted.too_small(truth, 0.05) or proven > truth
    covered = 1.0 - (below + above) / trials
    return {"truth": truth, "covered": covered, "below": below / trials, "above": above / trials}


def populations(options: Any) -> Iterator[Job]:
    """Generated populations: metrics, and numbers of rows."""
    rest = options.trials, options.seed
    for name, n_rows, of in product(options.metrics, options.rows, SHIFTS):
        key = name, of, len(SHIFTS[of]), n_rows, "auto", *rest
        yield key, partial(coverage, name, of, n_rows, *rest)


def groups(options: Any) -> Iterator[Job]:
    """Groups of given sizes and rates."""
    for (case, of), name in product(GROUPS.items(), BY_RATES):
        key = name, case, len(of.sizes), sum(of.sizes), "inversion", options.trials, options.seed
        yield key, partial(of_groups, name, case, options.trials, options.seed)


CASES = {"populations": populations, "groups": groups}


def main() -> None:
    """Measure the cases of the command line; a second call skips runs that are there."""
    parser = command(__doc__, "results/intervals.csv")
    add = parser.add_argument
    add("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    add("--metrics", nargs="+", choices=list(METRICS), default=BY_COMPONENTS)
    add("--rows", nargs="+", type=int, default=[150, 500, 5_000, 50_000])
    add("--trials", type=int, default=500)
    add("--seed", type=int, default=1, help="of the samples; 0 was used to choose constants")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for case in options.cases:
        complete(options.output, KEY, MEASURED, CASES[case](options))


if __name__ == "__main__":
    main()

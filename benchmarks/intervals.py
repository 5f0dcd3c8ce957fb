"""Coverage of ``confidence_interval``: how often does the interval contain the truth?

    python -m benchmarks.intervals --trials 500 --populations fair one
    python -m benchmarks.intervals --rows 500 --groups 12 --metrics demographic_parity_difference

Generated populations: groups of unequal size whose scores are normal, shifted by the label and by
the group. "fair": no shift by the group; "one": one group is shifted. The truth is the metric on
weighted quantiles of each group and label. A row has the fraction of intervals that contain the
truth, those that lie wholly below and above it, the mean length, and the mean of the metric less
the truth. An interval is made of 1,000 draws here instead of 10,000, in less time: whether it
covers depends little on that.
"""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.command import command, complete
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
KEY = ("metric", "population", "n_groups", "n_rows", "method", "trials", "seed")
MEASURED = ("truth", "covered", "below", "above", "length", "bias")


class Population:
    """Labels, scores and groups, as many rows as asked for."""

    def __init__(self, name: str, n_groups: int) -> None:
        size = np.linspace(1.0, 2.0, n_groups)
        self.proportions = size / size.sum()
        self.shift = np.zeros(n_groups)
        self.shift[0] = {"fair": 0.0, "one": 0.5}[name]

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


def coverage(
    name: str, of: str, n_groups: int, n_rows: int, method: str, trials: int, seed: int
) -> dict[str, float]:
    """Draw samples, and count the intervals that contain the metric of the population."""
    population = Population(of, n_groups)
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
        options = {"sensitive_features": given[2], "method": method, "random_state": t}
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


def main() -> None:
    """Measure what the command line asks for; a second call skips what is there."""
    parser = command(__doc__, "results/intervals.csv")
    add = parser.add_argument
    add("--metrics", nargs="+", choices=list(METRICS), default=list(METRICS))
    add("--populations", nargs="+", choices=["fair", "one"], default=["fair", "one"])
    add("--groups", nargs="+", type=int, default=[2, 5])
    add("--rows", nargs="+", type=int, default=[500, 5_000, 50_000])
    add("--trials", type=int, default=500)
    add("--seed", type=int, default=1, help="of the samples; 0 was used to choose constants")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    intervals.N_DRAWS = N_DRAWS
    cells = product(options.rows, options.groups, options.populations, options.metrics)
    asked = (
        (name, population, n_groups, n_rows, "auto", options.trials, options.seed)
        for n_rows, n_groups, population, name in cells
    )
    jobs = [(job, partial(coverage, *job)) for job in asked]
    complete(options.output, KEY, MEASURED, jobs)


if __name__ == "__main__":
    main()

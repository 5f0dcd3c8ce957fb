"""How many rows of certification each of two groups needs, at which rates and gaps.

    python -m benchmarks.certificate_rows
    python -m benchmarks.certificate_rows --slack 0.1 --rates 0.2 --gaps 0 0.05

Prints the least number of rows of each group with which demographic parity is certified within the
slack in 80 % of the samples. The rates of positive predictions are `rate` and `rate + gap`. The
fraction of the samples is a sum over both binomial numbers, and the rows are known up to 1 %.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.stats import binom, norm
from tqdm.auto import tqdm

from benchmarks.command import command
from benchmarks.results import save
from fairconstrained.metrics.bounds import difference_p_value

CONFIDENCE = 0.95
POWER = 0.8
PRECISION = 0.01  # of the number of rows
N_DEVIATIONS = 4.0  # of each number, at most sqrt(n / 4): beyond them lies less than 1e-4


def power(n_rows: int, rates: tuple[float, float], slack: float) -> float:
    """Probability of a certificate with n_rows in each of two groups.

    Given the smaller number of positive predictions, the larger one may go up to a limit that grows
    with it. Of the two differences the test of the larger one decides.
    """
    mean, deviation = n_rows * np.array(rates), np.sqrt(n_rows * 0.25)
    first = max(int(mean.min() - N_DEVIATIONS * deviation), 0)
    last = min(int(mean.max() + N_DEVIATIONS * deviation), n_rows)
    found, most = 0.0, first - 1
    p, q = (binom(n_rows, rate) for rate in rates)
    for least in range(first, last + 1):
        while most < n_rows and certified(most + 1, least, n_rows, slack):
            most += 1
        if most >= least:
            found += p.pmf(least) * (q.cdf(most) - q.cdf(least - 1))
            found += q.pmf(least) * (p.cdf(most) - p.cdf(least))
    return float(found)


def certified(most: int, least: int, n_rows: int, slack: float) -> bool:
    """Whether the test of ``certify`` rejects that the larger rate exceeds the other by more."""
    alpha = 1 - CONFIDENCE
    return difference_p_value((most, least), (n_rows, n_rows), slack, alpha / 50) <= alpha


def rows_needed(rate: float, gap: float, slack: float) -> int:
    """Least number of rows of each group for the power, by bisection.

    Without a gap both tests can fail, and the normal approximation of one of them is too small.
    """
    rates = (rate, rate + gap)
    variance = sum(p * (1 - p) for p in rates)
    normal = variance * ((norm.isf(1 - CONFIDENCE) + norm.ppf(POWER)) / (slack - gap)) ** 2
    low, high = int(0.9 * normal), int(2 * normal)
    while high - low > PRECISION * high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, rates, slack) >= POWER else (middle, high)
    return high


def main() -> None:
    """Write and print the table."""
    parser = command(__doc__)
    parser.add_argument("--slack", type=float, default=0.05)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--gaps", nargs="+", type=float, default=[0.0, 0.025], help="below slack")
    options = parser.parse_args()
    rows = (
        {"slack": options.slack, "rate": rate, "gap": gap}
        | {"rows": rows_needed(rate, gap, options.slack)}
        for rate, gap in tqdm(list(product(options.rates, options.gaps)))
    )
    table = save(options.output / "certificate_rows.csv", rows)
    print(table.pivot(index="rate", columns="gap", values="rows").to_string())


if __name__ == "__main__":
    main()

"""How many rows of certification each of two groups needs, at which rates and gaps.

    python -m benchmarks.certificate_rows
    python -m benchmarks.certificate_rows --slack 0.1 --rates 0.2 --gaps 0 0.05

Prints the least number of rows of each group with which demographic parity is certified within the
slack in 80 % of the samples. The rates of positive predictions are `rate` and `rate + gap`. Their
numbers are two binomial variables, drawn at 256 Sobol points. The fraction with a certificate is
then known up to about .01, and the number of rows up to about 3 %.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from scipy.stats import binom, norm, qmc
from tqdm.auto import tqdm

from fairconstrained.metrics._differences import difference_p_value

__all__ = ["power", "rows_needed"]

CONFIDENCE = 0.95
POWER = 0.8
PRECISION = 0.01  # of the number of rows


def power(n_rows: int, rates: tuple[float, float], slack: float, n_points: int = 256) -> float:
    """Fraction of samples, of n_rows in each group, in which the slack is certified."""
    points = qmc.Sobol(2, seed=0).random(n_points)
    hits = binom.ppf(points, n_rows, rates).astype(int)
    return float(np.mean([certified(max(pair), min(pair), n_rows, slack) for pair in hits]))


def certified(most: int, least: int, n_rows: int, slack: float) -> bool:
    """Whether neither group's rate may exceed the other's by the slack, as ``certify`` tests it."""
    alpha = 1 - CONFIDENCE
    return all(
        difference_p_value(pair, (n_rows, n_rows), slack, alpha / 50) <= alpha
        for pair in ((most, least), (least, most))
    )


def rows_needed(rate: float, gap: float, slack: float) -> int:
    """Least number of rows of each group for the power, by bisection around the normal one."""
    rates = (rate, rate + gap)
    variance = sum(p * (1 - p) for p in rates)
    normal = variance * ((norm.isf(1 - CONFIDENCE) + norm.ppf(POWER)) / (slack - gap)) ** 2
    low, high = int(0.5 * normal), int(2 * normal)
    while high - low > PRECISION * high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, rates, slack) >= POWER else (middle, high)
    return high


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slack", type=float, default=0.05)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.1, 0.3, 0.5])
    parser.add_argument("--gaps", nargs="+", type=float, default=[0.0, 0.025])
    options = parser.parse_args()
    cells = [(rate, gap) for rate in options.rates for gap in options.gaps]
    rows = [rows_needed(*cell, options.slack) for cell in tqdm(cells)]
    table = pd.Series(rows, index=pd.MultiIndex.from_tuples(cells, names=["rate", "gap"]))
    print(table.unstack().to_string())


if __name__ == "__main__":
    main()

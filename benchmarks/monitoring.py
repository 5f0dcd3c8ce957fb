"""False alarms, delays and the speed of ``FairnessMonitor``.

    python -m benchmarks.monitoring
    python -m benchmarks.monitoring --cases slack --streams 100
    python -m benchmarks.monitoring --cases drift --streams 1000

Streams of rows of two groups, of which the second has the larger rate of positive decisions. Looked
at after every row:

- ``slack``: the gap is the slack: an alarm is false,
- ``twice``: the gap is twice the slack,
- ``later``: there is no gap for 20,000 rows, and then twice the slack,
- ``reference``: the streams of Figure 1 of Chugg et al. (2023), at a slack of zero: beside the
  monitor their bets by online Newton steps, which are implemented here again,
- ``speed``: processor seconds of updates of one row.

Looked at after every chunk:

- ``drift``: the rate moves, and so may the fraction of the second group; see ``MOVES``. The gap is
  zero or the slack at every row, and an alarm is false.

The windows of a whole stream are counted at once, with the bets of the monitor; streams that drift
and are looked at after every chunk are passed to a monitor. A fixed sample's test is the
one-sided z-test of the gap with known variance, at the same level and one look; its rows are those
that it needs for a power of 80 and 95 %.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm
from tqdm.auto import tqdm

from benchmarks.command import Job, command, complete
from fairconstrained import constraints
from fairconstrained.monitoring import FairnessMonitor, betting
from fairconstrained.monitoring.monitor import FIRST_ROWS, FOR_FIRST
from fairconstrained.rate_definitions import PARITIES

Array = NDArray[Any]
ALPHA = 0.05
N_ROWS = 50_000
KEPT_ROWS = 20_000  # of streams in which the rule is broken later
KEY = ("case", "criterion", "slack", "rate", "gap", "share", "chunk", "streams")
MEASURED = ("alarms", "median", "rows_80", "rows_95", "seconds")
PARITY = "demographic_parity"


class Setting(NamedTuple):
    """Two groups: the rate of the first; the rate of the second is larger by the gap."""

    case: str
    slack: float
    rate: float
    gap: float
    share: float  # of the rows that are of the first group

    def stream(self, rng: np.random.Generator, n_rows: int) -> tuple[Array, Array]:
        """Draw outcomes, and whether rows are of the second group, (n_rows,) each."""
        second = rng.random(n_rows) >= self.share
        rate = self.rate + self.gap * second
        if self.case == "later":
            rate[:KEPT_ROWS] = self.rate
        return (rng.random(n_rows) < rate).astype(np.int8), second

    def fixed_rows(self, power: float) -> float:
        """Return the number of rows that the z-test needs."""
        p, q = self.rate, self.rate + self.gap
        variance = p * (1 - p) / self.share + q * (1 - q) / (1 - self.share)
        return variance * float((norm.isf(ALPHA) + norm.ppf(power)) / (self.gap - self.slack)) ** 2


SETTINGS = [
    Setting(case, 0.05, rate, gap, share)
    for case, gap in (("slack", 0.05), ("twice", 0.1), ("later", 0.1))
    for rate, share in ((0.3, 0.5), (0.3, 0.2), (0.3, 0.05), (0.05, 0.5))
]
# The rates of the two groups in Figure 1; the legend has 0.1 for the third gap.
REFERENCE = [(0.7, 0.4), (0.4, 0.9), (0.4, 0.55), (0.4, 0.4)]
REFERENCE_ALPHA, REFERENCE_ROWS = 0.01, 300


def evidence(outcomes: Array, second: Array, slack: float) -> Array:
    """Return the evidence of a monitor after every row, (n_rows,)."""
    bets = betting.Bets.on(betting.gap_payoffs(slack))
    comparison = betting.Comparison(bets)
    both = 1 + max(second.argmax(), (~second).argmax())  # the row that begins the comparison
    cells = comparison.windows(outcomes[both:], ~second[both:], range(len(second) - both))
    size = betting.WINDOW
    whole = second[both:][: (len(second) - both) // size * size].reshape(-1, size)
    ends = both + size * (1 + np.flatnonzero(whole.any(axis=1) & ~whole.all(axis=1)))
    n_windows = np.searchsorted(ends, 1 + np.arange(len(second)), side="right")
    begun, _ = comparison.begun(len(cells))
    left = betting.LATER / (betting.LATER + np.arange(len(cells) + 1))
    wealth = _wealth(cells, bets, begun, left)
    return np.asarray(1.0 - FOR_FIRST + FOR_FIRST * wealth[n_windows])


def _wealth(cells: Array, bets: betting.Bets, begun: Array, left: Array) -> Array:
    """Return the wealth of a comparison before the first window and after each of them."""
    logs = np.cumsum(bets.growth[cells], axis=0)
    before = np.vstack((np.zeros(logs.shape[1]), logs[:-1]))
    late = logs + np.logaddexp.accumulate(np.log(begun) - before, axis=0)
    early, late = (np.exp(np.minimum(values, 300.0)) for values in (logs, late))
    early, late = np.append(1.0, early @ bets.shares), np.append(0.0, late.sum(axis=1))
    start = betting.FROM_THE_START
    return np.asarray(start * early + (1.0 - start) * (late + left))


def alarm_at(outcomes: Array, second: Array, slack: float, alpha: float = ALPHA) -> float:
    """Return the number of rows at the first alarm; infinite without one."""
    alarms = evidence(outcomes, second, slack) >= 1 / alpha
    alarms[: FIRST_ROWS - 1] = False
    return float(alarms.argmax()) + 1 if alarms.any() else np.inf


def measured(setting: Setting, n_streams: int) -> dict[str, Any]:
    """Measure alarms and delays in all streams of a setting."""
    start, rng = time.process_time(), np.random.default_rng(0)
    streams = tqdm(range(n_streams), desc=setting.case, leave=False)
    rows = np.array([alarm_at(*setting.stream(rng, N_ROWS), setting.slack) for _ in streams])
    alarms = np.isfinite(rows).mean()
    if setting.case == "later":
        rows -= KEPT_ROWS
    row: dict[str, Any] = {"alarms": alarms, "median": np.median(rows)}
    if setting.gap > setting.slack:
        row |= {f"rows_{power}": round(setting.fixed_rows(power / 100)) for power in (80, 95)}
    return {**row, "seconds": round(time.process_time() - start, 1)}


# --- rates and compositions that move -------------------------------------------------------------

DRIFT_ROWS = 6_000
_TIME = np.arange(DRIFT_ROWS) / DRIFT_ROWS
_ODD = {n: np.arange(DRIFT_ROWS) // n % 2 for n in (20, 50, 100, 200)}
_SEASON, _DAY = np.sin(2 * np.pi * _TIME * DRIFT_ROWS / np.array([[700], [100]]))
# The first group's rate at every row, and the logarithm of what multiplies the odds of its share.
MOVES: dict[str, tuple[Array, Array]] = {
    "step": (0.3 + 0.4 * (_TIME >= 0.5), 0.0 * _TIME),
    "ramp": (0.2 + 0.6 * _TIME, 0.0 * _TIME),
    "season of 700 rows": (0.4 + 0.25 * _SEASON, 0.0 * _TIME),
    "steps of both": (0.3 + 0.4 * (_TIME >= 0.5), 2.0 * (_TIME >= 0.5)),
    "ramps of both": (0.2 + 0.6 * _TIME, 2.0 * _TIME),
    "seasons of both, 700 rows": (0.4 + 0.25 * _SEASON, 1.5 * _SEASON),
    "seasons of both, 100 rows": (0.4 + 0.25 * _DAY, 1.5 * _DAY),
    "jumps of both with every call of 20 rows": (0.2 + 0.5 * _ODD[20], 2.0 * _ODD[20]),
    **{f"jumps of both every {n} rows": (0.1 + 0.8 * odd, 3.9 * odd) for n, odd in _ODD.items()},
    "wider jumps of both every 200 rows": (0.1 + 0.8 * _ODD[200], 6.1 * _ODD[200]),
}
SHARES = (0.02, 0.15, 0.5)
CHUNKS = (100, 1000)
LOOKED_AT = "seasons of both, 700 rows"  # by all criteria, and in chunks
RULES: dict[str, Any] = {
    **{name: name for name in PARITIES},
    "ratio": constraints.DemographicParity(ratio=0.8),
    "cap of each group": constraints.FalseNegativeRate(max=0.85, per_group=True),
}


def drifting(
    rng: np.random.Generator, move: str, gap: float, share: float
) -> tuple[Array, Array, Array]:
    """Draw decisions, labels of the same rate, and whether rows are of the second group."""
    rate, log_odds = MOVES[move]
    second = rng.random(DRIFT_ROWS) >= expit(logit(share) + log_odds)
    decisions = rng.random(DRIFT_ROWS) < rate + gap * second
    return decisions.astype(np.int8), (rng.random(DRIFT_ROWS) < rate).astype(np.int8), second


def drift(
    move: str, rule: str, gap: float, share: float, chunk: int, n_streams: int
) -> dict[str, Any]:
    """Count alarms in streams of a rate that moves; after every row all at once."""
    start, rng, alarms = time.process_time(), np.random.default_rng(0), 0
    for _ in tqdm(range(n_streams), desc=move, leave=False):
        decisions, labels, second = drifting(rng, move, gap, share)
        if chunk == 1:
            alarms += np.isfinite(alarm_at(decisions, second, 0.05))
            continue
        monitor = FairnessMonitor(RULES[rule], slack=0.05)
        for first in range(0, DRIFT_ROWS, chunk):
            rows = slice(first, first + chunk)
            monitor.update(decisions[rows], sensitive_features=second[rows], y_true=labels[rows])
        alarms += monitor.alarm_
    return {"alarms": alarms / n_streams, "seconds": round(time.process_time() - start, 1)}


def drift_jobs(n_streams: int) -> Iterator[Job]:
    """Yield every movement after every row; one of them in chunks, and by every criterion."""
    settings = [
        *((move, PARITY, gap, share, 1) for move, gap, share in product(MOVES, (0, 0.05), SHARES)),
        *((LOOKED_AT, PARITY, 0.05, 0.15, chunk) for chunk in CHUNKS),
        *((LOOKED_AT, rule, 0, 0.15, 500) for rule in RULES if rule != PARITY),
    ]
    for move, rule, gap, share, chunk in settings:
        chunk = 20 if "call" in move else chunk
        rate = float(MOVES[move][0].mean().round(2))
        n = n_streams if chunk == 1 else n_streams // 10  # monitors take longer
        key = (move, rule, 0.05, rate, gap, share, chunk, n)
        yield key, partial(drift, move, rule, gap, share, chunk, n)


# --- the published example ------------------------------------------------------------------------


def newton_steps(first: Array, second: Array, alpha: float) -> int | None:
    """Row after which bets by online Newton steps reject equal means; None if they do not.

    The wealth after row t is the product of 1 + bet_t (x_t - y_t), where the bet of the next row is
    moved along the gradient of the logarithm of this one's, and stays within 1/2. As published, the
    first pair of rows is not used.
    """
    wealth, bet, squares = 1.0, 0.0, 0.0
    for t, d in enumerate((first - second)[1:].tolist(), start=1):
        wealth *= 1.0 + bet * d
        if wealth > 1 / alpha:
            return t
        gradient = d / (1.0 + bet * d)
        squares += gradient**2
        bet = float(np.clip(bet + 2 / (2 - np.log(3)) * gradient / (1 + squares), -0.5, 0.5))
    return None


@cache
def rejections(rates: tuple[float, float], n_streams: int) -> dict[str, Array]:
    """Return the pairs of rows after which bets of the paper and the monitor reject equal rates."""
    rng = np.random.default_rng(0)
    second = np.arange(2 * REFERENCE_ROWS) % 2 > 0
    theirs, ours = [], []
    for _ in range(n_streams):
        pair = [(rng.random(REFERENCE_ROWS) < rate).astype(np.int8) for rate in rates]
        theirs.append(newton_steps(pair[0], pair[1], REFERENCE_ALPHA))
        ours.append(alarm_at(np.stack(pair, axis=1).ravel(), second, 0.0, REFERENCE_ALPHA))
    never = np.array([np.inf if t is None else t for t in theirs])
    return {"published bets": never, "monitor": np.array(ours) / 2}


def reference(name: str, rates: tuple[float, float], n_streams: int) -> dict[str, Any]:
    """Measure the bets of the paper, or the monitor, on a part of the streams of Figure 1."""
    rejected = rejections(rates, n_streams)[name]
    return {"alarms": np.isfinite(rejected).mean(), "median": np.median(rejected)}


def speed(n_updates: int = 100_000) -> dict[str, Any]:
    """Measure processor seconds of updates of one row."""
    setting = Setting("speed", 0.05, 0.3, 0.0, 0.5)
    outcomes, second = setting.stream(np.random.default_rng(0), n_updates)
    monitor, start = FairnessMonitor(slack=setting.slack), time.process_time()
    for row in range(n_updates):
        one = slice(row, row + 1)
        monitor.update(outcomes[one], sensitive_features=second[one])
    return {"seconds": round(time.process_time() - start, 2), "alarms": float(monitor.alarm_)}


def jobs(case: str, n_streams: int) -> Iterator[Job]:
    """Yield the key of each run of a case, and how to get its row."""
    if case == "speed":
        yield (case, PARITY, 0.05, 0.3, 0.0, 0.5, 1, 1), speed
    elif case == "reference":
        for rates, name in product(REFERENCE, ("published bets", "monitor")):
            gap = round(rates[1] - rates[0], 2)
            values = (name, PARITY, 0.0, rates[0], gap, 0.5, 1, n_streams)
            yield values, partial(reference, name, rates, n_streams)
    elif case == "drift":
        yield from drift_jobs(n_streams)
    for setting in SETTINGS:
        if setting.case == case:
            key = (case, PARITY, *setting[1:], 1, n_streams)
            yield key, partial(measured, setting, n_streams)


def main() -> None:
    """Do the missing runs."""
    parser = command(__doc__, "results/monitoring.csv")
    choices = ["slack", "twice", "later", "drift", "reference", "speed"]
    parser.add_argument("--cases", nargs="+", choices=choices, default=choices)
    parser.add_argument("--streams", type=int, default=1000)
    options = parser.parse_args()
    for case in options.cases:
        complete(options.output, KEY, MEASURED, jobs(case, options.streams))


if __name__ == "__main__":
    main()

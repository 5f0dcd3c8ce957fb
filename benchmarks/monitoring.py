"""False alarms, delays and the speed of ``FairnessMonitor``, looked at after every row.

    python -m benchmarks.monitoring
    python -m benchmarks.monitoring --cases slack --streams 100
    python -m benchmarks.monitoring --cases reference --reference methods.py

Streams of rows of two groups, of which the second has the larger rate of positive decisions:

- ``slack``: the gap is the slack: an alarm is false,
- ``twice``: the gap is twice the slack,
- ``later``: there is no gap for half of the rows, and then twice the slack,
- ``reference``: the streams of Figure 1 of Chugg et al. (2023), at a slack of zero: beside the
  monitor their own bets, by online Newton steps, which are implemented here again. With
  ``--reference`` the file ``methods.py`` of github.com/bchugg/auditing-fairness runs on the same
  streams, and must reject after the same row,
- ``speed``: processor seconds of updates of one row.

Rows are paired by the package as they come; fifty streams have their groups in the same order. The
bets of a whole stream are then counted at once, which a test compares with a monitor that is
updated row by row. A fixed sample's test is the one-sided z-test of the gap with known variance, at
the same level and one look; its rows are those that it needs for a power of 80 and 95 %.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from tqdm.auto import tqdm

from benchmarks.command import Job, command, complete
from fairconstrained.monitoring import FairnessMonitor
from fairconstrained.monitoring.betting import FROM_THE_START, LATER, Bets, Comparison, of_gap
from fairconstrained.monitoring.monitor import FIRST_ROWS, FOR_FIRST

Array = NDArray[Any]
ALPHA = 0.05
N_ROWS = 20_000
KEY = ("case", "slack", "rate", "gap", "share", "streams")
MEASURED = ("alarms", "median", "rows_80", "rows_95", "seconds")
PER_ORDER = 50  # streams in which the groups come in the same order


class Setting(NamedTuple):
    """Two groups: the rate of the first, that of the second is larger by the gap."""

    case: str
    slack: float
    rate: float
    gap: float
    share: float  # of the rows that are of the first group

    def streams(self, rng: np.random.Generator, n_rows: int, n: int) -> tuple[Array, Array]:
        """Outcomes (n_rows, n), and whether rows are of the second group, as in all n streams."""
        second = (rng.random(n_rows) >= self.share).astype(int)
        rate = self.rate + self.gap * second
        if self.case == "later":
            rate[: n_rows // 2] = self.rate
        return (rng.random((n_rows, n)) < rate[:, None]).astype(np.int8), second

    def fixed_rows(self, power: float) -> float:
        """Rows that the z-test needs."""
        p, q = self.rate, self.rate + self.gap
        variance = p * (1 - p) / self.share + q * (1 - q) / (1 - self.share)
        return variance * float((norm.isf(ALPHA) + norm.ppf(power)) / (self.gap - self.slack)) ** 2


SETTINGS = [
    Setting(case, 0.05, rate, gap, share)
    for case, gap in (("slack", 0.05), ("twice", 0.1), ("later", 0.1))
    for rate, share in ((0.3, 0.5), (0.3, 0.2), (0.05, 0.5))
]
# The rates of the two groups in Figure 1; the legend has 0.1 for the third gap.
REFERENCE = [(0.7, 0.4), (0.4, 0.9), (0.4, 0.55), (0.4, 0.4)]
REFERENCE_ALPHA, REFERENCE_ROWS = 0.01, 300


def evidence(outcomes: Array, second: Array, slack: float) -> Array:
    """Of monitors after every row, (n_rows, n_streams)."""
    bets = Bets.on(of_gap(slack))
    comparison = Comparison(bets)
    none = outcomes[:0]
    comparison.waiting = [none, none]
    cells = []
    both = max(second.argmax(), (1 - second).argmax())  # the row that begins the comparison
    for row, is_second in enumerate(second.tolist()):
        new = outcomes[row : row + 1] if row >= both else none
        cells.append(comparison.pair(*((none, new) if is_second else (new, none))))
    n_blocks = np.cumsum([len(block) for block in cells])
    begun, _ = comparison.begun(n_blocks[-1])
    left = LATER / (LATER + np.arange(n_blocks[-1] + 1))
    found = [_wealth(blocks, bets, begun, left) for blocks in np.concatenate(cells).T]
    return np.asarray(1.0 - FOR_FIRST + FOR_FIRST * np.stack(found, axis=1)[n_blocks])


def _wealth(blocks: Array, bets: Bets, begun: Array, left: Array) -> Array:
    """Of a comparison before the first of these blocks and after each of them."""
    logs = np.cumsum(bets.growth[blocks], axis=0)
    before = np.vstack((np.zeros(logs.shape[1]), logs[:-1]))
    late = logs + np.logaddexp.accumulate(np.log(begun) - before, axis=0)
    early, late = (np.exp(np.minimum(values, 300.0)) for values in (logs, late))
    early, late = np.append(1.0, early @ bets.shares), np.append(0.0, late.sum(axis=1))
    return np.asarray(FROM_THE_START * early + (1.0 - FROM_THE_START) * (late + left))


def alarms_at(outcomes: Array, second: Array, slack: float, alpha: float = ALPHA) -> Array:
    """Number of rows at the first alarm of each stream; infinite without one."""
    alarms = evidence(outcomes, second, slack) >= 1 / alpha
    alarms[: FIRST_ROWS - 1] = False
    return np.where(alarms.any(axis=0), alarms.argmax(axis=0) + 1, np.inf)


def measured(setting: Setting, n_streams: int) -> dict[str, Any]:
    """Alarms and delays in all streams of a setting."""
    start, rng = time.process_time(), np.random.default_rng(0)
    n_rows = 2 * N_ROWS if setting.case == "later" else N_ROWS
    found = np.concatenate(
        [
            alarms_at(*setting.streams(rng, n_rows, min(n_streams, PER_ORDER)), setting.slack)
            for _ in tqdm(range(0, n_streams, PER_ORDER), desc=setting.case, leave=False)
        ]
    )
    alarms = np.isfinite(found).mean()
    if setting.case == "later":
        found -= N_ROWS
    row: dict[str, Any] = {"alarms": alarms, "median": np.median(found)}
    if setting.gap > setting.slack:
        row |= {f"rows_{power}": round(setting.fixed_rows(power / 100)) for power in (80, 95)}
    return {**row, "seconds": round(time.process_time() - start, 1)}


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
def rejections(rates: tuple[float, float], n_streams: int, path: Path | None) -> dict[str, Array]:
    """Pairs of rows after which the bets of the paper and of the monitor reject equal rates."""
    published = runpy.run_path(str(path))["test_by_betting"] if path is not None else None
    rng = np.random.default_rng(0)
    theirs, ours = [], []
    for _ in range(n_streams):
        pair = [(rng.random(REFERENCE_ROWS) < rate).astype(np.int8) for rate in rates]
        theirs.append(newton_steps(pair[0], pair[1], REFERENCE_ALPHA))
        if published is not None:
            wealth, verdict = published(*map(list, pair), REFERENCE_ALPHA)
            # At the end a random threshold may reject, too: these are not alarms.
            full = verdict == "reject" and wealth[-1] > 1 / REFERENCE_ALPHA
            assert theirs[-1] == (len(wealth) - 1 if full else None)
        ours.append(np.stack(pair, axis=1).ravel())
    second = np.arange(2 * REFERENCE_ROWS) % 2
    rows = alarms_at(np.stack(ours, axis=1), second, 0.0, REFERENCE_ALPHA)
    never = np.array([np.inf if t is None else t for t in theirs])
    return {"published bets": never, "monitor": rows / 2}


def reference(
    name: str, rates: tuple[float, float], n_streams: int, path: Path | None
) -> dict[str, Any]:
    """Bets of the paper, or of the monitor, on a part of the streams of Figure 1."""
    rejected = rejections(rates, n_streams, path)[name]
    return {"alarms": np.isfinite(rejected).mean(), "median": np.median(rejected)}


def speed(n_updates: int = 100_000) -> dict[str, Any]:
    """Processor seconds of updates of one row."""
    setting = Setting("speed", 0.05, 0.3, 0.0, 0.5)
    outcomes, second = setting.streams(np.random.default_rng(0), n_updates, 1)
    monitor, start = FairnessMonitor(slack=setting.slack), time.process_time()
    for row in range(n_updates):
        one = slice(row, row + 1)
        monitor.update(outcomes[one, 0], sensitive_features=second[one])
    return {"seconds": round(time.process_time() - start, 2), "alarms": float(monitor.alarm_)}


def jobs(case: str, n_streams: int, path: Path | None) -> Iterator[Job]:
    """The key of each run of a case, and how to get its row."""
    if case == "speed":
        yield (case, 0.05, 0.3, 0.0, 0.5, 1), speed
    elif case == "reference":
        for rates, name in product(REFERENCE, ("published bets", "monitor")):
            values = (name, 0.0, rates[0], round(rates[1] - rates[0], 2), 0.5, n_streams)
            yield values, partial(reference, name, rates, n_streams, path)
    for setting in SETTINGS:
        if setting.case == case:
            yield (*setting, n_streams), partial(measured, setting, n_streams)


def main() -> None:
    """Run what is missing."""
    parser = command(__doc__, "results/monitoring.csv")
    choices = ["slack", "twice", "later", "reference", "speed"]
    parser.add_argument("--cases", nargs="+", choices=choices, default=choices)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--reference", type=Path, help="methods.py of the published code")
    options = parser.parse_args()
    for case in options.cases:
        asked = jobs(case, options.streams, options.reference)
        complete(options.output, KEY, MEASURED, asked)


if __name__ == "__main__":
    main()

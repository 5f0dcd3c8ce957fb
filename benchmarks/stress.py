"""Random small problems over all five estimators, with every reported number computed anew.

    python -m benchmarks.stress --trials 100 --seed 0

A trial draws rows, columns, groups, scales and now and then an outlier, and then a notion and a
slack. The checks use numpy and pairs of rows, and nothing of the package but the scores of its
models. They compare each fit with *obvious* ones: constant scores, and the model without
constraints at every threshold, where it exceeds the slack at its own. They also compare it with a
*convex relaxation*: equal mean scores of all groups (zero covariance, Zafar et al. 2017) instead of
equal rates, solved to optimality, and mixtures with the model without constraints.

The table counts, for each estimator, wrong reports of ``violation_`` or ``feasible_``, fits that
are infeasible although an obvious model is feasible, and feasible fits that are worse than an
obvious feasible model by more than `TOLERANCE` in what is measured: the error, or 1 - AUC. A
feasible relaxation may be better by `RELAXED`, since it is one of many heuristics.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import null_space
from sklearn.linear_model import LogisticRegression

from benchmarks import results
from benchmarks.command import command
from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)

TOLERANCE = 1e-3  # a difference of errors that counts as none
RELAXED = 0.01  # a difference from the relaxation that counts as none
ROUNDING = 1e-9  # the only excess over a slack that counts as none
_MIXTURES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)  # with the model without constraints; loosest first
_THRESHOLDS = 100

Floats = NDArray[np.float64]


class Trial(NamedTuple):
    """Rows of a random problem, an estimator for them, and what it promises."""

    estimator: Any
    X: Floats
    y: NDArray[np.int64]
    group: NDArray[np.int64]
    slack: float
    criterion: Callable[[Any, Floats], float]
    gap: Callable[[Any, Any, Any, Floats], float]

    def scored(self, scores: Floats) -> tuple[float, float]:
        """Return the criterion and the violation of scores of all rows."""
        return self.criterion(self.y, scores), self.gap(self.estimator, self.y, self.group, scores)


class Outcome(NamedTuple):
    """The report of a fit, compared with values that were computed anew."""

    wrong: bool  # violation_ or feasible_ differ from the values computed here
    feasible: bool
    infeasible: bool  # although an obvious model is feasible
    worse: float  # than the best obvious feasible model, in the criterion; 0 if infeasible
    than_relaxed: float  # than a feasible relaxation and a row; infinite if only that is feasible
    cpu: float  # seconds


# ------------------------------------------------------------------ notions, from definitions


def spread(values: Any) -> float:
    """Return the largest minus the smallest, without sets that have no rows."""
    known = [value for value in values if not np.isnan(value)]
    return max(known) - min(known) if len(known) > 1 else 0.0


def mean_by_group(values: Floats, group: NDArray[Any], inside: NDArray[np.bool_]) -> list[float]:
    """Return means over the rows of each group that are inside; nan where there are none."""
    sets = [values[(group == g) & inside] for g in np.unique(group)]
    return [float(rows.mean()) if len(rows) else np.nan for rows in sets]


def gap_of_rates(clf: Any, y: Any, group: Any, scores: Floats) -> float:
    """Return the largest gap of rates within the labels that a notion compares."""
    predicted = (scores > 0).astype(float)
    everywhere = np.ones(len(y), dtype=bool)
    within = {
        "demographic_parity": [everywhere],
        "equal_opportunity": [y == 1],
        "false_positive_rate_parity": [y == 0],
        "equalized_odds": [y == 0, y == 1],
        "error_rate_parity": [everywhere],
    }
    values = (predicted != y).astype(float) if clf.constraint == "error_rate_parity" else predicted
    return max(spread(mean_by_group(values, group, inside)) for inside in within[clf.constraint])


def gap_of_losses(clf: Any, y: Any, group: Any, scores: Floats) -> float:
    """Return the largest gap of mean log losses, overall or within labels."""
    losses = np.logaddexp(0.0, np.where(y == 1, -scores, scores))
    everywhere = np.ones(len(y), dtype=bool)
    within = {"loss_parity": [everywhere], "equalized_odds": [y == 0, y == 1]}
    return max(spread(mean_by_group(losses, group, inside)) for inside in within[clf.constraint])


def gap_of_aucs(clf: Any, y: Any, group: Any, scores: Floats) -> float:
    """Return the largest gap of AUCs, from all pairs of rows."""
    above = np.sign(scores[:, None] - scores) / 2 + 0.5

    def auc(first: Any, second: Any) -> float:
        pairs = above[np.ix_(first, second)]
        return float(pairs.mean()) if pairs.size else np.nan

    sets = [group == g for g in np.unique(group)]
    pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :]]
    gaps = {
        "group_auc": lambda: [auc(a, b) - 0.5 for a, b in pairs],
        "intra_group": lambda: [auc(a & p, a & n) - auc(b & p, b & n) for a, b in pairs],
        "inter_group": lambda: [auc(a & p, b & n) - auc(b & p, a & n) for a, b in pairs],
        "positive_equality_gap": lambda: [auc(a & p, p) - 0.5 for a in sets],
    }
    p, n = y == 1, y == 0
    return max(abs(gap) for gap in [0.0, *gaps[clf.constraint]()] if not np.isnan(gap))


def gap_of_scores(clf: Any, y: Any, group: Any, scores: Floats) -> float:
    """Return the largest gap of score distributions in the interval, at all thresholds or at 0.

    Groups with less than a row in the interval are left out, of which a warning tells.
    """
    low, high = clf.interval
    thresholds = np.array([0.0]) if clf.constraint != "statistical_parity" else np.unique(scores)
    inside = y == 1 if clf.constraint == "equal_opportunity" else np.ones(len(y), dtype=bool)
    ranks = [
        (scores[(group == g) & inside][:, None] > thresholds).mean(axis=0)
        for g in np.unique(group)
        if ((group == g) & inside).sum() * (high - low) >= 1
    ]
    found = [(rank.clip(low, high) - low) / (high - low) for rank in ranks]
    return float(np.ptp(found, axis=0).max()) if found else 0.0


def error(y: Any, scores: Floats) -> float:
    """Return the fraction of wrong labels."""
    return float(np.mean((scores > 0) != y))


def misranked(y: Any, scores: Floats) -> float:
    """Return 1 - AUC of positives against negatives, from all pairs."""
    differences = np.sign(scores[y == 1][:, None] - scores[y == 0])
    return float(0.5 - differences.mean() / 2)


# ------------------------------------------------------------------ random problems


def rows_of(rng: np.random.Generator) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Draw rows: groups differ in size, in columns and in labels."""
    n, d = int(np.exp(rng.uniform(np.log(30), np.log(1500)))), int(rng.integers(1, 13))
    n_groups = int(rng.choice([2, 2, 3, 5]))
    group = rng.choice(n_groups, size=n, p=rng.dirichlet(np.full(n_groups, 5.0)))
    means = rng.normal(size=(n_groups, d)) * rng.choice([0.2, 1.0, 2.0])
    X = rng.normal(size=(n, d)) + means[group]
    log_odds = X @ rng.normal(size=d) * rng.choice([0.5, 1.0, 3.0]) + rng.normal()
    log_odds += rng.normal(size=n_groups)[group]
    y = (rng.uniform(size=n) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
    y[:2] = 0, 1
    X = X * np.exp(rng.normal(size=d) * rng.choice([0.0, 2.0]))
    if rng.uniform() < 0.05:
        X[rng.integers(n), rng.integers(d)] = 1e15 * rng.choice([-1, 1])
    return X, y, group


class Kind(NamedTuple):
    """An estimator with its notions, its parameters, and what is measured anew."""

    estimator: Any
    notions: list[str]
    params: Callable[[np.random.Generator, float], dict[str, Any]]
    criterion: Callable[[Any, Floats], float]
    gap: Callable[..., float]


def _slack(rng: np.random.Generator, slack: float) -> dict[str, Any]:
    return {"slack": slack}


def _interval(rng: np.random.Generator, slack: float) -> dict[str, Any]:
    low = float(rng.choice([0.0, 0.1, 0.3]))
    return {"slack": slack, "interval": (low, low + float(rng.choice([0.2, 0.3, 0.5])))}


def _penalty(rng: np.random.Generator, slack: float) -> dict[str, Any]:
    return {"epsilon": None, "penalty": float(rng.choice([0.0, 1.0, 20.0]))}


RATES = ["demographic_parity", "equalized_odds", "equal_opportunity", "error_rate_parity"]
LOSSES = ["loss_parity", "equalized_odds"]
PARTIAL = ["statistical_parity", "demographic_parity", "equal_opportunity"]
AUCS = ["group_auc", "inter_group", "intra_group", "positive_equality_gap"]
ESTIMATORS = {
    "rates": Kind(RateConstrainedClassifier, RATES, _slack, error, gap_of_rates),
    "losses": Kind(LossParityClassifier, LOSSES, _slack, error, gap_of_losses),
    "partial": Kind(PartialParityClassifier, PARTIAL, _interval, error, gap_of_scores),
    "auc": Kind(AUCFairClassifier, AUCS, _slack, misranked, gap_of_aucs),
    "fermi": Kind(DPFermiClassifier, RATES[:3], _penalty, error, gap_of_rates),
}


def trials(kind: str, n: int, seed: int) -> Iterator[Trial]:
    """Yield random problems for one of `ESTIMATORS`, equal for equal seeds."""
    for i in range(n):
        rng = np.random.default_rng([seed, list(ESTIMATORS).index(kind), i])
        X, y, group = rows_of(rng)
        slack = float(rng.choice([1e-4, 0.01, 0.05, 0.1, 0.3]))
        estimator, notions, params, criterion, gap = ESTIMATORS[kind]
        clf = estimator(str(rng.choice(notions)), min_group_size=1, **params(rng, slack))
        yield Trial(clf, X, y, group, slack, criterion, gap)


# ------------------------------------------------------------------ checks


def check(trial: Trial) -> Outcome:
    """Fit, compute all values anew, and compare with obvious models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        fitted = trial.estimator.fit(trial.X, trial.y, sensitive_features=trial.group)
        cpu = time.process_time() - start
        scores = fitted.decision_function(trial.X)
    criterion, violation = trial.scored(scores)
    excess = violation - trial.slack
    penalised = isinstance(fitted, DPFermiClassifier)
    feasible = penalised or excess <= ROUNDING
    reported = 0.0 if np.isnan(fitted.violation_) else fitted.violation_
    wrong = abs(reported - violation) > ROUNDING or fitted.feasible_ != feasible
    if penalised:  # nothing is constrained
        return Outcome(bool(wrong), True, False, 0.0, 0.0, cpu)
    best, relaxation = (
        min((c for c, v in rivals(trial) if v <= trial.slack), default=np.inf)
        for rivals in (obvious, relaxed)
    )
    return Outcome(
        bool(wrong),
        bool(feasible),
        bool(not feasible and best < np.inf),
        max(float(criterion - best), 0.0) if feasible else 0.0,
        _beyond_a_row(criterion if feasible else np.inf, relaxation, len(trial.y)),
        cpu,
    )


def _beyond_a_row(criterion: float, rival: float, n_rows: int) -> float:
    """Return the excess of a criterion over another, less the part that one row may add."""
    return max(float(criterion - rival) - 1.0 / n_rows, 0.0) if rival < np.inf else 0.0


def obvious(trial: Trial) -> Iterator[tuple[float, float]]:
    """Yield criterion and violation of constant scores and of the model without constraints.

    The latter at all thresholds, but for those between scores that are equal but for rounding.
    """
    n = len(trial.y)
    for constant in (-1.0, 1.0, -ROUNDING, ROUNDING):
        yield trial.scored(np.full(n, constant))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = trial.estimator.fit(trial.X, trial.y).decision_function(trial.X)
    yield trial.scored(scores)
    if trial.scored(scores)[1] > trial.slack and not isinstance(trial.estimator, AUCFairClassifier):
        low, high = np.unique(scores)[:-1], np.unique(scores)[1:]
        apart = high - low > ROUNDING * (np.abs(high) + np.abs(low))
        for threshold in (low[apart] + high[apart]) / 2:
            yield trial.scored(scores - threshold)


def relaxed(trial: Trial) -> Iterator[tuple[float, float]]:
    """Yield criterion and violation of the loosest relaxation that the slack allows.

    A bound is a mixture of zero covariance with the model without constraints. If zero covariance
    exceeds the slack, it is moved to other thresholds, which are quantiles of its scores.
    """
    X = (trial.X - trial.X.mean(axis=0)) / np.maximum(trial.X.std(axis=0), 1e-300)
    everywhere = np.ones(len(trial.y), dtype=bool)
    of_labels = {
        "equalized_odds": [trial.y == 0, trial.y == 1],
        "equal_opportunity": [trial.y == 1],
        "intra_group": [trial.y == 0, trial.y == 1],
        "inter_group": [trial.y == 0, trial.y == 1],
    }
    gaps = [
        X[inside & (trial.group == g)].mean(axis=0) - X[inside].mean(axis=0)
        for inside in of_labels.get(trial.estimator.constraint, [everywhere])
        for g in np.unique(trial.group[inside])
    ]
    equal = null_space(np.array(gaps), rcond=1e-9)
    free = LogisticRegression(C=1e4 / len(X)).fit(X, trial.y).decision_function(X)
    if not equal.shape[1]:
        return
    fair = LogisticRegression(C=1e4 / len(X)).fit(X @ equal, trial.y).decision_function(X @ equal)
    for mixture in _MIXTURES:
        point = trial.scored(mixture * free + (1.0 - mixture) * fair)
        if point[1] <= trial.slack:
            yield point
            return
    if not isinstance(trial.estimator, AUCFairClassifier):
        for threshold in np.quantile(fair, np.linspace(0.005, 0.995, _THRESHOLDS)):
            yield trial.scored(fair - threshold)


def summary(outcomes: pd.DataFrame) -> dict[str, str]:
    """Return the row of the table about the outcomes of one estimator."""
    worse, cpu = outcomes["worse"], outcomes["cpu"]
    relaxation = outcomes.get("than_relaxed", worse * np.nan)  # not in the runs of earlier days
    return {
        "fits": str(len(outcomes)),
        "wrong reports": str(outcomes["wrong"].sum()),
        "feasible": str(outcomes["feasible"].sum()),
        "infeasible, an obvious model feasible": str(outcomes["infeasible"].sum()),
        "worse than an obvious model": str((worse > TOLERANCE).sum()),
        "worse by more than 0.01": str((worse > 0.01).sum()),
        "largest difference": f"{worse.max():.3f}",
        "worse than the relaxation by 0.01": str((relaxation > RELAXED).sum()),
        "processor seconds, median": f"{cpu.median():.2f}",
        "processor seconds, largest": f"{cpu.max():.1f}",
    }


def main() -> None:
    """Write the outcomes and print the table."""
    parser = command(__doc__)
    parser.add_argument("--trials", type=int, default=100, help="of each estimator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    options = parser.parse_args()
    rows = (
        {
            "estimator": kind,
            "notion": trial.estimator.constraint,
            "slack": trial.slack,
            **check(trial)._asdict(),
        }
        for kind in options.estimators
        for trial in trials(kind, options.trials, options.seed)
    )
    found = results.save(options.output / "stress.csv", rows)
    by_estimator = found.groupby("estimator", sort=False)
    print(
        results.markdown(
            pd.DataFrame({"estimator": kind} | summary(of) for kind, of in by_estimator)
        )
    )


if __name__ == "__main__":
    main()

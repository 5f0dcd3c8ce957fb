"""Audit of whole private trainings: what do fitted estimators give away of one row?

    python -m benchmarks.audit
    python -m benchmarks.audit --trainings 20000 --cases gaussian laplace

Each case trains many times with and without a canary row that no other row resembles, or with it in
one group and in another, and bounds epsilon from below by telling the two apart from what fitted
models tell. The bound must stay under
the claim; that of a case broken on purpose exceeds it given enough trainings: 2,000 see a missing
clip, and 4,000 noise of a tenth too. tests/privacy/test_privacy_audit.py audits single releases,
which is sharper; here nothing but ``fit`` is called.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier
from tqdm.auto import tqdm

from benchmarks import results
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import LinearModel, Posteriors
from fairconstrained.privacy import Gaussian
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import ADD_NOISE
from fairconstrained.solvers import DPSGDA

EPSILON, DELTA = 3.0, 0.01  # thousands of trainings say little about rarer events
N_ROWS = 40
GROUP_ROWS = 600  # fewer are left out, where released counts cannot tell them from none
# With small steps the canary's gradient keeps its full norm from the first step to the last.
SOLVER = DPSGDA(step_size=0.01, n_steps=8, sampling_rate=0.5)


PRIVATE = {"epsilon": EPSILON, "delta": DELTA, "min_group_size": 1}


def of_records(with_canary: bool, seed: int, **params: Any) -> RateConstrainedClassifier:
    """Train on equal rows and, as the last one, the canary: alone in having the second feature."""
    n = N_ROWS + with_canary
    X = np.zeros((n, 2))
    X[:N_ROWS, 0], X[N_ROWS:, 1] = 0.1, 100.0
    y = np.arange(n) % 2
    groups = np.where(np.arange(n) < N_ROWS // 2, "a", "b")
    params = {"slack": 0.5, "solver": SOLVER, **PRIVATE, **params}
    model = RateConstrainedClassifier(random_state=seed, **params)
    return model.fit(X, y, sensitive_features=groups)


def on_public_models(with_canary: bool, seed: int) -> RateConstrainedClassifier:
    """As above; public stumps have the canary's label and group for sure, and no other row's."""
    X, far = [[0.1, 0.0], [0.0, 100.0]], ["b", "a"]
    stumps = (DecisionTreeClassifier(max_depth=1, random_state=0).fit(X, t) for t in ([0, 1], far))
    return of_records(with_canary, seed, model=Posteriors(*map(FrozenEstimator, stumps)))


def of_groups(changed: bool, seed: int) -> RateConstrainedClassifier:
    """Train on equal rows and the canary, whose group alone is secret, and changed."""
    n = GROUP_ROWS + 1
    X = np.zeros((n, 2))
    X[:-1, 0], X[-1, 1] = 0.1, 100.0
    groups = np.where(np.arange(n) < n // 2, "a", "b")
    groups[-1] = "ba"[changed]
    model = RateConstrainedClassifier(
        slack=0.0, protect="sensitive_features", random_state=seed, **PRIVATE
    )
    return model.fit(X, np.arange(n) % 2, sensitive_features=groups)


def of_own_column(model: RateConstrainedClassifier) -> float:
    """The coefficient of the column that the canary alone has."""
    return float(model.coef_[0, 1])


def of_log_odds(model: RateConstrainedClassifier) -> float:
    """The coefficient of the first column of posteriors, to which the canary adds most."""
    return float(model.coef_[0, 0])


def which_group_is_ahead(model: RateConstrainedClassifier) -> float:
    """Multipliers say whose rate is above: without the canary all rates are equal."""
    ahead: float = -np.diff(model.multipliers_)[0]
    return ahead


def too_little_noise() -> Any:
    """A tenth of the noise that the plan says."""
    honest = ADD_NOISE[Gaussian]
    return mock.patch.dict(
        ADD_NOISE, {Gaussian: lambda value, deviation, rng: honest(value, deviation / 10, rng)}
    )


def no_clip() -> Any:
    """Gradients of thirty times the norm that the noise is made for."""
    honest = LinearModel.linearize_rows

    def unclipped(self: LinearModel, w: Any, X: Any) -> Any:
        scores, clipped = honest(self, w, X)
        return scores, lambda cotangent, max_norm: clipped(30 * cotangent, 30 * max_norm)

    return mock.patch.object(LinearModel, "linearize_rows", unclipped)


LAPLACE = clone(SOLVER).set_params(histogram_noise="laplace")


class Case(NamedTuple):
    """A training with the canary or without it, what it tells, and what is broken."""

    fitted: Callable[[bool, int], RateConstrainedClassifier]
    told: Callable[[RateConstrainedClassifier], float] = of_own_column
    broken: Callable[[], Any] = nullcontext


CASES = {
    "gaussian": Case(of_records),
    "laplace": Case(partial(of_records, solver=LAPLACE)),
    "public models": Case(on_public_models, of_log_odds),
    "groups alone secret": Case(of_groups, which_group_is_ahead),
    "too little noise": Case(of_records, broken=too_little_noise),
    "too little noise, public models": Case(on_public_models, of_log_odds, too_little_noise),
    "too little noise, groups": Case(of_groups, which_group_is_ahead, too_little_noise),
    "no clip": Case(of_records, broken=no_clip),
}


@contextmanager
def quiet() -> Iterator[None]:
    """Forty rows bring every warning there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def statistics(case: str, n_trainings: int, seed: int) -> list[NDArray[np.float64]]:
    """What fitted models tell, without the canary and with it."""
    fitted, told, broken = CASES[case]
    runs = [(with_canary, i) for i in range(n_trainings) for with_canary in (False, True)]
    values = np.empty((2, n_trainings))
    with quiet(), broken():
        for with_canary, i in tqdm(runs, desc=case, unit="fit"):
            values[int(with_canary), i] = told(fitted(with_canary, seed + 2 * i + with_canary))
    return list(values)


def main(argv: Sequence[str] | None = None) -> None:
    """Write and print a bound for each case."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trainings", type=int, default=4_000, help="on each of the two data sets")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args(argv)
    rows = []
    for case in options.cases:
        with quiet():
            claim = CASES[case].fitted(True, 0).privacy_.epsilon
        without, with_canary = statistics(case, options.trainings, options.seed)
        bound = epsilon_lower_bound(without, with_canary, delta=DELTA)
        rows.append({"case": case, "trainings": options.trainings, "claim": claim, "bound": bound})
        print(f"{case}: epsilon {claim:.3f} claimed, at least {bound:.3f} (99 % confidence)")
    results.save(options.output / "audit.csv", rows)


if __name__ == "__main__":
    main()

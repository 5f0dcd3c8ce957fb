"""Audit of whole private trainings: what do fitted estimators give away of one row?

    python -m benchmarks.audit
    python -m benchmarks.audit --trainings 20000 --cases gaussian laplace

Each case trains many times with and without a canary row that no other row resembles, and bounds
epsilon from below by telling the two apart from the fitted coefficients. The bound must stay under
the claim; that of a case broken on purpose exceeds it given enough trainings: 2,000 see a missing
clip, and 4,000 noise of a tenth too. tests/privacy/test_privacy_audit.py audits single releases,
which is sharper; here nothing but ``fit`` is called.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from tqdm.auto import tqdm

from benchmarks import results
from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import LinearModel
from fairconstrained.privacy import Gaussian
from fairconstrained.privacy.audit import epsilon_lower_bound
from fairconstrained.privacy.mechanisms import ADD_NOISE
from fairconstrained.solvers import DPSGDA

EPSILON, DELTA = 3.0, 0.01  # thousands of trainings say little about rarer events
N_ROWS = 40
# With small steps the canary's gradient keeps its full norm from the first step to the last.
SOLVER = DPSGDA(step_size=0.01, n_steps=8, sampling_rate=0.5)


def fitted(with_canary: bool, histogram_noise: str, seed: int) -> RateConstrainedClassifier:
    """Train on equal rows and, as the last one, the canary: alone in having the second feature."""
    n = N_ROWS + with_canary
    X = np.zeros((n, 2))
    X[:N_ROWS, 0], X[N_ROWS:, 1] = 0.1, 100.0
    y = np.arange(n) % 2
    groups = np.where(np.arange(n) < N_ROWS // 2, "a", "b")
    model = RateConstrainedClassifier(
        slack=0.5,
        epsilon=EPSILON,
        delta=DELTA,
        min_group_size=1,
        solver=clone(SOLVER).set_params(histogram_noise=histogram_noise),
        random_state=seed,
    )
    return model.fit(X, y, sensitive_features=groups)


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


# Noise of the tables, and what is broken.
CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "gaussian": ("gaussian", nullcontext),
    "laplace": ("laplace", nullcontext),
    "too little noise": ("gaussian", too_little_noise),
    "no clip": ("gaussian", no_clip),
}


@contextmanager
def quiet() -> Iterator[None]:
    """Forty rows bring every warning there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def statistics(case: str, n_trainings: int, seed: int) -> list[NDArray[np.float64]]:
    """Coefficient of the canary's feature, without and with it."""
    noise, broken = CASES[case]
    runs = [(with_canary, i) for i in range(n_trainings) for with_canary in (False, True)]
    values = np.empty((2, n_trainings))
    with quiet(), broken():
        for with_canary, i in tqdm(runs, desc=case, unit="fit"):
            model = fitted(with_canary, noise, seed + 2 * i + with_canary)
            values[int(with_canary), i] = model.coef_[0, 1]
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
    with quiet():
        claim = fitted(True, "gaussian", 0).privacy_.epsilon
    rows = []
    for case in options.cases:
        without, with_canary = statistics(case, options.trainings, options.seed)
        bound = epsilon_lower_bound(without, with_canary, delta=DELTA)
        rows.append({"case": case, "trainings": options.trainings, "claim": claim, "bound": bound})
        print(f"{case}: epsilon {claim:.3f} claimed, at least {bound:.3f} (99 % confidence)")
    results.save(options.output / "audit.csv", rows)


if __name__ == "__main__":
    main()

"""Private fits on shards: the fit of one worker with all rows, at the same price."""

import os
import warnings
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    distributed,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.distributed import sharded_rows
from fairconstrained.exceptions import WorkerError
from fairconstrained.solvers import DPFERMI, DPSGDA, LBFGS, NoisyTables, ReleasedMoments
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.shards import fitted as attributes_of
from tests.helpers.shards import same_on_all, shard

pytestmark = [pytest.mark.slow, needs_gloo]

N = 1000
DATA = make_biased_classification(N, 6, bias=0.6, random_state=0)
GROUP = np.asarray(DATA.sensitive_features)
ROWS = DATA.data, DATA.target, GROUP, 2.0 + (GROUP.max() == GROUP)
RECORDS = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
RANGE = np.full(6, -4.0), np.full(6, 4.0)
ALL_ROWS = {  # batches of all rows are the same, however they are drawn
    "rates": RateConstrainedClassifier(solver=DPSGDA(n_steps=10, sampling_rate=1.0), **RECORDS),
    "odds, a public range and Laplace noise": RateConstrainedClassifier(
        "equalized_odds",
        feature_range=RANGE,
        solver=DPSGDA(n_steps=10, sampling_rate=1.0, histogram_noise="laplace"),
        **RECORDS,
    ),
    "penalty": DPFermiClassifier(
        protect="record", solver=NoisyTables(n_steps=10, batch_size=N), **RECORDS
    ),
    "partial parity": PartialParityClassifier(
        feature_range=RANGE, solver=DPSGDA(n_steps=5, sampling_rate=1.0), **RECORDS
    ),
    "ranking": AUCFairClassifier(feature_range=RANGE, **RECORDS),
    "secret groups, rates and weights": RateConstrainedClassifier(
        "equal_opportunity",
        protect="sensitive_features",
        solver=ReleasedMoments(n_rounds=2),
        **RECORDS,
    ),
    "secret groups, weights": DPFermiClassifier(
        penalty=4.0, solver=ReleasedMoments(n_rounds=2), **RECORDS
    ),
    "secret groups, odds, and few of many components": DPFermiClassifier(
        "equalized_odds",
        solver=ReleasedMoments(n_rounds=2, n_components=3, inner=LBFGS()),
        **RECORDS,
    ),
    "secret groups, all left out": DPFermiClassifier(min_group_size=2 * N, **RECORDS),
    "steps on secret groups": DPFermiClassifier(
        solver=DPFERMI(n_steps=10, batch_size=N), **RECORDS
    ),
}
BATCHES = {
    "batches of the system": RateConstrainedClassifier(solver=DPSGDA(n_steps=30), epsilon=1.0),
    "a random point": DPFermiClassifier(
        protect="record_replacement", solver=DPFERMI(n_steps=10, output="random"), **RECORDS
    ),
    "secret groups, noise of the system": DPFermiClassifier(
        "equal_opportunity", solver=ReleasedMoments(n_rounds=1)
    ),
}


def fitted(case, rank, size):
    """Weights, where there are any, are larger on the last worker."""
    X, y, group, weight = shard(ROWS, rank, size)
    clf, weight = {**ALL_ROWS, **BATCHES}[case], weight if "weights" in case else None
    return {**attributes_of(clf, (X, y, group, weight)), "privacy": clf.privacy_}


def all_fits(rank, size):
    with sharded_rows():
        return {case: fitted(case, rank, size) for case in (*ALL_ROWS, *BATCHES)}


@pytest.fixture(scope="module")
def on_workers(tmp_path_factory):
    return run_on_workers(all_fits, tmp_path_factory.mktemp("private"), 2, 2)


@pytest.mark.parametrize("case", ALL_ROWS)
def test_workers_find_what_one_worker_finds_on_all_rows(on_workers, case):
    """For one seed: the same noise, drawn once, on the same sums."""
    found = same_on_all(on_workers, case)
    one = fitted(case, 0, 1)
    assert found["privacy"] == one["privacy"]
    for name in ("coef", "intercept", "multipliers", "violation"):
        np.testing.assert_allclose(found[name], one[name], rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", BATCHES)
def test_batches_of_all_workers_cost_what_those_of_one_worker_cost(on_workers, case):
    found = same_on_all(on_workers, case)
    one = fitted(case, 0, 1)
    assert found["privacy"] == one["privacy"] == BATCHES[case].planned_privacy(N)


def said(call):
    """The error of a call in words, and whether it says that a budget is spent."""
    try:
        call()
    except (ValueError, WorkerError) as error:
        notes = getattr(error, "__notes__", [])
        spent = getattr(error, "privacy", None)
        return f"{type(error).__name__}: {error}", spent, any("are spent" in n for n in notes)
    return "no error"


def troubles(rank, size):
    """What each worker is told; at last what one is told when the other dies."""
    X, y, group, _ = shard(ROWS, rank, size)
    first = rank == 0

    def fit(X=X, y=y, group=group, weight=None, **params):
        clf = RateConstrainedClassifier(
            **{"epsilon": 1.0, "solver": DPSGDA(n_steps=30), "random_state": 0, **params}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf.fit(X, y, sensitive_features=group, sample_weight=weight)

    def dies(iterate):
        if not first:
            os._exit(3)

    categories = ["a", "b"] if first else ["a", "b", "c"]
    declared = pd.Series(pd.Categorical(np.where(group == group[0], "a", "b"), categories))
    narrow = RANGE if first else (RANGE[0], 0.5 * RANGE[1])
    with sharded_rows():
        distributed._PATIENCE = timedelta(seconds=1)
        return {
            "weights on one": said(lambda: fit(weight=None if first else np.ones(len(y)))),
            "ranges": said(lambda: fit(feature_range=narrow)),
            "categories": said(lambda: fit(group=declared)),
            "planned": said(lambda: RateConstrainedClassifier(epsilon=1.0).planned_privacy(N)),
            "death": said(lambda: fit(callbacks=dies)),
        }


def test_what_is_wrong_is_said_on_all_before_anything_is_released(tmp_path):
    """The second worker dies in the last fit, after releases: the first is told what is spent."""
    found, nothing = run_on_workers(troubles, tmp_path, 2, 2)
    assert nothing is None
    for case, words in {
        "weights on one": "worker 1 of 2 raised ValueError: sample_weight must be None",
        "ranges": "ValueError: workers must agree in their parameters: worker 0 has",
        "categories": "workers must agree in their categories of y and sensitive_features",
        "planned": "must be called outside of sharded_rows",
    }.items():
        message, spent, _ = found[case]
        assert words in message
        assert spent is None

    message, spent, is_noted = found["death"]
    assert message.startswith("WorkerError: worker 0 of 2 cannot go on: worker 1 gave no heartbeat")
    assert 0 < spent.epsilon <= 1.0
    assert is_noted

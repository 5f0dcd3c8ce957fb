"""Fits on shards: several workers find the model that one worker finds on all rows."""

import os
import warnings
from datetime import timedelta

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.distributed as dist
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    RateConstrainedClassifier,
    distributed,
)
from fairconstrained.constraints import EqualizedOdds, FalseNegativeRate
from fairconstrained.distributed import sharded_rows
from fairconstrained.exceptions import WorkerError
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.shards import fitted, same_on_all, shard, table

pytestmark = [pytest.mark.slow, needs_gloo]


def three_classes():
    X, _, group, weight = table()
    return X, np.digitize(X[:, 0], [-0.5, 0.5]), group, weight


def sparse_table():
    X, y, group, weight = table()
    return sp.csr_array(np.where(np.abs(X) > 1.5, X, 0.0)), y, group, weight


def crossed():
    """Two columns of groups, of which the first is partly known."""
    X, y, group, weight = table()
    rng = np.random.default_rng(5)
    first = np.where(rng.random(len(y)) < 0.4, None, group.astype(object))
    return X, y, np.column_stack((first, rng.integers(2, size=len(y)))), weight


CASES = {
    "several": (
        table,
        lambda: RateConstrainedClassifier(
            [EqualizedOdds(0.05), FalseNegativeRate(max=0.3, pos_label="yes")]
        ),
    ),
    "margin": (table, lambda: RateConstrainedClassifier(slack=0.1, margin=1.0)),
    "penalty": (table, lambda: DPFermiClassifier(epsilon=None)),
    "three classes": (three_classes, lambda: RateConstrainedClassifier(slack=0.03)),
    "sparse": (sparse_table, lambda: LossParityClassifier(slack=0.02)),
    "two columns of groups": (crossed, lambda: LossParityClassifier(slack=0.01)),
}


def all_cases(rank, size):
    with sharded_rows():
        return {
            name: fitted(make(), shard(data(), rank, size)) for name, (data, make) in CASES.items()
        }


@pytest.fixture(scope="module")
def on_workers(tmp_path_factory):
    return run_on_workers(all_cases, tmp_path_factory.mktemp("shards"), 2, 2)


@pytest.mark.parametrize("case", CASES)
def test_workers_find_what_one_worker_finds_on_all_rows(on_workers, case):
    """To 1e-8 in the coefficients of standardised columns; to the last bit among workers.

    In cases in which another order of the rows changes one worker's result by no more.
    """
    data, make = CASES[case]
    X, y, *others = data()
    one = fitted(make(), (X, y, *others))
    first = same_on_all(on_workers, case)
    assert first["status"] == one["status"]
    assert first["classes"].tolist() == one["classes"].tolist()
    assert first["groups"].tolist() == one["groups"].tolist()
    spread = np.sqrt((X.multiply(X) if sp.issparse(X) else X**2).mean(axis=0))
    for name, unit in (("coef", spread), ("intercept", 1.0), ("multipliers", 1.0)):
        np.testing.assert_allclose(first[name] * unit, one[name] * unit, rtol=0, atol=1e-8)
    assert first["violation"] == pytest.approx(one["violation"], abs=1e-9)


def said(call):
    """The error of a call in words."""
    try:
        call()
    except (ValueError, WorkerError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def troubles(rank, size, path):
    """What each worker is told; at last what one is told when the other dies."""
    X, y, group, _ = shard(table(), rank, size)

    def fit(clf=None, X=X, y=y, group=group):
        clf = LossParityClassifier(slack=0.05) if clf is None else clf
        return lambda: clf.fit(X, y, sensitive_features=group)

    def stops(iterate):
        return rank == 1

    def dies(iterate):
        if rank == 1:
            os._exit(3)

    first = rank == 0
    stopped = LossParityClassifier(slack=0.001, callbacks=stops)
    nan = np.where(np.arange(len(X))[:, None] == 3, np.nan, X)
    with sharded_rows():
        found = {
            "nan on one": said(fit(X=X if first else nan)),
            "parameter": said(fit(LossParityClassifier(slack=0.1 + 0.1 * rank))),
            "columns": said(fit(X=X[:, rank:])),
            "no groups on one": said(fit(group=group if first else None)),
            "one class in all": said(fit(y=np.full(len(y), "yes"))),
            "stream": said(lambda: AUCFairClassifier().partial_fit(X, y, sensitive_features=group)),
            "network": said(fit(RateConstrainedClassifier(model=(4,)))),
            "after all that": said(fit(stopped)),
            "stopped": (stopped.status_, stopped.n_iter_),
        }
        torch.save(found, path / f"{rank}.pt")
        distributed._PATIENCE = timedelta(seconds=1)
        found["death"] = said(fit(LossParityClassifier(slack=0.001, callbacks=dies)))
    if first:
        found["without workers"] = said(alone)
    return found


def alone():
    dist.destroy_process_group()
    with sharded_rows():
        pass


def test_what_is_wrong_on_one_worker_is_said_on_all(tmp_path):
    """Nobody waits for ever, and the next fit works. The second worker dies in the last one."""
    first, second = run_on_workers(troubles, tmp_path, 2, 2, tmp_path)
    assert first["nan on one"].startswith(
        "WorkerError: worker 1 of 2 raised ValueError: Input X contains NaN"
    )
    assert "ValueError: Input X contains NaN" in second["nan on one"]
    for case, words in {
        "parameter": "workers must agree in their parameters: worker 0 has",
        "columns": "workers must agree in their columns of X: worker 0 has (13, None), worker 1",
        "no groups on one": "kind of sensitive_features: worker 0 has groups, worker 1 has None",
        "one class in all": "needs samples of at least 2 classes; the data have only one",
        "stream": "AUCFairClassifier.partial_fit must be called outside of sharded_rows",
        "network": "RateConstrainedClassifier.model must be linear or a fitted classifier",
        "after all that": "no error",
    }.items():
        assert words in first[case]
        assert second[case] == first[case]
    assert first["stopped"] == second["stopped"]
    assert first["stopped"][1] <= 2  # the iterate and, perhaps, a known point in its place
    assert "worker 0 of 2 cannot go on: worker 1 gave no heartbeat within 1 s" in first["death"]
    assert "call torch.distributed.init_process_group first" in first["without workers"]


def heads(rank, size):
    """Heads of fitted classifiers, of two libraries; one is constrained itself."""
    X, y, group, _ = (column[rank::size] for column in table())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = table(seed=1)
        tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(*rows[:2])
        nested = LossParityClassifier().fit(*rows[:2], sensitive_features=rows[2])
        with sharded_rows():
            found = {
                "unfitted": said(
                    lambda: RateConstrainedClassifier(model=clone(tree)).fit(
                        X, y, sensitive_features=group
                    )
                )
            }
            for name, made in {
                "tree": RateConstrainedClassifier(model=FrozenEstimator(tree)),
                "nested": RateConstrainedClassifier(model=FrozenEstimator(nested)),
                "ranking": AUCFairClassifier(model=FrozenEstimator(tree)),
            }.items():
                clf = made.set_params(slack=0.02).fit(X, y, sensitive_features=group)
                found[name] = clf.coef_, clf.predict_proba(table()[0]), clf.violation_
            some, labels, groups, _ = shard(table(), rank, size)  # sorted
            clf = RateConstrainedClassifier(model=FrozenEstimator(tree))
            found["missing"] = said(lambda: clf.fit(some, labels, sensitive_features=groups))
    return found


def test_the_head_of_a_fitted_classifier_learns_on_all_workers(tmp_path):
    """Its calibration, and what tells the groups apart, on the first."""
    first, second = run_on_workers(heads, tmp_path, 2, 2)
    words = "the first worker, which has no rows of group c, label no; group 1, label yes"
    for found in (first, second):
        assert words in found["missing"]
        assert "or a fitted classifier, FrozenEstimator(classifier), within" in found["unfitted"]
    for name in ("tree", "nested", "ranking"):
        coef, probabilities, violation = first[name]
        np.testing.assert_array_equal(second[name][0], coef)
        np.testing.assert_array_equal(second[name][1], probabilities)
        assert second[name][2] == violation <= 0.021

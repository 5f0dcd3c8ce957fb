"""Fits on workers: what one finds on all rows, at the same price; mistakes are told to all."""

import os
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch.distributed as dist
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

import fairconstrained as fc
from fairconstrained.blocks import Blocks
from fairconstrained.datasets import make_biased_classification
from fairconstrained.distributed import sharded_rows
from fairconstrained.exceptions import WorkerError
from fairconstrained.model_selection import CertifiedClassifier
from fairconstrained.solvers import DPFERMI, DPSGDA, LBFGS, QCQP, NoisyTables, ReleasedMoments
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.tables import table

slow = pytest.mark.slow
pytestmark = [needs_gloo, pytest.mark.xdist_group(__name__)]


def sparse_table():
    X, y, group, weight = table()
    return sp.csr_array(np.where(np.abs(X) > 1.5, X, 0.0)), y, group, weight


def crossed():
    X, y, group, weight = table()
    rng = np.random.default_rng(5)
    first = np.where(rng.random(len(y)) < 0.4, None, group.astype(object))
    return X, y, np.column_stack((first, rng.integers(2, size=len(y)))), weight


def easy():
    data = make_biased_classification(1500, random_state=1)
    y, rng = np.where(data.target == 1, "yes", "no"), np.random.default_rng(1)
    return data.data, y, np.asarray(data.sensitive_features), rng.uniform(0.5, 2.0, size=1500)


def records():
    data = make_biased_classification(1000, 6, bias=0.6, random_state=0)
    return data.data, data.target, np.asarray(data.sensitive_features), None


def weighted_records():
    X, y, group, _ = records()
    return X, y, group, 2.0 + (group.max() == group)


def of_ranks(*args, **options):
    options = {"interval": (0.1, 0.6), "slack": 0.1, **options}
    return fc.PartialParityClassifier(*args, **options)


PRIVATE = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
IN_RANGE = {"feature_range": (np.full(6, -4.0), np.full(6, 4.0)), **PRIVATE}
FROM_MOMENTS = {"protect": "sensitive_features", "solver": ReleasedMoments(n_rounds=2), **PRIVATE}
# Batches of all rows are the same, however they are drawn.
ALL = DPSGDA(n_steps=10, sampling_rate=1.0)
LAPLACE = DPSGDA(n_steps=10, sampling_rate=1.0, histogram_noise="laplace")
TABLES, STEPS = NoisyTables(n_steps=10, batch_size=1000), DPFERMI(n_steps=10, batch_size=1000)
FEW = ReleasedMoments(n_rounds=2, n_components=3, inner=LBFGS())
QUADRATIC = fc.constraints.AUCParity("intra_group", surrogate=fc.constraints.Quadratic(0.25))
MOMENTS_OF_CELLS = fc.constraints.AUCParity("negative_equality_gap", surrogate="binormal")
CAP = fc.constraints.FalseNegativeRate(max=0.3, pos_label="yes")
TWO_KINDS = [fc.constraints.AUCParity("inter_group", 0.08), fc.constraints.DemographicParity(0.1)]
SUMS = {  # of rows: to 1e-8
    "several": (table, fc.RateConstrainedClassifier([fc.constraints.EqualizedOdds(0.05), CAP])),
    "margin": (table, fc.RateConstrainedClassifier(slack=0.1, margin=1.0)),
    "penalty": (table, fc.DPFermiClassifier(epsilon=None)),
    "sparse": (sparse_table, fc.LossParityClassifier(slack=0.02)),
    "two columns of groups": (crossed, fc.LossParityClassifier(slack=0.01)),
    "private rates": (records, fc.RateConstrainedClassifier(solver=ALL, **PRIVATE)),
    "odds in a range": (
        *(records, fc.RateConstrainedClassifier("equalized_odds", solver=LAPLACE, **IN_RANGE)),
    ),
    "private penalty": (records, fc.DPFermiClassifier(protect="record", solver=TABLES, **PRIVATE)),
    "private ranking": (records, fc.AUCFairClassifier(**IN_RANGE)),
    "secret groups, rates and weights": (
        *(weighted_records, fc.RateConstrainedClassifier("equal_opportunity", **FROM_MOMENTS)),
    ),
    "secret groups, weights": (weighted_records, fc.DPFermiClassifier(penalty=4.0, **FROM_MOMENTS)),
    "secret groups, odds": (records, fc.DPFermiClassifier("equalized_odds", solver=FEW, **PRIVATE)),
    "secret groups, all left out": (records, fc.DPFermiClassifier(min_group_size=2000, **PRIVATE)),
    "steps on secret groups": (records, fc.DPFermiClassifier(solver=STEPS, **PRIVATE)),
}
# Of the order of all scores: solvers stop where residuals are below `tol`, and rounding errors of
# the path to there remain in targets that follow the AUCs. Another order of the rows changes the
# result of one worker by as much.
ORDERS = {
    "moments": (table, fc.AUCFairClassifier(MOMENTS_OF_CELLS, slack=0.03)),
    "log loss": (table, fc.AUCFairClassifier("inter_group", objective="log", slack=0.03)),
    "margin of a ranking": (table, fc.AUCFairClassifier("inter_group", slack=0.05, margin=0.5)),
    "QCQP": (easy, fc.AUCFairClassifier(QUADRATIC, slack=0.25, solver=QCQP())),
    "ranks": (easy, of_ranks("rank_parity")),
    "automatic interval": (easy, of_ranks(interval="auto", slack=0.2)),
    "columns of groups": (easy, of_ranks(group_features=True, slack=0.12)),
    "two kinds": (easy, fc.RateConstrainedClassifier(TWO_KINDS)),
}
ON_ALL_ROWS = SUMS | ORDERS
BATCHES = {
    "batches of the system": fc.RateConstrainedClassifier(solver=DPSGDA(n_steps=30), epsilon=1.0),
    "a random point": fc.DPFermiClassifier(
        protect="record_replacement", solver=DPFERMI(n_steps=10, output="random"), **PRIVATE
    ),
    "noise of the system": fc.DPFermiClassifier(solver=ReleasedMoments(n_rounds=1)),
}
CASES = ON_ALL_ROWS | {name: (records, clf) for name, clf in BATCHES.items()}


def shard(data, rank=0, size=1):
    """Sorted by group, so that workers lack groups and labels that others have."""
    X, y, group, weight = data
    order = np.lexsort((y, *np.asarray(group).reshape(len(y), -1).T.astype(str)))
    rows = np.array_split(order, size)[rank]
    return X[rows], y[rows], group[rows], None if weight is None else weight[rows]


def blocks(X):
    return Blocks(lambda: (X[rows] for rows in (slice(1), slice(1, 500), slice(500, None))))


def fitted(case, rank=0, size=1, form=lambda X: X):
    data, clf = CASES[case]
    X, y, group, weight = shard(data(), rank, size)
    clf = clone(clf).fit(form(X), y, sensitive_features=group, sample_weight=weight)
    names = "coef_ intercept_ multipliers_ violation_ classes_ groups_ status_ privacy_ history_"
    found = {name: getattr(clf, name) for name in names.split()}
    return found | {"history_": found["history_"]["objective"]}


def told(call):
    try:
        return call()
    except (ValueError, WorkerError) as error:
        return f"{type(error).__name__}: {error}" + " (spent)" * hasattr(error, "privacy")


def fails(iterate):
    raise ValueError("on purpose")


def mistakes(rank, size):
    """What each worker is told by fits that cannot go on, and by one that a callback ends."""
    X, y, group, _ = shard(table(), rank, size)
    first, warm = rank == 0, fc.LossParityClassifier(slack=0.05, warm_start=True)
    if first:
        warm.fit(X, y, sensitive_features=group)
    private = fc.RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=30), random_state=0)
    declared = pd.Categorical(np.where(group == group[0], "a", "b"), list("ab" if first else "abc"))
    stopped = fc.LossParityClassifier(slack=0.001, callbacks=lambda iterate: not first)
    failing = fc.RateConstrainedClassifier(slack=0.001, callbacks=[] if first else fails)
    rows_of_both = dist.new_group([0])

    def fit(clf=None, X=X, y=y, group=group, weight=None):
        clf = fc.LossParityClassifier(slack=0.05) if clf is None else clf
        inputs = {"sensitive_features": group, "sample_weight": weight}
        return told(lambda: clf.fit(X, y, **inputs).status_)

    def within():
        with sharded_rows(rows_of_both):
            return "within"

    nan, weight = np.where(np.arange(len(X))[:, None] == 3, np.nan, X), np.ones(len(y))
    with sharded_rows():
        return {
            "nan on one": fit(X=X if first else nan),
            "weights on one": fit(private, weight=None if first else weight),
            "callback": fit(failing),
            "parameter": fit(fc.LossParityClassifier(slack=0.1 + 0.1 * rank)),
            "ranges": fit(clone(private).set_params(feature_range=(-4, 4 - rank))),
            "columns": fit(X=X[:, rank:]),
            "categories": fit(private, group=pd.Series(declared)),
            "no groups on one": fit(group=group if first else None),
            "one class in all": fit(y=np.full(len(y), "yes")),
            "estimators": fit((fc.RateConstrainedClassifier, fc.LossParityClassifier)[rank]()),
            "warm start": fit(warm),
            "certificate": fit(CertifiedClassifier(fc.LossParityClassifier())),
            "stream": told(lambda: fc.AUCFairClassifier().partial_fit(X, y)),
            "planned": told(lambda: private.planned_privacy(1000)),
            "network": fit(fc.RateConstrainedClassifier(model=(4,))),
            "stopped": (fit(stopped), stopped.n_iter_),
        } | {"group": told(within)}


def heads(rank, size):
    X, y, group, _ = (column[rank::size] for column in table())
    rows = table(seed=1)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(*rows[:2])
    nested = fc.LossParityClassifier().fit(*rows[:2], sensitive_features=rows[2])
    of_tree, found = fc.RateConstrainedClassifier(model=FrozenEstimator(tree), slack=0.02), {}
    with sharded_rows():
        for name, clf in {
            "tree": clone(of_tree),
            "nested": fc.RateConstrainedClassifier(model=FrozenEstimator(nested), slack=0.02),
            "ranking": fc.AUCFairClassifier(model=FrozenEstimator(tree), slack=0.02),
        }.items():
            clf.fit(X, y, sensitive_features=group)
            found[name] = clf.coef_, clf.predict_proba(table()[0]), clf.violation_
        unfitted = fc.RateConstrainedClassifier(model=clone(tree))
        found["unfitted"] = told(lambda: unfitted.fit(X, y, sensitive_features=group))
        some, labels, groups, _ = shard(table(), rank, size)
        found["missing"] = told(lambda: of_tree.fit(some, labels, sensitive_features=groups))
    return found


def fits(rank, size, cases):
    warnings.simplefilter("ignore")
    with sharded_rows():
        return {case: fitted(case, rank, size) for case in cases}


def sums_and_mistakes(rank, size):
    found = fits(rank, size, SUMS)
    found |= {"mistakes": mistakes(rank, size), "heads": heads(rank, size)}
    with sharded_rows():
        return found | {"in blocks": fitted("columns of groups", rank, size, blocks)}


@pytest.fixture(scope="module")
def on_workers(tmp_path_factory):
    first, second = (tmp_path_factory.mktemp("workers") for _ in range(2))
    found = run_on_workers(sums_and_mistakes, first, 2, 2)
    others = run_on_workers(fits, second, 2, 2, [*ORDERS, *BATCHES])
    return [found[rank] | others[rank] for rank in range(2)]


def same_on_all(found, case):
    first, *others = (worker[case] for worker in found)
    for other in others:
        for name, value in first.items():
            np.testing.assert_array_equal(other[name], value)
    return first


def assert_close(found, expected, unit, atol):
    for name, scale in (("coef_", unit), ("intercept_", 1.0)):
        np.testing.assert_allclose(found[name] * scale, expected[name] * scale, rtol=0, atol=atol)
    assert found["violation_"] == pytest.approx(expected["violation_"], abs=1e-8, nan_ok=True)
    assert found["groups_"].tolist() == expected["groups_"].tolist()


@slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", ON_ALL_ROWS)
def test_workers_find_what_one_worker_finds_on_all_rows(on_workers, case):
    """In the coefficients of standardised columns; to the last bit among workers."""
    first, one = same_on_all(on_workers, case), fitted(case)
    X = ON_ALL_ROWS[case][0]()[0]
    spread = np.sqrt((X.multiply(X) if sp.issparse(X) else X**2).mean(axis=0))
    unit = np.resize(np.append(spread, 1.0), first["coef_"].shape[1])  # of columns of groups too
    assert_close(first, one, unit, 1e-8 if case in SUMS else 1e-6)
    assert first["status_"] == one["status_"]
    assert first["classes_"].tolist() == one["classes_"].tolist()
    assert first["privacy_"] == one["privacy_"]
    if case in SUMS:
        np.testing.assert_allclose(first["multipliers_"], one["multipliers_"], rtol=0, atol=1e-8)


@slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", BATCHES)
def test_batches_of_all_workers_cost_what_those_of_one_worker_cost(on_workers, case):
    found, one = same_on_all(on_workers, case), fitted(case)
    assert found["privacy_"] == one["privacy_"] == BATCHES[case].planned_privacy(1000)


@slow
def test_columns_of_groups_are_those_of_all_workers_in_blocks_too(on_workers):
    """Each worker has rows of one group only and reads them in blocks."""
    for found in on_workers:
        assert_close(found["in blocks"], found["columns of groups"], 1.0, 1e-6)


@slow
def test_the_head_of_a_fitted_classifier_learns_on_all_workers(on_workers):
    """Its calibration, and what tells the groups apart, on the first."""
    first, second = (found["heads"] for found in on_workers)
    for found in (first, second):
        words = "the first worker, which has no rows of group c, label no; group 1, label yes"
        assert words in found["missing"]
        assert "or a fitted classifier, FrozenEstimator(classifier), within" in found["unfitted"]
    for name in ("tree", "nested", "ranking"):
        for one, other in zip(first[name], second[name], strict=True):
            np.testing.assert_array_equal(one, other)
        assert first[name][2] <= 0.021


ON_ONE = {
    "nan on one": "ValueError: Input X contains NaN",
    "weights on one": "ValueError: sample_weight must be None",
    "callback": "ValueError: on purpose",
}
TOLD = {
    "parameter": "ValueError: workers must agree in their parameters: worker 0 has",
    "ranges": "ValueError: workers must agree in their parameters: worker 0 has",
    "columns": "workers must agree in their columns of X: worker 0 has (13, None), worker 1",
    "categories": "workers must agree in their categories of y and sensitive_features",
    "no groups on one": "kind of sensitive_features: worker 0 has groups, worker 1 has None",
    "one class in all": "needs samples of at least 2 classes; the data have only one",
    "estimators": "worker 0 has RateConstrainedClassifier, worker 1 has LossParityClassifier",
    "warm start": "ValueError: workers must agree in their last fits",
    "certificate": "CertifiedClassifier.fit must be called outside of sharded_rows",
    "stream": "AUCFairClassifier.partial_fit must be called outside of sharded_rows",
    "planned": "must be called outside of sharded_rows",
    "network": "RateConstrainedClassifier.model must be linear or a fitted classifier",
}


@slow
@pytest.mark.parametrize("case", ON_ONE | TOLD)
def test_what_is_wrong_is_said_on_all_before_anything_is_released(on_workers, case):
    first, second = (found["mistakes"][case] for found in on_workers)
    if case in ON_ONE:
        assert second.startswith(ON_ONE[case])
        assert first.startswith(f"WorkerError: worker 1 of 2 raised {ON_ONE[case]}")
    else:
        assert TOLD[case] in first
        assert second == first
    assert "(spent)" not in first + second


@slow
def test_a_callback_on_one_worker_stops_all_and_others_hear_they_are_not_in_the_group(on_workers):
    first, second = (found["mistakes"] for found in on_workers)
    assert first["stopped"] == second["stopped"]
    assert first["stopped"][1] <= 2  # the iterate and, perhaps, a known point in its place
    assert first["group"] == "within"
    assert "this process is not in it" in second["group"]


def death(rank, size):
    warnings.simplefilter("ignore")
    X, y, group, _ = shard(records(), rank, size)

    def dies(iterate):
        if rank:
            os._exit(3)

    clf = fc.RateConstrainedClassifier(solver=DPSGDA(n_steps=30), callbacks=dies, **PRIVATE)
    with sharded_rows(), pytest.raises(WorkerError) as caught:
        clf.fit(X, y, sensitive_features=group)
    return str(caught.value), caught.value.privacy.epsilon, caught.value.__notes__


@slow
def test_a_worker_that_dies_is_named_and_others_are_told_what_is_spent(tmp_path):
    (message, epsilon, notes), nothing = run_on_workers(death, tmp_path, 2, 2)
    assert nothing is None
    assert message.startswith("worker 0 of 2 cannot go on: worker 1 gave no heartbeat within 10 s")
    assert 0 < epsilon <= 1.0
    assert any("are spent" in note for note in notes)


def test_without_workers_it_is_said_what_to_call():
    call = "call torch.distributed.init_process_group first"
    with pytest.raises(ValueError, match=call), sharded_rows():
        pass

"""Rankings and partial parity on shards and on blocks, which compare the order of all scores."""

import numpy as np
import pytest

from fairconstrained import AUCFairClassifier, PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import AUCParity, DemographicParity, Quadratic
from fairconstrained.datasets import make_biased_classification
from fairconstrained.distributed import sharded_rows
from fairconstrained.solvers import IDCA, QCQP, LevelSet
from tests.helpers.processes import needs_gloo, run_on_workers
from tests.helpers.shards import fitted, same_on_all, shard, table

pytestmark = pytest.mark.xdist_group(__name__)
INTERVAL = (0.1, 0.6)


def easy():
    """Two groups and a gap that training removes."""
    data = make_biased_classification(1500, random_state=1)
    rng = np.random.default_rng(1)
    y = np.where(data.target == 1, "yes", "no")
    return data.data, y, np.asarray(data.sensitive_features), rng.uniform(0.5, 2.0, size=1500)


def ranking(*args, slack=0.03, **options):
    return lambda: AUCFairClassifier(*args, slack=slack, **options)


def partial(*args, **options):
    return lambda: PartialParityClassifier(*args, **{"interval": INTERVAL, "slack": 0.1} | options)


QUADRATIC = AUCParity("intra_group", surrogate=Quadratic(0.25))
RANKINGS = {
    "bins": (table, ranking("group_auc", slack=0.03)),
    "moments": (table, ranking(AUCParity("negative_equality_gap", surrogate="binormal"))),
    "log loss": (table, ranking("inter_group", objective="log")),
    "margin of a ranking": (table, ranking("inter_group", slack=0.05, margin=0.5)),
    "QCQP": (easy, ranking(QUADRATIC, slack=0.25, solver=QCQP())),
}
GAPS = {
    "partial odds": (easy, partial("equalized_odds")),
    "partial AUC": (easy, partial("group_auc")),
    "ranks": (easy, partial("rank_parity")),
    "automatic interval": (easy, partial(interval="auto", slack=0.2)),
    "columns of groups": (easy, partial(group_features=True, slack=0.12)),
    "two kinds": (
        easy,
        lambda: RateConstrainedClassifier([AUCParity("inter_group", 0.08), DemographicParity(0.1)]),
    ),
}


def every(rank, size):
    with sharded_rows():
        found = {
            name: fitted(make(), shard(data(), rank, size))
            for name, (data, make) in (RANKINGS | GAPS).items()
        }
        X, *others = shard(easy(), rank, size)
        _, make = GAPS["columns of groups"]
        found["columns of groups in blocks"] = fitted(make(), (blocks(X), *others))
    return found


def blocks(X):
    return Blocks(lambda: (X[rows] for rows in (slice(1), slice(1, 500), slice(500, None))))


@pytest.fixture(scope="module")
def on_workers(tmp_path_factory):
    return run_on_workers(every, tmp_path_factory.mktemp("shards"), 2, 2)


@pytest.mark.slow
@needs_gloo
@pytest.mark.parametrize("case", RANKINGS | GAPS)
def test_workers_find_what_one_worker_finds_on_all_rows(on_workers, case):
    """To 1e-6 in the coefficients of standardised columns; to the last bit among workers.

    Not to 1e-8 in all cases: solvers stop where residuals are below `tol`, and rounding errors of
    the path to there remain in targets that follow the AUCs. Another order of the rows changes the
    result of one worker by as much. The bootstrap of a margin depends on the order of the rows.
    """
    data, make = (RANKINGS | GAPS)[case]
    shards = [shard(data(), rank, 2) for rank in range(2)]
    X, *others = (np.concatenate(column) for column in zip(*shards, strict=True))
    one, first = fitted(make(), (X, *others)), same_on_all(on_workers, case)
    assert first["status"] == one["status"]
    spread = np.sqrt((X**2).mean(axis=0))
    unit = np.resize(np.append(spread, 1.0), first["coef"].shape[1])  # of columns of groups as well
    np.testing.assert_allclose(first["coef"] * unit, one["coef"] * unit, rtol=0, atol=1e-6)
    np.testing.assert_allclose(first["intercept"], one["intercept"], rtol=0, atol=1e-6)
    assert first["violation"] == pytest.approx(one["violation"], abs=1e-9)


@pytest.mark.slow
@needs_gloo
def test_columns_of_groups_are_those_of_all_workers_in_blocks_too(on_workers):
    """Each worker has rows of one group only and reads them in blocks."""
    for found in on_workers:
        read, whole = found["columns of groups in blocks"], found["columns of groups"]
        assert read["groups"].tolist() == whole["groups"].tolist()
        np.testing.assert_allclose(read["coef"], whole["coef"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(read["intercept"], whole["intercept"], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [ranking(AUCParity(surrogate="binormal")), partial("demographic_parity", group_features=True)],
)
def test_the_model_of_rows_in_blocks_is_that_of_the_rows_in_memory(make):
    X, y, group, weight = easy()
    options = {"sensitive_features": group, "sample_weight": weight}
    whole, read = make().fit(X, y, **options), make().fit(blocks(X), y, **options)
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(read.intercept_, whole.intercept_, rtol=0, atol=1e-6)
    assert read.violation_ == pytest.approx(whole.violation_, abs=1e-9)
    assert read.status_ == whole.status_


@pytest.mark.parametrize(
    ("clf", "message"),
    [
        (PartialParityClassifier(solver=IDCA()), "IDCA cannot solve FairERM on rows in"),
        (
            AUCFairClassifier(AUCParity(surrogate="quadratic"), solver=LevelSet()),
            "LevelSet cannot solve FairERM on rows in",
        ),
    ],
)
def test_solvers_that_draw_rows_or_need_convex_parts_are_refused_before_any_work(clf, message):
    def never():
        raise AssertionError("rows were read")

    _, y, group, _ = easy()
    with pytest.raises(ValueError, match=message):
        clf.fit(Blocks(never), y, sensitive_features=group)

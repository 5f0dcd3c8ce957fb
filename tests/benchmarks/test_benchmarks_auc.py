"""The benchmark of AUC-fair ranking: what is measured, and what the baselines do."""

import importlib

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.utils import Bunch

from tests.helpers.auc_fits import METRIC_OF
from tests.helpers.results import methods_of, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("from_root")]

TINY = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(600, 6, random_state=0)
"""


def component(kind, name):
    return importlib.import_module(f"benchmarks.{kind}.{name}")


def rows(n=800, seed=0):
    """Scores of both groups differ in level."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4))
    X[:, 1] += groups
    y = (rng.random(n) < expit(X[:, 0] + X[:, 1] - 0.5)).astype(int)
    return X, y, groups


def test_every_method_fills_its_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(component("solvers", "auc_proxy_lagrangian"), "STEPS", 60)
    table = component("solvers", "auc_fair")
    short = table.method("level sets", only=[0.3], surrogate="quadratic", solver=short_level_set())
    monkeypatch.setitem(table.SOLVERS, "auc_level_set", short)
    (tmp_path / "tiny.py").write_text(TINY)
    results = tmp_path / "results"
    main = importlib.import_module("benchmarks.run").main
    base = ["--objective", "auc_fair", "--output", str(results)]
    arguments = ["--datasets", str(tmp_path / "tiny.py"), "--slack", "0.05"]
    assert main([*base, *arguments]) == 0
    table = rows_of(results / "auc_fair.csv")
    methods = methods_of(table)
    everywhere = {
        *("fairconstrained, AUC", "fairconstrained, AUC, with groups", "unconstrained, AUC"),
        *("quadratic surrogate, exact", "level sets", "proxy-Lagrangian"),
        *("fairconstrained, AUC, margin 1", "fairconstrained, log loss"),
    }
    assert methods["intra_group"] == everywhere
    assert methods["inter_group"] == everywhere | {"rescaled group"}
    assert methods["group_auc"] == everywhere | {"rescaled group", "correlation penalty"}
    for row in table:
        ours = row["method"].startswith("fairconstrained")
        assert not ours or float(row["train_violation"]) <= float(row["slack"]) + 0.002
    assert main([*base, "--report"]) == 0
    text = (results / "auc_fair.md").read_text()
    assert "| tiny | group_auc | rescaled group |" in text
    assert "| tiny | group_auc | correlation penalty |" in text
    assert len(list(results.glob("tiny-*.png"))) == 3


def test_the_private_benchmark_runs_and_reports(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY)
    main = importlib.import_module("benchmarks.run").main
    base = ["--objective", "private_auc", "--output", str(tmp_path)]
    arguments = ["--slack", "0.1", "--epsilon", "9", "--notion", "group_auc"]
    assert main([*base, "--datasets", str(tmp_path / "tiny.py"), *arguments]) == 0
    table = pd.read_csv(tmp_path / "private_auc.csv")
    assert sorted(table["epsilon"].fillna(-1)) == [-1, 9]
    assert main([*base, "--report"]) == 0
    assert ", private, epsilon 9 | 0.1 |" in (tmp_path / "private_auc.md").read_text()


def short_level_set():
    return importlib.import_module("fairconstrained.solvers").LevelSet(n_steps=20, max_levels=2)


@pytest.mark.parametrize("notion", ["group_auc", "inter_group", "intra_group"])
def test_gaps_are_the_metrics(notion):
    objective = component("objectives", "auc_fair")
    X, y, groups = rows()
    signed = objective.differences(y, groups, X[:, 1], notion)
    expected = METRIC_OF[notion](y, X[:, 1], sensitive_features=groups)
    assert abs(signed).max() == pytest.approx(expected)


def test_a_data_sets_own_test_rows_are_kept():
    objective = component("objectives", "auc_fair")
    X, y, groups = rows(500)
    test = np.arange(500) >= 400
    bunch = Bunch(data=X, target=y, sensitive_features=groups, test=test)
    splits = [objective.prepare(bunch, seed) for seed in (0, 1)]
    for train, held_out in splits:
        np.testing.assert_array_equal(held_out.X, X[400:])
        assert len(train.y) == 360
    assert not np.array_equal(splits[0][0].X, splits[1][0].X)


def test_correlation_penalty_lowers_the_correlation():
    solver = component("solvers", "auc_correlation_penalty")
    X, y, groups = rows()
    weak, strong = (
        solver.fit(X, y, groups, notion="group_auc", slack=weight, seed=0).scores(X, groups)
        for weight in (1e-6, 1.0)
    )
    assert abs(np.corrcoef(strong, groups)[0, 1]) < 0.01 < abs(np.corrcoef(weak, groups)[0, 1])


@pytest.mark.parametrize("notion", ["group_auc", "inter_group"])
def test_the_rescaled_group_keeps_the_gap_and_the_order_within_groups(notion):
    solver = component("solvers", "auc_rescaled_group")
    X, y, groups = rows()
    fair = solver.fit(X, y, groups, notion=notion, slack=0.05, seed=0).scores(X, groups)
    free = component("solvers", "auc_unconstrained").fit(
        X, y, groups, notion=notion, slack=np.nan, seed=0
    )
    assert METRIC_OF[notion](y, fair, sensitive_features=groups) < 0.06
    for g in (0, 1):
        inside = groups == g
        order = np.argsort(free.scores(X, groups)[inside])
        assert (np.diff(fair[inside][order]) >= 0).all()


def test_proxy_lagrangian_moves_the_gap():
    solver = component("solvers", "auc_proxy_lagrangian")
    X, y, groups = rows()
    gaps = [
        METRIC_OF["group_auc"](
            y,
            solver.fit(X, y, groups, notion="group_auc", slack=s, seed=0).scores(X, groups),
            sensitive_features=groups,
        )
        for s in (1.0, 0.03)
    ]
    assert gaps[1] <= 0.03 < gaps[0]


def test_test_gaps_are_counted_with_their_deviation():
    objective = component("objectives", "auc_fair")
    runs = pd.DataFrame(
        {
            "dataset": "d",
            "notion": "n",
            "method": "m",
            "slack": 0.05,
            "test_violation": [0.04, 0.07, 0.2],
            "test_error": 0.3,
            "test_deviation": 0.01,
        }
    )
    line = objective._test_gaps(runs).splitlines()[-1]
    assert "| 0.0567 | 0.3000 | 1 of 3 | 2 of 3 | 0.0100 |" in line


def test_passes_of_the_stochastic_method_end_above_the_exact_solution(monkeypatch):
    speed = importlib.import_module("benchmarks.speed.auc")
    monkeypatch.setattr(speed, "PASSES_ROWS", 2_000)
    exact, short, long, stream = speed.passes(4, [50, 400])
    assert exact[1] == stream[1] == 1.0
    assert short[1] < long[1]
    assert exact[3] < long[3] < short[3] < 0.5
    assert exact[3] < stream[3] < 0.5
    assert all(line[4] <= 0.4 + 0.02 for line in (exact, short, long))

"""Objectives: every method fills its cells, and measures and baselines are what they say."""

import importlib

import numpy as np
import pytest
from scipy.special import expit
from sklearn.utils import Bunch

from benchmarks.objectives.rate_constrained import Rows
from tests.helpers.auc_fits import METRIC_OF
from tests.helpers.results import rows_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("from_root"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fairlearn's, about pandas
]

TINY = """
from benchmarks.partial_tasks import BANK
from benchmarks.objectives.rate_constrained import Rows
from fairconstrained.datasets import make_biased_classification

def load():
    data = make_biased_classification(800, 6, random_state=0)
    data.update(task=BANK)
    return data
"""
SOLVER = """
from benchmarks.objectives.loss_parity import train_network
from fairconstrained.solvers import {solver}

METHOD = "mine, {solver}"
OBJECTIVES = ["loss_parity"]

def fit(train, **asked):
    return train_network(train, solver={solver}(n_steps=60), **asked)
"""
PARITY, CAP = "demographic_parity", "false_negative_rate"
AUCS = {
    *("fairconstrained, AUC", "fairconstrained, AUC, with groups", "unconstrained, AUC"),
    *("quadratic surrogate, exact", "fairconstrained, AUC, margin 1", "fairconstrained, log loss"),
}
PARTIAL = {
    *("partial parity", "no constraint"),
    *("group AUC", "inter-group pairs", "intra-group pairs"),
}
EXPECTED = {
    "rate_constrained": {
        PARITY: {"fairconstrained", "reductions", "unconstrained"},
        CAP: {"fairconstrained", "unconstrained"},
    },
    "auc_fair": {
        "intra_group": AUCS,
        "inter_group": AUCS | {"rescaled group"},
        "group_auc": AUCS | {"rescaled group", "correlation penalty"},
    },
    "partial_parity": {
        "statistical_parity": PARTIAL | {"rank parity"},
        PARITY: PARTIAL | {"partial parity, loose"},
    },
    "private_rates": {PARITY: {"fairconstrained, private"}},
    "dp_fermi": {PARITY: {"DPFermiClassifier"}},
}
ASKED = {
    "rate_constrained": ["--slack", "0.1"],
    "auc_fair": ["--slack", "0.05"],
    "partial_parity": ["--level", "2"],
    "private_rates": ["--slack", "0.1", "--epsilon", "9"],
    "dp_fermi": ["--penalty", "1", "--epsilon", "9", "--unit", "sensitive_features"],
}


def module(name):
    return importlib.import_module(f"benchmarks.{name}")


def solver(name):
    return module("run").component("solvers", name)


@pytest.mark.parametrize("objective", sorted(EXPECTED))
def test_every_method_fills_its_cells_and_every_column(tmp_path, objective):
    (tmp_path / "tiny.py").write_text(TINY)
    main, expected = module("run").main, EXPECTED[objective]
    given = ["--objective", objective, "--output", str(tmp_path), "--constraint", *expected]
    assert main([*given, "--datasets", str(tmp_path / "tiny.py"), *ASKED[objective]]) == 0
    methods = {}
    for row in rows_of(tmp_path / f"{objective}.csv"):
        methods.setdefault(row["constraint"], set()).add(row["method"])
        assert set(row) >= set(module("run").component("objectives", objective).COLUMNS)
        if row["method"].startswith("fairconstrained") and objective != "private_rates":
            assert float(row["train_violation"]) <= float(row["slack"]) + 0.002
    assert methods == expected


def test_private_methods_are_run_without_privacy_too(tmp_path):
    cells = solver("dpsgda").cells({"constraint": [PARITY], "epsilon": [1.0], "slack": [0.1]})
    assert [cell["epsilon"] for cell in cells] == pytest.approx([1.0, np.nan], nan_ok=True)


def test_two_methods_from_files_outside_end_in_one_table(tmp_path, capsys):
    (tmp_path / "tiny.py").write_text(TINY)
    solvers = [tmp_path / f"{name}.py" for name in ("SSLALM", "ALM")]
    for path in solvers:
        path.write_text(SOLVER.format(solver=path.stem))
    fixed = ["--objective", "loss_parity", "--output", str(tmp_path)]
    data = ["--datasets", str(tmp_path / "tiny.py"), "--solvers", *map(str, solvers)]
    assert module("run").main([*fixed, *data]) == 0
    table = rows_of(tmp_path / "loss_parity.csv")
    assert [row["method"] for row in table] == ["mine, SSLALM", "mine, ALM"]
    assert all(0.0 <= float(row["test_Ina"]) < 0.5 for row in table)


# ---------------------------------------------------------------------- measures


@pytest.mark.parametrize("constraint", [PARITY, "equalized_odds", CAP])
def test_randomised_predictions_are_measured_by_their_expectation(constraint):
    """Expected error and rates: what the mean over many draws tends to."""
    rng = np.random.default_rng(0)
    n = 300
    y, groups = rng.integers(0, 2, n), rng.integers(0, 2, n)
    acceptance = rng.random(n) ** 2
    quality = module("objectives.rate_constrained").quality
    error, violation = quality(y, groups, acceptance, constraint)
    draws = (rng.random((4_000, n)) < acceptance).astype(int)
    assert error == pytest.approx((draws != y).mean(), abs=0.002)
    rates = draws.mean(axis=0)  # linear in the draw, so the mean draw has the expected rates
    by_label = [
        abs(rates[(groups == 0) & part].mean() - rates[(groups == 1) & part].mean())
        for part in (y >= 0, y == 0, y == 1)
    ]
    expected = {
        PARITY: by_label[0],
        "equalized_odds": max(by_label[1:]),
        CAP: 1 - rates[y == 1].mean(),
    }
    assert violation == pytest.approx(expected[constraint], abs=0.005)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_measures_of_loss_parity_by_hand():
    """Two groups of two rows: rates, gaps and distances that can be read off."""
    objective = module("objectives.loss_parity")
    rows = objective.Rows(None, np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    probability = np.array([0.25, 0.75, 0.75, 0.75])
    values = objective.quality(rows, probability)
    assert values["Ind"] == pytest.approx(0.5)
    assert values["Ina"] == pytest.approx(0.25)
    assert values["Sp"] == pytest.approx(1.0)
    assert values["Wd"] == pytest.approx(0.5 * 0.5**2)
    gap = np.log(1 / 0.25) - np.log(1 / 0.75)
    assert values["gap"] == pytest.approx(0.5 * gap)


def scored(n=800):
    """Scores of both groups differ in level."""
    rng = np.random.default_rng(0)
    groups = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4))
    X[:, 1] += groups
    y = (rng.random(n) < expit(X[:, 0] + X[:, 1] - 0.5)).astype(int)
    return X, y, groups


@pytest.mark.parametrize("constraint", ["group_auc", "inter_group", "intra_group"])
def test_gaps_of_aucs_are_the_metrics(constraint):
    X, y, groups = scored()
    signed = module("objectives.auc_fair").differences(y, groups, X[:, 1], constraint)
    expected = METRIC_OF[constraint](y, X[:, 1], sensitive_features=groups)
    assert abs(signed).max() == pytest.approx(expected)


def test_a_data_sets_own_test_rows_are_kept():
    X, y, groups = scored(500)
    bunch = Bunch(data=X, target=y, sensitive_features=groups, test=np.arange(500) >= 400)
    splits = [module("objectives.auc_fair").prepare(bunch, seed) for seed in (0, 1)]
    for train, held_out in splits:
        np.testing.assert_array_equal(held_out.X, X[400:])
        assert len(train.y) == 360
    assert not np.array_equal(splits[0][0].X, splits[1][0].X)


# ---------------------------------------------------------------------- baselines


def test_the_correlation_penalty_lowers_the_correlation():
    X, y, groups = scored()
    fit, train = solver("auc_correlation_penalty").fit, Rows(X, y, groups)
    weak, strong = (
        fit(train, constraint="group_auc", slack=weight, seed=0)(X, groups)
        for weight in (1e-6, 1.0)
    )
    assert abs(np.corrcoef(strong, groups)[0, 1]) < 0.01 < abs(np.corrcoef(weak, groups)[0, 1])


@pytest.mark.parametrize("constraint", ["group_auc", "inter_group"])
def test_the_rescaled_group_keeps_the_gap_and_the_order_within_groups(constraint):
    X, y, groups = scored()
    given = {"constraint": constraint, "slack": 0.05, "seed": 0}
    train = Rows(X, y, groups)
    fair = solver("auc_rescaled_group").fit(train, **given)(X, groups)
    free = solver("auc_unconstrained").fit(train, **given)(X, groups)
    assert METRIC_OF[constraint](y, fair, sensitive_features=groups) < 0.06
    for inside in (groups == 0, groups == 1):
        order = np.argsort(free[inside])
        assert (np.diff(fair[inside][order]) >= 0).all()


def test_error_at_interpolates_the_front_and_does_not_extrapolate_to_the_left():
    at = module("frontier").error_at
    found = at([0.1, 0.3, 0.2], [0.4, 0.2, 0.5], [0.05, 0.1, 0.2, 0.3, 9.0])
    np.testing.assert_allclose(found, [np.nan, 0.4, 0.3, 0.2, 0.2])

"""The runner: resumes, keeps one table, reports; and what it measures is what it says."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tests.helpers.repository import ROOT
from tests.helpers.results import rows_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("from_root"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fairlearn's, about pandas
]

TINY = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(400, 6, random_state=0)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY)
    fixed = ["--datasets", str(tmp_path / "tiny.py"), "--output", str(tmp_path / "results")]
    main = importlib.import_module("benchmarks.run").main
    return lambda *argv: main([*fixed, *argv])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "results" / "rate_constrained.csv"

    return lambda: rows_of(path)


def objective():
    return importlib.import_module("benchmarks.objectives.rate_constrained")


def frontier():
    return importlib.import_module("benchmarks.frontier")


ARGUMENTS = ["--notion", "demographic_parity", "false_negative_rate", "--slack", "0.1"]


def test_a_second_call_adds_only_what_is_missing(run, table):
    solvers = ["--solvers", "fairconstrained_default", "unconstrained"]
    assert run(*ARGUMENTS, *solvers) == 0
    first = table()
    assert run(*ARGUMENTS, *solvers) == 0
    assert table() == first
    assert run(*ARGUMENTS, *solvers, "--seeds", "0", "1") == 0
    assert table()[: len(first)] == first
    assert [row["seed"] for row in table()] == ["0"] * 4 + ["1"] * 4
    assert {row["dataset"] for row in table()} == {"tiny"}


def test_every_method_fills_its_cells_and_every_column(run, table):
    assert run(*ARGUMENTS) == 0
    runs = {(row["method"], row["notion"], row["slack"]) for row in table()}
    parity, cap = "demographic_parity", "false_negative_rate"
    assert runs == {
        ("fairconstrained", parity, "0.1"),
        ("fairconstrained", cap, "0.1"),
        ("reductions", parity, "0.1"),
        ("threshold optimizer", parity, "0.1"),
        ("moved threshold", cap, "0.1"),
        ("unconstrained", parity, "nan"),
        ("unconstrained", cap, "nan"),
    }
    may_be_empty = {"converged", "feasible", "warnings"}
    for row in table():
        assert set(row) == {
            *("objective", "dataset", "method", "seed", "notion", "slack", "versions"),
            *objective().COLUMNS,
        }
        assert all(value for name, value in row.items() if name not in may_be_empty)
        assert row["feasible"] == ("" if row["slack"] == "nan" else row["feasible"])


def test_a_failure_is_told_and_tried_again(run, table, tmp_path, capsys):
    solver = tmp_path / "broken.py"
    text = (ROOT / "benchmarks" / "solvers" / "unconstrained.py").read_text()
    solver.write_text(
        text.replace("    model = ", "    raise ArithmeticError('of mine')\n    m = ")
    )
    arguments = ["--notion", "demographic_parity", "--solvers", "fairconstrained_default"]
    assert run(*arguments, str(solver), "--slack", "0.2") == 1
    assert "of mine" in capsys.readouterr().err
    assert [row["method"] for row in table()] == ["fairconstrained"]
    solver.write_text(text)
    assert run(*arguments, str(solver), "--slack", "0.2") == 0
    assert [row["method"] for row in table()] == ["fairconstrained", "unconstrained"]


def test_report_has_the_tables_and_one_picture_per_case(run, tmp_path, capsys):
    run("--notion", "demographic_parity", "--slack", "0.05", "0.2")
    assert run("--report") == 0
    text = (tmp_path / "results" / "rate_constrained.md").read_text()
    assert text.strip() in capsys.readouterr().out
    for words in ("| tiny | demographic_parity | ", "threshold optimizer", "| 0.05 | 0.2 |"):
        assert words in text
    assert "nan" not in text
    pictures = sorted(path.name for path in (tmp_path / "results").glob("*.png"))
    assert pictures == ["tiny-demographic_parity.png"]


def test_report_without_runs_says_so(run):
    with pytest.raises(SystemExit, match="no run has finished"):
        run("--report")


def test_results_of_other_columns_are_not_mixed(tmp_path):
    results = importlib.import_module("benchmarks.results")
    path = tmp_path / "new" / "table.csv"
    results.append(path, {"a": 1, "b": 0.1}, ["a", "b"], ["a"])
    assert results.finished(path, ["b"]) == {("0.1",)}
    with pytest.raises(SystemExit, match=r"columns \['a', 'b'\], .* Move it away"):
        results.append(path, {"a": 1, "c": 2}, ["a", "c"], ["a"])
    with pytest.raises(SystemExit, match=r"columns \['a', 'b'\], .* Move it away"):
        results.writable(path, ["a", "c"])
    with pytest.raises(SystemExit, match=r"lacks the columns \['c'\]. Move it away"):
        results.finished(path, ["a", "c"])


def test_a_torn_last_line_is_no_run_and_is_cut_off(tmp_path):
    results = importlib.import_module("benchmarks.results")
    path = tmp_path / "table.csv"
    results.append(path, {"a": 1, "b": 2}, ["a", "b"], ["a"])
    with path.open("a") as file:
        file.write("3,")  # an interruption
    assert results.finished(path, ["a"]) == {("1",)}
    assert results.table(path, ["a"], ["b"]).to_dict("list") == {"a": [1], "b": [2]}
    results.append(path, {"a": 3, "b": 4}, ["a", "b"], ["a"])
    assert pd.read_csv(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_a_full_disk_leaves_the_rows_that_are_there(tmp_path, monkeypatch):
    results = importlib.import_module("benchmarks.results")
    path = tmp_path / "table.csv"
    results.append(path, {"a": 1}, ["a"], ["a"])

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        results.append(path, {"a": 2}, ["a"], ["a"])
    assert path.read_text() == "a\n1\n"


APPEND = """
import sys
from pathlib import Path
from benchmarks.results import append
for i in range(200):
    append(Path(sys.argv[1]), {"a": i, "b": sys.argv[2]}, ["a", "b"], ["a"])
"""


def test_processes_that_share_a_file_store_each_run_once(tmp_path):
    """Rows of both, none torn or twice, one header: the first to end a run stores it."""
    results = importlib.import_module("benchmarks.results")
    path = tmp_path / "table.csv"
    processes = [
        subprocess.Popen([sys.executable, "-c", APPEND, str(path), name], cwd=ROOT)
        for name in ("first", "second")
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(pd.read_csv(path)["a"]) == list(range(200))
    first, rest = path.read_text().split("\n", 1)
    path.write_text(f"{first}\n{rest}{rest}")  # as processes that did not take turns left it
    assert len(results.table(path, ["a"], ["b"])) == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no run has finished"),
        (b"objective,dataset\nx,y\n", "lacks the columns .*'method'.* Move it away"),
        (b"\xff\xfe\x00PNG\n", "is no table of these runs: it is no text. Move it away"),
        (b"a,b\n1,2,3\n1\n1,2,3,4\n", "is no table of these runs: .* Move it away"),
    ],
    ids=["empty", "columns", "bytes", "ragged"],
)
def test_foreign_tables_are_told_in_one_sentence_and_kept(run, tmp_path, content, message):
    path = tmp_path / "rate_constrained.csv"
    path.write_bytes(content)
    with pytest.raises(SystemExit, match=message):
        run("--report", "--output", str(tmp_path))
    if content:
        with pytest.raises(SystemExit, match=r"is no table of these runs: .* Move it away"):
            run("--output", str(tmp_path))
    assert path.read_bytes() == content


def test_results_that_cannot_be_written_are_told_before_any_run(run, tmp_path):
    (tmp_path / "results").write_text("a file where the folder should be")
    with pytest.raises(SystemExit, match="cannot be written"):
        run("--solvers", "unconstrained", *ARGUMENTS)


def test_a_configuration_is_the_options_and_the_command_line_goes_first(run, table, tmp_path):
    config = tmp_path / "grid.toml"
    config.write_text(
        'solvers = ["unconstrained"]\nnotion = "demographic_parity"\nseeds = [0, 1]\n'
    )
    assert run("--config", str(config), "--seeds", "2") == 0
    assert [(row["method"], row["seed"]) for row in table()] == [("unconstrained", "2")]
    config.write_text("speed = 3\n")
    with pytest.raises(SystemExit, match=r"\['speed'\] are none of"):
        run("--config", str(config))
    config.write_text("seeds = [")
    with pytest.raises(SystemExit, match=r"grid\.toml"):
        run("--config", str(config))


def test_workers_give_the_same_rows_and_failures_stay_their_own(run, table, tmp_path, capsys):
    broken = tmp_path / "broken.py"
    text = (ROOT / "benchmarks" / "solvers" / "unconstrained.py").read_text()
    broken.write_text(
        text.replace("    model = ", "    raise ArithmeticError('of mine')\n    m = ").replace(
            'METHOD = "unconstrained"', 'METHOD = "broken"'
        )
    )
    asked = ["--notion", "demographic_parity", "--solvers", "unconstrained"]
    assert run(*asked, str(broken), "--workers", "2") == 1
    assert "of mine" in capsys.readouterr().err
    (row,) = table()
    (tmp_path / "results" / "rate_constrained.csv").unlink()
    assert run(*asked) == 0
    same = set(row) - {"fit_time"}
    assert {name: table()[0][name] for name in same} == {name: row[name] for name in same}


def test_unknown_component_is_named(run):
    with pytest.raises(SystemExit, match=r"'nothing' is neither one of .*'reductions'"):
        run("--solvers", "nothing")


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "false_negative_rate"])
def test_randomised_predictions_are_measured_by_their_expectation(notion):
    """Expected error and rates: what the mean over many draws tends to."""
    module = objective()
    rng = np.random.default_rng(0)
    n = 300
    rows = module.Rows(None, rng.integers(0, 2, n), rng.integers(0, 2, n))
    acceptance = rng.random(n) ** 2
    error, violation = module._quality(rows, acceptance, notion)
    draws = (rng.random((4_000, n)) < acceptance).astype(int)
    assert error == pytest.approx((draws != rows.y).mean(), abs=0.002)
    rates = draws.mean(axis=0)  # linear in the draw, so the mean draw has the expected rates
    groups, y = rows.groups, rows.y
    by_label = [
        abs(rates[(groups == 0) & part].mean() - rates[(groups == 1) & part].mean())
        for part in (y >= 0, y == 0, y == 1)
    ]
    expected = {
        "demographic_parity": by_label[0],
        "equalized_odds": max(by_label[1:]),
        "false_negative_rate": 1 - rates[y == 1].mean(),
    }
    assert violation == pytest.approx(expected[notion], abs=0.005)


def test_draws_are_those_of_fairlearns_predict():
    reductions = importlib.import_module("benchmarks.solvers.reductions")
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    from fairconstrained.datasets import make_biased_classification

    data = make_biased_classification(300, 6, random_state=0)
    split = objective().prepare(data, seed=3)
    measured = objective().measure(reductions, split, 3, notion="demographic_parity", slack=0.02)
    train, test = split
    model = ExponentiatedGradient(
        objective().base_model(len(train.y)), DemographicParity(difference_bound=0.02)
    ).fit(train.X, train.y, sensitive_features=train.groups)
    predicted = model.predict(test.X, random_state=3)
    assert measured["draw_error"] == (predicted != test.y).mean()


def test_moved_threshold_keeps_the_cap_and_wastes_at_most_one_row():
    module = importlib.import_module("benchmarks.solvers.moved_threshold")
    from fairconstrained.datasets import make_biased_classification

    data = make_biased_classification(500, 6, random_state=1)
    fitted = module.fit(
        data.data, data.target, None, notion="false_negative_rate", slack=0.05, seed=0
    )
    accepted = fitted.acceptance(data.data, None)[data.target == 1]
    missed, allowed = (accepted == 0).sum(), 0.05 * len(accepted)
    assert allowed - 1 < missed <= allowed


def test_error_at_interpolates_the_front_and_does_not_extrapolate_to_the_left():
    at = frontier().error_at([0.1, 0.3, 0.2], [0.4, 0.2, 0.5], [0.05, 0.1, 0.2, 0.3, 9.0])
    np.testing.assert_allclose(at, [np.nan, 0.4, 0.3, 0.2, 0.2])


def test_comparison_is_at_equal_violation_and_over_seeds():
    """Frontier of ours: error 0.4 - violation; the peer lies 0.05 (seed 0), 0.07 (seed 1) above."""
    rows = [
        {"method": method, "slack": slack, "seed": seed, "error": 0.4 - v + above, "violation": v}
        for seed, excess in ((0, 0.05), (1, 0.07))
        for method, slack, v, above in (
            ("ours", 0.1, 0.1, 0.0),
            ("unconstrained", np.nan, 0.3, 0.0),
            ("peer", 0.1, 0.15, excess),
            ("peer", 0.2, 0.25, excess),
        )
    ]
    runs = pd.DataFrame(rows).assign(dataset="d", notion="n", fit_time=1.0)
    for part in ("train", "test"):
        runs = runs.assign(
            **{f"{part}_error": runs["error"], f"{part}_violation": runs["violation"]}
        )
    line = frontier().comparison_table(runs, "ours").splitlines()[-1]
    assert line.count("-0.0600 ± 0.0141") == 2
    assert line.startswith("| d | n | peer | 4 |")
    assert line.endswith("| 1.0 |")


def test_violation_table_marks_what_exceeds_and_what_was_silent():
    runs = pd.DataFrame(
        {
            "dataset": "d",
            "notion": "n",
            "method": "ours",
            "slack": [0.1, 0.2, 0.3],
            "train_violation": [0.1005, 0.25, 0.4],
            "warned": [False, True, False],
        }
    )
    line = frontier().violation_table(runs, "ours", 1e-3).splitlines()[-1]
    entries = [entry.strip() for entry in line.split("|")[3:-1]]
    assert entries == ["0.1005", "0.2500 **exceeds**", "0.4000 **exceeds** **without a warning**"]


def test_scaling_resumes_and_reports(tmp_path, monkeypatch, capsys):
    scaling = importlib.import_module("benchmarks.scaling")
    monkeypatch.setattr(scaling, "apart", lambda function, *args: function(*args))
    arguments = ["--rows", "1000", "2000", "--kinds", "dense20", "--output", str(tmp_path)]
    scaling.main(arguments)
    scaling.main(arguments)
    table = pd.read_csv(tmp_path / "scaling.csv")
    assert table["n_rows"].tolist() == [1000, 2000]
    assert (table["peak_mb"] >= table["loaded_mb"]).all()
    assert (table["violation"] <= scaling.SLACK + 1e-3).all()
    assert "dense20: fit time grows as n^" in capsys.readouterr().out
    assert (tmp_path / "scaling.png").exists()


def test_scaling_measures_in_processes_of_their_own():
    scaling = importlib.import_module("benchmarks.scaling")
    processes = {os.getpid(), scaling.apart(os.getpid), scaling.apart(os.getpid)}
    assert len(processes) == 3


def test_scaling_writes_data_of_the_kind(tmp_path):
    scaling = importlib.import_module("benchmarks.scaling")
    scaling.generate("sparse1000", 200, 0, tmp_path)
    X = sparse.load_npz(tmp_path / "X.npz")
    assert X.shape == (200, 1000)
    assert 0.015 < X.nnz / (200 * 1000) < 0.03


def test_slope_is_the_exponent_of_a_power_law():
    scaling = importlib.import_module("benchmarks.scaling")
    assert scaling.slope([1, 10, 100], [3, 30, 300]) == pytest.approx(1.0)
    assert scaling.slope([1, 10, 100], [2, 200, 20_000]) == pytest.approx(2.0)


@pytest.mark.parametrize("density", [0.05, 0.25, 1.0])
def test_products_are_timed_on_matrices_of_the_density(density):
    products = importlib.import_module("benchmarks.speed.products")
    X = products.one_hot_like(50, 40, density)
    assert (np.diff(X.indptr) == round(40 * density)).all()
    assert X.toarray().max() == 1.0
    assert X.nnz == density * 50 * 40


def test_steps_of_a_module_are_timed_in_turns(tmp_path):
    module_steps = importlib.import_module("benchmarks.speed.module_steps")
    module_steps.main(["--rounds", "2", "--output", str(tmp_path)])
    runs = pd.read_csv(tmp_path / "module_steps.csv")
    assert list(runs["method"]) == ["by hand", "train"] * 2
    assert (runs["ms"] > 0).all()


def test_components_say_what_the_runner_reads():
    runner = importlib.import_module("benchmarks.run")
    methods = [runner.component("solvers", name).METHOD for name in runner.names("solvers")]
    assert len(set(methods)) == len(methods)
    for name in runner.names("datasets"):
        assert callable(runner.component("datasets", name).load)
    fake = SimpleNamespace(slacks=lambda notion, asked: asked[:1] if notion == "a" else [])
    cells = objective().cells(fake, {"notion": ["a", "b"], "slack": [0.1, 0.2]})
    assert cells == [{"notion": "a", "slack": 0.1}]

"""The experiment of paper 5: its measures, table, courses and pictures; an own solver is a file."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("from_root")]

DATA = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(400, 6, random_state=0)
"""
SOLVER = """
from benchmarks.objectives.loss_parity import train_network
from fairconstrained.solvers import {solver}

METHOD = "mine, {solver}"
OBJECTIVES = ["loss_parity"]

def fit(X, y, sensitive_features, **asked):
    solver = {solver}(n_steps=60)
    return train_network(X, y, sensitive_features, solver=solver, **asked)
"""


def load(name):
    return importlib.import_module(f"benchmarks.{name}")


def test_two_methods_from_files_outside_end_in_a_table_and_pictures(tmp_path, capsys):
    (tmp_path / "tiny.py").write_text(DATA)
    solvers = []
    for name in ("SSLALM", "ALM"):
        solvers.append(str(tmp_path / f"{name.lower()}.py"))
        Path(solvers[-1]).write_text(SOLVER.format(solver=name))
    output = tmp_path / "results"
    fixed = ["--objective", "loss_parity", "--output", str(output)]
    data = ["--datasets", str(tmp_path / "tiny.py"), "--solvers", *solvers, "--seeds", "0", "1"]
    main = load("run").main
    assert main([*fixed, *data]) == 0
    table = pd.read_csv(output / "loss_parity.csv")
    assert table["method"].tolist() == ["mine, SSLALM", "mine, ALM"] * 2
    for row in table.to_dict("records"):
        arrays = load("results").arrays(output, row)
        assert arrays["time"].shape == arrays["loss"].shape == arrays["violation"].shape
        assert arrays["time"].shape in {(30,), (31,)}  # iterates, and a known point if it is better
        assert arrays["scores"].shape == arrays["groups"].shape == (80,)
    assert main([*fixed, "--report"]) == 0
    text = capsys.readouterr().out
    assert "| method | Ind | Sp | Ina | Sf | Wd | gap | seconds |" in text
    mean = table[table["method"] == "mine, ALM"]["test_Ina"].mean()
    assert f"{mean:.4f}" in text
    pictures = sorted(path.name for path in output.glob("*.png"))
    assert pictures == [f"tiny-loss_parity-0.005-{k}.png" for k in ("course", "groups", "radar")]


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_measures_by_hand():
    """Two groups of two rows: rates, gaps and distances that can be read off."""
    objective = load("objectives.loss_parity")
    y, groups = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    probability = np.array([0.25, 0.75, 0.75, 0.75])
    values = objective.quality(objective.Rows(None, y, groups), probability, "loss_parity")
    assert values["Ind"] == pytest.approx(0.5)
    assert values["Ina"] == pytest.approx(0.25)
    assert values["Sp"] == pytest.approx(1.0)
    assert values["Wd"] == pytest.approx(0.5 * 0.5**2)
    assert values["gap"] == pytest.approx(0.5 * (np.log(1 / 0.25) - np.log(1 / 0.75)))
    within = objective.quality(objective.Rows(None, y, groups), probability, "equalized_odds")
    assert within["gap"] == pytest.approx(np.log(1 / 0.25) - np.log(1 / 0.75))


def test_courses_are_steps_over_the_time_that_all_runs_saw():
    runs = [
        {"time": np.array([1.0, 2.0, 3.0]), "loss": np.array([5.0, 3.0, 1.0])},
        {"time": np.array([0.5, 2.5]), "loss": np.array([9.0, 1.0])},
    ]
    times, values = load("trajectories").course(runs, "loss")
    assert (times[0], times[-1]) == (1.0, 2.5)
    np.testing.assert_allclose(
        (values["mean"][0], values["median"][-1], values["low"][0]), (7.0, 2.0, 6.0)
    )


def test_data_that_the_paper_uses():
    split = load("objectives.loss_parity").prepare
    from fairconstrained.datasets import make_biased_classification

    data = make_biased_classification(400, 6, random_state=0)
    train, test = split(data, 0)
    assert (len(train.y), len(test.y)) == (320, 80)
    np.testing.assert_allclose(train.X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(train.X.std(axis=0), 1)
    assert train.groups.mean() == pytest.approx(test.groups.mean(), abs=0.02)

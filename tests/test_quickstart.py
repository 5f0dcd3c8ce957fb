"""The README's first command, on tiny data."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from fairconstrained import quickstart
from fairconstrained.datasets import make_biased_classification

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fairlearn's, about pandas
]

GRID = [0.1, 0.4]


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    def few(n_samples, **kwargs):
        return make_biased_classification(1_500, **kwargs)

    monkeypatch.setattr(quickstart, "make_biased_classification", few)


def run(tmp_path, *argv):
    fixed = ["--cv", "2", "--slack", *map(str, GRID), "--max-violation", "0.3"]
    quickstart.main([*fixed, "--output", str(tmp_path), *argv])
    return pd.read_csv(tmp_path / "tradeoff.csv")


def test_writes_the_tradeoff_and_prints_it(tmp_path, capsys):
    table = run(tmp_path / "new")
    out = capsys.readouterr().out
    counts = table.groupby(["rows", "method"])["slack"].agg(["size", "count"])
    assert counts.to_dict("index") == {
        ("cross-validated", "fairconstrained"): {"size": 2, "count": 2},
        ("cross-validated", "unconstrained"): {"size": 1, "count": 0},
        ("held out", "fairconstrained"): {"size": 2, "count": 2},
        ("held out", "reductions"): {"size": 2, "count": 2},
        ("held out", "unconstrained"): {"size": 1, "count": 0},
    }
    assert table[["error", "violation", "fit_time"]].notna().all(axis=None)
    assert (table["error_low"] <= table["error"]).all()
    assert (table["error"] <= table["error_high"]).all()
    assert (table["violation_low"] < table["violation_high"]).all()
    assert "1125 training rows, 375 held-out rows" in out
    assert out.count("<- chosen") == 2
    picture = (tmp_path / "new" / "tradeoff.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_a_tight_slack_lowers_the_violation(tmp_path):
    table = run(tmp_path, "--reductions").set_index(["rows", "method", "slack"])["violation"]
    tight, wide = (table["cross-validated", "fairconstrained", slack] for slack in GRID)
    assert tight < wide - 0.05


@pytest.mark.parametrize(("wanted", "chosen"), [("0.15", 0.1), ("1", 0.4)])
def test_the_wanted_violation_decides(tmp_path, capsys, wanted, chosen):
    """0.4 is more accurate, but only allowed where everything is."""
    table = run(tmp_path, "--max-violation", wanted, "--reductions")
    assert "reductions" not in set(table["method"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "chosen" in line]
    assert [float(line.split()[1]) for line in lines] == [chosen] * 2


@pytest.mark.parametrize("notion", ["equalized_odds", "equal_opportunity"])
def test_other_notions(tmp_path, notion):
    """All methods keep the same notion: each lowers what the unconstrained model has of it."""
    table = run(tmp_path, "--notion", notion, "--reductions", "0.01")
    violation = table[table["rows"] == "held out"].set_index(["method", "slack"])["violation"]
    unconstrained = violation["unconstrained"].item()
    assert violation["fairconstrained", 0.1] < unconstrained
    assert violation["reductions", 0.01] < unconstrained


def test_tables_with_words_and_codes(tmp_path, monkeypatch):
    """Real data: words and codes become indicators, numbers are standardised."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(40, 9, 300), "job": rng.choice(["a", "b"], 300), "SEX": 1}
    )
    target = (frame["age"] + rng.normal(0, 5, 300) > 40).to_numpy().astype(int)
    groups = pd.Series(rng.choice(["f", "m"], 300))
    bunch = make_biased_classification(300)
    bunch.update(data=frame, target=target, sensitive_features=groups)
    monkeypatch.setattr(quickstart, "load_dataset", lambda name: bunch)
    data = quickstart._load("credit_card", seed=0)
    assert data.categorical == ["job", "SEX"]
    encoded = quickstart._preprocessing(data.categorical).fit_transform(data.X)
    assert encoded.shape == (300, 2 + 1 + 1)
    table = run(tmp_path, "--dataset", "credit_card", "--max-violation", "0.1")
    bounds = table.loc[table["method"] == "reductions", "slack"].tolist()
    assert bounds == [0.1]  # one fit only, at the wanted violation


def test_missing_data_end_in_a_sentence(tmp_path, monkeypatch):
    def missing(name):
        raise FileNotFoundError(f"{name} is not there; put it here.")

    monkeypatch.setattr(quickstart, "load_dataset", missing)
    with pytest.raises(SystemExit, match="adult is not there"):
        run(tmp_path, "--dataset", "adult")


def test_without_fairlearn_the_rest_runs(tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "fairlearn" else find(name)
    )
    table = run(tmp_path)
    assert "reductions" not in set(table["method"])
    assert "fairconstrained[bench]" in capsys.readouterr().out


def test_unknown_dataset_is_refused(capsys):
    with pytest.raises(SystemExit):
        quickstart.main(["--dataset", "nothing"])
    assert "'adult'" in capsys.readouterr().err

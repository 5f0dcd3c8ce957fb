"""The README's first command, on tiny data."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest

from fairconstrained import RateConstrainedClassifier, quickstart
from fairconstrained.datasets import make_loan_applications
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.arguments import read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # fairlearn's, about pandas
]
GRID = [0.02, 0.3]
NAMES = ("trees", "linear")


class Missing(RateConstrainedClassifier):
    """A fit that misses its slack, says so by a warning, and grants nobody after many rows."""

    many = 1_000  # more than a fold of the training rows has

    def fit(self, X, y, **kwargs):
        super().fit(X, y, **kwargs)
        self.grants_ = len(y) < self.many
        self.feasible_, self.violation_, self.training_violation_ = False, 0.5, 0.4
        warnings.warn("beside a bar", ConstraintNotSatisfiedWarning, stacklevel=1)
        return self

    def predict(self, X):
        return super().predict(X) * self.grants_


@pytest.fixture(autouse=True, scope="module")
def _few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "make_loan_applications", partial(make_loan_applications, 1_600))
        yield


def run(tmp_path, *argv):
    fixed = ["--cv", "2", "--slack", *map(str, GRID), "--max-violation", "0.4"]
    quickstart.main([*fixed, "--output", str(tmp_path), *argv])
    return pd.read_csv(tmp_path / "tradeoff.csv")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a run, its trade-off, and what it has printed."""
    folder = tmp_path_factory.mktemp("results") / "new"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        table = run(folder)
    return folder, table, printed.getvalue()


def test_writes_the_tradeoff_and_prints_it(ran):
    folder, table, out = ran
    counts = table.groupby(["rows", "method"])["slack"].agg(["size", "count"])
    methods = {("cross-validated", "trees"), ("cross-validated", "linear")}
    methods |= {("held out", name) for name in ("trees", "linear", "reductions")}
    assert counts[counts["count"] == 2].index.to_list() == sorted(methods)
    free = sorted({(rows, f"{name}, unconstrained") for rows, name in methods if name in NAMES})
    assert counts[(counts["size"] == 1) & (counts["count"] == 0)].index.to_list() == free
    assert table[["error", "violation", "fit_time"]].notna().all(axis=None)
    assert (table["error_low"] <= table["error"]).all()
    assert (table["error"] <= table["error_high"]).all()
    assert (table["violation_low"] < table["violation_high"]).all()
    violation = table.set_index(["rows", "method", "slack"])["violation"]
    for method in NAMES:
        tight, wide = (violation["cross-validated", method, slack] for slack in GRID)
        assert tight < wide - 0.05
    assert "1200 training rows, 400 held-out rows, 8 features" in out
    assert out.count("<- chosen") == 2
    assert "its slack bounds each group against all rows" in out
    assert "predicted 'granted'" in out
    for picture in ("tradeoff.png", "groups.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")


def test_what_is_written_is_the_chosen_model_and_what_it_does(ran):
    """The model predicts what the report counts and the certificate bounds."""
    folder, table, out = ran
    [name, slack] = out.split("chosen: ")[1].split(";")[0].split(", slack ")
    model = joblib.load(folder / "model.joblib")
    _, test = steps.held_out(steps.generated(seed=0), read([], None))
    predicted = model.predict(test.X)
    gap = demographic_parity_difference(test.y, predicted, sensitive_features=test.groups)
    held_out = table[(table["rows"] == "held out") & (table["method"] == name)]
    assert held_out.set_index("slack")["violation"][float(slack)] == pytest.approx(gap)
    report = pd.read_csv(folder / "groups.csv", index_col=0)
    assert report["selection_rate"]["overall"] == pytest.approx(predicted.mean())
    audit = json.loads((folder / "audit.json").read_text())
    assert audit["groups"][0]["selection_rate"] == pytest.approx(predicted.mean())
    assert audit["answer"] in out
    assert audit["findings"][0].startswith(f"The model: {steps.in_words(name, float(slack))}")
    change = audit["changes"][0]
    assert change["gained"] + change["lost"] + change["kept"] + change["never"] == len(test.y)
    assert change["gained"] + change["kept"] == predicted.sum()
    free = table[(table["rows"] == "held out") & (table["method"] == f"{name}, unconstrained")]
    assert change["error_before"] == pytest.approx(free["error"].item())
    assert "Who changed" in (folder / "audit.html").read_text()
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["estimate"] == pytest.approx(gap)
    assert certificate["upper"] > gap
    assert ("IS CERTIFIED" in out) == certificate["kept"] == (certificate["upper"] <= 0.4)


def test_the_wanted_violation_decides_and_without_fairlearn_there_are_no_reductions(
    tmp_path, monkeypatch, capsys
):
    """A slack of 0.3 is more accurate, but violates more."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "fairlearn" else find(name)
    )
    table = run(tmp_path, "--max-violation", "0.12")
    out = capsys.readouterr().out
    chosen = [line.split() for line in out.splitlines() if "<- chosen" in line]
    assert [float(slack) for _, slack, *_ in chosen] == [0.02] * 2
    assert "reductions" not in set(table["method"])
    assert "pip install fairlearn" in out


def test_candidates_that_miss_their_slack_or_grant_nobody_are_named(tmp_path, monkeypatch):
    """Warnings are errors in tests: what fits say about it is in the first lines instead."""
    monkeypatch.setattr(steps, "RateConstrainedClassifier", Missing)
    run(tmp_path, "--reductions", "--max-violation", "0")
    audit = json.loads((tmp_path / "audit.json").read_text())
    findings = audit["findings"]
    (nearest,) = (line for line in findings if "came closest" in line)
    assert nearest.startswith("No useful model kept a gap of 0.0 points in cross-validation: ")
    assert " with a limit of 2 points came closest, with " in nearest
    assert audit["headline"].startswith("Nobody gets the favourable decision")
    for name in ("Boosted trees", "A linear model"):
        gap = "the gap on the training rows is 50.0 points out of fold"
        gap += ", and 40.0 by the model that predicts."
        nobody = "nobody of the held-out rows gets the favourable decision."
        assert f"{name} with a limit of 2 points: {gap}" in findings
        assert f"{name} with a limit of 30 points: {nobody}" in findings


def test_a_model_that_grants_nobody_is_never_chosen(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(steps, "RateConstrainedClassifier", Missing)
    monkeypatch.setattr(Missing, "many", 0)
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--reductions")
    message = capsys.readouterr().err
    assert "No useful model was found: with every slack" in message
    assert "Try more than --slack 0.3" in message
    assert not (tmp_path / "model.joblib").exists()


def test_data_sets_with_words_and_codes(tmp_path, monkeypatch, capsys):
    """Codes are words; reductions are fitted once, at the wanted violation; odds are printed."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 9, 300), "job": rng.choice(["a", "b"], 300)})
    frame["SEX"], y = 1, (frame["age"] + rng.normal(0, 5, 300) > 40).to_numpy().astype(int)
    groups = pd.Series(rng.choice(["f", "m"], 300))
    bunch = make_loan_applications(300)
    bunch.update(data=frame, target=y, target_names=["young", "old"], sensitive_features=groups)
    monkeypatch.setattr(steps, "load_dataset", lambda name: bunch)
    assert steps.dataset("credit_card").words == ["job", "SEX"]
    odds = ["--constraint", "equalized_odds", "--max-violation", "0.2"]
    table = run(tmp_path, "--dataset", "credit_card", *odds)
    assert "false positive rate" in capsys.readouterr().out
    assert table.loc[table["method"] == "reductions", "slack"].tolist() == [0.2]


def test_missing_data_end_in_a_sentence(tmp_path, monkeypatch, capsys):
    def missing(name):
        raise FileNotFoundError(f"{name} is not there; put it here.")

    monkeypatch.setattr(steps, "load_dataset", missing)
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path, "--dataset", "adult")
    assert capsys.readouterr().err == "adult is not there; put it here.\n"

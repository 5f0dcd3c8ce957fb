"""Choices of one setting: every variant is fitted on equal terms, and tables say which it was."""

import importlib

import pandas as pd
import pytest

from tests.helpers.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("from_root")]

TINY = """
from fairconstrained.datasets import make_biased_classification

def load():
    return make_biased_classification(400, 6, random_state=0)
"""


@pytest.fixture
def choices():
    return importlib.import_module("benchmarks.choices")


def test_a_row_for_each_variant_within_its_slack(tmp_path, choices):
    (tmp_path / "tiny.py").write_text(TINY)
    for name in ("temperature", "ranking_penalty"):
        choice = choices.CHOICES[name]._replace(slacks=[0.02])
        rows = choices.compared(choice, [str(tmp_path / "tiny.py")], [0])
        table = choices.summary(pd.DataFrame(rows))
        variants = [f"{k}={v}" for settings in choice.variants for k, v in settings.items()]
        assert table["with"].tolist() == variants * len(choice.notions)
        assert (table["train_violation"] <= 0.022).all()
        assert (table["excess"] == (table["test_violation"] - 0.02).clip(lower=0).round(4)).all()
        assert table["train_error"].nunique() > len(choice.notions)  # the settings reach the fits


def test_the_architecture_page_names_choices_that_exist(choices):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = page.split("benchmarks.choices ")[1:]
    assert named
    assert {text.split("`")[0].split()[0] for text in named} <= set(choices.CHOICES)

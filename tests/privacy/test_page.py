"""The page of promises: each claim names tests that exist, and its figures are those of plans."""

import re

import pytest
import torch

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.privacy import Budget, Gaussian, Phase, mechanisms
from fairconstrained.privacy.plans import one_off_noise
from tests.helpers.releases import plan_of
from tests.helpers.repository import ROOT

PAGE = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
TEST = r"`(test_\w+)`"


def claims():
    """Paragraphs, items of lists and rows of tables, but for what code or a table below shows."""
    text = PAGE[: PAGE.index("(not-promised)=")] + PAGE[PAGE.index("## How it is checked") :]
    text = re.sub(r"^```python.*?^```$", "```", text, flags=re.MULTILINE | re.DOTALL)
    blocks = text.split("\n\n")
    for block, below in zip(blocks, [*blocks[1:], ""], strict=True):
        shown_below = below.startswith("```") or "| shown by |" in below.partition("\n")[0]
        if shown_below or block.startswith(("#", "(", "```")):
            continue
        if not block.startswith("|"):
            yield from re.split(r"\n(?=- )", block)
        elif "| shown by |" in block:
            yield from block.split("\n")[2:]


def test_every_test_that_the_page_names_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    functions = set(re.findall(r"^def (test_\w+)", "\n".join(sources), flags=re.MULTILINE))
    named = set(re.findall(TEST, PAGE))
    assert len(named) >= 80
    assert named <= functions


def test_each_claim_names_a_test():
    assert [claim for claim in claims() if not re.search(TEST, claim)] == []


def planned(clf, unit="record"):
    """The fraction of the budget of each release, in percent; of a step relative to each other."""
    budget = Budget(1.0, 1e-5, unit)
    plan, whole = clf.set_params(epsilon=budget).planned_privacy(10_000), one_off_noise(1.0, budget)
    return {
        name: 100.0 * times * (whole / release.noise) ** 2
        for name, (release, times) in plan.releases.items()
    }


def on_the_page(heading):
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [float(number) for number in re.findall(r"\| ([\d.]+) %[^|]*\|$", section, re.MULTILINE)]


def test_the_page_has_the_fractions_that_are_planned():
    rates = planned(RateConstrainedClassifier())
    of_steps = [rates.pop(name) for name in ("histogram", "gradient")]
    *before, after = [rates.pop(name) for name in ("group counts", *list(rates)[2:], "final table")]
    steps = [100.0 * part / sum(of_steps) for part in of_steps]
    assert on_the_page("All releases") == pytest.approx([*before, *steps, after], rel=1e-3)
    assert not rates
    plan = RateConstrainedClassifier(epsilon=1.0).planned_privacy(10_000)
    assert plan.releases["final table"][1] == 6
    assert "| up to six times, after |" in PAGE
    ranking = planned(AUCFairClassifier())
    assert on_the_page("Private ranking") == pytest.approx(list(ranking.values()), rel=1e-3)
    records = planned(DPFermiClassifier(protect="record"))
    once = [part for name, part in records.items() if name not in ("histogram", "gradient")]
    assert sorted(once) == pytest.approx([0.5, 0.5, 0.5, 0.5, 2.0], rel=1e-3)
    for clf in (DPFermiClassifier(), RateConstrainedClassifier(protect="sensitive_features")):
        groups = list(planned(clf, "sensitive_features").values())
        assert groups == pytest.approx([46.0, 23.0, 23.0, 2.0, 5.0], rel=1e-3)


def test_no_release_is_made_more_often_than_planned():
    releases = mechanisms.Releases(plan_of(Phase([Gaussian(1.0, of="sum")], n_steps=2)))
    rng, total = torch.Generator().manual_seed(0), torch.zeros(3)
    for _ in range(2):
        releases.noisy("sum", total, 1.0, rng)
    for name in ("sum", "another sum"):
        with pytest.raises(RuntimeError, match=f"the plan has no {name} left"):
            releases.noisy(name, total, 1.0, rng)

"""The worked examples of the pages in docs/ run as written."""

import re

import pytest

from tests.helpers.repository import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"


def examples_of(page):
    """What the python blocks of a page define, run one after the other."""
    blocks = re.findall(
        r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL
    )
    namespace = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
    return len(blocks), namespace


def test_the_examples_of_the_architecture_run_in_the_order_of_the_page():
    n_blocks, namespace = examples_of("architecture.md")
    assert n_blocks == 4
    assert namespace["clf"].n_iter_ >= 1


@pytest.mark.filterwarnings(
    # the estimate is noisy
    "ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning"
)
def test_the_example_of_privacy_runs():
    n_blocks, namespace = examples_of("privacy.md")
    assert n_blocks == 3
    assert namespace["clf"].privacy_.n_steps == 400

"""The worked examples of docs/architecture.md run as written."""

import re
from pathlib import Path

ARCHITECTURE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_the_examples_run_in_the_order_of_the_page():
    blocks = re.findall(r"```python\n(.*?)```", ARCHITECTURE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    namespace = {}
    for block in blocks:
        exec(compile(block, str(ARCHITECTURE), "exec"), namespace)
    assert namespace["clf"].n_iter_ >= 1

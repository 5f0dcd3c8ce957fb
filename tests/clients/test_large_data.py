"""The sections of the page on large data run, each as a program of its own."""

import os
import re
import subprocess
import sys

import pytest

from tests.helpers.pages import BLOCK, missing
from tests.helpers.processes import needs_gloo
from tests.helpers.repository import ROOT

TEXT = (ROOT / "docs" / "guide" / "large_data.md").read_text(encoding="utf-8")
_, *SECTIONS = re.split(r"^## (?=.)", TEXT, flags=re.MULTILINE)
PROGRAMS = {
    section.partition("\n")[0]: "\n".join(blocks)
    for section in SECTIONS
    if (blocks := BLOCK.findall(section))
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_every_way_has_a_program():
    assert list(PROGRAMS) == ["Blocks of a file", "Several processes", "Dask", "Spark", "Ray"]


@pytest.mark.slow
@needs_gloo
@pytest.mark.parametrize("section", PROGRAMS)
def test_the_program_of_a_section_runs(section, tmp_path):
    """To its last assertion: the constraint holds on all rows."""
    program = PROGRAMS[section]
    if absent := missing(program):
        pytest.skip(f"not installed: {absent}")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    start = TORCHRUN if section == "Several processes" else []
    done = subprocess.run(
        [sys.executable, *start, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert section != "Several processes" or "2 workers, gap 0.0" in done.stdout

"""The programs on the pages about other libraries and large data run to their last assertion."""

import ast
import importlib.util

import pytest

from tests.helpers.clients import array_api, run_python
from tests.helpers.pages import BLOCK, page
from tests.helpers.processes import needs_gloo

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
QUIET = "import warnings\nwarnings.simplefilter('ignore')\n"
LARGE = {title: program for title, program in page("large_data")[1].items() if program}
ENGINES = ["Dask", "Spark", "Ray"]  # their programs run where engines are tested
START, OTHERS = page("works_with")


def missing(code):
    names = set()
    for node in ast.walk(ast.parse(code)):
        names |= {node.module} if isinstance(node, ast.ImportFrom) else set()
        names |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
    return sorted(
        name
        for name in names
        if importlib.util.find_spec(name.partition(".")[0]) is None
        or (name == "sklearn.callback" and importlib.util.find_spec(name) is None)
    )


def run(program, folder, *start, **environment):
    if absent := missing(program):
        pytest.skip(f"not installed: {absent}")
    (folder / "program.py").write_text(program, encoding="utf-8")
    return run_python(*start, "program.py", cwd=folder, **environment)


def test_every_section_has_a_program():
    assert list(LARGE) == ["Blocks of a file", "Several processes", *ENGINES]
    assert len(OTHERS) >= 10
    assert all(OTHERS.values())


@pytest.mark.slow
@needs_gloo
@pytest.mark.parametrize("section", [title for title in LARGE if title not in ENGINES])
def test_the_program_of_a_section_on_large_data_runs(section, tmp_path):
    workers = section == "Several processes"
    shown = run(LARGE[section], tmp_path, *(TORCHRUN if workers else []), OMP_NUM_THREADS="1")
    assert not workers or "2 workers, gap 0.0" in shown


@pytest.mark.slow
@pytest.mark.parametrize("dispatched", [False, True], ids=["others", "array API"])
def test_the_programs_of_sections_on_other_libraries_run(dispatched, tmp_path):
    """One after the other: scipy is asked for the array API before it is imported."""
    if dispatched and not array_api():
        pytest.skip("scikit-learn before 1.9 needs more packages for its array API")
    programs = {
        section: "\n".join([QUIET, *BLOCK.findall(START), code])
        for section, code in OTHERS.items()
        if ("array_api_dispatch" in code) == dispatched and not missing(code)
    }
    each = f"for section, code in {programs!r}.items():\n"
    each += "    exec(compile(code, section, 'exec'), {})\n"
    run(each, tmp_path, "-W", "error", **({"SCIPY_ARRAY_API": "1"} if dispatched else {}))

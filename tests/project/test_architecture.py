"""Imports go one way, functions stay readable: read from the source, nothing is run."""

import ast
import functools
import graphlib
import re
from pathlib import Path

import fairconstrained
from tests.helpers.repository import ROOT as REPOSITORY

ROOT = Path(fairconstrained.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MECHANISMS = ROOT / "privacy" / "mechanisms.py"
MAX_FUNCTION = 60  # lines
# What each module or subpackage may import of this package: only what stands above it. A
# constraint sees scores and no model, a solver sees a problem and no data; metrics, data sets,
# searches and pictures know nothing of training.
LAYERS = """
_version
exceptions
numerics
arrays
inputs: exceptions, arrays
groups: arrays, inputs
percentiles: arrays, inputs
exact_auc: arrays
rate_definitions: arrays
comparison: arrays
losses
distributed: exceptions, arrays
blocks
engines
sharing
models: arrays, inputs, groups, distributed, sharing
constraints: arrays, inputs, groups, percentiles, exact_auc, rate_definitions, comparison, losses
privacy: exceptions, arrays
metrics: exceptions, arrays, inputs, groups, percentiles, exact_auc, rate_definitions, comparison,
    engines
audit: _version, exceptions, arrays, inputs, rate_definitions, comparison, engines, metrics
monitoring: exceptions, arrays, inputs, rate_definitions, comparison, engines, metrics
datasets: _version, arrays
problems: arrays, exact_auc, rate_definitions, losses, distributed, models, constraints
problems.private: exceptions, losses, models, constraints, privacy, problems
solvers: exceptions, arrays, distributed, models, privacy, problems, problems.private
training: arrays, inputs, distributed, models, constraints, problems, solvers
fit: exceptions, arrays, inputs, groups, comparison, losses, distributed, blocks, engines, sharing,
    models, constraints, privacy, problems, problems.private, solvers
estimators: exceptions, arrays, inputs, groups, percentiles, losses, distributed, engines,
    sharing, models, constraints, privacy, problems, problems.private, solvers, fit
model_selection: exceptions, arrays, inputs, groups, rate_definitions, sharing, privacy, metrics
display: arrays, metrics, model_selection
export: inputs, models, metrics, estimators
the package: _version, audit, estimators
quickstart: exceptions, arrays, inputs, comparison, distributed, models, metrics, audit, datasets,
    model_selection, display, the package
"""
ROWS = (row.partition(": ") for row in LAYERS.strip().replace("\n    ", " ").split("\n"))
MAY_IMPORT = {room: set(allowed.split(", ")) - {""} for room, _, allowed in ROWS}
WITHOUT_TORCH = {
    *("exceptions", "numerics", "arrays", "blocks", "engines", "inputs", "groups"),
    *("percentiles", "exact_auc", "rate_definitions", "comparison", "sharing"),
    *("metrics", "monitoring", "datasets", "privacy", "model_selection", "display"),
}


def unit(path):
    return unit_of(path.relative_to(ROOT).with_suffix("").parts)


def unit_of(parts):
    """The longest name of a unit that a dotted name begins with."""
    names = (".".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in MAY_IMPORT), "the package")


def imports(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def units_imported(path):
    names = [name.split(".") for name in imports(ast.walk(parsed(path)))]
    return {unit_of(name[1:]) for name in names if name[0] == "fairconstrained"} - {unit(path)}


def packages(names):
    return {name.partition(".")[0] for name in names}


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def offenders(check):
    return {str(path.relative_to(ROOT)): names for path in FILES if (names := check(path))}


def test_the_table_of_layers_is_complete_and_goes_one_way():
    """Each row names rows above it only, so there can be no cycle; torch stays in its part."""
    assert {unit(path) for path in FILES} == set(MAY_IMPORT)
    above = set()
    for name, allowed in MAY_IMPORT.items():
        assert allowed <= above, f"{name} would import what stands below it: {allowed - above}"
        above.add(name)
    for name in WITHOUT_TORCH:
        assert MAY_IMPORT[name] <= WITHOUT_TORCH | {"_version"}


def test_imports_go_one_way():
    """The numbers of `numerics` are for all."""
    assert not offenders(lambda path: units_imported(path) - {"numerics"} - MAY_IMPORT[unit(path)])


def test_files_of_a_room_import_each_other_one_way():
    """Late imports included: a file can be read before those that use it."""
    for room in {path.parent for path in FILES}:
        files = {path.stem: path for path in room.glob("*.py") if path.stem != "__init__"}
        prefix = ".".join(("fairconstrained", *room.relative_to(ROOT).parts, ""))
        named = {
            name: {full.removeprefix(prefix).partition(".")[0] for full in full_names}
            for name, path in files.items()
            if (full_names := [n for n in imports(ast.walk(parsed(path))) if n.startswith(prefix)])
        }
        graph = {name: others & files.keys() for name, others in named.items()}
        graphlib.TopologicalSorter(graph).prepare()


def test_solvers_see_problems_and_neither_data_nor_notions():
    """Of the problems they import names of capabilities and values, and points to compare with."""
    vocabulary = {
        *("base.Problem", "base.SampledProblem", "base.Sharpenable"),
        *("base.Linearization", "base.Evaluation", "base.cached_last"),
        *("baselines.ERROR_TOL", "baselines.Baseline", "saddle.Saddle"),
    }
    allowed = {f"fairconstrained.problems.{name}" for name in vocabulary}
    rooms = (
        *("solvers", "arrays", "numerics", "exceptions"),
        *("distributed.one_thread", "privacy.Budget"),
    )

    def of_problems(path):
        if unit(path) != "solvers" or path.parent.name == "private":
            return set()
        names = {n for n in imports(ast.walk(parsed(path))) if n.startswith("fairconstrained.")}
        elsewhere = tuple(f"fairconstrained.{room}" for room in rooms)
        return {name for name in names if not name.startswith(elsewhere)} - allowed

    assert not offenders(of_problems)


def test_torch_stays_where_something_is_trained():
    """The one exception is the noise, of which torch's generators are the source."""
    without = [path for path in FILES if unit(path) in WITHOUT_TORCH and path != MECHANISMS]
    assert without
    torch = {path for path in without if "torch" in packages(imports(ast.walk(parsed(path))))}
    assert not torch


def test_noise_is_added_where_releases_are_counted():
    """Whatever is released goes through the class that refuses what the plan has not priced."""
    used = {"with_gaussian_noise", "with_laplace_noise", "ADD_NOISE"}
    others = [path for path in FILES if path != MECHANISMS]
    assert not [path for path in others if any(name in path.read_text() for name in used)]


def length(function):
    """Lines of a function without its docstring and without those of functions inside it."""
    docstrings = 0
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstrings += node.body[0].end_lineno - node.body[0].lineno + 1
    return function.end_lineno - function.lineno + 1 - docstrings


def test_functions_fit_on_a_screen():
    def too_long(path):
        functions = [n for n in ast.walk(parsed(path)) if isinstance(n, ast.FunctionDef)]
        return {f.name: length(f) for f in functions if length(f) > MAX_FUNCTION}

    assert not offenders(too_long)


def test_tests_share_helpers_and_never_import_each_other():
    modules = sorted((REPOSITORY / "tests").rglob("*.py"))
    assert len(modules) > 100
    of_tests = re.compile(r"^\s*(?:from|import) +(tests\b(?!\.helpers\.)\S*|\.)", re.MULTILINE)
    found = {path.name: of_tests.findall(path.read_text(encoding="utf-8")) for path in modules}
    assert not {name: imported for name, imported in found.items() if imported}

"""Run a benchmark: every solver on every data set, for every seed and every parameter.

    python -m benchmarks.run --datasets adult compas --seeds 0 1 2
    python -m benchmarks.run --objective loss_parity --datasets acs_income_white --workers 2
    python -m benchmarks.run --report

Each finished run is a row of <output>/<objective>.csv; a second call skips what is there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from tqdm.auto import tqdm

from benchmarks import results
from benchmarks.solvers import grid

HERE = Path(__file__).parent
KEY = ["objective", "dataset", "method", "seed"]


class Cell(NamedTuple):
    """One run that is still to do, in names: it may be done in another process."""

    dataset: str
    seed: int
    parameters: dict[str, Any]
    solver: str
    method: str


def component(kind: str, name: str) -> Any:
    """Load an objective, data set or solver by its name, or by the path of its file."""
    if not name.endswith(".py"):
        known = components(kind)
        if name not in known:
            raise SystemExit(f"{kind}: {name!r} is neither one of {sorted(known)} nor a .py file.")
        return known[name]
    if not Path(name).exists():
        raise SystemExit(f"{kind}: there is no file {name}.")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def components(kind: str) -> dict[str, Any]:
    """Give everything of this kind by name: files, and entries of the tables in files."""
    found: dict[str, Any] = {}
    for path in sorted((HERE / kind).glob("[a-z]*.py")):
        module = importlib.import_module(f"benchmarks.{kind}.{path.stem}")
        found |= getattr(module, kind.upper(), {path.stem: module})
    return found


def names(kind: str) -> list[str]:
    """Give the names of everything of this kind."""
    return sorted(components(kind))


def main(argv: Sequence[str] | None = None) -> int:
    """Run or report; 1 if a run failed."""
    objective_name, objective, options = _options(argv)
    path = options.output / f"{Path(objective_name).stem}.csv"
    if options.report:
        key = [*KEY, *objective.PARAMETERS]
        rows = results.table(path, key, objective.COLUMNS)
        print(results.markdown(results.means(rows, key, objective.COLUMNS)))
        return 0
    asked = {name: getattr(options, name) for name in objective.PARAMETERS}
    cells = _cells(options.solvers, options.datasets, options.seeds, asked)
    key = [*KEY, *objective.PARAMETERS]
    columns = [*key, *objective.COLUMNS, "versions"]
    done = results.finished(path, key)
    rows = [(cell, _key(objective_name, cell)) for cell in cells]
    todo = [(cell, row) for cell, row in rows if tuple(map(str, row.values())) not in done]
    print(f"{path}: {len(rows) - len(todo)} of {len(rows)} runs are there.")
    with _telling(path):
        results.writable(path, columns)
        failures = _run(objective_name, todo, path, columns, key, options.workers)
    for text in failures:
        print(text, file=sys.stderr)
    return 1 if failures else 0


def measured(objective_name: str, cell: Cell) -> tuple[dict[str, Any], str]:
    """Do one run, in whatever process; return what was measured, or why it failed."""
    objective = component("objectives", objective_name)
    try:
        split = _prepared(objective_name, cell.dataset, cell.seed)
        solver = component("solvers", cell.solver)
        return objective.measure(solver, split, cell.seed, **cell.parameters), ""
    except Exception:
        return {}, traceback.format_exc()


@lru_cache(maxsize=1)
def _prepared(objective_name: str, dataset: str, seed: int) -> Any:
    data = component("datasets", dataset).load()
    return component("objectives", objective_name).prepare(data, seed)


def _run(
    objective_name: str,
    todo: list[tuple[Cell, dict[str, Any]]],
    path: Path,
    columns: list[str],
    key: list[str],
    workers: int,
) -> list[str]:
    """Store each run as it ends; a failure leaves its cell for the next call."""
    failures = []
    _prepared.cache_clear()
    calls = (delayed(_with_row)(objective_name, cell, row) for cell, row in todo)
    runs = Parallel(workers, return_as="generator_unordered")(calls)
    for row, values, failure in tqdm(runs, total=len(todo), unit="run"):
        if failure:
            failures.append(f"{row} failed:\n{failure}")
        else:
            values["versions"] = results.versions()
            results.append(path, {**row, **values}, columns, key)
    return failures


def _with_row(
    objective_name: str, cell: Cell, row: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], str]:
    return row, *measured(objective_name, cell)


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Errors of writing in words."""
    try:
        yield
    except OSError as error:
        raise SystemExit(
            f"{path} cannot be written: {error}. The runs that it holds are complete; a further "
            "call does the others."
        ) from error


def _key(objective: str, cell: Cell) -> dict[str, Any]:
    values = (Path(objective).stem, Path(cell.dataset).stem, cell.method, cell.seed)
    return {**dict(zip(KEY, values, strict=True)), **cell.parameters}


def _cells(
    solvers: list[str],
    datasets: list[str],
    seeds: list[int],
    asked: dict[str, list[Any]],
) -> Iterator[Cell]:
    """All runs; those of different solvers with equal parameters are neighbours."""
    loaded = [(name, component("solvers", name)) for name in solvers]
    wanted = [
        (parameters, name, solver.METHOD)
        for name, solver in loaded
        for parameters in getattr(solver, "cells", grid)(asked)
    ]
    wanted.sort(
        key=lambda run: [
            asked[name].index(value) if value in asked[name] else -1
            for name, value in run[0].items()
        ]
    )
    for dataset in datasets:
        for seed in seeds:
            for run in wanted:
                yield Cell(dataset, seed, *run)


def _options(argv: Sequence[str] | None) -> tuple[str, ModuleType, argparse.Namespace]:
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--objective", default="rate_constrained", help=f"{names('objectives')}")
    name = first.parse_known_args(argv)[0].objective
    objective = component("objectives", name)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run",
        description=__doc__,
        parents=[first],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Objectives, data sets and solvers are names, or paths of files of your own.",
    )
    solvers = sorted(s for s, solver in components("solvers").items() if name in solver.OBJECTIVES)
    parser.add_argument("--datasets", nargs="+", default=names("datasets"), help="default: all")
    parser.add_argument("--solvers", nargs="+", default=solvers, help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="default: 0")
    parser.add_argument("--output", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--workers", type=int, default=1, help="1, the default, for fit times")
    parser.add_argument("--report", action="store_true", help="print means, run none")
    for parameter, values in objective.PARAMETERS.items():
        parser.add_argument(
            f"--{parameter}", nargs="+", type=type(values[0]), default=values, help=f"{values}"
        )
    return name, objective, parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""Run a benchmark: every solver on every data set, for every seed and every parameter.

    python -m benchmarks.run --datasets adult compas --seeds 0 1 2
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
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pandas as pd
from tqdm.auto import tqdm

from benchmarks import results

HERE = Path(__file__).parent
KEY = ["objective", "dataset", "method", "seed"]


class Cell(NamedTuple):
    """One run that is still to do."""

    dataset: str
    seed: int
    parameters: dict[str, Any]
    solver: ModuleType


def component(kind: str, name: str) -> ModuleType:
    """Load an objective, data set or solver by its name, or by the path of its file."""
    if not name.endswith(".py"):
        known = names(kind)
        if name not in known:
            raise SystemExit(f"{kind}: {name!r} is neither one of {known} nor a .py file.")
        return importlib.import_module(f"benchmarks.{kind}.{name}")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(kind: str) -> list[str]:
    """Give the names of the files of this kind."""
    return sorted(path.stem for path in (HERE / kind).glob("[a-z]*.py"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run or report; 1 if a run failed."""
    objective_name, objective, options = _options(argv)
    path = options.output / f"{Path(objective_name).stem}.csv"
    if options.report:
        if not path.exists():
            raise SystemExit(f"{path} does not exist: no run has finished yet.")
        table = objective.report(pd.read_csv(path), options.output)
        path.with_suffix(".md").write_text(table + "\n")
        print(table)
        return 0
    asked = {name: getattr(options, name) for name in objective.PARAMETERS}
    solvers = [component("solvers", name) for name in options.solvers]
    cells = _cells(objective, solvers, options.datasets, options.seeds, asked)
    key = [*KEY, *objective.PARAMETERS]
    columns = [*key, *objective.COLUMNS, "versions"]
    done = results.finished(path, key)
    rows = [(cell, _key(objective_name, cell)) for cell in cells]
    todo = [(cell, row) for cell, row in rows if tuple(map(str, row.values())) not in done]
    print(f"{path}: {len(rows) - len(todo)} of {len(rows)} runs are there.")
    failures = _run(objective, todo, path, columns)
    for text in failures:
        print(text, file=sys.stderr)
    return 1 if failures else 0


def _run(
    objective: ModuleType,
    todo: list[tuple[Cell, dict[str, Any]]],
    path: Path,
    columns: list[str],
) -> list[str]:
    """Run cell after cell, nothing beside it; a failure leaves its cell for the next call."""
    failures = []
    loaded: tuple[Any, Any] = (None, None)
    with tqdm(todo, unit="run", disable=not todo) as bar:
        for cell, row in bar:
            bar.set_postfix_str(" ".join(map(str, row.values())))
            if loaded[0] != (cell.dataset, cell.seed):
                data = component("datasets", cell.dataset).load()
                loaded = (cell.dataset, cell.seed), objective.prepare(data, cell.seed)
            try:
                measured = objective.measure(cell.solver, loaded[1], cell.seed, **cell.parameters)
            except Exception:
                failures.append(f"{row} failed:\n{traceback.format_exc()}")
                continue
            results.append(path, {**row, **measured, "versions": results.versions()}, columns)
    return failures


def _key(objective: str, cell: Cell) -> dict[str, Any]:
    values = (Path(objective).stem, Path(cell.dataset).stem, cell.solver.METHOD, cell.seed)
    return {**dict(zip(KEY, values, strict=True)), **cell.parameters}


def _cells(
    objective: ModuleType,
    solvers: list[ModuleType],
    datasets: list[str],
    seeds: list[int],
    asked: dict[str, list[Any]],
) -> Iterator[Cell]:
    """All runs; those of different solvers with equal parameters are neighbours."""
    wanted = [
        (solver, parameters) for solver in solvers for parameters in objective.cells(solver, asked)
    ]
    wanted.sort(
        key=lambda run: [
            asked[name].index(value) if value in asked[name] else -1
            for name, value in run[1].items()
        ]
    )
    for dataset in datasets:
        for seed in seeds:
            for solver, parameters in wanted:
                yield Cell(dataset, seed, parameters, solver)


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
    solvers = [s for s in names("solvers") if name in component("solvers", s).OBJECTIVES]
    parser.add_argument("--datasets", nargs="+", default=names("datasets"), help="default: all")
    parser.add_argument("--solvers", nargs="+", default=solvers, help="default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="default: 0")
    parser.add_argument("--output", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--report", action="store_true", help="make tables and pictures, run none")
    for parameter, values in objective.PARAMETERS.items():
        parser.add_argument(
            f"--{parameter}", nargs="+", type=type(values[0]), default=values, help=f"{values}"
        )
    return name, objective, parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())

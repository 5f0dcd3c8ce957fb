"""Run a benchmark: every solver on every data set, for every seed and every parameter.

    python -m benchmarks.run --datasets adult compas --seeds 0 1 2
    python -m benchmarks.run --objective auc_fair --datasets bank compas_scores

Each finished run is a row of <output>/<objective>.csv; a second call skips what is there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.command import Job, command, complete
from benchmarks.results import versions
from benchmarks.solvers import grid

HERE = Path(__file__).parent
KEY = ["objective", "dataset", "method", "seed"]


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


def main(argv: Sequence[str] | None = None) -> int:
    """Do the missing runs; return 1 if one failed."""
    name, objective, options = _options(argv)
    path = options.output / f"{Path(name).stem}.csv"
    key, measured = [*KEY, *objective.PARAMETERS], [*objective.COLUMNS, "versions"]
    return 1 if complete(path, key, measured, _jobs(name, objective, options)) else 0


def _jobs(name: str, objective: ModuleType, options: argparse.Namespace) -> Iterator[Job]:
    asked = {parameter: getattr(options, parameter) for parameter in objective.PARAMETERS}
    solvers = [component("solvers", solver) for solver in options.solvers]
    for dataset, seed in product(options.datasets, options.seeds):
        split = cache(partial(_split, objective, component("datasets", dataset), seed))
        for solver in solvers:
            for parameters in getattr(solver, "cells", grid)(asked):
                values = (Path(name).stem, Path(dataset).stem, solver.METHOD, seed)
                run = partial(_measured, objective, solver, split, seed, parameters)
                yield (*values, *parameters.values()), run


def _split(objective: ModuleType, dataset: Any, seed: int) -> Any:
    return objective.prepare(dataset.load(), seed)


def _measured(
    objective: ModuleType, solver: Any, split: Any, seed: int, parameters: dict[str, Any]
) -> dict[str, Any]:
    found: dict[str, Any] = objective.measure(solver, split(), seed, **parameters)
    return {**found, "versions": versions()}


def _options(argv: Sequence[str] | None) -> tuple[str, ModuleType, argparse.Namespace]:
    first = argparse.ArgumentParser(add_help=False)
    known = sorted(components("objectives"))
    first.add_argument("--objective", default="rate_constrained", help=f"{known}")
    name = first.parse_known_args(argv)[0].objective
    objective = component("objectives", name)
    parser = command(__doc__, parents=[first])
    solvers = sorted(s for s, solver in components("solvers").items() if name in solver.OBJECTIVES)
    parser.add_argument("--datasets", nargs="+", default=sorted(components("datasets")))
    parser.add_argument("--solvers", nargs="+", default=solvers)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    for parameter, values in objective.PARAMETERS.items():
        parser.add_argument(
            f"--{parameter}", nargs="+", type=type(values[0]), default=values, help=f"{values}"
        )
    return name, objective, parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())

"""The size of the code in numbers: ``python -m benchmarks.structure``.

Prints lines, the functions and files that a fit and a prediction pass through, the longest chain of
imports, and the numbers of methods and classes that the architecture page names. With ``--passed
NAME`` it lists the functions that one of the fits passes through.
"""

from __future__ import annotations

import argparse
import ast
import functools
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import fairconstrained

PACKAGE = Path(fairconstrained.__file__).parent
ROOT = PACKAGE.parent
LONGEST = 60  # lines of a function, without docstrings
FOLDERS = ("fairconstrained", "tests", "benchmarks")


def n_lines(folder: str) -> int:
    """Return the number of lines of the Python files of a folder that git knows."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    files = [ROOT / name for name in names if name.endswith(".py") and (ROOT / name).exists()]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


# ---------------------------------------------------------------------- the way of a fit


def fits():
    """Return estimators with the keyword arguments of their fit, by name."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    from fairconstrained import (
        AUCFairClassifier,
        DPFermiClassifier,
        PartialParityClassifier,
        RateConstrainedClassifier,
    )

    trees = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    return {
        "rates, linear": RateConstrainedClassifier(random_state=0),
        "rates, trees": RateConstrainedClassifier(model=trees, random_state=0),
        "rates, epsilon 1": RateConstrainedClassifier(epsilon=1.0, random_state=0),
        "partial parity": PartialParityClassifier(random_state=0),
        "AUC": AUCFairClassifier(random_state=0),
        "DP-FERMI, groups": DPFermiClassifier(random_state=0),
        "DP-FERMI, record": DPFermiClassifier(protect="record", random_state=0),
    }


def passed_by(estimator) -> Counter[tuple[str, str]]:
    """Count the calls of each function of the package in one fit and prediction."""
    from fairconstrained.datasets import make_biased_classification

    data = make_biased_classification(1000, random_state=0)
    seen: Counter[tuple[str, str]] = Counter()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            name = str(Path(code.co_filename).relative_to(PACKAGE))
            seen[name, code.co_qualname] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(note)
        try:
            estimator.fit(data.data, data.target, sensitive_features=data.sensitive_features)
            estimator.predict(data.data)
        finally:
            sys.setprofile(None)
    return seen


# ---------------------------------------------------------------------- imports


@functools.cache
def modules() -> dict[str, Path]:
    """Return the files of the package by the dotted names of their modules."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imported(module: str) -> frozenset[str]:
    """Return the modules of the package that a module imports when it is loaded."""
    found = set()
    for node in ast.parse(modules()[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else node.module for name in inner}
    return frozenset(name for name in found if name in modules() and name != module)


@functools.cache
def chain(module: str) -> tuple[str, ...]:
    """Return the longest chain of imports that begins at a module."""
    below = (chain(other) for other in imported(module))
    return (module, *max(below, key=len, default=()))


# ---------------------------------------------------------------------- functions and classes


def long_functions() -> int:
    """Count functions that are longer than a screen."""
    from tests.project.test_architecture import length

    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in modules().values())
    found = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return sum(length(function) > LONGEST for function in found)


def classes(*folders: str) -> int:
    """Count the classes that are defined in folders of the package."""
    files = [path for folder in folders for path in (PACKAGE / folder).rglob("*.py")]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    return sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree))


def methods_of_base() -> int:
    """Count the functions in the body of the base class of the estimators."""
    from fairconstrained.estimators._base import FairClassifier

    return sum(
        callable(member) and name != "__class__" for name, member in vars(FairClassifier).items()
    )


def table() -> dict[str, str]:
    """Return the figures by name."""
    figures = {f"lines of {name}/": f"{n_lines(name):,}" for name in FOLDERS}
    for name, estimator in fits().items():
        seen = passed_by(estimator)
        n_files = len({file for file, _ in seen})
        figures[f"{name}: functions / files"] = f"{len(seen)} / {n_files}"
    longest = max((chain(module) for module in modules()), key=len)
    figures["longest chain of imports"] = str(len(longest))
    figures["methods of the base class of estimators"] = str(methods_of_base())
    figures["classes of problems"] = str(classes("problems"))
    figures[f"functions over {LONGEST} lines"] = str(long_functions())
    return figures


def main() -> None:
    """Print the table, or the functions that one fit passes through."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--passed", choices=list(fits()), help="list the functions of one fit")
    parser.add_argument("--chain", action="store_true", help="show the longest chain of imports")
    args = parser.parse_args()
    if args.passed:
        for (file, name), calls in sorted(passed_by(fits()[args.passed]).items()):
            print(f"{calls:6} {file} {name}")
    elif args.chain:
        print("\n".join(max((chain(module) for module in modules()), key=len)))
    else:
        for name, value in table().items():
            print(f"{name:45} {value}")


if __name__ == "__main__":
    main()

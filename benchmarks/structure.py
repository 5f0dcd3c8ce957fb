"""Print the size of the code in numbers, each beside its goal: ``python -m benchmarks.structure``.

Names, classes, imports, constants and comments are those of ``fairconstrained/``. With
``--passed NAME`` it lists the functions that one of the fits passes through.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import subprocess
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fairconstrained"
SCREEN = 60  # lines of a function without docstrings
WIDTH = 100  # characters of a line
DIALECT = {"own", "found", "given", "said", "kept", "asked"}
GOALS = {  # of issue 50; a fit may pass through no more than before
    "lines of fairconstrained/": "31,500",
    "lines of tests/": "24,500",
    "lines of benchmarks/": "6,000",
    "lines of docs/*.py": "450",
    "rates, linear: functions / files": "282 / 29",
    "rates, trees: functions / files": "329 / 32",
    f"names {', '.join(sorted(DIALECT))} bound": "220",
    "names that begin with of_": "25",
    "methods of the largest class": "28",
    "rooms with circles of imports": "0",
    "super() in estimators/ and fit/": "6",
    "overrides of methods of a task or a fit": "0",
    "numeric constants of modules": "160",
    "comment lines, % of lines of code": "3.5 or more",
    f"functions over {SCREEN} lines": "0",
    f"lines over {WIDTH} characters": "20",
}


# ---------------------------------------------------------------------- files and their syntax


def files(pattern: str) -> list[Path]:
    """Return the Python files that git knows and that match a pattern."""
    command = ["git", "ls-files", "-co", "--exclude-standard", f":(glob){pattern}"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.splitlines() if name.endswith(".py")]
    return [path for path in paths if path.exists()]


def lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


@functools.cache
def parsed() -> dict[str, ast.Module]:
    """Return the syntax trees of the package by the dotted names of its modules."""
    trees = {}
    for path in files("fairconstrained/**"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def nodes(kind: type | tuple[type, ...], *rooms: str) -> Iterator:
    """Yield the nodes of a kind in these rooms, or in all of the package."""
    for module, tree in parsed().items():
        if module.startswith(rooms or "fairconstrained"):
            yield from (node for node in ast.walk(tree) if isinstance(node, kind))


# ---------------------------------------------------------------------- names and functions


def bound_names() -> Iterator[str]:
    """Yield the names of variables and parameters as often as they are bound."""
    yield from (node.id for node in nodes(ast.Name) if isinstance(node.ctx, ast.Store))
    yield from (node.arg for node in nodes(ast.arg))


def names_of() -> set[str]:
    """Return the names of variables, parameters, functions and classes that begin with ``of_``."""
    defined = {node.name for node in nodes((ast.FunctionDef, ast.ClassDef))}
    return {n for n in defined.union(bound_names()) if n.lstrip("_").startswith("of_")}


def length(function: ast.FunctionDef) -> int:
    """Count the lines of a function without docstrings, also without docstrings inside it."""
    inside = (node for node in ast.walk(function) if isinstance(node, ast.FunctionDef))
    docstrings = [node.body[0] for node in inside if ast.get_docstring(node) is not None]
    n_doc = sum(node.end_lineno - node.lineno + 1 for node in docstrings)
    return function.end_lineno - function.lineno + 1 - n_doc


def is_numeric(value: ast.expr) -> bool:
    """Return whether an expression is made of numbers, and not of text or functions."""
    parts = list(ast.walk(value))
    constants = [type(part.value) for part in parts if isinstance(part, ast.Constant)]
    others = str in constants or any(isinstance(part, (ast.Lambda, ast.Call)) for part in parts)
    return not others and bool({int, float} & set(constants))


def n_numeric_constants() -> int:
    """Count the names in capitals that modules bind to numbers."""
    assigned = (ast.Assign, ast.AnnAssign)
    statements = [node for tree in parsed().values() for node in tree.body]
    statements = [node for node in statements if isinstance(node, assigned) and node.value]
    return sum(
        isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id.isupper()
        for node in statements
        if is_numeric(node.value)
        for name in ast.walk(node)
    )


def comment_share() -> float:
    """Return the lines that are comments, in percent of the lines with code."""
    n_comments, code = 0, set()
    ignored = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for path in files("fairconstrained/**"):
        source = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            first, last = token.start[0], token.end[0]
            if token.type == tokenize.COMMENT:
                n_comments += token.line.strip() == token.string
            elif token.type not in ignored and not token.line.lstrip().startswith(('"""', 'r"""')):
                code |= {(path, line) for line in range(first, last + 1)}
    return 100.0 * n_comments / len(code)


# ---------------------------------------------------------------------- classes


def methods(node: ast.ClassDef) -> set[str]:
    """Return the names of the functions in the body of a class."""
    return {member.name for member in node.body if isinstance(member, ast.FunctionDef)}


def n_overrides(*bases: str) -> int:
    """Count the methods that the descendants of classes define again."""
    tree = {node.name: node for node in nodes(ast.ClassDef)}

    def ancestors(name: str) -> set[str]:
        names = {ast.unparse(parent) for parent in tree[name].bases} & set(tree)
        return names.union(*map(ancestors, names)) if names else names

    below = [name for name in tree if ancestors(name).intersection(bases)]
    above = {
        name: set().union(*(methods(tree[other]) for other in ancestors(name))) for name in below
    }
    return sum(len(methods(tree[name]) & above[name]) for name in below)


def n_super() -> int:
    """Count the calls of super() in the estimators and the steps of a fit."""
    calls = nodes(ast.Call, "fairconstrained.estimators", "fairconstrained.fit")
    return sum(isinstance(call.func, ast.Name) and call.func.id == "super" for call in calls)


# ---------------------------------------------------------------------- imports


def imported(module: str) -> set[str]:
    """Return the modules of the package that a module imports, when it is loaded or later."""
    names = set()
    for node in ast.walk(parsed()[module]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in parsed() else node.module for name in inner}
    return {name for name in names if name in parsed() and name != module}


def rooms_with_circles() -> set[str]:
    """Return the rooms with files that import each other, late imports included."""
    room = {module: module.rpartition(".")[0] for module in parsed()}
    reach = {m: {o for o in imported(m) if room[o] == room[m]} for m in parsed()}
    for _ in reach:  # paths of any length
        reach = {m: others.union(*(reach[o] for o in others)) for m, others in reach.items()}
    return {room[module] for module, others in reach.items() if module in others}


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
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            name = str(Path(code.co_filename).relative_to(PACKAGE))
            calls[name, code.co_qualname] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(note)
        try:
            estimator.fit(data.data, data.target, sensitive_features=data.sensitive_features)
            estimator.predict(data.data)
        finally:
            sys.setprofile(None)
    return calls


# ---------------------------------------------------------------------- the table


def table() -> dict[str, str]:
    """Return the figures by name."""
    figures = {}
    for pattern in ("fairconstrained/**", "tests/**", "benchmarks/**", "docs/*.py"):
        n_lines = sum(len(lines(path)) for path in files(pattern))
        figures[f"lines of {pattern.rstrip('*')}"] = f"{n_lines:,}"
    for name, estimator in fits().items():
        calls = passed_by(estimator)
        n_files = len({file for file, _ in calls})
        figures[f"{name}: functions / files"] = f"{len(calls)} / {n_files}"
    every_class = list(nodes(ast.ClassDef))
    largest = max(every_class, key=lambda node: len(methods(node)))
    counts = {
        "rooms with circles of imports": len(rooms_with_circles()),
        f"names {', '.join(sorted(DIALECT))} bound": sum(name in DIALECT for name in bound_names()),
        "names that begin with of_": len(names_of()),
        "methods of the largest class": f"{len(methods(largest))} ({largest.name})",
        "super() in estimators/ and fit/": n_super(),
        "overrides of methods of a task or a fit": n_overrides("Task", "Fit"),
        "numeric constants of modules": n_numeric_constants(),
        "comment lines, % of lines of code": f"{comment_share():.1f}",
        f"functions over {SCREEN} lines": sum(
            length(node) > SCREEN for node in nodes(ast.FunctionDef)
        ),
        f"lines over {WIDTH} characters": sum(
            len(line) > WIDTH for path in files("**/*.py") for line in lines(path)
        ),
    }
    return figures | {name: str(value) for name, value in counts.items()}


def main() -> None:
    """Print the table, or the functions that one fit passes through."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--passed", choices=list(fits()), help="list the functions of one fit")
    args = parser.parse_args()
    if args.passed:
        for (file, name), calls in sorted(passed_by(fits()[args.passed]).items()):
            print(f"{calls:6} {file} {name}")
    else:
        print(f"{'':55} {'now':22} at most")
        for name, value in table().items():
            print(f"{name:55} {value:22} {GOALS.get(name, '')}")


if __name__ == "__main__":
    main()

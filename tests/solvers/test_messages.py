"""Messages name parameters that exist."""

import ast
import inspect
import re

import pytest

import fairconstrained
from fairconstrained import constraints, models, solvers
from tests.helpers.repository import ROOT

PUBLIC = {
    name: getattr(module, name)
    for module in (fairconstrained, constraints, models, solvers)
    for name in module.__all__
    if inspect.isclass(getattr(module, name))
}
OF_FIT = {"sensitive_features", "sample_weight", "classes"}
ELSEWHERE = {"enable_metadata_routing"}  # of scikit-learn
KNOWN = {p for kind in PUBLIC.values() for p in inspect.signature(kind).parameters} | OF_FIT
FOLDERS = ("estimators", "problems", "solvers", "models", "constraints")


def messages(source):
    """The string constants of a module that are no docstrings, with their line numbers."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in docstrings:
            yield node.lineno, node.value


def unknown(message):
    """What a message calls a parameter although nothing public has it."""
    owned = re.findall(r"\b([A-Z]\w+)(?:\(| with |\.)([a-z_]+)=", message)
    wrong = [
        f"{kind}.{name}"
        for kind, name in owned
        if kind in PUBLIC and name not in {*inspect.signature(PUBLIC[kind]).parameters, *OF_FIT}
    ]
    named = re.findall(r"\b([a-z_]+)=(?=['\w(\[])", message)
    return wrong + [name for name in named if name not in KNOWN | ELSEWHERE]


@pytest.mark.parametrize("folder", FOLDERS)
def test_parameters_in_messages_exist(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "fairconstrained" / folder).rglob("*.py"))
        for line, message in messages(path.read_text(encoding="utf-8"))
        for name in unknown(message)
    ]
    assert not wrong

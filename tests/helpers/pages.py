"""Programs in pages of the documentation."""

import ast
import importlib.util
import re

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def missing(code):
    """Packages that the code imports and that are not installed."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    names = {node.module for node in nodes}
    names |= {
        alias.name
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return sorted(
        name
        for name in names
        if importlib.util.find_spec(name.partition(".")[0]) is None
        or (name == "sklearn.callback" and importlib.util.find_spec(name) is None)
    )

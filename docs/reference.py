"""Pages of the reference: methods are listed before they are described, examples come last."""

import dataclasses
import re
from dataclasses import is_dataclass
from pathlib import Path

from sklearn.base import BaseEstimator


def is_common(name):
    """Whether a method is one that every estimator of scikit-learn has, or a metadata request."""
    requests = name.startswith("set_") and name.endswith("_request")
    return requests or name in {"get_params", "set_params", "get_metadata_routing"}


def list_of_methods(kind):
    """Public methods of an estimator in reStructuredText: its own, then the common ones."""
    fields = {field.name for field in dataclasses.fields(kind)} if is_dataclass(kind) else set()
    public = [n for n in dir(kind) if not n.startswith("_") and n not in fields]
    public = [n for n in public if callable(getattr(kind, n, None))]
    own = [f"   ~{kind.__name__}.{name}" for name in public if not is_common(name)]
    common = ", ".join(f"``{name}``" for name in public if is_common(name))
    table = [".. rubric:: Methods", "", ".. autosummary::", "   :nosignatures:", "", *own]
    return [*table, "", f"As in scikit-learn: {common}."]


def _add_methods(app, what, name, obj, options, lines):
    if what == "class" and issubclass(obj, BaseEstimator):
        lines += ["", *list_of_methods(obj), ""]


def _unlink(app, what, name, obj, options, lines):
    """Inherited docstrings refer to labels in scikit-learn's own documentation."""
    if (getattr(obj, "__module__", None) or "").startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^`<]*?)\s*<[^`>]*>`", r"\1", line) for line in lines]


def _add_examples(app, what, name, obj, options, lines):
    """Show the examples of the gallery that use an object."""
    path = Path(app.srcdir) / "api" / "backreferences" / f"{name}.examples"
    if what in {"class", "function"} and path.exists() and "thumbcontainer" in path.read_text():
        include = f".. include:: /api/backreferences/{path.name}"
        without_title = "   :start-after: start-sphx-glr-thumbnails"
        lines += ["", ".. rubric:: Gallery", "", include, without_title]


def setup(app):
    """List methods and examples after numpydoc has laid out the sections."""
    app.connect("autodoc-process-docstring", _unlink, priority=400)
    app.connect("autodoc-process-docstring", _add_methods, priority=800)
    app.connect("autodoc-process-docstring", _add_examples, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

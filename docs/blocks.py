"""Run the Python blocks of a page in order, and keep what each prints, returns and draws."""

import ast
import contextlib
import io
import os
import re
import tempfile
import warnings
from html import escape
from typing import NamedTuple

from sklearn import config_context
from sklearn.base import BaseEstimator

_FENCE = re.compile(r"^```(python|\{picture\})[^\n`]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Black and dark greys become the colour of the text around, which is light on a dark page.
_INK = re.compile(r"stroke: #([0-5][0-9a-f])\1\1\b")
# Of Okabe and Ito: distinct for any colour vision, and seen on white and on black.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_IGNORED = (
    "random_state seeds the noise",  # pages are seeded so that every build shows the same
    ".*by the released numbers it exceeds its slack",  # a private search cannot be seeded
    "Persisting input arguments took",  # of a busy machine
)


class Shown(NamedTuple):
    """What a block showed: text, a table and figures as HTML."""

    text: str
    table: str
    figures: list[str]


def blocks_of(text):
    """Kind ("python", or "{picture}" for one in a namespace of its own) and code of each block."""
    return _FENCE.findall(text)


@contextlib.contextmanager
def running(page):
    """Give ``run(code, line, alt, alone)`` for the blocks of the file `page`.

    They share a namespace, an empty folder and the configuration of scikit-learn, which are gone
    afterwards. `line` is where the block stands in the page; `alt` describes its figure to those
    who do not see it; with `alone` the block has a namespace of its own. A warning is an error,
    unless the block says ``# warns``: then it is shown.
    """
    start = {"__name__": "page", "__file__": str(page.resolve())}
    shared, before, n_run = dict(start), os.getcwd(), 0

    def run(code, line=1, alt=None, alone=False):
        nonlocal n_run
        n_run += 1
        namespace = dict(start) if alone else shared
        tree = ast.parse("\n" * (line - 1) + code, page)  # so that errors name the line of the page
        with _warnings("# warns" in code):
            return _run(tree, namespace, f"{page.stem}-{n_run}", alt)

    with tempfile.TemporaryDirectory() as folder, config_context():
        os.chdir(folder)
        try:
            yield run
        finally:
            os.chdir(before)


def _run(tree, namespace, identity, alt):
    last = tree.body[-1] if tree.body else None
    value, printed = None, io.StringIO()
    progress = contextlib.redirect_stderr(io.StringIO())
    with _figures(identity, alt) as figures, progress, contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, namespace["__file__"], "exec"), namespace)
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = eval(compile(expression, namespace["__file__"], "eval"), namespace)
    text, table = printed.getvalue(), ""
    if hasattr(value, "to_html"):
        table = value.to_html(border=0)
    # Estimators, which `fit` returns, and what belongs to a figure are not what a reader looks for.
    elif value is not None and not figures and not isinstance(value, BaseEstimator):
        text += f"{value!r}\n"
    return Shown(text, table, figures)


@contextlib.contextmanager
def _warnings(shown):
    with warnings.catch_warnings():
        # Deprecations of other libraries are left to who runs the page.
        warnings.simplefilter("always" if shown else "error", UserWarning)
        for text in _IGNORED:
            warnings.filterwarnings("ignore", text)
        warnings.showwarning = lambda message, category, *_, **__: print(
            f"{category.__name__}: {message}"
        )
        yield


@contextlib.contextmanager
def _figures(identity, alt):
    """Collect the figures that are open at the end, as SVG in the colour of the text."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    drawn = []
    style = {
        "axes.facecolor": "none",
        "axes.prop_cycle": cycler(color=_COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.facecolor": "none",
        "figure.figsize": (6.4, 3.8),
        "figure.constrained_layout.use": True,
        "legend.frameon": False,
        "savefig.facecolor": "none",
        "svg.fonttype": "none",
    }
    with plt.rc_context(style):
        try:
            yield drawn
            for number in plt.get_fignums():
                plt.rcParams["svg.hashsalt"] = f"{identity}-{number}"  # no two ids alike in a page
                drawn.append(_svg(plt.figure(number), alt))
        finally:
            plt.close("all")


def _svg(figure, alt):
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    svg = written.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    alt = alt or "; ".join(
        ax.get_title() or f"{ax.get_ylabel()} against {ax.get_xlabel()}" for ax in figure.axes
    )
    attributes = f'role="img" fill="currentColor" aria-label="{escape(alt)}"'
    svg = svg.replace("<svg", f"<svg {attributes}", 1)
    return _INK.sub("stroke: currentColor", svg)

"""docs/blocks.py and docs/outputs.py: pages show what their blocks print, return and draw."""

import importlib
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tests.helpers.repository import ROOT


@pytest.fixture(scope="module")
def blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("blocks")
    sys.modules.pop("blocks")


@pytest.fixture
def run(blocks):
    plt.close("all")  # what doctests in this process have drawn
    with blocks.running(Path("page")) as run:
        yield run


def test_what_is_printed_and_the_last_value_are_shown_and_pictures_have_a_namespace_alone(run):
    assert run("print('first')\n[1, 2]") == ("first\n[1, 2]\n", "", [])
    run("rate = 0.5")
    assert run("rate").text == "0.5\n"
    run("rate = 1.0", alone=True)
    assert run("rate").text == "0.5\n"
    with pytest.raises(NameError):
        run("rate", alone=True)


def test_an_error_names_the_page_and_its_line(run):
    with pytest.raises(ZeroDivisionError) as caught:
        run("x = 1\nx / 0\n", line=12)
    innermost = caught.traceback[-1]
    assert (str(innermost.path).endswith("page"), innermost.lineno + 1) == (True, 13)


def test_warnings_are_errors_unless_the_block_says_that_it_warns(run):
    code = "import warnings\nwarnings.warn('close to the slack')"
    with pytest.raises(UserWarning, match="close"):
        run(code)
    with warnings.catch_warnings():
        assert run(code + "  # warns").text == "UserWarning: close to the slack\n"


def test_an_error_in_a_block_ends_the_build(tmp_path, monkeypatch):
    """Before that, outputs are shown."""
    application = pytest.importorskip("sphinx.application")
    pytest.importorskip("myst_parser")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    folders = [str(tmp_path), None, str(tmp_path / "html"), str(tmp_path / "trees")]
    page, config = tmp_path / "index.md", {"extensions": ["myst_parser", "outputs"]}

    def build(code):
        page.write_text(f"# Page\n\n```python\n{code}\n```\n", encoding="utf-8")
        options = {"confoverrides": config, "status": None, "warning": None}
        application.Sphinx(*folders, "html", **options).build()
        return (tmp_path / "html" / "index.html").read_text(encoding="utf-8")

    assert "printed by a block" in build('print("printed" + " by a block")')
    with pytest.raises(Exception, match=r"index\.md, block at line 4: ZeroDivisionError"):
        build("1 / 0")

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


PAGE = """# Page

```{picture} A picture of < two points
import matplotlib.pyplot as plt
plt.plot([1, 2])
```

```python
print("printed" + " by a block")
```

```{code-block} python
print("not" + " run")
```
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Build a site of one page, and return its HTML."""
    application = pytest.importorskip("sphinx.application")
    pytest.importorskip("myst_parser")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))

    def built(text, **config):
        (tmp_path / "index.md").write_text(text, encoding="utf-8")
        settings = {"extensions": ["myst_parser", "outputs"], **config}
        folders = [str(tmp_path), None, str(tmp_path / "html"), str(tmp_path / "trees")]
        app = application.Sphinx(
            *folders, "html", confoverrides=settings, status=None, warning=None
        )
        app.build()
        return (tmp_path / "html" / "index.html").read_text(encoding="utf-8")

    return built


def test_the_site_shows_outputs_and_folds_the_code_of_pictures(build):
    page = build(PAGE)
    assert "printed by a block" in page
    assert "not run" not in page
    figure = page.index('<figure class="drawn"><svg')
    caption = page.index("<figcaption>A picture of &lt; two points</figcaption>")
    assert figure < caption < page.index("<details>") < page.index("</details>")


def test_an_error_in_a_block_ends_the_build(build):
    with pytest.raises(Exception, match=r"index\.md, block at line 4: ZeroDivisionError"):
        build("# Page\n\n```python\n1 / 0\n```\n")

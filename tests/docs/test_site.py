"""Tools of the site: links are checked, methods are listed, gallery code fits its column."""

import importlib
import sys

import pytest

from fairconstrained import RateConstrainedClassifier
from tests.helpers.repository import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def tool(request):
    """A script of the folder docs, as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield importlib.import_module(request.param)
    sys.modules.pop(request.param)


@pytest.mark.parametrize("tool", ["check_site"], indirect=True)
def test_a_link_to_nothing_is_found(tool, tmp_path):
    (tmp_path / "b.html").write_text('<h1 id="there"></h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there"></a><a href="https://example.org"></a>'
        '<a href="b.html#gone"></a><img src="c.png">'
    )
    problems, checked, external = tool.check(tmp_path)
    assert (checked, external) == (3, 1)
    assert problems == ["a.html: no anchor for b.html#gone", "a.html: no file for c.png"]


@pytest.mark.parametrize("tool", ["reference"], indirect=True)
def test_a_class_page_lists_every_public_method_once(tool):
    lines = tool.list_of_methods(RateConstrainedClassifier)
    named = [line.rsplit(".")[-1] for line in lines if line.startswith("   ~")]
    assert {"fit", "predict", "score"} <= set(named)
    common = lines[-1].removeprefix("As in scikit-learn: ").rstrip(".").replace("`", "").split(", ")
    assert {"get_params", "set_fit_request"} <= set(common)
    public = [name for name in dir(RateConstrainedClassifier) if not name.startswith("_")]
    methods = [name for name in public if callable(getattr(RateConstrainedClassifier, name))]
    assert sorted([*named, *common]) == methods


@pytest.mark.parametrize("script", sorted((DOCS / "gallery").glob("*.py")), ids=lambda p: p.stem)
def test_code_of_the_gallery_fits_the_column_of_the_site(script):
    assert max(map(len, script.read_text(encoding="utf-8").splitlines())) <= 88

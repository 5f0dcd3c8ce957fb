"""Tables of the pages are complete, their links exist, and no number is typed twice.

The build of the site makes the tables of the evidence, and ends at a cell that is not there.
"""

import gzip
import importlib
import inspect
import re
import sys
import tomllib
import warnings
from functools import reduce
from itertools import chain
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import fairconstrained
from fairconstrained import exceptions, metrics, models
from tests.helpers.repository import ROOT

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(DOCS))
    from blocks import blocks_of, running

    del sys.modules["blocks"]

NAMES = (
    *("blocks", "constraints", "datasets", "display", "distributed", "exceptions", "export"),
    *("groups", "metrics", "model_selection", "monitoring", "privacy", "privacy.audit", "solvers"),
    "training",
)
MODULES = ["fairconstrained", *(f"fairconstrained.{name}" for name in NAMES)]


def public(kind):
    """Full names and objects of that kind in the `__all__` of public modules, each once."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if kind(value) and value not in found.values():
                found[f"{module.__name__}.{name}"] = value
    return found


# Of the models users name what `model=` may be; the rest is for solvers.
SPECIFICATIONS = ("Boosting", "Linear", "Network", "Posteriors", "SingleFit")
NAMED = {f"fairconstrained.models.{name}": getattr(models, name) for name in SPECIFICATIONS}
CLASSES = public(inspect.isclass) | NAMED
ESTIMATES = "fairconstrained.models.estimate_group_probabilities"
FUNCTIONS = public(inspect.isfunction) | {ESTIMATES: models.estimate_group_probabilities}


@pytest.mark.slow
def test_the_examples_of_the_readme_run_in_their_order():
    """The build of the site runs those of its pages, and an error there ends it."""
    pytest.importorskip("matplotlib")
    with running(ROOT / "README.md") as run:
        for _, code in blocks_of((ROOT / "README.md").read_text(encoding="utf-8")):
            run(code)


def test_the_readme_reads_the_figures_of_its_picture_from_the_same_run():
    runs = pd.read_csv(DOCS / "images" / "adult_tradeoff.csv")
    held_out = runs[runs["rows"] == "held out"].set_index(["method", "slack"])
    read = [
        f"{held_out.loc[cell, 'error']:.3f} at .. {held_out.loc[cell, 'violation']:.3f}"
        for cell in (("trees", 0.05), ("linear", 0.05), ("reductions", 0.02))
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"(\.\d{3}) at (?:a gap of )?(\.\d{3})", text)
    assert [f"0{error} at .. 0{gap}" for error, gap in said] == read


def test_the_table_of_metrics_names_every_metric_and_scorer():
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"fairconstrained\.metrics\.(\w+)`", text))
    named |= set(re.findall(r"`(\w+_scorer)`", text))
    assert named == set(metrics.__all__) - {"METRICS"}


def test_every_public_name_has_a_page_in_the_reference():
    groups = re.findall(r"^   (\w+)$", (DOCS / "api" / "index.rst").read_text(), re.MULTILINE)
    text = "\n".join((DOCS / "api" / f"{group}.rst").read_text() for group in groups)
    listed, module = [], None
    for line in text.splitlines():
        if found := re.match(r"\.\. (?:current)?module:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"   (\w+)$", line):
            listed.append(f"{module}.{found[1]}")
    assert sorted(listed) == sorted({*CLASSES, *FUNCTIONS})
    modules = map(importlib.import_module, MODULES)
    public = ((name, getattr(module, name)) for module in modules for name in module.__all__)
    plain = [(n, v) for n, v in public if not inspect.isclass(v) and not inspect.isfunction(v)]
    others = [name for name, _ in plain if not name.startswith("__")]
    assert all(f"``{name}``" in text for name in others)


def test_every_public_docstring_has_an_example():
    example = re.compile(r"^Examples\n-+$.*^>>> ", re.DOTALL | re.MULTILINE)
    documented = {name: kind for name, kind in CLASSES.items() if "exceptions" not in name}
    documented |= {**FUNCTIONS, "exceptions": exceptions}
    assert not [name for name in documented if not example.search(inspect.getdoc(documented[name]))]


def parameters(function):
    given = inspect.signature(function).parameters.values()
    return [p.name for p in given if p.name not in {"self", "args", "kwargs"}]


def in_order(function):
    doc = inspect.getdoc(function)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", doc, re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^\*{0,2}(\w[\w, ]*?)(?: : .*|)$", section[1], re.MULTILINE)
    names = [name for entry in entries for name in entry.split(", ")]
    return [name for name in names if name in parameters(function)] == parameters(function)


def test_every_parameter_of_a_public_function_is_described():
    assert not [name for name, f in FUNCTIONS.items() if parameters(f) and not in_order(f)]


def test_the_html_representation_links_to_the_page_of_the_estimator():
    for name in (n for n in fairconstrained.__all__ if n.endswith("Classifier")):
        link = f"{PROJECT['urls']['Documentation']}/en/latest/api/fairconstrained.{name}.html"
        assert link in getattr(fairconstrained, name)()._repr_html_()


def test_the_oldest_versions_are_the_bounds_of_the_package():
    """Torch apart: see the file."""
    extras = (PROJECT["optional-dependencies"][extra] for extra in ("privacy", "plot", "bench"))
    ours = [*PROJECT["dependencies"], *chain(*extras)]
    bounds = {}
    for requirement in map(Requirement, ours):
        if requirement.name not in {"fairconstrained", "torch"}:
            (bound,) = requirement.specifier
            assert bound.operator == ">="
            bounds[requirement.name] = Version(bound.version)
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert bounds == {name: Version(pinned[name]) for name in bounds}


def test_the_version_is_said_in_one_place():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fairconstrained.__version__}\n" in citation
    assert PROJECT["dynamic"] == ["version"]


PAPERS = (DOCS / "papers.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAPERS, re.DOTALL | re.MULTILINE))
CODE = sorted(set(re.findall(r"`(fairconstrained\.[\w.]+)`", PAPERS)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", PAPERS)))
KIND = r"(Algorithm|Assumption|Definition|Example|Figure|Lemma|Proposition|Remark|Table|Theorem)s? "
NUMBER = r"(?:[A-G]\.)?\d+(?:\.\d+)?[a-c]?"
EVERY_ITEM = {
    "DP-FERMI": "Definitions 2.1, 2.2; Theorems 3.1 to 3.4, C.1, D.1, E.1, E.3, E.10; "
    "Assumption E.2; Lemmas E.4 to E.9; Algorithms 1, 2; Figures 1 to 8",
    "RaCO-DP": "Definitions 2.1, 2.2, 3.1, 5.1, A.1 to A.3; Theorems 4.1, 5.2, B.1, D.1, D.3, D.5; "
    "Lemmas C.1, C.2, D.2, D.4, D.6 to D.10; Remarks 1 to 4; Algorithm 1; Figures 1 to 9; "
    "Tables 1, 2",
    "Partial parity": "Assumptions 3.1, 6.3; Definitions 4.1 to 4.3, 6.1, 6.2, A.1 to A.3; "
    "Lemmas 5.1, 5.2, E.1 to E.3; Remark 5.3; Proposition 6.4; Theorems 6.5, F.1, F.2; "
    "Examples D.1 to D.7; Algorithms 1 to 3; Figures 1 to 12; Tables 1 to 4",
    "AUC fairness": "Definitions 1 to 6; Assumptions 1 to 4; Examples 1 to 5; Lemmas 1 to 5; "
    "Proposition 1; Theorems 1, 2; Remarks 1, 2; Algorithms 1 to 3; Figures 1 to 4; Tables 1, 2",
    "Stochastic algorithms": "Algorithms 1 to 3; Figures 1 to 5; Tables 1 to 3",
}


def rows(text, n_cells):
    lines = [re.split(r" ?\| ?", line)[1:-1] for line in text.splitlines() if line[:2] == "| "]
    return [cells for cells in lines if len(cells) == n_cells]


def items(text):
    """Each numbered item of a text: "Lemmas 1 and E.2 to E.4" has four."""
    numbered = set()
    for kind, numbers in re.findall(rf"{KIND}((?:{NUMBER}(?:, | and | to )?)+)", text):
        for first, last in re.findall(rf"({NUMBER})(?: to ({NUMBER}))?", numbers):
            before, least = re.fullmatch(r"(.*?)(\d+)[a-c]?", first).groups()
            most = int(re.search(r"(\d+)[a-c]?$", last or first)[1])
            numbered |= {f"{kind} {before}{number}" for number in range(int(least), most + 1)}
    return numbered


def found(name):
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[n:], module)
    raise AssertionError(name)


def test_named_code_and_named_tests_exist():
    assert all(callable(found(name)) for name in CODE)
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in TESTS}
    assert not [(path, name) for path, name in TESTS if f"\ndef {name}(" not in texts[path]]


def test_every_row_of_code_names_code_and_a_test():
    all_rows = [row for text in SECTIONS.values() for row in rows(text, 5) if row[0] != "what"]
    assert len(all_rows) >= 30
    for row in all_rows:
        assert "`fairconstrained." in row[2], row
        assert "`tests/" in row[4], row


@pytest.mark.parametrize("paper", EVERY_ITEM)
def test_every_item_of_a_paper_has_a_row_that_says_where_it_is_or_why_not(paper):
    above = items(" ".join(row[1] for row in rows(SECTIONS[paper], 5)))
    all_rows = rows(SECTIONS[paper], 3)[1:]
    assert items(EVERY_ITEM[paper]) <= above.union(*(items(row[0]) for row in all_rows))
    for names, here, missing in all_rows:
        assert here or missing, names
        if "the table above" in here:
            assert items(names) <= above, names


def test_pages_and_tables_that_the_papers_link_to_exist():
    linked = re.findall(r"\]\(#([\w-]+)\)", PAPERS)
    assert set(linked) <= {f"measured-{name.replace('_', '-')}" for name in SOURCES.index}
    files = re.findall(r"`(benchmarks/[\w/.]+)`", PAPERS)
    files += [f"docs{page}.md" for page in re.findall(r"\{doc\}`(/[\w/]+)`", PAPERS)]
    files += [f"docs/gallery/{name}.py" for name in re.findall(r"auto_examples/(\w+)\.rst", PAPERS)]
    assert len(linked) > 10
    assert all((ROOT / file).exists() for file in files)


FOLDER = ROOT / "benchmarks" / "evidence"
SOURCES = pd.read_csv(FOLDER / "sources.csv", dtype=str, keep_default_na=False).set_index("table")
PAGES = sorted((ROOT / "docs" / "evidence").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OTHERS = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]
WHOLE_SITE = TEXT + "".join(page.read_text(encoding="utf-8") for page in OTHERS)
# What stands in code, in a role or in a formula is no figure that was measured.
NOT_PROSE = re.compile(r"```.*?```|\{\w+\}`[^`]+`|`[^`]+`|\$[^$]+\$", re.DOTALL)
FIGURE = r"(?:\d*\.\d+|1e-\d+|\d+)"
# A setting is typed after its name: "slacks 0.01 and 0.02", "epsilon 0.5", "within 0.05".
SETTING = re.compile(
    r"\b(?:slacks?|epsilon|within|margins?|temperatures?|alpha|confidence|size|Definition)"
    rf"(?:\s(?:of|from|\+|at most))*\s{FIGURE}(?:(?:,|\sand|\sto|\sor)\s{FIGURE})*"
)


def test_each_table_is_shown_once_and_its_numbers_are_referred_to():
    shown = re.findall(r"^```\{measured\} (\w+)$", WHOLE_SITE, re.MULTILINE)
    assert sorted(shown) == sorted(SOURCES.index)
    references = re.findall(r"\{measured\}`(\w+)\s+::", WHOLE_SITE)
    assert len(references) > 10
    assert set(references) <= set(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_types_a_figure_or_a_table_of_numbers(page):
    """Figures come from tables by ``{measured}``; settings are typed after their names."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"^\|.*\d", text, re.MULTILINE)
    prose = SETTING.sub("", NOT_PROSE.sub("", text))
    assert not re.findall(r".{0,40}\d*\.\d.{0,10}", prose)


def test_every_source_has_a_command_a_day_and_a_results_file_and_every_file_a_source():
    assert SOURCES.index.is_unique
    assert SOURCES["date"].str.fullmatch(r"2026-\d\d-\d\d").all()
    assert SOURCES["commit"].str.fullmatch(r"|[0-9a-f]{8}").all()
    assert all((FOLDER / results).is_file() for results in SOURCES["results"])
    assert SOURCES["results"].str.match(r"runs/\w+\.csv\.gz$|\.\./published/").all()
    runs = {f"runs/{path.name}" for path in (FOLDER / "runs").iterdir()}
    assert runs == {file for file in SOURCES["results"] if file.startswith("runs/")}
    here = SOURCES.loc[SOURCES["commit"] == "", "command"]
    modules = {m for command in here for m in re.findall(r"-m benchmarks([\w.]+)", command)}
    assert all((ROOT / f"benchmarks{m.replace('.', '/')}.py").is_file() for m in modules)


def test_runs_name_no_path_of_a_machine():
    for path in (FOLDER / "runs").glob("*.csv.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r"/(home|tmp|work|root)/", text)


@pytest.fixture
def run():
    """Run blocks of a page, which shows what they print, return and draw."""
    plt.close("all")  # what doctests in this process have drawn
    with running(Path("page")) as run:
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

"""Measured figures in pages: tables, single numbers and claims, read from ``benchmarks/evidence``.

``{measured} TABLE`` as a directive shows a table, its day, its results file and its command. As a
role, ``{measured}`TABLE :: ROW :: COLUMN``` shows one number. ``{claims}`` shows the comparisons of
the first page. No figure of a table is typed into a page.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

from benchmarks import evidence
from benchmarks.evidence import pages


def _source(env, name):
    """Give the source of a table; the page is built again when its files change."""
    source = evidence.sources().loc[name]
    for file in ("sources.csv", source["results"]):
        env.note_dependency(str(evidence.FOLDER / file))
    return source


class MeasuredTable(SphinxDirective):
    """A table of the evidence, and how to measure it again."""

    required_arguments = 1

    def run(self):
        name = self.arguments[0]
        source = _source(self.env, name)
        file = f"{'../' * self.env.docname.count('/')}../benchmarks/evidence/{source['results']}"
        label = source["results"].rpartition("/")[2]
        at = source["commit"] and f" at {source['commit']}"
        text = f"""({pages.anchor(name)})=
{pages.table_markdown(name)}

:::{{div}} source
{source["date"]}, {{download}}`{label} <{file}>`: `{source["command"]}`{at}
:::
"""
        return self.parse_text_to_nodes(text)


class MeasuredNumber(SphinxRole):
    """One number of a table."""

    def run(self):
        _source(self.env, self.text.split(" :: ")[0])
        return [nodes.Text(str(evidence.cell(self.text)))], []


class Claims(SphinxDirective):
    """The table of the claims."""

    def run(self):
        for claim in pages.compared():
            _source(self.env, claim["table"])
        return self.parse_text_to_nodes(f":::{{div}} claims\n{pages.claims_markdown()}\n:::")


def setup(app):
    """Register directives and role."""
    app.add_directive("measured", MeasuredTable)
    app.add_role("measured", MeasuredNumber())
    app.add_directive("claims", Claims)
    app.add_css_file("measured.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Run the Python blocks of Markdown pages at build, and show what they print, return and draw.

A block is a fence with the word ``python``; the blocks of a page share a namespace. A fence
``{picture} What it shows`` draws a figure by code of its own, which is folded away below the
figure. ``{code-block} python`` is shown and not run. An error in a block ends the build. Of pages
in ``outputs_exclude`` only the pictures are drawn.
"""

from html import escape
from pathlib import Path

from blocks import running
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective


class Picture(SphinxDirective):
    """A figure, its caption, and the code that draws it, folded away."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """The code as a literal block, which the transform below replaces."""
        code = "\n".join(self.content) + "\n"
        block = nodes.literal_block(code, code, language="python", picture=self.arguments[0])
        block.source, block.line = self.get_source_info()[0], self.content_offset
        return [block]


class Outputs(SphinxTransform):
    """Run the blocks of a page and add what they show."""

    default_priority = 200

    def apply(self, **kwargs):
        """Go through the blocks of the page in order."""
        docname = self.env.docname
        path = Path(self.env.doc2path(docname))
        if path.suffix != ".md":
            return
        excluded = docname in self.config.outputs_exclude
        with running(path) as run:
            for block in list(self.document.findall(nodes.literal_block)):
                caption = block.get("picture")
                # `code-block` notes whether highlighting is forced; a fence does not.
                if block.get("language") != "python" or "force" in block:
                    continue
                if excluded and caption is None:
                    continue
                line = (block.line or 0) + 1
                try:
                    shown = run(block.astext(), line, caption, alone=caption is not None)
                except Exception as error:
                    raise ExtensionError(
                        f"{path}, block at line {line}: {type(error).__name__}: {error}", error
                    ) from error
                block.replace_self(_with_picture(block, shown) if caption else _below(block, shown))


def _html(text):
    return nodes.raw("", text, format="html")


def _below(block, shown):
    output = {"language": "text", "classes": ["output"]}
    text = [nodes.literal_block(shown.text, shown.text, **output)] if shown.text else []
    box = '<div class="output pst-scrollable-table-container">'
    table = [_html(f"{box}{shown.table}</div>")] if shown.table else []
    figures = [_html(f'<div class="drawn">{svg}</div>') for svg in shown.figures]
    return [block, *text, *table, *figures]


def _with_picture(block, shown):
    caption = f"<figcaption>{escape(block['picture'])}</figcaption>"
    code = "<details><summary>The code of this figure</summary>"
    above = _html(f'<figure class="drawn">{"".join(shown.figures)}{caption}{code}')
    return [above, block, _html("</details></figure>")]


def setup(app):
    """Register the directive and the transform."""
    app.add_config_value("outputs_exclude", [], "env")
    app.add_directive("picture", Picture)
    app.add_transform(Outputs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

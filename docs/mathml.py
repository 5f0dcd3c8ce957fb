"""Formulas as MathML, which browsers draw by themselves: no script from elsewhere is needed."""

from html import unescape
from xml.etree.ElementTree import tostring

from docutils.nodes import SkipNode
from latex2mathml.converter import convert_to_element
from sphinx.errors import ExtensionError

_KNOWN = {
    r"\arg\m": r"\operatorname{arg}\m",
    **{r"\lvert": r"\left|", r"\rvert": r"\right|"},
    **{r"\lVert": r"\left\|", r"\rVert": r"\right\|"},
}


def mathml(latex, display):
    """The formula as a ``<math>`` element; what the converter does not know is an error."""
    for name, known in _KNOWN.items():
        latex = latex.replace(name, known)
    if "\\\\" in latex and "\\begin" not in latex:
        latex = rf"\begin{{split}}{latex}\end{{split}}"
    formula = convert_to_element(latex, display=display)
    for part in formula.iter():
        if (part.text or "").startswith(("\\", "&amp;")) or part.text == "&":
            raise ExtensionError(f"{part.text} has no MathML, in the formula {latex}")
        if part.tag == "msub" and part[0].text in ("min", "max") and display == "block":
            part.tag = "munder"  # what is chosen stands below
    return unescape(tostring(formula, encoding="unicode"))


def visit_math(translator, node):
    """Write a formula within a line."""
    tag = translator.starttag(node, "span", "", CLASS="math")
    translator.body.append(f"{tag}{mathml(node.astext(), 'inline')}</span>")
    raise SkipNode


def visit_displaymath(translator, node):
    """Write a formula in a line of its own."""
    tag = translator.starttag(node, "div", CLASS="math")
    translator.body.append(f"{tag}{mathml(node.astext(), 'block')}</div>\n")
    raise SkipNode


def setup(app):
    """Take the place of MathJax."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

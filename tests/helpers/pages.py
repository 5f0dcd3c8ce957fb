"""Programs on the pages of the guide."""

import re

from tests.helpers.repository import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def page(name):
    """What precedes the sections of a page of the guide, and the program of each section."""
    text = (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")
    start, *sections = re.split(r"^## (?=.)", text, flags=re.MULTILINE)
    names = (section.partition("\n")[0] for section in sections)
    return start, {n: "\n".join(BLOCK.findall(s)) for n, s in zip(names, sections, strict=True)}

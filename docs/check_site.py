"""Check the built site: every relative link leads to a file, and every anchor to a place in it.

``python docs/check_site.py docs/_build/html``. Links to other sites are not followed, since builds
are offline; they are counted.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Note what the tag links to and which anchors it is."""
        given = dict(attributes)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        self.links += [given[key] for key in ("href", "src") if given.get(key)]


def check(site):
    """Problems of the site, in words, and the number of links checked and left alone."""
    found = (path for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in found}
    problems, checked, external = [], 0, 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                external += 1
                continue
            checked += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            if not target.exists():
                problems.append(f"{path.relative_to(site)}: no file for {link}")
            elif parts.fragment and unquote(parts.fragment) not in anchors:
                problems.append(f"{path.relative_to(site)}: no anchor for {link}")
    return problems, checked, external


if __name__ == "__main__":
    found, checked, external = check(Path(sys.argv[1]).resolve())
    print("\n".join(found))
    print(f"{checked} internal links checked, {external} external ones not, {len(found)} broken")
    sys.exit(bool(found or not checked))

"""Check pages with axe-core: contrast, names, keyboard; at two widths, light and dark.

``npm install --no-save axe-core``, then in the same folder
``python docs/accessibility.py docs/_build/html [PAGE ...]``. ``browser.py`` needs more.
The rules are those of WCAG 2.2, level AA.
"""

import sys
from pathlib import Path

from browser import PAGES, browser, visits

AXE = Path("node_modules/axe-core/axe.min.js")
_RUN = """
const done = arguments[arguments.length - 1];
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
axe.run(document, {runOnly: rules}).then(found => done(found.violations));
"""


def main(site, *pages):
    """Give the violations in words, each with the places where it was found."""
    rules = AXE.read_text(encoding="utf-8")
    problems = {}
    with browser() as driver:
        for page, width, theme in visits(driver, site, pages or PAGES):
            driver.execute_script(rules)
            for violation in driver.execute_async_script(_RUN):
                for node in violation["nodes"]:
                    place = f"{violation['id']}: {page}: {node['target'][-1]}: {node['html'][:120]}"
                    problems.setdefault(place, []).append(f"{width} {theme}")
    return [f"{place} ({', '.join(where)})" for place, where in problems.items()]


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    print("\n".join(found) or "No violations.")
    sys.exit(bool(found))

"""Pictures of pages at two widths, light and dark, and a check that none is wider than its screen.

``python docs/screenshots.py docs/_build/html FOLDER [PAGE ...]``; ``browser.py`` says what that
needs.
"""

import base64
import sys
from pathlib import Path

from browser import PAGES, browser, visits

# What lies beyond the screen although no box around it scrolls, the page as a whole apart.
_CUT = """
const scrolls = box => /auto|scroll/.test(getComputedStyle(box).overflowX);
const cut = [];
for (const element of document.querySelectorAll('.bd-article *, header *')) {
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.right <= innerWidth + 1) continue;
    let around = element;
    while (around && !around.matches('.bd-article-container') && !scrolls(around))
        around = around.parentElement;
    if (!around || around.matches('.bd-article-container'))
        cut.push(`${element.tagName} ${element.className}: ${Math.round(box.right)}`);
}
return cut.slice(0, 3);
"""


def picture(driver, path):
    """Store the whole page, however long."""
    width, height = driver.execute_script(
        "return [innerWidth, document.documentElement.scrollHeight];"
    )
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    asked = {"captureBeyondViewport": True, "clip": clip}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", asked)
    path.write_bytes(base64.b64decode(shot["data"]))


def main(site, folder, *pages):
    """Store a picture of each page and give what is cut, in words."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    problems = []
    with browser() as driver:
        for page, width, theme in visits(driver, site, pages or PAGES):
            picture(driver, folder / f"{page.replace('/', '-')}-{width}-{theme}.png")
            problems += [f"{page} at {width}: {cut}" for cut in driver.execute_script(_CUT)]
    return sorted(set(problems))


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    print("\n".join(found) or "Nothing is wider than its screen.")
    sys.exit(bool(found))

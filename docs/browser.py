"""The built site in a headless browser, for ``screenshots.py`` and ``accessibility.py``.

Needs Chromium with its driver (Debian: ``apt-get install chromium chromium-driver``) and selenium
(``pip install selenium``).
"""

import shutil
import tempfile
from contextlib import contextmanager
from itertools import product
from pathlib import Path

PAGES = [
    "index",
    "start",
    "choose",
    "guide/new_data",
    "evidence/index",
    "evidence/private",
    "auto_examples/index",
    "api/fairconstrained.RateConstrainedClassifier",
]
WIDTHS = [1280, 420]  # pixels: a laptop, a phone
THEMES = ["light", "dark"]
_FLAGS = [
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "hide-scrollbars"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
]


# Sizes are right once the fonts are there and a frame is drawn.
_SETTLED = """
const done = arguments[0];
document.fonts.ready.then(() => requestAnimationFrame(() => requestAnimationFrame(() => done())));
"""


@contextmanager
def browser():
    """Give a driver of headless Chromium with an empty profile."""
    from selenium import webdriver

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        raise SystemExit("chromium and chromedriver are needed: apt-get install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(f"--{flag}")
    with tempfile.TemporaryDirectory() as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
        try:
            yield driver
        finally:
            driver.quit()


def visits(driver, site, pages):
    """Open each page at each width in each theme; give page, width and theme."""
    for page, width, theme in product(pages, WIDTHS, THEMES):
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        wanted = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wanted.items()]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get((Path(site).resolve() / f"{page}.html").as_uri())
        driver.execute_async_script(_SETTLED)
        yield page, width, theme

"""Draw the logo: ``python docs/logo.py`` writes docs/_static/logo-light.svg and logo-dark.svg.

The rates of two groups are bars. Their tops lie within the slack, the band between two lines.
"""

from pathlib import Path

_FOLDER = Path(__file__).parent / "_static"
# The ink of the lines, and the colours of the groups, on a light and on a dark page.
COLOURS = {
    "light": ("#333333", "#0072b2", "#d55e00"),
    "dark": ("#e6e6e6", "#56b4e9", "#e69f00"),
}
_SIZE, _FLOOR, _WIDTH = 64, 58, 15
_SLACK = (13, 25)  # the upper and the lower line
_TOPS = (15, 23)


def logo(ink, *colours):
    """The logo as the text of an SVG file."""
    lines = "".join(
        f'<path d="M4 {y}H60" stroke="{ink}" stroke-width="3" stroke-dasharray="5 3.5"/>'
        for y in _SLACK
    )
    bars = "".join(
        f'<rect x="{x}" y="{top}" width="{_WIDTH}" height="{_FLOOR - top}" rx="2" fill="{colour}"/>'
        for x, top, colour in zip((13, 36), _TOPS, colours, strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" role="img">'
        f"<title>fairconstrained</title>{bars}{lines}</svg>\n"
    )


if __name__ == "__main__":
    for page, colours in COLOURS.items():
        (_FOLDER / f"logo-{page}.svg").write_text(logo(*colours), encoding="utf-8")

"""Draw the imports between the rooms of the package: ``python docs/import_diagram.py``.

A room is a module or subpackage, as ``MAY_IMPORT`` of the architecture test lists them. Arrows are
imports that occur in the code, less those that follow from others (the transitive reduction). A
room lies one layer below the lowest room that it imports, so that all arrows go up and a circle
would be an error. Prints the numbers of rooms, layers and arrows, and writes images/rooms.svg.
"""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from xml.sax.saxutils import escape

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "fairconstrained"
WIDTH, ROW, BOX, MARGIN = 1000, 84, 30, 20  # pixels
SWEEPS = 8

Graph = dict[str, set[str]]


def rooms() -> list[str]:
    """Rooms by their dotted names: top-level modules, subpackages, and rooms within rooms."""
    own = [path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__"]
    packages = [path.parent.relative_to(PACKAGE) for path in PACKAGE.glob("*/__init__.py")]
    inner = ["problems.private"]
    return sorted([*own, *(".".join(path.parts) for path in packages), *inner])


def room_of(name: str, known: list[str]) -> str:
    """The longest room that a dotted name begins with; the package itself if there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in (2, 1))
    return next((prefix for prefix in prefixes if prefix in known), "fairconstrained")


def imports(path: Path) -> set[str]:
    """Dotted names below the package that a file imports, at whatever depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    prefix = "fairconstrained."
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def graph() -> Graph:
    """Rooms that each room imports."""
    known = rooms()
    found: Graph = {room: set() for room in [*known, "fairconstrained"]}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        room = room_of(module, known)
        found[room] |= {room_of(name, known) for name in imports(path)} - {room}
    return found


def reduced(full: Graph) -> Graph:
    """Imports that do not follow from others; graphlib raises CycleError for a circle."""
    reach: Graph = {}
    for room in TopologicalSorter(full).static_order():
        reach[room] = full[room].union(*(reach[other] for other in full[room]))
    return {
        room: {one for one in own if not any(one in reach[other] for other in own - {one})}
        for room, own in full.items()
    }


def layers(arrows: Graph) -> list[list[str]]:
    """Rooms by layer, those that import nothing first; each layer ordered to shorten arrows."""
    depth: dict[str, int] = {}
    for room in TopologicalSorter(arrows).static_order():
        depth[room] = 1 + max((depth[other] for other in arrows[room]), default=-1)
    found = [sorted(r for r in depth if depth[r] == d) for d in range(max(depth.values()) + 1)]
    below = {room: {other for other in arrows if room in arrows[other]} for room in arrows}
    for sweep in range(SWEEPS):
        place = positions(found)
        neighbours = arrows if sweep % 2 == 0 else below

        def mean(room: str, place: Places = place, near: Graph = neighbours) -> float:
            own = [place[other][0] for other in sorted(near[room])]
            return sum(own) / len(own) if own else place[room][0]

        found = [sorted(layer, key=mean) for layer in found]
    return found


Places = dict[str, tuple[float, float]]


def positions(layered: list[list[str]]) -> Places:
    """Centre of each room's box."""
    return {
        room: (
            MARGIN + (WIDTH - 2 * MARGIN) * (i + 0.5) / len(layer),
            MARGIN + BOX / 2 + ROW * depth,
        )
        for depth, layer in enumerate(layered)
        for i, room in enumerate(layer)
    }


def box_width(room: str) -> float:
    """Width of a box around a room's name."""
    return 9.0 * len(room) + 16


def svg(layered: list[list[str]], arrows: Graph) -> str:
    """The picture; it follows the colour of the text around it."""
    place = positions(layered)
    height = 2 * MARGIN + ROW * (len(layered) - 1) + BOX
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="15" role="img">',
        "<title>Imports between the rooms of fairconstrained</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">',
        '<path d="M0 0 L8 4 L0 8 z" fill="#6b7a8f"/></marker></defs>',
    ]
    for room in sorted(arrows):
        x, y = place[room]
        for other in sorted(arrows[room]):
            there, top = place[other]
            start, end = y - BOX / 2, top + BOX / 2
            bend = 0.5 * (start - end)
            lines.append(
                f'<path d="M{x:.0f} {start:.0f} C{x:.0f} {start - bend:.0f} {there:.0f} '
                f'{end + bend:.0f} {there:.0f} {end:.0f}" fill="none" stroke="#6b7a8f" '
                'stroke-width="1.3" marker-end="url(#tip)"/>'
            )
    for room, (x, y) in sorted(place.items()):
        width = box_width(room)
        lines.append(
            f'<rect x="{x - width / 2:.0f}" y="{y - BOX / 2:.0f}" width="{width:.0f}" '
            f'height="{BOX}" rx="6" fill="#eef3fa" stroke="#35507a"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="#1b2b45">'
            f"{escape(room)}</text>"
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the picture and print its numbers."""
    full = graph()
    arrows = reduced(full)
    layered = layers(arrows)
    (DOCS / "images" / "rooms.svg").write_text(svg(layered, arrows), encoding="utf-8")
    n_all, n_drawn = (sum(map(len, found.values())) for found in (full, arrows))
    sys.stdout.write(
        f"{len(arrows)} rooms, {len(layered)} layers, {n_all} imports, {n_drawn} arrows\n"
    )


if __name__ == "__main__":
    main()

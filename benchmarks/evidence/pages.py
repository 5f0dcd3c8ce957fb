"""Tables of the evidence as markdown, for ``docs/measured.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log10
from typing import Any

from benchmarks import evidence

_PARTS = " / "
_BAR = '<span class="bar" style="width: {:.2f}em"></span>'
_LONGEST_BAR = 6  # em


def table_markdown(name: str) -> str:
    """Give a table with one column for each part of a row's name."""
    cells = evidence.table(name)
    columns = list(dict.fromkeys(cells["column"]))
    head = evidence.sources().loc[name, "head"].split(_PARTS)
    lines = [[*head, *columns], [*["---"] * len(head), *["---:"] * len(columns)]]
    above = [""] * len(head)
    for row, of_row in cells.groupby("row", sort=False):
        found = {
            column: str(evidence.Cell(value, std))
            for column, value, std in zip(
                of_row["column"], of_row["value"], of_row["std"], strict=True
            )
        }
        parts = row.split(_PARTS)
        lines.append([*_unlike(parts, above), *(found.get(column, "") for column in columns)])
        above = parts
    return _lines(lines)


def _unlike(parts: list[str], above: list[str]) -> list[str]:
    """Leave a part empty that stands in the row above already, with all parts before it."""
    same = [a == b for a, b in zip(parts, above, strict=True)]
    return ["" if all(same[: i + 1]) else part for i, part in enumerate(parts)]


def compared() -> Iterator[dict[str, Any]]:
    """Give the claims with their cells, the ratio of the two, and the table of ours."""
    for claim in evidence.claims().to_dict("records"):
        ours, other = (evidence.cell(claim[key]) for key in ("ours", "other"))
        ratio = float(other.value) / float(ours.value)
        table = claim["ours"].split(" :: ")[0]
        yield {**claim, "ours": ours, "other": other, "ratio": ratio, "table": table}


def claims_markdown() -> str:
    """Give the claims as a table, in which bars on a logarithmic scale show the ratios."""
    found = list(compared())
    largest = max(log10(claim["ratio"]) for claim in found)
    lines = [["", "ours", "other / ours", "best other", "", "command"]]
    lines.append(["---", "---:", ":---", "---:", "---", "---"])
    for claim in found:
        unit = f" {claim['unit']}" if claim["unit"] else ""
        command = evidence.sources().loc[claim["table"], "command"]
        (module,) = re.findall(r"-m benchmarks\.([\w.]+)", command)
        bar = _BAR.format(_LONGEST_BAR * max(log10(claim["ratio"]), 0.0) / largest)
        lines.append(
            [
                *(claim["claim"], f"{claim['ours']}{unit}"),
                *(f"{bar} {ratio_text(claim['ratio'])}", f"{claim['other']}{unit}"),
                *(claim["method"], f"[{module}](#{anchor(claim['table'])})"),
            ]
        )
    return _lines(lines)


def ratio_text(ratio: float) -> str:
    """Give a ratio with two decimals below two, one below ten, and none beyond."""
    return f"{ratio:.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}"


def anchor(name: str) -> str:
    """Give the name of the place where a table stands."""
    return "measured-" + name.replace("_", "-")


def _lines(cells: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)

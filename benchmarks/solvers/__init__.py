"""Methods that are compared: each file has ``SOLVERS``, a table of them by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

Cells = list[dict[str, Any]]


def grid(asked: dict[str, list[Any]]) -> Cells:
    """Return all combinations of parameters."""
    return [dict(zip(asked, values, strict=True)) for values in product(*asked.values())]


def without_slack(asked: dict[str, list[Any]]) -> Cells:
    """Return one run of each constraint."""
    return grid({**asked, "slack": [math.nan]})


class Method(NamedTuple):
    """A method as the runner takes it.

    Attributes
    ----------
    METHOD : str
        Its name in tables.
    OBJECTIVES : list of str
        Where it is run by default; elsewhere by its name only.
    fit : callable
        As the objective asks for.
    cells : callable
        From the values that are asked for of each parameter to the parameters of the runs.
    """

    METHOD: str
    OBJECTIVES: list[str]
    fit: Callable[..., Any]
    cells: Callable[[dict[str, list[Any]]], Cells] = grid

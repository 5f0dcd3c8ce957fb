"""The certificate itself: what it states, as text, as JSON, and against a later one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from fairconstrained.metrics.bounds import wilson

_COLUMNS, _INDENT = 88, 15  # of a statement, and of the text after a label


@dataclass(frozen=True)
class Certificate:
    """What :func:`certify` found. ``print`` it for a statement, ``to_json`` for a file.

    Parameters
    ----------
    constraint : str
        The notion, such as "equalized_odds".
    slack : float
        The bound that was asked for.
    confidence : float
        Probability, over the rows of certification, that the bounds hold.
    kept : bool
        Whether the upper bound is at most the slack: then the constraint is certified.
    estimate, upper : float
        The notion on these rows, and its upper confidence bound on the population.
    binding : str
        The comparison or rate that the upper bound comes from.
    method : str
        How the bound was found.
    n_samples : int
        Number of rows of certification.
    groups : dict of str to int
        Rows of each group.
    left_out : list of str
        Groups, or groups within a label, about which it says nothing.
    rates : list of dict
        Every rate involved, with bounds that hold for all of them together.
    estimator : str
        What was certified.
    name : str
        The sample, as named by the caller.
    assumptions : list of str
        Under which all of this holds.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.dummy import DummyClassifier
    >>> from fairconstrained.metrics import certify
    >>> X, y, group = np.zeros((400, 1)), np.arange(400) % 2, np.arange(400) // 2 % 2
    >>> model = DummyClassifier().fit(X, y)  # always the same label
    >>> certificate = certify(model, X, y, sensitive_features=group,
    ...                       constraint="demographic_parity", slack=0.05)
    >>> certificate.kept, round(certificate.upper, 3)
    (True, 0.028)
    """

    constraint: str
    slack: float
    confidence: float
    kept: bool
    estimate: float
    upper: float
    binding: str
    method: str
    n_samples: int
    groups: dict[str, int]
    left_out: list[str]
    rates: list[dict[str, Any]]
    estimator: str
    name: str = "certification rows"
    assumptions: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts; None for what could not be measured.

        Returns
        -------
        dict
        """
        return dict(_without_nan(asdict(self)))

    def to_json(self, **kwargs: Any) -> str:
        """Text that every reader of JSON reads.

        Parameters
        ----------
        **kwargs
            Of ``json.dumps``, such as ``indent=2``.

        Returns
        -------
        str
        """
        return json.dumps(self.to_dict(), **kwargs)

    def compare(self, later: Certificate) -> pd.DataFrame:
        r"""What has changed between two samples: ``certificate.compare(later)``.

        Parameters
        ----------
        later : Certificate
            Of the same constraint on other rows, such as those of the next quarter.

        Returns
        -------
        DataFrame
            A row per rate that both have: ``event``, ``group``, ``before``, ``after``, ``change``
            with ``low`` and ``high``, and ``drifted``: whether zero lies outside. The intervals
            hold together with about the confidence of `self` (Newcombe's, which are good
            approximations and not exact; Bonferroni over the rates).

        Raises
        ------
        ValueError
            If the constraints differ or are not of rates.
        """
        if later.constraint != self.constraint:
            raise ValueError(
                f"later must certify {self.constraint!r} too; got {later.constraint!r}."
            )
        if not all("rows" in rate for rate in self.rates + later.rates):
            raise ValueError(f"compare needs certificates of rates; got {self.constraint!r}.")
        key = ["event", "group"]
        both = pd.DataFrame(self.rates).merge(pd.DataFrame(later.rates), on=key)
        level = 1 - (1 - self.confidence) / max(len(both), 1)
        sides = []
        for suffix in ("_x", "_y"):
            low, high = wilson(both[f"hits{suffix}"], both[f"rows{suffix}"], level)
            sides.append((both[f"rate{suffix}"].to_numpy(), low, high))
        (before, low, high), (after, later_low, later_high) = sides
        change = after - before
        lower = change - np.hypot(after - later_low, high - before)
        upper = change + np.hypot(later_high - after, before - low)
        found = {"before": before, "after": after, "change": change, "low": lower, "high": upper}
        return both[key].assign(**found, drifted=(lower > 0) | (upper < 0))

    def __str__(self) -> str:
        """The statement."""
        verdict = "IS CERTIFIED" if self.kept else "is NOT certified"
        relation = "at most" if self.kept else "not shown to be at most"
        groups = ", ".join(f"{name} ({rows})" for name, rows in self.groups.items())
        entries = {
            "model": [self.estimator],
            "sample": [f"{self.name}: {self.n_samples} rows"],
            "groups": [groups],
            "measured": [f"{self.estimate:.4f} on these rows"],
            "upper bound": [f"{self.upper:.4f} on the population, {relation} {self.slack:g}"],
            "decided by": [self.binding],
            "method": [self.method],
            "left out": ["; ".join(self.left_out)] if self.left_out else [],
            "assuming": self.assumptions,
        }
        lines = [
            f"{self.constraint} within {self.slack:g} {verdict} (confidence {self.confidence:g}).",
            *(line for label, texts in entries.items() for line in _entry(label, texts)),
        ]
        if self.rates:
            lines.append("  rates, with bounds that hold together")
        for rate in self.rates:
            rows = f" of {rate['rows']} rows" if "rows" in rate else ""
            lines.append(
                f"    {rate['event']}, {rate['group']}: {rate['rate']:.4f}{rows}, "
                f"between {rate['low']:.4f} and {rate['high']:.4f}"
            )
        return "\n".join(lines)


def _entry(label: str, texts: Sequence[str]) -> Iterator[str]:
    """Texts in lines of at most `_COLUMNS`, the label before the first."""
    width = _COLUMNS - _INDENT
    for i, text in enumerate(texts):
        for k, line in enumerate(wrap(text, width, break_long_words=False, break_on_hyphens=False)):
            yield f"  {label if i == k == 0 else '':<{_INDENT - 2}}{line}"


def _without_nan(value: Any) -> Any:
    """The same with None in place of nan, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and np.isnan(value) else value

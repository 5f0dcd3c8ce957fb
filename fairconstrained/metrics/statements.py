"""Certificates: bounds with their subject and assumptions, as a statement and as a file."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from textwrap import TextWrapper, shorten
from typing import Any

import numpy as np

from fairconstrained.arrays import in_rows
from fairconstrained.comparison import undecided

# Indent of the text after a label, so that all texts begin in one column.
_INDENT = 15
# Characters that mean something in Markdown, and nothing in names.
_MARKS = re.compile(r"[\\`*$|~\[]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")


@dataclass(frozen=True)
class Certificate:
    """Result of :func:`certify`. ``print`` it for a statement, ``to_dict`` for a file.

    Parameters
    ----------
    constraint : str
        The criterion, such as "equalized_odds".
    slack : float
        The requested bound.
    confidence : float
        Probability, over the rows of certification, that the bounds hold.
    estimate, upper : float
        The criterion on these rows, and its upper confidence bound on the population.
    binding : str
        The comparison or rate that determines the upper bound.
    method : str
        How the bound was found.
    n_samples : int
        Number of rows of certification.
    groups : dict of str to int
        Rows of each group.
    left_out : list of str
        Groups, or groups within a label, about which it says nothing, and why.
    rates : list of dict
        Every rate involved, with bounds that hold for all of them together.
    estimator : str
        The certified model.
    name : str
        The sample, as named by the caller.
    assumptions : list of str
        The assumptions of all this.
    population : dict or None
        The declared composition of the population, if it is not that of the rows.
    standing : float or None
        Where groups are missing, the criterion as fits and metrics count it: the rows of known
        group stand for all rows of their label. None where that is `estimate`, or where the labels
        are not known.

    Attributes
    ----------
    kept : bool
        Whether the constraint is certified: `upper` and `standing` are at most the slack.
    undecided : bool
        Whether the estimate is within the slack only since groups are missing: `standing` is not.

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
    population: dict[str, Any] | None = None
    standing: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the constraint is certified."""
        is_proved = self.upper <= self.slack and not np.isnan(self.estimate)
        return bool(is_proved and not self.undecided)

    @property
    def undecided(self) -> bool:
        """Whether the estimate is within the slack, and `standing` is not."""
        return undecided(self.estimate, self.standing, self.slack)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, for ``json.dump``; None if not known.

        Returns
        -------
        dict
        """
        return dict(plain({"kept": self.kept, **asdict(self)}))

    def __str__(self) -> str:
        """Return the statement."""
        partly = " but for what is left out" if self.left_out else ""
        verdict = f"IS CERTIFIED{partly}" if self.kept else "is NOT certified"
        if self.undecided:
            verdict = "is UNDECIDED, since groups are missing"
        relation = "at most" if self.upper <= self.slack else "not shown to be at most"
        measured = [f"{self.estimate:.4f} on these rows"]
        if self.standing is not None:
            measured = [
                f"{measured[0]} of known group",
                f"{self.standing:.4f} as in fits and metrics, where these stand for all rows of "
                "their label",
            ]
        groups = ", ".join(f"{name} ({rows})" for name, rows in self.groups.items())
        entries = {
            "left out": ["; ".join(self.left_out)] if self.left_out else [],
            "model": [shorten(self.estimator, 120, placeholder=" ...")],
            "sample": [f"{self.name}: {in_rows(self.n_samples)}"],
            "groups": [groups],
            "population": [f"{of}: {told}" for of, told in (self.population or {}).items()],
            "measured": measured,
            "upper bound": [f"{self.upper:.4f} on the population, {relation} {self.slack:g}"],
            "worst case": [self.binding],
            "method": [self.method],
            "assuming": self.assumptions,
        }
        lines = [
            f"{self.constraint} within {self.slack:g} {verdict} (confidence {self.confidence:g})."
        ]
        wrapper = TextWrapper(88, break_long_words=False, break_on_hyphens=False)
        wrapper.subsequent_indent = _INDENT * " "
        for label, texts in entries.items():
            for i, text in enumerate(texts):
                wrapper.initial_indent = f"  {'' if i else label}".ljust(_INDENT)
                lines += wrapper.wrap(text)
        if self.rates:
            lines.append("  rates, with bounds that hold together")
        for rate in self.rates:
            rows = f" of {in_rows(rate['rows'])}" if "rows" in rate else ""
            lines.append(
                f"    {rate['event']}, {rate['group']}: {rate['rate']:.4f}{rows}, "
                f"between {rate['low']:.4f} and {rate['high']:.4f}"
            )
        return "\n".join(lines)


def in_markdown(text: str) -> str:
    """Escape a text as one line of Markdown, whatever special characters its names contain."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.splitlines())).replace("<", "&lt;")


def plain(value: Any) -> Any:
    """Convert numpy's numbers to Python's, and nan, which JSON does not have, to None."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value

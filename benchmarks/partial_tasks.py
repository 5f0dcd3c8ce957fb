"""What is asked for on each data set of the partial-parity paper (Section 7, G.1, G.2.1, G.6)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Intervals and the paper's slacks.

    Attributes
    ----------
    intervals : list of pairs
        The first is that of the tables and slacks, the others are those of Figure 9.
    slacks : dict
        The paper's (G.2.1) by notion, from loose to tight.
    shares : tuple
        Of the rows for training, validation and testing.
    chosen : int
        Which of the intervals is asked for.
    """

    intervals: list[tuple[float, float]]
    slacks: dict[str, list[float]]
    shares: tuple[float, float, float]
    chosen: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval that is chosen."""
        return self.intervals[self.chosen]


A9A = Task(
    intervals=[(0.05, 0.3), (0.05, 0.1), (0.05, 0.5), (0.05, 0.7), (0.05, 0.9)],
    slacks={
        "statistical_parity": [0.28, 0.2, 0.1, 0.05, 0.01],
        "demographic_parity": [0.15, 0.1, 0.05, 0.03, 0.005],
    },
    shares=(0.9, 0.1, 0.0),  # of the training rows
)
BANK = Task(
    intervals=[(0.0, 0.25), (0.0, 0.05), (0.0, 0.45), (0.0, 0.65), (0.0, 0.85)],
    slacks={
        # The paper has four; 0.15 is ours.
        "statistical_parity": [0.3, 0.22, 0.15, 0.08, 0.01],
        "demographic_parity": [0.1, 0.07, 0.05, 0.03, 0.01],
    },
    shares=(0.6, 0.2, 0.2),
)
LAW_SCHOOL = Task(
    intervals=[(0.7, 1.0), (0.1, 1.0), (0.3, 1.0), (0.5, 1.0), (0.9, 1.0)],
    slacks={
        "statistical_parity": [0.2, 0.15, 0.1, 0.08, 0.005],
        "demographic_parity": [0.15, 0.1, 0.06, 0.04, 0.005],
    },
    shares=(0.5625, 0.1875, 0.25),
)
TASKS = {"a9a": A9A, "bank": BANK, "law_school": LAW_SCHOOL}

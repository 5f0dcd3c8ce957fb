"""What is asked for on each data set of the partial-parity paper (Section 7, G.1, G.2.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """An interval, the paper's slacks and the paper's results on it.

    Attributes
    ----------
    interval : pair
    slacks : dict
        The paper's (G.2.1) by notion, from loose to tight.
    paper : list of pairs
        Fairness and accuracy in the paper's Tables 3 and 4, interval and ten grid points.
    shares : tuple
        Of the rows for training, validation and testing.
    """

    interval: tuple[float, float]
    slacks: dict[str, list[float]]
    paper: list[tuple[float, float]]
    shares: tuple[float, float, float]


A9A = Task(
    interval=(0.05, 0.3),
    slacks={
        "statistical_parity": [0.28, 0.2, 0.1, 0.05, 0.01],
        "demographic_parity": [0.15, 0.1, 0.05, 0.03, 0.005],
    },
    paper=[
        (0.7017, 0.8492),
        (0.7841, 0.8479),
        (0.8732, 0.8445),
        (0.9310, 0.8393),
        (0.9752, 0.8311),
    ],
    shares=(0.9, 0.1, 0.0),  # of the training rows
)
BANK = Task(
    interval=(0.0, 0.25),
    slacks={
        # The paper has four; 0.15 is ours.
        "statistical_parity": [0.3, 0.22, 0.15, 0.08, 0.01],
        "demographic_parity": [0.1, 0.07, 0.05, 0.03, 0.01],
    },
    paper=[(0.6582, 0.9027), (0.7376, 0.9028), (0.8954, 0.9025), (0.9634, 0.8983)],
    shares=(0.6, 0.2, 0.2),
)
LAW_SCHOOL = Task(
    interval=(0.7, 1.0),
    slacks={
        "statistical_parity": [0.2, 0.15, 0.1, 0.08, 0.005],
        "demographic_parity": [0.15, 0.1, 0.06, 0.04, 0.005],
    },
    paper=[
        (0.6038, 0.8996),
        (0.6956, 0.8937),
        (0.7825, 0.8913),
        (0.8479, 0.8927),
        (0.9563, 0.8909),
    ],
    shares=(0.5625, 0.1875, 0.25),
)

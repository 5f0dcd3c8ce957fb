"""Published results, to compare ours with: one CSV file for each paper.

``dp_fermi``: curves of DP-FERMI and its baselines, test error and gap, means over 15 seeds, from
the result files of github.com/devanshgupta160/Stochastic-Differentially-Private-and-Fair-Learning
(commit 1c4dc84, Figures/). "Tran_2021b" and "Jagielski_2019" come without the parameter of a curve.
The gap of demographic parity is the difference of the rates of positive predictions, that of
equalized odds the larger of the gaps of true and of false positive rates. epsilon is infinite
without privacy.

``loss_parity``: paper 5, Table 3, means and deviations of ten runs, from the printed output of its
public notebook (snapshot 72e2e0d), which has more digits.

``partial_parity``: Table 4 of the paper of partial parity, test rows: its own measure of fairness
and the accuracy, by the number of points of the interval. With 10 it has the rows of Table 3.

``raco_dp``: what the text of the paper of RaCO-DP says of its figures, which print no numbers, and
the last line of its public notebook (commit 698dcb1), with the epsilon that it spends.

``step_times``: milliseconds of a step, from Table 2 of the paper of RaCO-DP: batches of 512, on
eight cores.
"""

from pathlib import Path

import pandas as pd


def published(name: str) -> pd.DataFrame:
    """One row for each published point."""
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"))

"""Bank marketing, clients of 25 to 60 years or not: 41,188 rows, 62 columns."""

from sklearn.utils import Bunch

from benchmarks.partial_tasks import BANK
from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("bank", preprocess="one_hot")
    data.update(task=BANK)
    return data

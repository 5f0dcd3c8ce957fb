"""Adult by sex: 48,842 rows, 107 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("adult", preprocess="one_hot")

"""Bank Marketing by age (25 to 60, or not): 41,188 rows, 62 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("bank", preprocess="one_hot")

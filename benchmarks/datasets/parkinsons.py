"""Parkinsons by sex: 5,875 rows, 20 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("parkinsons", preprocess="one_hot")

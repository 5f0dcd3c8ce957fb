"""Credit-Card by sex: 30,000 rows, 91 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("credit_card", preprocess="one_hot")

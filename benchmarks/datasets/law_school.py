"""Law school, bar passage by race (two groups): 20,798 rows, 12 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("law_school", preprocess="one_hot")

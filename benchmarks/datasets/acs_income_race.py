"""ACSIncome of Oklahoma by race: 17,917 rows, five groups of very different sizes."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("acs_income_ok", preprocess="one_hot")

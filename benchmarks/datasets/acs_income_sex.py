"""ACSIncome of Oklahoma by sex: 17,917 rows."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("acs_income_ok", sensitive=["SEX"], preprocess="one_hot")

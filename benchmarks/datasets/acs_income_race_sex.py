"""ACSIncome of Oklahoma by race and sex: 17,917 rows, ten groups."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("acs_income_ok", sensitive=["RAC1P", "SEX"], preprocess="one_hot")

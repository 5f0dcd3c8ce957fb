"""COMPAS, arrest within two years, Caucasian or not: 7,214 rows, 18 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("compas", preprocess="one_hot")

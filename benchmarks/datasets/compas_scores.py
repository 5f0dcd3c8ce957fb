"""COMPAS, everybody scored, Caucasian or not: 11,038 rows with a known outcome, 19 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features; the 719 rows labelled -1 are left out."""
    return load_dataset("compas_scores", preprocess="one_hot")

"""Heart disease (BRFSS 2015) by sex: 253,680 rows, 21 columns."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return load_dataset("heart", preprocess="one_hot")

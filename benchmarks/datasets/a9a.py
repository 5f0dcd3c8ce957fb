"""a9a by gender: 48,842 rows, 123 columns, with LIBSVM's own test rows."""

import numpy as np
from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset

TRAINING_ROWS = 32_561  # they come first


def load() -> Bunch:
    """Features, labels and sensitive features; `test` marks the rows of the test file."""
    data = load_dataset("a9a", preprocess="one_hot")
    return Bunch(**data, test=np.arange(len(data.target)) >= TRAINING_ROWS)

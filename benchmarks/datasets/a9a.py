"""a9a by sex: 48,842 rows, 123 columns; ``test`` marks the rows of LIBSVM's test file."""

import numpy as np
from sklearn.utils import Bunch

from benchmarks.partial_tasks import A9A
from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("a9a", preprocess="one_hot")
    split = np.asarray(data.frame["split"])
    data.update(task=A9A, split=split, test=split == "test")
    return data

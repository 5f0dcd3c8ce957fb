"""a9a by sex: 48,842 rows, 123 columns; LIBSVM's split in ``split``."""

import numpy as np
from sklearn.utils import Bunch

from benchmarks.partial_tasks import A9A
from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("a9a", preprocess="one_hot")
    data.update(task=A9A, split=np.asarray(data.frame["split"]))
    return data

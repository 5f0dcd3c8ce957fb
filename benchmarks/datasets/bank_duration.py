"""Bank marketing with the duration of the call: 41,188 rows, 63 columns.

The duration is known only after the call and gives its outcome away, so ``bank`` leaves it out. The
partial-parity paper does not say which of the columns make up its 54.
"""

from sklearn.utils import Bunch

from benchmarks.partial_tasks import BANK
from fairconstrained.datasets import load_dataset, one_hot


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("bank")
    everything = data.data.assign(duration=data.frame["duration"])
    data.data, data.feature_names = one_hot(everything)
    data.update(task=BANK)
    return data

"""Generated data, three groups: 4,000 rows, 10 columns; needs no files."""

from sklearn.utils import Bunch

from fairconstrained.datasets import make_biased_classification


def load() -> Bunch:
    """Features, labels and sensitive features."""
    return make_biased_classification(4_000, n_groups=3, imbalance=0.4, random_state=0)

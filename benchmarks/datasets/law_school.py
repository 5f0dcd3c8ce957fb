"""Law school, bar passage by race (two groups): 20,798 rows, 12 columns."""

from sklearn.utils import Bunch

from benchmarks.partial_tasks import LAW_SCHOOL
from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("law_school", preprocess="one_hot")
    data.update(task=LAW_SCHOOL)
    return data

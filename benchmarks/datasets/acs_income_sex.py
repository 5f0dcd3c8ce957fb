"""ACSIncome of Oklahoma by sex: 17,917 rows."""

from sklearn.utils import Bunch

from benchmarks.partial_tasks import ACS_INCOME
from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels, sensitive features and the task of partial parity."""
    data = load_dataset("acs_income_ok", sensitive=["SEX"], preprocess="one_hot")
    data.update(task=ACS_INCOME)
    return data

"""ACSIncome of Oklahoma, white against non-white; race itself is no feature (paper 5)."""

from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    data = load_dataset("acs_income_ok", sensitive="white", drop="RAC1P")
    data.data = data.data.to_numpy(dtype=float)
    return data

"""ACSIncome of Oklahoma by race, sex and whether married: 17,917 rows, 20 groups.

The file has five codes of race where the survey has nine, so race and sex make ten groups, not 18.
"""

import numpy as np
from sklearn.utils import Bunch

from fairconstrained.datasets import load_dataset


def load() -> Bunch:
    """Features, labels and sensitive features."""
    table = load_dataset("acs_income_ok", sensitive=["RAC1P", "SEX"])
    data = load_dataset("acs_income_ok", sensitive=["RAC1P", "SEX"], preprocess="one_hot")
    groups = table.sensitive_features.assign(
        MAR=np.where(table.data["MAR"] == 1, "married", "not married")
    )
    return Bunch(data=data.data, target=data.target, sensitive_features=groups)

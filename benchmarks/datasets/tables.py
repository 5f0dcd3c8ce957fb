"""The tables of ``fairconstrained.datasets``, as the benchmarks use them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from benchmarks.partial_tasks import A9A, BANK, LAW_SCHOOL, Task
from fairconstrained.datasets import load_dataset, make_biased_classification
from fairconstrained.datasets.loading import one_hot


def dataset(load: Callable[[], Bunch]) -> SimpleNamespace:
    """What the runner asks of a data set."""
    return SimpleNamespace(load=load)


def table(name: str, *, task: Task | None = None, **options: Any) -> SimpleNamespace:
    """Return a one-hot data set with its default groups, and its task of partial parity."""

    def load() -> Bunch:
        data = load_dataset(name, preprocess="one_hot", **options)
        if task is not None:
            data.update(task=task)
        return data

    return dataset(load)


def a9a() -> Bunch:
    """LIBSVM's a9a; ``test`` marks the rows of its test file."""
    data = load_dataset("a9a", preprocess="one_hot")
    split = np.asarray(data.frame["split"])
    data.update(task=A9A, split=split, test=split == "test")
    return data


def acs_income_20() -> Bunch:
    """Five codes of race (the survey has nine), sex, and whether married."""
    raw = load_dataset("acs_income_ok", sensitive=["RAC1P", "SEX"])
    data = load_dataset("acs_income_ok", sensitive=["RAC1P", "SEX"], preprocess="one_hot")
    married = np.where(raw.data["MAR"] == 1, "married", "not married")
    groups = raw.sensitive_features.assign(MAR=married)
    return Bunch(data=data.data, target=data.target, sensitive_features=groups)


def acs_income_white() -> Bunch:
    """White against non-white; race itself is no feature."""
    data = load_dataset("acs_income_ok", sensitive="white", drop="RAC1P")
    data.data = data.data.to_numpy(dtype=float)
    return data


def bank_duration() -> Bunch:
    """Return the bank table with the duration of the call.

    The duration is known only after the call and gives its outcome away, so ``bank`` leaves it out.
    The partial-parity paper does not say which of the columns make up its 54.
    """
    data = load_dataset("bank")
    columns = data.data.assign(duration=data.frame["duration"])
    data.data, data.feature_names = one_hot(columns)
    data.update(task=BANK)
    return data


def digits() -> Bunch:
    """Pictures of 8 x 8 pixels: is the digit 5 or more? The groups are made: where most ink is."""
    X, y = load_digits(return_X_y=True)
    lower = X[:, 32:].sum(axis=1) - X[:, :32].sum(axis=1)
    groups = np.where(lower > np.median(lower), "ink below", "ink above")
    return Bunch(data=X / 16.0, target=(y >= 5).astype(int), sensitive_features=groups)


def synthetic() -> Bunch:
    """Generated data, which need no files."""
    return make_biased_classification(4_000, n_groups=3, imbalance=0.4, random_state=0)


RACE_AND_SEX = ["RAC1P", "SEX"]
DATASETS = {
    "a9a": dataset(a9a),  # by sex: 48,842 rows, 123 columns
    # ACSIncome of Oklahoma, 17,917 rows; the five groups by race are of very different sizes.
    "acs_income_20": dataset(acs_income_20),  # by race, sex and whether married: 20 groups
    "acs_income_race": table("acs_income_ok"),
    "acs_income_race_sex": table("acs_income_ok", sensitive=RACE_AND_SEX),  # ten groups
    "acs_income_sex": table("acs_income_ok", sensitive=["SEX"]),
    "acs_income_white": dataset(acs_income_white),
    "adult": table("adult"),  # by sex: 48,842 rows, 107 columns
    "bank": table("bank", task=BANK),  # clients of 25 to 60 years or not: 41,188 rows, 62 columns
    "bank_duration": dataset(bank_duration),  # 63 columns
    # Arrest within two years, Caucasian or not: 7,214 rows, 18 columns.
    "compas": table("compas"),
    # All who were scored: 11,038 rows, without the 719 whose outcome is unknown; 19 columns.
    "compas_scores": table("compas_scores"),
    "credit_card": table("credit_card"),  # by sex: 30,000 rows, 91 columns
    "digits": dataset(digits),  # 1,797 pictures of scikit-learn, made groups
    "heart": table("heart"),  # heart disease (BRFSS 2015) by sex: 253,680 rows, 21 columns
    # Bar passage by race (two groups): 20,798 rows, 12 columns.
    "law_school": table("law_school", task=LAW_SCHOOL),
    "parkinsons": table("parkinsons"),  # by sex: 5,875 rows, 20 columns
    "synthetic": dataset(synthetic),  # three groups: 4,000 rows, 10 columns
}

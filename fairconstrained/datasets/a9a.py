"""The 123 binary features of a9a, with the names that the files of LIBSVM leave out.

J. Platt made them from Adult. Numbers are cut at quintiles (capital gain and loss: zero or not),
and categories become indicators. Where Adult has a ``?``, no indicator is set. The rows are those
of Adult in the same order, and a test checks the names against Adult.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_files


def _quantiles(name: str, n_parts: int) -> list[str]:
    return [f"{name}=q{part + 1}" for part in range(n_parts)]


def _categories(name: str, values: str) -> list[str]:
    return [f"{name}={value}" for value in values.split()]


FEATURES = [
    *_quantiles("age", 5),
    *_categories(
        "workclass",
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
        "Never-worked",
    ),
    *_quantiles("fnlwgt", 5),
    *_categories(
        "education",
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
        "Masters 1st-4th 10th Doctorate 5th-6th Preschool",
    ),
    *_quantiles("education-num", 5),
    *_categories(
        "marital-status",
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
        "Married-AF-spouse",
    ),
    *_categories(
        "occupation",
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
        "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
        "Priv-house-serv Protective-serv Armed-Forces",
    ),
    *_categories("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    *_categories("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    *_categories("sex", "Female Male"),  # columns 71 and 72, counted from 0
    *_quantiles("capital-gain", 2),
    *_quantiles("capital-loss", 2),
    *_quantiles("hours-per-week", 5),
    *_categories(
        "native-country",
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
        "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
        "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
        "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
        "Trinadad&Tobago Peru Hong Holand-Netherlands",
    ),
]


def a9a_frame(texts: Sequence[str]) -> pd.DataFrame:
    """Join both files to one table of 123 indicators, ``label`` (-1 or 1) and ``split``."""
    # In the test file the last column is empty, so the number of features must be given.
    files = [io.BytesIO(text.encode()) for text in texts]
    parts = load_svmlight_files(files, n_features=len(FEATURES), zero_based=False)
    frames = [
        pd.DataFrame(X.toarray().astype(np.int8), columns=FEATURES).assign(
            label=y.astype(np.int8), split=split
        )
        for X, y, split in zip(parts[::2], parts[1::2], ("train", "test"), strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


def active_category(frame: pd.DataFrame, name: str) -> pd.Series:
    """Recover a variable without missing values from its indicators ``name=value``."""
    indicators = frame[[column for column in FEATURES if column.startswith(f"{name}=")]]
    return indicators.idxmax(axis=1).str.removeprefix(f"{name}=")

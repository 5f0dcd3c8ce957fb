"""Tables with words for scikit-learn's boosted trees, which are read once for several boosters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from fairconstrained.arrays import Floats

Column = tuple[Any, Any]  # codes of rows with the categories, or numbers and None


class Words:
    """A table whose columns are numbers or categories, as codes of the latter and their names.

    scikit-learn's boosters read such a table column by column, which for one row takes ten times as
    long as their trees. Here each column is read once for all boosters that are asked about it.
    """

    def __init__(self, X: pd.DataFrame):
        kinds = [dtype.kind if isinstance(dtype, np.dtype) else "" for dtype in X.dtypes]
        self.n_rows = len(X)
        self.columns: list[Column | None] = [
            (column.cat.codes.to_numpy(), column.cat.categories)
            if isinstance(column.dtype, pd.CategoricalDtype)
            else (column.to_numpy(dtype=float), None)
            if kind and kind in "biuf"
            else None
            for kind, (_, column) in zip(kinds, X.items(), strict=True)
        ]
        self.names = np.asarray(X.columns, dtype=object)

    def codes_for(self, model: Any) -> Floats | None:
        """Return the table as the trees of a booster see it, or None where it reads for itself."""
        is_word = model.is_categorical_
        names = getattr(model, "feature_names_in_", None)
        if is_word is None or names is None or not np.array_equal(names, self.names):
            return None
        if any(
            column is None or (column[1] is None) == word
            for column, word in zip(self.columns, is_word, strict=True)
        ):
            return None
        order = np.argsort(~is_word, kind="stable")  # the trees see categories first
        categories = model._preprocessor.named_transformers_["encoder"].categories_
        table = np.empty((self.n_rows, len(order)))
        for place, j in enumerate(order):
            values, words = cast(Column, self.columns[j])
            if words is None:
                table[:, place] = values
                continue
            code = pd.Index(categories[place]).get_indexer(words).astype(float)
            code[code < 0] = np.nan  # unknown to the booster, as a missing value, which comes last
            table[:, place] = np.append(code, np.nan)[values]
        return table


def as_codes(models: Sequence[Any], X: Any) -> list[tuple[Any, Any]]:
    """Return each model with the rows to ask it about: boosters with codes in place of words.

    If one of them reads the rows for itself, all do.
    """
    if isinstance(X, pd.DataFrame) and all(map(is_plain, models)):
        words = Words(X)
        tables = [words.codes_for(model) for model in models]
        if not any(table is None for table in tables):
            return list(zip(map(reads_codes, models), tables, strict=True))
    return [(model, X) for model in models]


def is_plain(model: Any) -> bool:
    """Return whether a model predicts as scikit-learn's booster does."""
    plain = HistGradientBoostingClassifier.predict_proba
    return getattr(type(model), "predict_proba", None) is plain


def reads_codes(model: Any) -> Any:
    """Return a shallow copy of a fitted booster that is asked about codes."""
    model = copy.copy(model)
    del model.feature_names_in_
    model._preprocessor = None
    return model

"""Tables for scikit-learn's boosted trees, which are read once for several boosters."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier as Trees
from sklearn.preprocessing import FunctionTransformer

from fairconstrained.arrays import Floats

Column = tuple[Any, Any]  # codes of rows with a list of categories, or numbers and None


class Words:
    """A table of numbers and categories, whose columns are read once for all boosters.

    scikit-learn's boosters read such a table column by column, which for one row takes ten times as
    long as their trees.
    """

    def __init__(self, X: pd.DataFrame):
        self.X = X

    @cached_property
    def names(self) -> Any:
        """Names of the columns."""
        return np.asarray(self.X.columns, dtype=object)

    @cached_property
    def columns(self) -> list[Column | None]:
        """The columns, None for one that has neither numbers nor categories."""
        return [_column(column) for _, column in self.X.items()]

    def codes_for(self, model: Any) -> Floats | None:
        """Return the table as a booster's trees see it, or None if the booster has to read it."""
        n_columns = len(self.columns)
        is_word = (
            np.zeros(n_columns, bool) if model.is_categorical_ is None else model.is_categorical_
        )
        if not np.array_equal(getattr(model, "feature_names_in_", []), self.names):
            return None
        if any(
            column is None or (column[1] is None) == word
            for column, word in zip(self.columns, is_word, strict=True)
        ):
            return None
        order = np.argsort(~is_word, kind="stable")  # the trees see categories first
        table = np.empty((len(self.X), n_columns))
        for place, j in enumerate(order):
            values, words = cast(Column, self.columns[j])
            if words is not None:  # unknown to the booster, as a missing value, which comes last
                known = _encoder(model).categories_[place]
                code = {word: i for i, word in enumerate(known.tolist())}
                values = np.array([*(code.get(word, np.nan) for word in words), np.nan])[values]
            table[:, place] = values
        return table


def _column(column: Any) -> Column | None:
    """Return a column of a table, or None if it has neither numbers nor categories."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories.tolist()
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(dtype=float), None
    return None


def _encoder(model: Any) -> Any:
    """Return the encoder of a fitted booster's categories."""
    return model._preprocessor.named_transformers_["encoder"]


def read_once(X: Any) -> Any:
    """Wrap a DataFrame so that its columns are read once for all boosters."""
    return Words(X) if isinstance(X, pd.DataFrame) and len(X) else X


def as_codes(models: Sequence[Any], X: Any) -> list[tuple[Any, Any]]:
    """Return each model with the rows to predict; boosters get codes in place of categories.

    If one booster has to read the rows itself, all do. The rows may come from `read_once`.
    """
    X = read_once(X)
    if all(getattr(type(model), "predict_proba", None) is Trees.predict_proba for model in models):
        # Converted once for all of them.
        numbers = isinstance(X, np.ndarray) and X.size and X.dtype.kind in "biuf"
        read = np.ascontiguousarray(X, dtype=float) if numbers else X
        tables = [_codes(read, model) for model in models]
        if not any(table is None for table in tables):
            return list(zip(map(_reads_codes, models), tables, strict=True))
    return [(model, X.X if isinstance(X, Words) else X) for model in models]


def _codes(X: Any, model: Any) -> Floats | None:
    """Return the rows as a booster's trees see them, or None if the booster has to read them."""
    if isinstance(X, Words):
        return X.codes_for(model)
    plain = not hasattr(model, "feature_names_in_") and model.is_categorical_ is None
    numbers = isinstance(X, np.ndarray) and X.size and X.dtype == float
    return X if plain and numbers and X.shape[1:] == (model.n_features_in_,) else None


def _reads_codes(model: Any) -> Any:
    """Return a shallow copy of a fitted booster that predicts from codes."""
    model = copy.copy(model)
    model._preprocessor = FunctionTransformer().set_output(transform="default")  # an array
    return model


def with_numbers(model: Any, X: Any) -> tuple[Any, Mapping[Any, Any]]:
    """Replace the categories of a table by their ranks; return it and the categories by column.

    A booster finds the categories of a table by sorting its strings, which for a few thousand rows
    takes as long as a fifth of its trees: they are numbered once for several fits.
    """
    plain = getattr(type(model), "fit", None) is Trees.fit
    if not (plain and model.categorical_features == "from_dtype" and isinstance(X, pd.DataFrame)):
        return X, {}
    words = {
        j: np.sort(np.array(dtype.categories.tolist(), dtype=object))
        for j, dtype in enumerate(X.dtypes)
        if isinstance(dtype, pd.CategoricalDtype)
        and all(isinstance(word, str) for word in dtype.categories)
    }
    X = X.copy(deep=False)
    for j, names in words.items():
        number = {word: i for i, word in enumerate(names)}
        X.isetitem(j, X.iloc[:, j].cat.rename_categories(number))
    return X, words


def learn_words(model: Any, words: Mapping[Any, Any]) -> None:
    """Give a booster that was fitted to numbers the categories, as if it were fitted to them."""
    if not words:
        return
    encoder = _encoder(model)
    for place, j in enumerate(np.flatnonzero(model.is_categorical_)):
        if j in words:
            numbers = encoder.categories_[place]
            known = ~pd.isna(numbers)
            categories = numbers.astype(object)
            categories[known] = words[j][numbers[known].astype(int)]
            encoder.categories_[place] = categories

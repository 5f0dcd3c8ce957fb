"""Boosters that are asked about codes in place of words say what they say of the table."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from fairconstrained import RateConstrainedClassifier
from fairconstrained.models import Boosting
from fairconstrained.models.boosters.words import as_codes
from fairconstrained.models.posteriors import Posteriors


def frame(n=600, seed=0):
    """Return words, numbers of all kinds, missing ones too, labels and groups."""
    rng = np.random.default_rng(seed)
    size = rng.choice(["large", "small", "tiny"], n, p=[0.5, 0.49, 0.01])
    X = pd.DataFrame(
        {
            "amount": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "size": pd.Categorical(np.where(rng.random(n) < 0.1, None, size)),
            "old": rng.random(n) < 0.3,
            "rank": pd.Categorical(rng.integers(0, 4, n)),
            "count": rng.integers(0, 9, n),
        }
    )
    group = rng.integers(2, size=n)
    y = (X["count"] + 3 * (size == "large") + 2 * group + rng.normal(size=n) > 6).astype(int)
    return X, y.to_numpy(), group


def boosters(X, y):
    """Return boosters of parts of the rows, which know different categories."""
    parts = [np.flatnonzero(X["size"] != word) for word in ("tiny", "large", "none")]
    trees = HistGradientBoostingClassifier(max_iter=5)
    return [
        HistGradientBoostingClassifier(**trees.get_params()).fit(X.iloc[p], y[p]) for p in parts
    ]


def known_words(booster):
    """Return the categories that a booster knows, by column."""
    return booster._preprocessor.named_transformers_["encoder"].categories_


def test_codes_are_answered_as_words_to_the_last_bit():
    X, y, _ = frame()
    new = frame(200, seed=1)[0]
    new["size"] = (
        new["size"]
        .cat.add_categories("unheard of")
        .cat.reorder_categories(["unheard of", "tiny", "small", "large"])
    )
    new.loc[:20, "size"] = "unheard of"
    models = boosters(X, y)
    for rows in (X, new, new[:1], new.iloc[:0:-1]):
        for model, (reader, codes) in zip(models, as_codes(models, rows), strict=True):
            assert reader is not model
            np.testing.assert_array_equal(reader.predict_proba(codes), model.predict_proba(rows))


def test_numbers_are_read_once_too():
    X, y, _ = frame()
    numbers = X[["amount", "count"]]
    for rows in (numbers, numbers.to_numpy(), numbers.to_numpy(np.float32)[:, ::-1]):
        booster = HistGradientBoostingClassifier(max_iter=5).fit(rows, y)
        ((reader, codes),) = as_codes([booster], rows)
        assert reader is not booster
        np.testing.assert_array_equal(reader.predict_proba(codes), booster.predict_proba(rows))
        assert as_codes([booster], rows[:0])[0][0] is booster
        assert as_codes([booster], np.ones((2, 3)))[0][0] is booster


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X[X.columns[::-1]],
        lambda X: X.assign(size=X["size"].astype(object)),
        lambda X: X.assign(count=X["count"].astype("category")),
        lambda X: X.assign(count=X["count"].astype(object)),
        lambda X: X.assign(more=1.0),
    ],
    ids=["order", "objects", "more words", "numbers as objects", "more columns"],
)
def test_other_tables_are_left_to_the_boosters(change):
    X, y, _ = frame()
    models = boosters(X, y)
    rows = change(X)
    assert [pair[0] for pair in as_codes(models, rows)] == models
    assert all(pair[1] is rows for pair in as_codes(models, rows))


def test_a_constrained_booster_says_what_the_plain_one_says():
    X, y, group = frame(n=900)
    clf = RateConstrainedClassifier(
        slack=0.1, model=Boosting(HistGradientBoostingClassifier(max_iter=5)), random_state=0
    )
    clf.fit(X, y, sensitive_features=group)
    np.testing.assert_array_equal(clf.predict(X), clf.model_.estimator_.predict(X))
    with pytest.raises(ValueError, match="feature"):
        clf.predict(X[["amount", "size"]])


def test_a_single_row_is_predicted_as_in_its_table():
    X, y, group = frame()
    trees = HistGradientBoostingClassifier(max_iter=10, random_state=0)
    clf = RateConstrainedClassifier("equalized_odds", slack=0.1, model=trees, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    scores = clf.decision_function(X[:20])
    alone = [clf.decision_function(X[i : i + 1])[0] for i in range(20)]
    np.testing.assert_allclose(alone, scores, rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_words_in_numbers_give_the_booster_of_the_words(weighted):
    X, y, group = frame()
    X["size"] = (
        X["size"]
        .cat.add_categories(["abc"])
        .cat.reorder_categories(["tiny", "abc", "small", "large"])
    )
    rng = np.random.default_rng(1)
    weight = rng.uniform(1.0, 2.0, len(y)) if weighted else None
    trees = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    folds = list(StratifiedKFold(3).split(X, y))
    model = Posteriors(trees, cv=folds)
    labels = model.columns(X, y, group, [[0, 1], [0, 1]], sample_weight=weight)[1].labels
    for (train, _), booster in zip(folds, labels.models, strict=True):
        w = None if weight is None else weight[train]
        plain = clone(trees).fit(X.iloc[train], y[train], sample_weight=w)
        for one, other in zip(known_words(plain), known_words(booster), strict=True):
            assert one.tolist()[:-1] == other.tolist()[:-1]
            assert one.dtype == other.dtype
        np.testing.assert_array_equal(plain.predict_proba(X), booster.predict_proba(X))

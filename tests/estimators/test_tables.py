"""Tables of an engine: the model of the same rows in memory, and lazy predictions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fairconstrained as fc
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.solvers import SGDA
from tests.helpers.marks import slow_where
from tests.helpers.releases import answered_by, honest
from tests.helpers.tables import assert_same, elsewhere, features, frame, in_memory

cloudpickle = pytest.importorskip("cloudpickle", reason="dask brings it")
dask = pytest.importorskip("dask", reason="dask is in no extra but clients and cluster")
dd = pytest.importorskip("dask.dataframe", reason="dask is in no extra but clients and cluster")
CASES = {
    "rates": lambda: fc.RateConstrainedClassifier(slack=0.02),
    "losses": lambda: fc.LossParityClassifier(),
    "margin": lambda: fc.RateConstrainedClassifier("equalized_odds", slack=0.1, margin=1.0),
    "penalty": lambda: fc.DPFermiClassifier(epsilon=None),
    "AUC, log loss": lambda: fc.AUCFairClassifier("inter_group", objective="log"),
    "partial": lambda: fc.PartialParityClassifier(slack=0.1, interval="auto"),
}


def smooth_frame():
    """Rows for criteria of distributions, whose local solutions then do not hang on rounding."""
    data = make_biased_classification(1200, random_state=0)
    columns = pd.DataFrame(data.data).add_prefix("x")
    return columns.assign(label=data.target, sex=data.sensitive_features, weight=1.0)


def partitions(rows, *starts):
    parts = np.split(np.arange(len(rows)), starts)
    pieces = [dd.from_pandas(rows.iloc[own], npartitions=1) for own in parts]
    return dd.concat([*pieces, pieces[0][pieces[0].x0 > 1e9]])


@pytest.mark.parametrize("case", slow_where(CASES, *(set(CASES) - {"losses"})))
def test_the_model_is_that_of_the_rows_in_memory(case):
    """To 1e-6, whatever the partitions: sorted by group, of one row, or without any."""
    rows = smooth_frame() if case == "partial" else frame()
    rows = rows.sort_values("sex", kind="stable", ignore_index=True)
    whole = in_memory(CASES[case](), rows)
    assert_same(elsewhere(CASES[case](), partitions(rows, 250, 251)), whole)


def test_columns_are_given_by_name_or_as_columns_of_the_table():
    rows = frame(300).assign(age=lambda rows: np.where(rows.x1 > 0, "old", "young"))
    lazy = partitions(rows, 100).drop(columns="weight")
    names, columns = ("label", ["sex", "age"]), (lazy["label"], lazy[["sex", "age"]])
    clf = fc.LossParityClassifier(slack=0.05)
    fits = [clone(clf).fit(lazy, y, sensitive_features=groups) for y, groups in (names, columns)]
    assert_same(*fits)
    assert len(fits[0].groups_) == 6


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@pytest.mark.parametrize("kind", [fc.RateConstrainedClassifier, fc.DPFermiClassifier])
def test_a_private_model_is_that_of_the_rows_in_memory(kind):
    """The engine is one party: the noise of a seed is drawn once, for all partitions."""
    rows = frame(300).drop(columns="weight")
    rows["sex"] = rows.sex.astype(pd.CategoricalDtype([*np.unique(rows.sex), "unseen"]))
    whole, found = (kind(epsilon=1.0, random_state=0) for _ in range(2))
    whole.fit(features(rows), rows.label, sensitive_features=rows.sex)
    found.fit(partitions(rows, 100, 101), "label", sensitive_features="sex")
    assert list(found.groups_) == list(whole.groups_) == [*np.unique(rows.sex.dropna()), "unseen"]
    np.testing.assert_array_equal(*(c.decision_function(features(rows)) for c in (found, whole)))
    assert found.privacy_ == whole.privacy_


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_no_release_tells_which_partitions_have_a_group(monkeypatch):
    """Categories that are the values of each partition declare those of all."""
    seen = answered_by(monkeypatch, honest)
    for first in "ac":
        sexes = [first, *["a", "b"] * 50, *["a", "b", "c"] * 66, "c"]
        rows = frame(300).drop(columns="weight").assign(sex=sexes)
        lazy = partitions(rows, 100)
        lazy["sex"] = lazy.sex.astype("category")
        clf = fc.DPFermiClassifier(random_state=0).fit(lazy, "label", sensitive_features="sex")
        assert list(clf.groups_) == ["a", "b", "c"]
    shapes = [shape for shape, *_ in seen]
    assert shapes[: len(shapes) // 2] == shapes[len(shapes) // 2 :]


def test_names_are_checked_before_rows_are_gathered_for_a_private_fit():
    def unread(frame):
        raise AssertionError("rows were read")

    lazy = partitions(frame(300), 100)
    lazy = lazy.map_partitions(unread, meta=lazy._meta)
    with pytest.raises(ValueError, match="must be the name of a column of X"):
        elsewhere(fc.RateConstrainedClassifier(epsilon=1.0), lazy, y="unknown")


@pytest.mark.parametrize("known", ["most", "none", "none in a partition"])
def test_rows_of_unknown_group_train_with_the_others(known):
    """A partition may know no group, and has no kind of them then."""
    rows = frame(300)
    most, none, others = rows.sex.isin(["0", "1"]), rows.sex.isna(), rows.index >= 100
    rows["sex"] = rows.sex.where({"most": most, "none": none}.get(known, others))
    whole = in_memory(fc.LossParityClassifier(slack=0.05), rows)
    assert_same(elsewhere(fc.LossParityClassifier(slack=0.05), partitions(rows, 100)), whole)


@pytest.mark.parametrize("columns", [["age"], ["sex", "age"]])
def test_kinds_of_groups_that_differ_between_partitions_are_refused(columns):
    """1 and "1" are different groups, also where columns are crossed."""
    rows = frame(300).assign(age=pd.Series([1] * 150 + ["1"] * 150, dtype=object))
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = partitions(rows.filter(regex=rf"^x|label|weight|{'|'.join(columns)}"), 150)
    with pytest.raises(ValueError, match="sensitive_features holds values of different kinds"):
        elsewhere(fc.LossParityClassifier(), lazy, sex=columns)


def test_predictions_are_lazy_columns():
    rows = frame(300)
    lazy = partitions(rows, 100)
    clf = elsewhere(fc.LossParityClassifier(), lazy)
    found = clf.predict(lazy)
    assert isinstance(found, dd.Series)
    assert found.npartitions == lazy.npartitions
    assert (found.compute() == clf.predict(features(rows))).all()
    probability = clf.predict_proba(lazy).compute()
    assert list(probability.columns) == ["no", "yes"]
    np.testing.assert_allclose(probability, clf.predict_proba(features(rows)))
    scores = lazy.assign(score=clf.decision_function(lazy)).compute().score
    np.testing.assert_allclose(scores, clf.decision_function(features(rows)))


@pytest.mark.slow
def test_groups_in_predictions_are_columns_of_the_table():
    rows = frame(300)
    lazy = partitions(rows, 100)
    clf = elsewhere(fc.PartialParityClassifier(slack=0.2, group_features=True), lazy)
    found = clf.predict(lazy, sensitive_features="sex").compute()
    assert (found == clf.predict(features(rows), sensitive_features=rows.sex)).all()


@pytest.mark.slow
def test_a_fitted_pipeline_of_trees_on_words_and_missing_values():
    """Its head is that of the rows in memory: both learn from the same rows, out of fold."""
    rows = frame(800).drop(columns="weight")
    rows["x1"] = np.where(rows.x1 > 1, np.nan, rows.x1)
    rows["xword"] = np.where(rows.x2 > 0, "up", "down")
    first, others = rows[:300], rows[300:].reset_index(drop=True)
    encode = make_column_transformer((OneHotEncoder(), ["xword"]), remainder=SimpleImputer())
    trees = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    fitted = make_pipeline(encode, trees).fit(features(first), first.label)
    found = fc.RateConstrainedClassifier(model=FrozenEstimator(fitted), slack=0.05, random_state=0)
    whole = clone(found).fit(features(others), others.label, sensitive_features=others.sex)
    lazy = partitions(others, 200)
    assert_same(found.fit(lazy, "label", sensitive_features="sex"), whole)
    assert (found.predict(lazy).compute() == whole.predict(features(others))).all()


LAZY = partitions(frame(60), 20)
BAD = {
    "no such column": (LAZY, {"y": "labels"}, r"y must be the name of a column of X.*'labels'"),
    "a column X lacks": (LAZY[["x0", "sex"]], {"y": LAZY.label}, r"y must be .* a column of X"),
    "another table": (LAZY, {"y": LAZY.label.compute()}, r"y must be the name of a column of X"),
    "a column of another": (LAZY, {"y": LAZY.head(9, compute=False).label}, r"y must be the name"),
    "two columns": (LAZY, {"y": ["label", "sex"]}, r"y must be one column of X; got \['label'"),
    "no features": (LAZY[["label", "sex"]], {"weight": None}, r"X has no columns left for feature"),
    "no rows": (LAZY[LAZY.x0 > 1e9], {}, r"X has no rows"),
    "missing": (LAZY.assign(x1=LAZY.x1.where(LAZY.x1 < 0)), {}, r"Input X contains NaN"),
    "one class": (LAZY[LAZY.label == "no"], {}, r"needs samples of at least 2 classes"),
    "weight": (LAZY.assign(weight=-1.0), {}, r"sample_weight must not be negative"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused(case):
    lazy, given, message = BAD[case]
    clf = fc.LossParityClassifier()
    with pytest.raises(ValueError, match=message):
        elsewhere(clf, lazy, **given)
    assert not hasattr(clf, "n_features_in_")


@pytest.mark.parametrize(
    ("clf", "message"),
    [
        (fc.RateConstrainedClassifier(model=(4,)), r"model must be linear or a fitted classifier"),
        (fc.RateConstrainedClassifier(model=LogisticRegression()), r"FrozenEstimator\(classif"),
        (fc.RateConstrainedClassifier(solver=SGDA()), r"on rows in blocks or shards"),
    ],
)
def test_what_is_not_exact_is_refused_before_any_work(clf, message):
    with pytest.raises((ValueError, IncompatibleSolverError), match=message):
        elsewhere(clf, LAZY)

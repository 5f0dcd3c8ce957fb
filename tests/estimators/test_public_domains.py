"""With a declared domain nothing tells whether a group or a class occurs."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.model_selection import SensitiveColumnsClassifier
from fairconstrained.solvers import DPSGDA, NoisyTables
from tests.helpers.marks import slow_where

DATA = make_biased_classification(2000, 6, bias=0.6, random_state=0)
GROUPS = np.where(np.array(DATA.sensitive_features) == DATA.sensitive_features[0], "a", "b")
X, Y = DATA.data, DATA.target

pytestmark = [
    pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning"),
    pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning"),
]
ESTIMATORS = {
    "rates": RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=5), random_state=0),
    "sensitive features": DPFermiClassifier(random_state=0),
    "record": DPFermiClassifier(protect="record", solver=NoisyTables(n_steps=5), random_state=0),
    "ranking": AUCFairClassifier(epsilon=1.0, random_state=0),
}


@pytest.mark.parametrize("name", slow_where(ESTIMATORS, "sensitive features"))
def test_a_declared_group_is_listed_whether_or_not_it_occurs(name):
    """One row decides whether "c" occurs: what is told of the groups is the same."""
    with_c = np.where(np.arange(2000) == 7, "c", GROUPS)
    outcomes = []
    for groups in (GROUPS, with_c):
        declared = pd.Categorical(groups, categories=["b", "a", "c"])
        clf = clone(ESTIMATORS[name])
        fitted = clf.fit(X, Y, sensitive_features=pd.Series(declared))
        outcomes.append((fitted.groups_.tolist(), fitted.constraints_, fitted.privacy_))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == ["a", "b", "c"]


def test_columns_declare_their_values_which_are_crossed():
    declared = pd.Categorical(GROUPS, categories=["b", "a", "c"])
    for columns, names in (
        ({"one": declared}, ["a", "b", "c"]),
        (pd.DataFrame({"one": declared, "two": declared}), [(i, j) for i in "abc" for j in "abc"]),
    ):
        clf = clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=columns)
        assert clf.groups_.tolist() == names


@pytest.mark.parametrize("table", [dict, pd.DataFrame])
def test_columns_of_which_some_declare_nothing_are_refused(table):
    groups = table({"one": pd.Categorical(GROUPS, categories=["b", "a", "c"]), "two": GROUPS})
    with pytest.raises(ValueError, match=r"must be categoricals, or none.*column 1 is none"):
        clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=groups)


@pytest.mark.parametrize(
    "around",
    [
        lambda clf: SensitiveColumnsClassifier(clf, -1),
        lambda clf: make_pipeline(SensitiveColumnsClassifier(make_pipeline(clf), -1)),
    ],
    ids=["alone", "in pipelines"],
)
def test_whoever_takes_groups_from_columns_tells_no_class_that_occurs(around):
    table = pd.DataFrame(X).assign(group=GROUPS == "a")
    for occurring in (2, 3):
        y = pd.Series(pd.Categorical(np.arange(2000) % occurring, categories=range(3)))
        clf = around(clone(ESTIMATORS["rates"])).fit(table.to_numpy(float), y)
        assert clf.classes_.tolist() == [0, 1, 2]


def test_no_warning_tells_how_many_of_the_declared_classes_occur():
    """scikit-learn counts the labels that occur where they are many."""
    clf = DPFermiClassifier(protect="record", solver=NoisyTables(n_steps=1), min_group_size=0)
    warned = []
    for occurring in (2, 24):
        y = pd.Series(pd.Categorical(np.arange(40) % occurring, categories=range(24)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf.fit(X[:40], y, sensitive_features=GROUPS[:40])
        warned.append({str(w.message) for w in caught if "unique classes" in str(w.message)})
    assert warned == [set(), set()]


@pytest.mark.parametrize("name", ["rates", "record"])
def test_a_declared_class_need_not_occur(name):
    declared = pd.Series(pd.Categorical(Y, categories=[0, 1, 2]))
    for rows in (slice(None), Y == 0):  # that one class alone occurs is no error, which would tell
        clf = clone(ESTIMATORS[name]).fit(X[rows], declared[rows], sensitive_features=GROUPS[rows])
        assert clf.classes_.tolist() == [0, 1, 2]
        assert clf.predict_proba(X[:5]).shape == (5, 3)


@pytest.mark.parametrize("occurring", [2, 30])
def test_how_many_of_the_declared_groups_occur_decides_no_error_and_no_warning(occurring):
    """Thirty groups in 140 rows are refused by their number, whether two of them occur or all."""
    groups = pd.Series(pd.Categorical(np.arange(2000) % occurring, categories=range(30)))
    with pytest.raises(ValueError, match=r"has 30 groups in 140 samples"):
        clone(ESTIMATORS["ranking"]).fit(X[:140], Y[:140], sensitive_features=groups[:140])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=groups)
    assert any("has 30 different numbers" in str(w.message) for w in caught)


@pytest.mark.parametrize("occurring", [2, 3])
@pytest.mark.parametrize(
    ("of", "categories", "message"),
    [
        ("groups", [1, 2, "x"], "categories of sensitive_features must be of one type"),
        ("groups", [True, False, "unknown"], "categories of sensitive_features must be of one"),
        ("labels", [0.0, 1.0, 1.5], "must be classes"),
        ("labels", ["a", "b", 7], "must be of one type"),
    ],
)
def test_categories_of_different_types_are_refused_whether_or_not_all_occur(
    of, categories, message, occurring
):
    """1 and 2 alone are numbers, and texts beside "x": the row with "x" would decide."""
    declared = pd.Series(pd.Categorical.from_codes(np.arange(2000) % occurring, categories))
    y, groups = (declared, GROUPS) if of == "labels" else (Y, declared)
    with pytest.raises(ValueError, match=message):
        clone(ESTIMATORS["rates"]).fit(X, y, sensitive_features=groups)

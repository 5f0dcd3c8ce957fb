"""With a declared domain nothing tells whether a group or a class occurs."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
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
    told = []
    for groups in (GROUPS, with_c):
        declared = pd.Categorical(groups, categories=["b", "a", "c"])
        clf = clone(ESTIMATORS[name])
        fitted = clf.fit(X, Y, sensitive_features=pd.Series(declared))
        told.append((fitted.groups_.tolist(), fitted.constraints_, fitted.privacy_))
    assert told[0] == told[1]
    assert told[0][0] == ["a", "b", "c"]


def test_categories_of_several_columns_are_crossed():
    table = pd.DataFrame(
        {
            "one": pd.Categorical(GROUPS, categories=["a", "b"]),
            "two": pd.Categorical(["x"] * 2000, categories=["x", "y"]),
        }
    )
    clf = clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=table)
    assert clf.groups_.tolist() == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


def test_columns_of_a_dict_declare_their_values():
    declared = pd.Categorical(GROUPS, categories=["b", "a", "c"])
    for columns, names in (
        ({"one": declared}, ["a", "b", "c"]),
        ({"one": declared, "two": declared}, [(i, j) for i in "abc" for j in "abc"]),
    ):
        clf = clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=columns)
        assert clf.groups_.tolist() == names


@pytest.mark.parametrize("table", [dict, pd.DataFrame])
def test_columns_of_which_some_declare_nothing_are_refused(table):
    groups = table({"one": pd.Categorical(GROUPS, categories=["b", "a", "c"]), "two": GROUPS})
    with pytest.raises(ValueError, match=r"must be categoricals, or none.*column 1 is none"):
        clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=groups)


def test_no_warning_tells_how_many_of_the_declared_classes_occur():
    """scikit-learn counts the labels that occur where they are many."""
    clf = DPFermiClassifier(protect="record", solver=NoisyTables(n_steps=1), min_group_size=0)
    said = []
    for occurring in (2, 24):
        y = pd.Series(pd.Categorical(np.arange(40) % occurring, categories=range(24)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf.fit(X[:40], y, sensitive_features=GROUPS[:40])
        said.append({str(w.message) for w in caught if "unique classes" in str(w.message)})
    assert said == [set(), set()]


@pytest.mark.parametrize("name", ["rates", "record"])
def test_a_declared_class_need_not_occur(name):
    declared = pd.Series(pd.Categorical(Y, categories=[0, 1, 2]))
    clf = clone(ESTIMATORS[name]).fit(X, declared, sensitive_features=GROUPS)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X[:5]).shape == (5, 3)


def test_one_class_alone_may_occur():
    """That it does is no error, which would tell."""
    declared = pd.Series(pd.Categorical(np.zeros(2000, dtype=int), categories=[0, 1]))
    clf = clone(ESTIMATORS["rates"]).fit(X, declared, sensitive_features=GROUPS)
    assert clf.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("occurring", [2, 30])
def test_how_many_of_the_declared_groups_occur_decides_no_error(occurring):
    """Thirty groups in 140 rows are refused by their number, whether two of them occur or all."""
    groups = pd.Categorical(np.arange(140) % occurring, categories=range(30))
    with pytest.raises(ValueError, match=r"has 30 groups in 140 samples"):
        clone(ESTIMATORS["ranking"]).fit(X[:140], Y[:140], sensitive_features=pd.Series(groups))


@pytest.mark.parametrize("occurring", [2, 30])
def test_how_many_of_the_declared_groups_occur_is_in_no_warning(occurring):
    groups = pd.Categorical(np.arange(2000) % occurring, categories=range(30))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=pd.Series(groups))
    assert any("has 30 different numbers" in str(w.message) for w in caught)


@pytest.mark.parametrize("occurring", [2, 3])
@pytest.mark.parametrize("categories", [[1, 2, "x"], ["1", "2", 1], [True, False, "unknown"]])
def test_groups_of_different_types_are_refused_whether_or_not_all_occur(categories, occurring):
    """1 and 2 alone are numbers, and texts beside "x": the row with "x" would decide."""
    codes = np.arange(2000) % occurring
    groups = pd.Series(pd.Categorical.from_codes(codes, categories=categories))
    with pytest.raises(ValueError, match=r"categories of sensitive_features must be of one type"):
        clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=groups)


@pytest.mark.parametrize("occurring", [2, 3])
@pytest.mark.parametrize(
    ("categories", "message"),
    [([0.0, 1.0, 1.5], "must be classes"), (["a", "b", 7], "must be of one type")],
)
def test_labels_that_are_no_classes_are_refused_whether_or_not_all_occur(
    categories, message, occurring
):
    declared = pd.Series(pd.Categorical.from_codes(np.arange(2000) % occurring, categories))
    with pytest.raises(ValueError, match=message):
        clone(ESTIMATORS["rates"]).fit(X, declared, sensitive_features=GROUPS)

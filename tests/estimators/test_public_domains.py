"""With a declared domain nothing tells whether a group or a class occurs."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.solvers import DPSGDA, NoisyTables

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
every_estimator = pytest.mark.parametrize("clf", ESTIMATORS.values(), ids=ESTIMATORS)


@every_estimator
def test_a_declared_group_is_listed_whether_or_not_it_occurs(clf):
    """One row decides whether "c" occurs: what is told of the groups is the same."""
    with_c = np.where(np.arange(2000) == 7, "c", GROUPS)
    told = []
    for groups in (GROUPS, with_c):
        fitted = clone(clf).set_params(groups=["b", "a", "c"]).fit(X, Y, sensitive_features=groups)
        told.append((fitted.groups_.tolist(), fitted.constraints_, fitted.privacy_))
    assert told[0] == told[1]
    assert told[0][0] == ["a", "b", "c"]


@every_estimator
def test_pandas_categories_are_a_declared_domain(clf):
    groups = pd.Series(pd.Categorical(GROUPS, categories=["a", "b", "never"]))
    assert clone(clf).fit(X, Y, sensitive_features=groups).groups_.tolist() == ["a", "b", "never"]


def test_categories_of_several_columns_are_crossed():
    table = pd.DataFrame(
        {
            "one": pd.Categorical(GROUPS, categories=["a", "b"]),
            "two": pd.Categorical(["x"] * 2000, categories=["x", "y"]),
        }
    )
    clf = clone(ESTIMATORS["rates"]).fit(X, Y, sensitive_features=table)
    assert clf.groups_.tolist() == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


@pytest.mark.parametrize("name", ["rates", "record"])
def test_a_declared_class_need_not_occur(name):
    clf = clone(ESTIMATORS[name]).set_params(classes=[0, 1, 2])
    clf.fit(X, Y, sensitive_features=GROUPS)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X[:5]).shape == (5, 3)


def test_one_class_alone_may_occur():
    """That it does is no error, which would tell."""
    clf = clone(ESTIMATORS["rates"]).set_params(classes=[0, 1])
    assert clf.fit(X, np.zeros(2000, dtype=int), sensitive_features=GROUPS).classes_.tolist() == [
        0,
        1,
    ]


def test_what_is_not_in_the_domain_is_refused_by_name():
    clf = clone(ESTIMATORS["rates"]).set_params(groups=["a", "z"])
    with pytest.raises(ValueError, match="groups must name all that occurs; the data also have b"):
        clf.fit(X, Y, sensitive_features=GROUPS)
    with pytest.raises(ValueError, match="classes must be None or a list of 2 or more"):
        clf.set_params(classes=[1]).fit(X, Y, sensitive_features=GROUPS)

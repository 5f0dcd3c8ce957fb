"""Sensitive features in columns of X, for callers that route no metadata."""

import numpy as np
import polars as pl
import pytest
from fairlearn.postprocessing import ThresholdOptimizer
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.metrics import demographic_parity_difference, fairness_scorer
from fairconstrained.model_selection import SensitiveColumnsClassifier
from tests.helpers.clients import frame

GAP = fairness_scorer(demographic_parity_difference, column="sex")


@pytest.fixture(scope="module")
def data():
    table, y = frame()
    return table[["sex", *table.columns.drop("sex")]], y


@pytest.mark.parametrize(
    ("convert", "column"),
    [
        (lambda table: table, "sex"),
        (pl.from_pandas, "sex"),
        (lambda table: table.to_numpy(), -11),
        (lambda table: sparse.csr_array(table.to_numpy()), 0),
        (lambda table: table.to_numpy().tolist(), [0]),
    ],
)
def test_it_fits_as_if_the_groups_were_given_apart(data, convert, column):
    table, y = data
    X, own = table.drop(columns="sex").to_numpy(), convert(table)
    expected = RateConstrainedClassifier().fit(X, y, sensitive_features=table["sex"])
    clf = SensitiveColumnsClassifier(RateConstrainedClassifier(), column).fit(own, y)
    np.testing.assert_allclose(clf.predict_proba(own), expected.predict_proba(X), atol=1e-7)
    np.testing.assert_array_equal(clf.predict(own), expected.predict(X))
    assert clf.n_features_in_ == X.shape[1] + 1


def test_several_columns_are_crossed_and_weights_passed_on(data):
    table, y = data
    table = table.assign(old=np.arange(len(y)) % 2)
    weight = np.linspace(0.5, 1.5, len(y))
    fair = RateConstrainedClassifier(slack=0.2)
    clf = SensitiveColumnsClassifier(fair, ["sex", "old"]).fit(table, y, weight)
    assert len(clf.estimator_.groups_) == 4
    X, groups = table.drop(columns=["sex", "old"]), table[["sex", "old"]]
    expected = clone(fair).fit(X, y, sensitive_features=groups, sample_weight=weight)
    np.testing.assert_array_equal(clf.predict(table), expected.predict(X))


BY_GROUP = make_pipeline(StandardScaler(), PartialParityClassifier(slack=0.3, group_features=True))
THRESHOLDS = ThresholdOptimizer(estimator=LogisticRegression(), predict_method="predict_proba")


@pytest.mark.parametrize("estimator", [pytest.param(BY_GROUP, marks=pytest.mark.slow), THRESHOLDS])
@pytest.mark.filterwarnings("ignore:Setting an? (value|item):DeprecationWarning")  # in fairlearn
def test_models_that_predict_by_group_work_in_searches(data, estimator):
    table, y = data
    clf = SensitiveColumnsClassifier(estimator, "sex")
    scores = cross_validate(clf, table, y, scoring=GAP, cv=2, error_score="raise")
    assert np.isfinite(scores["test_score"]).all()


def test_boosting_keeps_what_its_members_keep(data):
    """Every member keeps the slack on its weights; the vote of three is near it."""
    table, y = data
    fair = SensitiveColumnsClassifier(RateConstrainedClassifier(slack=0.02), 0)
    boosted = AdaBoostClassifier(fair, n_estimators=3, random_state=0).fit(table, y)
    free = AdaBoostClassifier(LogisticRegression(max_iter=1000), n_estimators=3, random_state=0)
    assert -GAP(boosted, table, y) < -GAP(free.fit(table, y), table, y)
    assert all(len(member.estimator_.groups_) == 2 for member in boosted.estimators_)


def test_it_says_what_is_wrong(data):
    table, y = data
    clf = SensitiveColumnsClassifier(RateConstrainedClassifier(), "gender")
    with pytest.raises(ValueError, match=r"column must name .* got 'gender', and X has .*'sex'"):
        clf.fit(table, y)
    with pytest.raises(NotFittedError):
        clf.predict(table)
    with pytest.raises(ValueError, match="estimator must have a method fit; got 3"):
        SensitiveColumnsClassifier(3, 0).fit(table, y)
    fitted = SensitiveColumnsClassifier(RateConstrainedClassifier(), 0).fit(table, y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(table.rename(columns={"x0": "z"}))

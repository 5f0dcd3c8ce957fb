"""Units do not matter: neither those of the columns nor those of the weights."""

import numpy as np
import pytest
from scipy import sparse

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Linear
from tests.helpers.fits import logistic_regression
from tests.helpers.marks import slow_where

DATA = make_biased_classification(2000, random_state=0)
ESTIMATORS = {
    "odds": RateConstrainedClassifier("equalized_odds"),
    "network": RateConstrainedClassifier(model=(4,), random_state=0, max_iter=5, slack=0.9),
    "auc from moments": AUCFairClassifier(AUCParity("inter_group", surrogate="binormal")),
    "penalty": DPFermiClassifier(epsilon=None),
}
SOME_SLOW = slow_where(ESTIMATORS, "network", "penalty")
UNITS = 1e-6, 1e3, np.where(np.arange(DATA.data.shape[1]) == 0, 1e-3, 1.0)


def fit(clf, X=DATA.data, weight=None):
    clf.fit(X, DATA.target, sensitive_features=DATA.sensitive_features, sample_weight=weight)
    return clf.predict(X), clf.decision_function(X), clf.violation_


@pytest.mark.parametrize("name", SOME_SLOW)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_positive_factors_of_columns_change_no_prediction(name):
    clf = ESTIMATORS[name]
    labels, scores, violation = fit(clf)
    for units in UNITS:
        other = fit(clf, DATA.data * units)
        np.testing.assert_array_equal(other[0], labels)
        np.testing.assert_allclose(other[1], scores, atol=1e-6)
        assert other[2] == pytest.approx(violation, abs=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sparse_tables_are_scaled_without_being_centred(fit_intercept):
    """The standardised problem, from the nonzero entries alone."""
    rng = np.random.default_rng(0)
    X = np.where(np.abs(DATA.data) < 1.0, 0.0, DATA.data) * 10.0 ** rng.uniform(-4, 4, size=10)
    clf = RateConstrainedClassifier(slack=np.inf, model=Linear(fit_intercept=fit_intercept))
    clf.fit(sparse.csr_array(X), DATA.target, sensitive_features=DATA.sensitive_features)
    coef, intercept = logistic_regression(X, DATA.target, 2000 * 1e-4, fit_intercept=fit_intercept)
    np.testing.assert_allclose(clf.coef_, coef, rtol=1e-3)
    np.testing.assert_allclose(clf.intercept_, intercept, atol=1e-4)


@pytest.mark.parametrize(
    ("codes", "wrap"), [((-3.0, 3.0), np.asarray), ((0.0, -1e-5), sparse.csr_array)]
)
def test_a_column_of_two_values_is_penalised_by_its_range(codes, wrap):
    """A rare category has a small standard deviation, but is penalised as a frequent one."""
    rng = np.random.default_rng(0)
    rare = rng.random(2000) < 0.01
    target = np.where(rare, rng.random(2000) < 0.9, DATA.target).astype(int)

    def scores(column, X=None):
        X = np.column_stack((DATA.data, np.where(rare, *codes[::-1]))) if X is None else X
        clf = RateConstrainedClassifier(slack=np.inf, alpha=0.01)
        clf.fit(wrap(X), target, sensitive_features=DATA.sensitive_features)
        return clf.coef_[0, -1], clf.decision_function(wrap(X))

    coef, found = scores(codes)
    Z = (DATA.data - DATA.data.mean(axis=0)) / DATA.data.std(axis=0)
    other, expected = scores((0.0, 1.0), np.column_stack((Z, rare)))
    assert coef * (codes[1] - codes[0]) == pytest.approx(other, rel=1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("name", SOME_SLOW)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_factor_of_all_weights_changes_no_prediction(name):
    clf = ESTIMATORS[name]
    labels, scores, _ = fit(clf)
    for factor in (1e-310, 1e307):
        other = fit(clf, weight=np.full(len(labels), factor))
        np.testing.assert_array_equal(other[0], labels)
        np.testing.assert_allclose(other[1], scores, atol=1e-6)

"""What must not matter does not: forms and names of the data, units of columns and weights."""

import numpy as np
import pytest
from scipy import sparse

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Linear
from tests.helpers.fits import FORGIVEN, fitted, logistic_regression, same_model, table
from tests.helpers.marks import slow_where


@pytest.mark.parametrize("name", ["demographic_parity", "false_negative_rate"])
def test_integer_weights_are_repetitions(name):
    X, y, group = table(n=300)
    weight = np.random.default_rng(0).integers(0, 4, size=300)
    index = np.repeat(np.arange(300), weight)
    slack = 0.12
    weighted = fitted(name, (X, y, group), weight, slack=slack)
    repeated = fitted(name, (X[index], y[index], group[index]), slack=slack)
    same_model(weighted, repeated)
    assert weighted.violation_ == pytest.approx(repeated.violation_, abs=1e-12)
    assert weighted.multipliers_.max() > 0


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(400)
    data = table(2, 4)
    same_model(fitted(data=data, slack=0.15), fitted(data=[a[order] for a in data], slack=0.15))


def test_names_of_labels_and_groups_do_not_matter():
    X, y, group = table(3, 2)
    labels, names = np.array(["bad", "fair", "good"]), np.array(["f", "m"])
    numbers = fitted(data=(X, y, group), slack=0.2)
    words = fitted(data=(X, labels[y], names[group].tolist()), slack=0.2)
    assert (words.coef_ == numbers.coef_).all()
    assert words.classes_.tolist() == labels.tolist()
    assert words.groups_.tolist() == names.tolist()
    assert (words.predict(X) == labels[numbers.predict(X)]).all()
    assert words.score(X, labels[y]) == numbers.score(X, y)
    assert any("group f" in text for text in words.constraints_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_and_dense_give_the_same_model(n_classes):
    X, y, group = table(n_classes, 2)
    X = np.where(np.abs(X) < 1.2, 0.0, X)
    dense = fitted(data=(X, y, group), slack=0.2)
    thin = fitted(data=(sparse.csr_array(X), y, group), slack=0.2)
    same_model(dense, thin)
    for container in (sparse.csr_array, sparse.csc_matrix):
        assert (thin.predict(container(X)) == dense.predict(X)).all()


def test_constant_and_duplicate_columns_change_nothing():
    X, y, group = table()
    wide = np.column_stack((X, np.full(400, 7.0), np.zeros(400), X[:, 0], 1e3 * X[:, 1]))
    plain = fitted(data=(X, y, group), slack=0.15, alpha=0.0)
    clf = fitted(data=(wide, y, group), slack=0.15, alpha=0.0)
    assert np.isfinite(clf.coef_).all()
    np.testing.assert_allclose(clf.predict_proba(wide), plain.predict_proba(X), atol=1e-4)
    penalised = fitted(data=(wide, y, group), slack=0.15, alpha=1e-3)
    assert penalised.coef_[0, [6, 7]] == pytest.approx(0, abs=1e-8)
    assert penalised.coef_[0, 8] == pytest.approx(penalised.coef_[0, 0], rel=1e-3)


@pytest.mark.slow
def test_fewer_rows_than_columns():
    """Every labelling is linear: fits are feasible, beat constants, and mostly by far."""
    scores, gaps = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        group = np.arange(60) % 2
        X = rng.normal(size=(60, 200)) + group[:, None]
        y = (X[:, 0] + rng.normal(size=60) > 0.5).astype(int)
        free = fitted(data=(X, y, group), slack=np.inf)
        clf = fitted(data=(X, y, group), slack=0.1)
        assert free.score(X, y) == 1.0
        assert clf.violation_ <= 0.1 + FORGIVEN
        assert clf.score(X, y) > max(y.mean(), 1 - y.mean())
        scores.append(clf.score(X, y))
        gaps.append(free.violation_)
    assert np.median(scores) > 0.8
    assert np.median(gaps) > 0.1 + FORGIVEN


def test_single_precision_gives_the_model_of_the_same_numbers():
    """The arithmetic is in double precision whatever the table."""
    X, y, group = table()
    single = X.astype(np.float32)
    same_model(
        fitted(data=(single, y, group)), fitted(data=(single.astype(float), y, group)), rtol=1e-8
    )


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
def test_positive_factors_of_columns_and_of_all_weights_change_no_prediction(name):
    clf = ESTIMATORS[name]
    labels, scores, violation = fit(clf)
    for units, factor in [*((units, 1.0) for units in UNITS), (1.0, 1e-310), (1.0, 1e307)]:
        other = fit(clf, DATA.data * units, weight=np.full(len(labels), factor))
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

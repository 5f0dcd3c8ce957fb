"""RateConstrainedClassifier on data of every kind: what must not matter does not.

Warnings are errors here: a fit that is not feasible, or not converged, fails its test.
"""

import numpy as np
import pytest
from scipy import sparse

from tests.helpers.fits import FORGIVEN, fitted, same_model, table


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

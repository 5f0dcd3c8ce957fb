"""Rows that are read in blocks: the model of the same rows in memory."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.blocks import Blocks
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import DivergenceError, IncompatibleSolverError
from fairconstrained.solvers import IDCA, SGDA
from tests.helpers.marks import slow_where

DATA = make_biased_classification(1200, random_state=0)
X, Y = DATA.data, np.where(DATA.target == 1, "yes", "no")
GROUPS = np.asarray(DATA.sensitive_features)
FORMS = {
    "arrays": lambda rows: rows,
    "single precision": lambda rows: rows.astype(np.float32),
    "frames": lambda rows: pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])]),
    "sparse": sp.csr_array,
}


def blocks(form=FORMS["arrays"], table=X):
    return Blocks(lambda: (form(rows) for rows in np.array_split(table, [0, 1, 500, 500, 510])))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateConstrainedClassifier("equalized_odds", slack=0.03),
        pytest.param(lambda: DPFermiClassifier(epsilon=None, penalty=5.0), marks=pytest.mark.slow),
    ],
)
def test_the_model_is_that_of_the_rows_in_memory(make):
    whole = make().fit(X, Y, sensitive_features=GROUPS)
    read = make().fit(blocks(), Y, sensitive_features=GROUPS)
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(read.intercept_, whole.intercept_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(read.multipliers_, whole.multipliers_, rtol=0, atol=1e-8)
    assert read.status_ == whole.status_
    assert read.violation_ == pytest.approx(whole.violation_)
    assert read.classes_.tolist() == ["no", "yes"]
    each = [read.predict(rows) for rows in blocks() if len(rows)]
    assert (np.concatenate(each) == whole.predict(X)).all()
    with pytest.raises(TypeError, match=r"rows of one block here: only fit reads Blocks"):
        read.predict(blocks())


@pytest.mark.parametrize("name", slow_where(FORMS, "arrays", "frames"))
def test_forms_of_blocks(name):
    """Those without rows are passed over."""
    form = FORMS[name]
    whole = LossParityClassifier().fit(form(X), Y, sensitive_features=GROUPS)
    read = LossParityClassifier().fit(blocks(form), Y, sensitive_features=GROUPS)
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=1e-8)
    assert read.n_features_in_ == X.shape[1]
    names = getattr(whole, "feature_names_in_", None)
    assert np.array_equal(getattr(read, "feature_names_in_", None), names)


def test_weights_and_warm_starts():
    weight = np.random.default_rng(0).integers(1, 4, size=len(Y)).astype(float)
    options = {"sensitive_features": GROUPS, "sample_weight": weight}
    whole = RateConstrainedClassifier(slack=0.02).fit(X, Y, **options)
    read = RateConstrainedClassifier(slack=0.02, warm_start=True).fit(blocks(), Y, **options)
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=1e-8)
    again = read.fit(blocks(), Y, **options)
    assert again.converged_
    assert again.n_iter_ < whole.n_iter_


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (AUCFairClassifier(model=(8,)), r"model must be linear or a fitted classifier"),
        (DPFermiClassifier(), r"epsilon must be None"),
        (RateConstrainedClassifier(model=LogisticRegression()), r"must be linear to read Blocks"),
    ],
)
def test_what_is_not_exact_is_refused_before_any_work(estimator, message):
    def never():
        raise AssertionError("rows were read")

    with pytest.raises(ValueError, match=message):
        estimator.fit(Blocks(never), Y, sensitive_features=GROUPS)


@pytest.mark.parametrize("solver", [SGDA(), IDCA()])
def test_solvers_that_need_single_rows_are_refused(solver):
    with pytest.raises(IncompatibleSolverError, match="FairERM on rows in blocks or shards"):
        RateConstrainedClassifier(solver=solver).fit(blocks(), Y, sensitive_features=GROUPS)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (X[:-1], r"the blocks of X have 1199 rows, but y has 1200"),
        (np.vstack((X, X[:1])), r"the blocks of X have 1201 or more rows, but y has 1200"),
        (np.where(np.arange(len(X))[:, None] == 505, np.nan, X), "contains NaN"),
        (X[:0], r"Blocks.read gives no rows"),
    ],
)
def test_bad_blocks_are_refused(table, message):
    clf = LossParityClassifier()
    with pytest.raises(ValueError, match=message):
        clf.fit(blocks(table=table), Y, sensitive_features=GROUPS)
    assert not hasattr(clf, "n_features_in_")


def test_other_mistakes_are_named():
    uneven = Blocks(lambda: [X[:600], X[600:, 1:]])
    with pytest.raises(ValueError, match=r"X has 9 features, but .* expecting 10"):
        LossParityClassifier().fit(uneven, Y, sensitive_features=GROUPS)
    with pytest.raises(ValueError, match=r"Blocks.read gives no rows"):
        LossParityClassifier().fit(Blocks(list), Y, sensitive_features=GROUPS)
    other_order = Blocks(lambda: [FORMS["frames"](X[:600]), FORMS["frames"](X[600:]).iloc[:, ::-1]])
    with pytest.raises(ValueError, match=r"same order as they were in fit"):
        LossParityClassifier().fit(other_order, Y, sensitive_features=GROUPS)
    for wrong in (GROUPS[:-1], np.append(GROUPS, GROUPS[0])):
        with pytest.raises(ValueError, match=r"sensitive_features has \d+ rows, but y has 1200"):
            LossParityClassifier().fit(blocks(), Y, sensitive_features=wrong)
    with pytest.raises(ValueError, match=r"must be a function .* lambda: the_list"):
        Blocks([X])
    zero = np.ones(len(Y))
    zero[3] = 0.0
    with pytest.raises(ValueError, match=r"sample_weight must be positive with Blocks"):
        LossParityClassifier().fit(blocks(), Y, sensitive_features=GROUPS, sample_weight=zero)


@pytest.mark.parametrize("wrong", [None, X[0], blocks()])
def test_what_is_no_block_is_named(wrong):
    message = r"must give blocks of two dimensions|only fit reads Blocks"
    with pytest.raises((ValueError, TypeError), match=message):
        LossParityClassifier().fit(Blocks(lambda: [X, wrong]), Y, sensitive_features=GROUPS)


def test_blocks_that_change_between_passes_do_not_end_in_a_model():
    reads = []

    def read():
        reads.append(1)
        return [X if len(reads) < 6 else np.where(X > 0, np.nan, X)]

    clf = LossParityClassifier()
    with pytest.raises((ValueError, DivergenceError)):
        clf.fit(Blocks(read), Y, sensitive_features=GROUPS)
    assert not hasattr(clf, "coef_")

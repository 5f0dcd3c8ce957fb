"""Rows that are read in blocks: the model of the same rows in memory."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import fairconstrained as fc
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import DivergenceError
from fairconstrained.groups import GroupProbabilities, RecordedGroups
from fairconstrained.solvers import IDCA, SGDA, LevelSet
from tests.helpers.marks import slow_where

DATA = make_biased_classification(1200, random_state=0)
X, Y = DATA.data, np.where(DATA.target == 1, "yes", "no")
GROUPS = np.asarray(DATA.sensitive_features)


def batch(rows):
    return pytest.importorskip("pyarrow").RecordBatch.from_pandas(
        pd.DataFrame(rows).add_prefix("x")
    )


FORMS = {
    "arrays": lambda rows: rows,
    "single precision": lambda rows: rows.astype(np.float32),
    "frames": lambda rows: pd.DataFrame(rows, columns=[f"x{i}" for i in range(rows.shape[1])]),
    "batches of Arrow": batch,
    "sparse": sp.csr_array,
}


def blocks(form=FORMS["arrays"]):
    return Blocks(lambda: (form(rows) for rows in np.array_split(X, [0, 1, 500, 500, 510])))


RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(0, 4, size=len(Y)).astype(float)
SHARE = 0.2 + 0.6 * GROUPS
PROBABLE = GroupProbabilities(pd.DataFrame({"a": 1.0 - SHARE, "b": SHARE}))
RECORDED = RecordedGroups(np.where(GROUPS == 1, "b", "a"), np.array([[0.9, 0.1], [0.2, 0.8]]))
SITES = pd.DataFrame({"age": np.where(X[:, 1] > 0, "old", "young"), "site": np.arange(1200) % 2})
KNOWN = np.where(RNG.random(1200) < 0.5, None, GROUPS)
PARTLY = pd.DataFrame({"g": KNOWN, "h": np.where(X[:, 0] > 0, 1.0, np.nan)})
IN_PART = fc.PartialParityClassifier("demographic_parity", interval=(0.1, 0.6), slack=0.1)
MOMENTS = AUCParity(surrogate="binormal")
MODELS = {
    "odds": (fc.RateConstrainedClassifier("equalized_odds", slack=0.03), {}),
    "weights": (fc.RateConstrainedClassifier(slack=0.02), {"sample_weight": WEIGHT}),
    "strata": (fc.RateConstrainedClassifier(slack=0.1), {"control_features": SITES}),
    "missing": (fc.RateConstrainedClassifier(slack=0.02), {"sensitive_features": PARTLY}),
    "probable": (fc.RateConstrainedClassifier(slack=0.02), {"sensitive_features": PROBABLE}),
    "recorded": (fc.RateConstrainedClassifier(slack=0.02), {"sensitive_features": RECORDED}),
    "margin": (fc.RateConstrainedClassifier(margin=0.5), {"sensitive_features": RECORDED}),
    "ranking": (fc.AUCFairClassifier(MOMENTS, slack=0.03), {"sample_weight": WEIGHT}),
    "columns of groups": (IN_PART.set_params(group_features=True), {"sample_weight": WEIGHT}),
}
FAST = ("odds", "weights", "strata", "missing")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", slow_where(MODELS, *(set(MODELS) - set(FAST))))
def test_the_model_is_that_of_the_rows_in_memory(name):
    clf, inputs = MODELS[name]
    inputs = {"sensitive_features": GROUPS, **inputs}
    whole, read = clone(clf).fit(X, Y, **inputs), clone(clf).fit(blocks(), Y, **inputs)
    atol = 1e-6 if name in ("ranking", "columns of groups") else 1e-8
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=atol)
    np.testing.assert_allclose(read.intercept_, whole.intercept_, rtol=0, atol=atol)
    if atol == 1e-8:
        np.testing.assert_allclose(read.multipliers_, whole.multipliers_, rtol=0, atol=atol)
    assert read.status_ == whole.status_
    assert read.violation_ == pytest.approx(whole.violation_, abs=1e-9)
    assert read.classes_.tolist() == ["no", "yes"]
    assert read.groups_.tolist() == whole.groups_.tolist()


def test_predictions_and_warm_starts():
    options = {"sensitive_features": GROUPS, "sample_weight": WEIGHT}
    whole = fc.RateConstrainedClassifier(slack=0.02).fit(X, Y, **options)
    read = fc.RateConstrainedClassifier(slack=0.02, warm_start=True).fit(blocks(), Y, **options)
    each = [read.predict(rows) for rows in blocks() if len(rows)]
    assert (np.concatenate(each) == whole.predict(X)).all()
    with pytest.raises(TypeError, match=r"rows of one block here: only fit reads Blocks"):
        read.predict(blocks())
    again = read.fit(blocks(), Y, **options)
    assert again.converged_
    assert again.n_iter_ < whole.n_iter_


@pytest.mark.parametrize("name", slow_where(FORMS, "arrays", "frames"))
def test_forms_of_blocks(name):
    form = FORMS[name]
    whole = fc.LossParityClassifier().fit(form(X), Y, sensitive_features=GROUPS)
    read = fc.LossParityClassifier().fit(blocks(form), Y, sensitive_features=GROUPS)
    np.testing.assert_allclose(read.coef_, whole.coef_, rtol=0, atol=1e-8)
    assert read.n_features_in_ == X.shape[1]
    names = getattr(whole, "feature_names_in_", None)
    assert np.array_equal(getattr(read, "feature_names_in_", None), names)


SOLVER = r"cannot solve FairERM on rows in"


@pytest.mark.parametrize(
    ("clf", "message"),
    [
        (fc.AUCFairClassifier(model=(8,)), r"model must be linear or a fitted classifier"),
        (fc.DPFermiClassifier(), r"epsilon must be None"),
        (fc.RateConstrainedClassifier(model=LogisticRegression()), r"be linear to read Blocks"),
        (fc.RateConstrainedClassifier(solver=SGDA()), f"SGDA {SOLVER} blocks or shards"),
        (fc.RateConstrainedClassifier(solver=IDCA()), f"IDCA {SOLVER} blocks or shards"),
        (fc.PartialParityClassifier(solver=IDCA()), f"IDCA {SOLVER}"),
        (fc.AUCFairClassifier(AUCParity(surrogate="quadratic"), solver=LevelSet()), SOLVER),
    ],
)
def test_what_needs_single_rows_is_refused_before_any_work(clf, message):
    def never():
        raise AssertionError("rows were read")

    with pytest.raises(ValueError, match=message):
        clf.fit(Blocks(never), Y, sensitive_features=GROUPS)


FRAME = FORMS["frames"](X)
BAD = {
    r"the blocks of X have 1199 rows, but y has 1200": lambda: [X[:-1]],
    r"the blocks of X have 1201 or more rows, but y has 1200": lambda: [X, X[:1]],
    r"contains NaN": lambda: [X[:600], np.where(np.arange(600)[:, None] == 5, np.nan, X[600:])],
    r"Blocks.read gives no rows": lambda: [X[:0]],
    r"read gives no rows": list,
    r"X has 9 features, but .* expecting 10": lambda: [X[:600], X[600:, 1:]],
    r"same order as they were in fit": lambda: [FRAME[:600], FRAME[600:].iloc[:, ::-1]],
    r"feature names should match": lambda: [batch(X[:600]), FRAME[600:].iloc[:, ::-1]],
    r"names of columns in all blocks or in none": lambda: [X[:600], FRAME[600:].iloc[:, ::-1]],
    r"must give blocks of two dimensions": lambda: [X, X[0]],
    r"blocks of two dimensions": lambda: [X, None],
    r"only fit reads Blocks": lambda: [X, blocks()],
}


@pytest.mark.parametrize("message", BAD)
def test_bad_blocks_are_refused(message):
    clf = fc.LossParityClassifier()
    with pytest.raises((ValueError, TypeError), match=message):
        clf.fit(Blocks(BAD[message]), Y, sensitive_features=GROUPS)
    assert not hasattr(clf, "n_features_in_")


def test_other_mistakes_are_named():
    for wrong in (GROUPS[:-1], np.append(GROUPS, GROUPS[0])):
        with pytest.raises(ValueError, match=r"sensitive_features has \d+ rows, but y has 1200"):
            fc.LossParityClassifier().fit(blocks(), Y, sensitive_features=wrong)
    with pytest.raises(ValueError, match=r"must be a function .* lambda: the_list"):
        Blocks([X])


def test_blocks_that_change_between_passes_do_not_end_in_a_model():
    reads = []

    def read():
        reads.append(1)
        return [X if len(reads) < 6 else np.where(X > 0, np.nan, X)]

    clf = fc.LossParityClassifier()
    with pytest.raises((ValueError, DivergenceError)):
        clf.fit(Blocks(read), Y, sensitive_features=GROUPS)
    assert not hasattr(clf, "coef_")

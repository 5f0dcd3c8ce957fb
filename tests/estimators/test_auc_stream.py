"""AUCFairClassifier.partial_fit: a stream gives the model of one fit, whatever its chunks."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import inter_group_auc_gap
from tests.helpers.auc_fits import fitted, table
from tests.helpers.fits import FORGIVEN


def streamed(data, sizes, sparse=(), **params):
    X, y, group = data
    notion = AUCParity("inter_group", surrogate=params.pop("surrogate", "soft_bins"))
    clf = AUCFairClassifier(notion, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        ends = np.cumsum(sizes)
        for i, index in enumerate(np.split(np.arange(len(y)), ends)):
            chunk = sp.csr_array(X[index]) if i in sparse else X[index]
            clf.partial_fit(chunk, y[index], classes=[0, 1], sensitive_features=group[index])
    return clf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "objective", "sparse"),
    [([200], "log", ()), ([1, 1, 1, 1, 1, 95, 200], "auc", ()), ([100, 100], "auc", (1,))],
)
def test_a_stream_gives_the_model_of_one_fit(sizes, objective, sparse):
    """Whatever the chunks; sparse ones may follow dense ones."""
    data = table(3)
    stream = streamed(data, sizes, sparse, objective=objective, slack=0.1)
    once = fitted(data=data, objective=objective, slack=0.1)
    np.testing.assert_allclose(stream.coef_, once.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(stream.intercept_, once.intercept_, rtol=1e-5, atol=1e-8)
    assert stream.violation_ == pytest.approx(once.violation_, abs=1e-9)
    assert stream.groups_.tolist() == once.groups_.tolist()


@pytest.mark.slow
def test_beyond_its_memory_a_stream_is_a_sample():
    X, y, group = data = table(n=3000)
    params = {"stream_memory": 500, "random_state": 0, "slack": 0.1}
    stream = streamed(data, [1000, 1000], **params)
    assert stream._stream_.rows.y.shape == (500,)
    assert stream._stream_.n_seen == 3000
    same = streamed(data, [1000, 1000], **params)
    np.testing.assert_array_equal(same.coef_, stream.coef_)
    assert stream.violation_ <= 0.1 + FORGIVEN
    assert inter_group_auc_gap(y, stream.decision_function(X), sensitive_features=group) < 0.2


def test_groups_may_come_later_and_names_are_kept_in_order():
    X, y, group = table(3)
    names = np.array(["c", "a", "b"])[group]
    order = np.argsort(group, kind="stable")
    clf = AUCFairClassifier("intra_group", objective="auc", slack=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        for index in np.array_split(order, 5):
            clf.partial_fit(X[index], y[index], classes=[0, 1], sensitive_features=names[index])
    assert clf.groups_.tolist() == ["a", "b", "c"]
    once = AUCFairClassifier("intra_group", objective="auc", slack=0.1)
    once.fit(X[order], y[order], sensitive_features=names[order])
    np.testing.assert_allclose(clf.coef_, once.coef_, rtol=1e-5)


def test_before_both_classes_are_seen_there_is_nothing_to_predict():
    X, y, group = table()
    clf = AUCFairClassifier()
    index = np.flatnonzero(y == 1)[:5]
    clf.partial_fit(X[index], y[index], classes=[0, 1], sensitive_features=group[index])
    with pytest.raises(NotFittedError):
        clf.predict(X)
    clf.partial_fit(X, y, sensitive_features=group)
    assert clf.predict(X).shape == (400,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, g: (X[:, :3], y, {"sensitive_features": g}), "X has 3 features"),
        (lambda X, y, g: (X, y + 1, {"sensitive_features": g}), r"classes \[0, 1\].*\[2\]"),
        (lambda X, y, g: (X, y, {"sensitive_features": g, "classes": [0, 2]}), r"classes=\[0, 2\]"),
        (lambda X, y, g: (X, y, {}), "in all calls of partial_fit or in none"),
        (
            lambda X, y, g: (X, y, {"sensitive_features": np.array(["a", "b"])[g]}),
            "another kind than before",
        ),
        (lambda X, y, g: (X, y, {"sensitive_features": g[1:]}), "sensitive_features has 49 rows"),
    ],
)
def test_bad_chunks_are_named_and_change_nothing(change, message):
    X, y, group = (array[:50] for array in table())
    clf = AUCFairClassifier().partial_fit(X, y, sensitive_features=group)
    before = clf.coef_.copy(), clf._stream_
    X, y, keywords = change(X, y, group)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(X, y, **keywords)
    assert (clf.coef_ == before[0]).all()
    assert clf._stream_ is before[1]


def test_the_first_chunk_needs_both_classes_or_their_names():
    X, y, group = table()
    one = y == 1
    with pytest.raises(ValueError, match=r"classes=\[negative, positive\]"):
        AUCFairClassifier().partial_fit(X[one], y[one], sensitive_features=group[one])
    with pytest.raises(ValueError, match="got 3"):
        AUCFairClassifier().partial_fit(X, y, classes=[0, 1, 2], sensitive_features=group)

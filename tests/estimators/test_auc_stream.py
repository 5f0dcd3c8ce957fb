"""AUCFairClassifier.partial_fit: the model of one fit, or steps that go on from call to call."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import inter_group_auc_gap
from fairconstrained.solvers import QCQP, LevelSet
from tests.helpers.auc_fits import auc, fitted, table
from tests.helpers.fits import FORGIVEN

INTER, INTRA = (AUCParity(name, surrogate="quadratic") for name in ("inter_group", "intra_group"))
IN_PLACE = {"objective": "auc", "slack": 0.4, "random_state": 0}
# The slack is the surrogate's, so that true gaps may miss it.
quiet = pytest.mark.filterwarnings(
    "ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning"
)


def steps(batch_size=20, **params):
    return LevelSet(batch_size=batch_size, step_size=0.05, **params)


def streamed(clf, data, sizes, sparse=()):
    """The estimator after these chunks, and one more with the rest."""
    X, y, group = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        for i, index in enumerate(np.split(np.arange(len(y)), np.cumsum(sizes))):
            chunk = sp.csr_array(X[index]) if i in sparse else X[index]
            clf.partial_fit(chunk, y[index], classes=[0, 1], sensitive_features=group[index])
    return clf


def in_place(data, sizes, solver=None, **params):
    return streamed(
        AUCFairClassifier(INTER, solver=solver or steps(), **{**IN_PLACE, **params}), data, sizes
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "objective", "sparse"),
    [([200], "log", ()), ([1, 1, 1, 1, 1, 95, 200], "auc", ()), ([100, 100], "auc", (1,))],
)
def test_a_stream_gives_the_model_of_one_fit(sizes, objective, sparse):
    """Whatever the chunks; sparse ones may follow dense ones."""
    data = table(3)
    stream = streamed(
        AUCFairClassifier("inter_group", objective=objective, slack=0.1), data, sizes, sparse
    )
    once = fitted(data=data, objective=objective, slack=0.1)
    np.testing.assert_allclose(stream.coef_, once.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(stream.intercept_, once.intercept_, rtol=1e-5, atol=1e-8)
    assert stream.violation_ == pytest.approx(once.violation_, abs=1e-9)
    assert stream.groups_.tolist() == once.groups_.tolist()


@pytest.mark.slow
def test_beyond_its_memory_a_stream_is_a_sample():
    X, y, group = data = table(n=3000)
    clf = AUCFairClassifier("inter_group", stream_memory=500, random_state=0, slack=0.1)
    stream, same = (streamed(clone(clf), data, [1000, 1000]) for _ in range(2))
    assert stream._stream_.rows.y.shape == (500,)
    assert stream._stream_.n_seen == 3000
    np.testing.assert_array_equal(same.coef_, stream.coef_)
    assert stream.violation_ <= 0.1 + FORGIVEN
    assert inter_group_auc_gap(y, stream.decision_function(X), sensitive_features=group) < 0.2


def test_groups_may_come_later_and_names_are_kept_in_order():
    X, y, group = table(3)
    names = np.array(["c", "a", "b"])[group]
    order = np.argsort(group, kind="stable")
    clf = AUCFairClassifier("intra_group", objective="auc", slack=0.1)
    with warnings.catch_warnings(action="ignore", category=MissingSensitiveFeaturesWarning):
        for index in np.array_split(order, 5):
            clf.partial_fit(X[index], y[index], classes=[0, 1], sensitive_features=names[index])
    assert clf.groups_.tolist() == ["a", "b", "c"]
    once = AUCFairClassifier("intra_group", objective="auc", slack=0.1)
    once.fit(X[order], y[order], sensitive_features=names[order])
    np.testing.assert_allclose(clf.coef_, once.coef_, rtol=1e-5)


def test_a_stream_without_groups_is_a_fit_without_groups():
    X, y, _ = table()
    with pytest.warns(MissingSensitiveFeaturesWarning) as caught:
        stream = AUCFairClassifier().partial_fit(X, y)
    assert caught[0].filename == __file__
    with pytest.warns(MissingSensitiveFeaturesWarning):
        np.testing.assert_allclose(stream.coef_, AUCFairClassifier().fit(X, y).coef_)


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


@quiet
@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "batch_size"), [([1] * 60, 30), ([7, 90, 1, 130], 1)])
def test_the_model_does_not_depend_on_the_chunks(sizes, batch_size):
    data = table(3)
    solver = steps(batch_size, n_steps=5)
    clf, once = in_place(data, sizes, solver), in_place(data, [200], solver)
    assert clf.n_iter_ == once.n_iter_ == 400 // batch_size
    np.testing.assert_array_equal(clf.coef_, once.coef_)


@quiet
@pytest.mark.slow
def test_it_goes_where_the_exact_solution_is():
    """Every row once: near the optimum of the paper's program, and within its slack."""
    X, y, group = data = table(n=30_000, seed=1)
    exact = AUCFairClassifier(INTER, solver=QCQP(), **IN_PLACE)
    exact.fit(X, y, sensitive_features=group)
    # The true gap keeps the surrogate's slack everywhere, so the fit ends elsewhere: at the model
    # without constraints, which follows the last iterate of the solver.
    solved = np.flatnonzero(exact.history_["residual"] <= exact.tol)[-1]
    optimum, auc_there = exact.history_["objective"][solved], 1 - exact.history_["error"][solved]
    assert exact.history_["soft_violation"][solved] == pytest.approx(0.4, abs=1e-4)
    solver = LevelSet(batch_size=20, n_steps=250, step_size=0.03)
    clf = in_place(data, [1000] * 29, solver, stream_memory=2000)
    assert clf.n_iter_ == 1500
    reached = clf.history_["objective"][-1]
    assert optimum - 0.01 < reached < optimum + 0.15 * (0.5 - optimum)
    assert clf.history_["soft_violation"][-1] <= 0.4 + 0.02
    assert auc(clf, data) > auc_there - 0.01
    assert len(clf._stream_.rows.y) == 2000


@quiet
def test_a_group_without_positives_is_left_out_when_the_memory_is_full():
    X, y, group = table(3)
    keep = (y == 0) | (group < 2)
    X, y, group = X[keep], y[keep], group[keep]
    clf = AUCFairClassifier(INTRA, solver=steps(), stream_memory=150, **IN_PLACE)
    clf.partial_fit(X[:100], y[:100], sensitive_features=group[:100])
    with pytest.warns(SmallGroupWarning, match="group 2"):
        clf.partial_fit(X[100:200], y[100:200], sensitive_features=group[100:200])
    assert len(clf.constraints_) == 2
    clf.partial_fit(X[200:], y[200:], sensitive_features=group[200:])


@quiet
def test_a_network_is_updated_in_place_too():
    data = table(n=1000)
    clf = in_place(data, [300], model=(5,))
    copy = pickle.loads(pickle.dumps(clf))
    before = {name: value.clone() for name, value in clf.module_.state_dict().items()}
    untouched = clf.module_
    for one in (clf, copy):
        streamed(one, data, [])
    after, same = clf.module_.state_dict(), copy.module_.state_dict()
    assert all(torch.equal(after[name], same[name]) for name in after)
    assert any(not torch.equal(after[name], before[name]) for name in after)
    kept = untouched.state_dict()
    assert all(torch.equal(kept[name], before[name]) for name in before)


@quiet
def test_a_group_that_comes_after_the_first_step_is_refused():
    X, y, group = (array[:50] for array in table())
    clf = in_place((X, y, group), [])
    coef = clf.coef_
    with pytest.raises(ValueError, match=r"groups \[0, 1\]; this chunk has \[2\]"):
        clf.partial_fit(X, y, sensitive_features=group + 1)
    assert clf.coef_ is coef


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"solver": steps(), "margin": 1.0}, "margin must be 0 with LevelSet in partial_fit"),
        ({"model": LogisticRegression()}, "fitted to the whole stream again"),
    ],
)
def test_streams_that_cannot_be_are_refused(params, message):
    X, y, group = table()
    with pytest.raises(ValueError, match=message):
        AUCFairClassifier(**{"constraint": INTER, **params}).partial_fit(
            X, y, sensitive_features=group
        )

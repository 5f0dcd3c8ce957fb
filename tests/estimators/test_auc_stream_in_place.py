"""AUCFairClassifier.partial_fit with the level-set method: its state goes on from call to call."""

import pickle
import warnings

import numpy as np
import pytest
import torch

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
)
from fairconstrained.solvers import QCQP, LevelSet
from tests.helpers.auc_fits import auc, table

SURROGATE = {"objective": "auc", "slack": 0.4}
INTER, INTRA = (AUCParity(name, surrogate="quadratic") for name in ("inter_group", "intra_group"))
# Slack is the surrogate's, so that true gaps may miss it.
pytestmark = pytest.mark.filterwarnings(
    f"ignore::{ConstraintNotSatisfiedWarning.__module__}.{ConstraintNotSatisfiedWarning.__name__}"
)


def steps(batch_size=20, **params):
    return LevelSet(batch_size=batch_size, step_size=0.05, **params)


def streamed(data, sizes, solver=None, clf=None, **params):
    """The estimator after these chunks, and one more with the rest."""
    X, y, group = data
    settings = {**SURROGATE, "random_state": 0, **params}
    clf = clf or AUCFairClassifier(INTER, solver=solver or steps(), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        for index in np.split(np.arange(len(y)), np.cumsum(sizes)):
            clf.partial_fit(X[index], y[index], classes=[0, 1], sensitive_features=group[index])
    return clf


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "batch_size"), [([1] * 60, 30), ([7, 90, 1, 130], 1)])
def test_the_model_does_not_depend_on_the_chunks(sizes, batch_size):
    data = table(3)
    solver = steps(batch_size, n_steps=5)
    clf, once = streamed(data, sizes, solver), streamed(data, [200], solver)
    assert clf.n_iter_ == once.n_iter_ == 400 // batch_size
    np.testing.assert_array_equal(clf.coef_, once.coef_)


@pytest.mark.slow
def test_it_goes_where_the_exact_solution_is():
    """Every row once: near the optimum of the paper's program, and within its slack."""
    X, y, group = data = table(n=30_000, seed=1)
    exact = AUCFairClassifier(INTER, solver=QCQP(), **SURROGATE)
    exact.fit(X, y, sensitive_features=group)
    # The true gap keeps the surrogate's slack everywhere, so the fit ends elsewhere: at the model
    # without constraints, which follows the last iterate of the solver.
    solved = np.flatnonzero(exact.history_["residual"] <= exact.tol)[-1]
    optimum, auc_there = exact.history_["objective"][solved], 1 - exact.history_["error"][solved]
    assert exact.history_["soft_violation"][solved] == pytest.approx(0.4, abs=1e-4)
    solver = LevelSet(batch_size=20, n_steps=250, step_size=0.03)
    clf = streamed(data, [1000] * 29, solver, stream_memory=2000)
    assert clf.n_iter_ == 1500
    reached = clf.history_["objective"][-1]
    assert optimum - 0.01 < reached < optimum + 0.15 * (0.5 - optimum)
    assert clf.history_["soft_violation"][-1] <= 0.4 + 0.02
    assert auc(clf, data) > auc_there - 0.01
    assert len(clf._stream_.rows.y) == 2000


def test_a_group_without_positives_is_left_out_when_the_memory_is_full():
    X, y, group = table(3)
    keep = (y == 0) | (group < 2)
    X, y, group = X[keep], y[keep], group[keep]
    clf = AUCFairClassifier(INTRA, solver=steps(), stream_memory=150, **SURROGATE)
    clf.partial_fit(X[:100], y[:100], sensitive_features=group[:100])
    with pytest.warns(SmallGroupWarning, match="group 2"):
        clf.partial_fit(X[100:200], y[100:200], sensitive_features=group[100:200])
    assert len(clf.constraints_) == 2
    clf.partial_fit(X[200:], y[200:], sensitive_features=group[200:])


def test_a_network_is_updated_in_place_too():
    data = table(n=1000)
    clf = streamed(data, [300], model=(5,))
    copy = pickle.loads(pickle.dumps(clf))
    before = {name: value.clone() for name, value in clf.module_.state_dict().items()}
    untouched = clf.module_
    for one in (clf, copy):
        streamed(data, [], clf=one)
    after, same = clf.module_.state_dict(), copy.module_.state_dict()
    assert all(torch.equal(after[name], same[name]) for name in after)
    assert any(not torch.equal(after[name], before[name]) for name in after)
    kept = untouched.state_dict()
    assert all(torch.equal(kept[name], before[name]) for name in before)


def test_a_group_that_comes_after_the_first_step_and_a_margin_are_refused():
    X, y, group = (array[:50] for array in table())
    clf = streamed((X, y, group), [])
    coef = clf.coef_
    with pytest.raises(ValueError, match=r"groups \[0, 1\]; this chunk has \[2\]"):
        clf.partial_fit(X, y, sensitive_features=group + 1)
    assert clf.coef_ is coef
    with pytest.raises(ValueError, match="margin must be 0 with LevelSet in partial_fit"):
        clf.set_params(margin=1.0).partial_fit(X, y, sensitive_features=group)

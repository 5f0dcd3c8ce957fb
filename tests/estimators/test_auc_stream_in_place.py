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
INTER, INTRA, GROUP = (
    AUCParity(name, surrogate="quadratic") for name in ("inter_group", "intra_group", "group_auc")
)
# Slack is the surrogate's, so that true gaps may miss it.
pytestmark = pytest.mark.filterwarnings(
    f"ignore::{ConstraintNotSatisfiedWarning.__module__}.{ConstraintNotSatisfiedWarning.__name__}"
)


class ByHand:
    """Algorithm 2 on single rows, transcribed with plain numbers from the paper's F and G.

    alpha is unscaled, with d = c1 alpha^2 in place of alpha^2 (the correction of Lemma 1): what is
    scaled in the code is the same step in alpha.
    """

    def __init__(self, solver, owner, c1, c2, model, ridge):
        self.solver, self.c1, self.c2, self.model, self.ridge = solver, c1, c2, model, ridge
        self.groups = [np.flatnonzero(owner == value) for value in range(max(owner) + 1)]
        n_pairs, n_values = len(owner), len(self.groups)
        self.w = np.zeros(model.n_params)
        self.a, self.b, self.alpha = np.zeros((3, n_pairs))
        self.y, self.t = np.full(n_values, 1 / n_values), 0

    def step(self, x, omega, sides, r, slack):
        """For features x, weight omega over the mean, and 1 / P(set) for the row's sets, else 0."""
        c1, c2, interval = self.c1, self.c2, self.solver.interval * self.c2
        decay = 1.0 / np.sqrt(self.t + 1)
        eta, tau = self.solver.step_size * decay, self.solver.dual_step_size * decay
        scale = 2 * (1 + np.sqrt(2) * np.sqrt(c1) * interval) ** 2
        d = self.model.n_coef
        T = self.model.transform.numpy()
        moved_x = np.append((x - self.model.centre.numpy()) @ T, np.ones(len(self.w) - d))
        a, b, alpha, h = self.a, self.b, self.alpha, moved_x @ self.w
        u, u_ = sides * omega
        F = c1 * c2**2 - 2 * c1 * c2 * h * (u - u_) + c1 * (h - a) ** 2 * u + c1 * (h - b) ** 2 * u_
        G = 2 * c1 * h * (u - u_)
        values = np.array([F[group].sum() for group in self.groups]) - np.append(r, slack)
        s = self.model.scale.numpy()  # the penalty is on the coefficients of standardised columns
        coefficients = s * (T @ self.w[:d])
        values[0] += 0.5 * self.ridge * coefficients @ coefficients
        of_pair = np.zeros(len(a))
        for i, group in enumerate(self.groups):
            of_pair[group] = self.y[i]
        dF = -2 * c1 * c2 * (u - u_) + 2 * c1 * (h - a) * u + 2 * c1 * (h - b) * u_
        grad_w = (of_pair @ dF + (of_pair * alpha) @ (2 * c1 * (u - u_))) * moved_x
        grad_w[:d] += self.y[0] * self.ridge * T.T @ (s * coefficients)
        self.w = self.w - eta * grad_w
        self.a = np.clip(a + eta * 2 * c1 * of_pair * (h - a) * u, -interval, interval)
        self.b = np.clip(b + eta * 2 * c1 * of_pair * (h - b) * u_, -interval, interval)
        # min over alpha of -alpha G + c1 alpha^2 + c1 (alpha - alpha')^2 / tau
        moved = (G + 2 * c1 * alpha / tau) / (2 * c1 + 2 * c1 / tau)
        moved = np.clip(moved, -interval, interval)
        mu = -moved * G + c1 * moved**2 + c1 * (moved - alpha) ** 2 / tau
        sums = np.array([mu[group].sum() for group in self.groups])
        pi = self.y * np.exp(-tau * (sums - values) / scale)
        self.y, self.alpha, self.t = pi / pi.sum(), moved, self.t + 1

    def agrees_with(self, descent):
        """Assert that the code's state is this one, and not where it began."""
        x = np.concatenate((self.w, self.a, self.b))
        np.testing.assert_allclose(descent.x, x, atol=1e-12)
        np.testing.assert_allclose(descent.y.weights, self.y, rtol=1e-12)
        np.testing.assert_allclose(descent.y.alpha, np.sqrt(self.c1) * self.alpha, atol=1e-12)
        assert np.abs(self.w).max() > 1e-3
        assert np.abs(self.alpha).max() > 0


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

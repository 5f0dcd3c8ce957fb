"""AUCFairClassifier: true gaps within slack, networks, the papers' solvers, margins, streams."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity, SoftBins
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exact_auc import COMPARISONS, auc_differences, auc_standard_errors, win_table
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import inter_group_auc_gap
from fairconstrained.models import Posteriors
from fairconstrained.solvers import QCQP, SGDA, LevelSet, ProximalLevelSet
from tests.helpers.auc_fits import METRIC_OF, auc, fitted, measured, table
from tests.helpers.fits import FORGIVEN

SHORT = SGDA(n_steps=150, batch_size=128)


EACH = list(zip(METRIC_OF, ["log", "auc"] * 3, [2, 3, 3] * 2, strict=True))


@pytest.mark.parametrize(("constraint", "objective", "n_groups"), EACH)
def test_true_gaps_end_within_slack(constraint, objective, n_groups):
    data = table(n_groups)
    free = fitted(constraint, data, objective=objective, slack=1.0)
    gap = measured(free, data)
    assert free.violation_ == pytest.approx(gap, abs=1e-12)
    assert gap > 0.02  # there is something to do
    slack = 0.5 * gap
    clf = fitted(constraint, data, objective=objective, slack=slack)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= slack + FORGIVEN
    assert clf.feasible_
    assert clf.violations_ == {constraint: clf.violation_}
    assert 0.7 < auc(clf, data) <= auc(free, data) + 0.01
    assert clf.history_["error"][-1] == pytest.approx(1 - auc(clf, data), abs=1e-12)


@pytest.mark.parametrize("surrogate", [SoftBins(24), "binormal", "quadratic"], ids=str)
def test_every_surrogate_is_corrected_to_the_true_gap(surrogate):
    data, objective = table(), "log" if surrogate == "binormal" else "auc"
    clf = fitted("group_auc", data, surrogate=surrogate, objective=objective, slack=0.03)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= 0.03 + FORGIVEN
    assert auc(clf, data) > 0.75


def test_without_a_binding_constraint_the_pairwise_loss_is_one_linear_system():
    """The minimiser of the mean of (1 - (z - z'))^2 / 2 over pairs is linear discriminants'."""
    X, y, _ = data = table()
    clf = fitted(data=data, surrogate="binormal", slack=np.inf, alpha=0.0)
    negative, positive = X[y == 0], X[y == 1]
    step = positive.mean(axis=0) - negative.mean(axis=0)
    spread = np.cov(positive.T, ddof=0) + np.cov(negative.T, ddof=0)
    direction = np.linalg.solve(spread, step)
    ratio = clf.coef_[0] / direction
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)


def network(n_features, n_outputs):
    """Gives scores of shape (n,)."""
    hidden = nn.Linear(n_features, 8), nn.Tanh()
    return nn.Sequential(*hidden, nn.Linear(8, n_outputs), nn.Flatten(0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "model", "surrogate"),
    [("log", (8,), "binormal"), ("auc", (8,), "soft_bins"), ("auc", network, "binormal")],
)
def test_networks_keep_true_gaps(objective, model, surrogate):
    data = table()
    params = {"objective": objective, "surrogate": surrogate, "solver": SHORT, "random_state": 0}
    clf = fitted(data=data, model=model, slack=0.1, **params)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-9)
    assert clf.violation_ <= 0.1 + FORGIVEN
    assert auc(clf, data) > 0.75
    again = fitted(data=data, model=model, slack=0.1, **params)
    np.testing.assert_array_equal(again.decision_function(data[0]), clf.decision_function(data[0]))


@pytest.mark.slow
def test_the_papers_solvers_run_inside_the_estimator():
    data = table()
    params = {"objective": "auc", "surrogate": "quadratic", "slack": 0.9}
    exact = fitted(data=data, solver=QCQP(), **params)
    level_set = LevelSet(n_steps=300, step_size=0.1, max_levels=6)
    stochastic = fitted(data=data, solver=level_set, random_state=0, **params)
    assert exact.converged_
    assert auc(stochastic, data) == pytest.approx(auc(exact, data), abs=0.05)
    log = fitted(data=data, solver=level_set, random_state=0, surrogate="quadratic", slack=0.9)
    assert auc(log, data) == pytest.approx(auc(exact, data), abs=0.05)
    proximal = ProximalLevelSet(level_set=LevelSet(n_steps=100, max_levels=2), n_rounds=2)
    trained = fitted(data=data, solver=proximal, model=(10,), random_state=0, **params)
    assert trained.n_iter_ >= 2


@pytest.mark.slow
def test_the_papers_surrogate_does_not_keep_the_true_gap_and_equal_scores_are_said():
    """The slack bounds the surrogate; its solution misses the true gap, which zero weights keep."""
    data = table()
    params = {"objective": "auc", "solver": QCQP(), "slack": 0.01}
    notion = AUCParity("inter_group", surrogate="quadratic")
    X, y, group = data
    clf = AUCFairClassifier(notion, **params)
    for fit in (clone(clf).partial_fit, clf.fit):
        with pytest.warns(ConvergenceWarning, match="gives all rows equal scores") as caught:
            fit(X, y, sensitive_features=group)
        assert caught[0].filename == __file__
    assert clf.feasible_
    assert np.ptp(clf.decision_function(X)) == 0
    assert clf.history_["soft_violation"][-2] <= 0.01 + 1e-4
    assert clf.history_["violation"][-2] > 0.01 + FORGIVEN


def test_features_that_say_nothing():
    X, y, group = table()
    clf = fitted(data=(np.ones_like(X), y, group))
    assert clf.violation_ == pytest.approx(0.0, abs=1e-12)
    assert np.ptp(clf.decision_function(X * 0 + 1)) == 0
    np.testing.assert_allclose(clf.predict_proba(np.ones_like(X))[:, 1], y.mean(), atol=1e-3)


N_CELLS = 4


def scored(n, seed=0, decimals=1):
    """Scores with ties, cells in which they differ, and weights."""
    rng = np.random.default_rng(seed)
    cell = np.append(np.arange(N_CELLS), rng.integers(N_CELLS, size=n - N_CELLS))
    scores = np.round(rng.normal(size=n) + 0.5 * cell, decimals)
    return scores, cell, rng.uniform(0.5, 1.5, size=n)


def sets_of(notion):
    comparisons = COMPARISONS[notion](2)
    return comparisons.reshape(len(comparisons), 4, N_CELLS)


def gaps(scores, cell, weight, comparisons):
    counts = np.bincount(cell, weights=weight, minlength=N_CELLS)
    return auc_differences(win_table(scores, cell, weight, N_CELLS), counts, comparisons)


@pytest.mark.parametrize("notion", COMPARISONS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_deviations_are_the_length_of_the_gradient_in_the_weights(notion, seed):
    """The delta method: sum of (w_i dD / dw_i)^2, by differences of exact gaps."""
    scores, cell, weight = scored(25, seed)
    comparisons = sets_of(notion)
    gradient = []
    for step in 1e-6 * np.eye(len(scores)):
        above, below = (gaps(scores, cell, w, comparisons) for w in (weight + step, weight - step))
        gradient.append((above - below) / 2e-6)
    expected = np.sqrt(((weight[:, None] * np.array(gradient)) ** 2).sum(axis=0))
    ours = auc_standard_errors(scores, cell, weight, comparisons)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-8)
    assert (ours > 0).all()


@pytest.mark.parametrize("constraint", ["inter_group", "group_auc"])
@pytest.mark.slow
def test_the_slack_is_narrowed_by_the_standard_error_of_the_fit(constraint):
    data, objective = table(n=600), "auc" if constraint == "inter_group" else "log"
    X, y, group = data
    plain = fitted(constraint, data, objective=objective, slack=0.1)
    n_cells_scores = plain.decision_function(X), y * 2 + group, np.ones(len(y))
    (deviation,) = auc_standard_errors(*n_cells_scores, sets_of(constraint))
    assert 0.01 < deviation < 0.06
    clf = fitted(constraint, data, objective=objective, slack=0.1, margin=1.0)
    assert clf.violation_ == pytest.approx(measured(clf, data), abs=1e-12)
    assert clf.violation_ <= 0.1 - 0.98 * deviation + 0.0011  # measured after some rounds
    assert clf.violation_ >= 0.1 - deviation - 0.01
    assert auc(clf, data) <= auc(plain, data)
    assert clf.feasible_
    assert len(clf.history_["violation"]) == clf.n_iter_
    assert (np.diff(clf.history_["time"]) >= 0).all()


@pytest.mark.parametrize("model", ["linear", pytest.param((4,), marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_probabilities_are_logistic_regression_on_the_score_over_everybody(model, scale):
    X, y, group = table(n=1000)
    data, weight = (scale * X, y, group), np.random.default_rng(0).exponential(size=1000) + 0.1
    solver = None if model == "linear" else SHORT
    params = {"objective": "auc", "model": model, "solver": solver, "random_state": 0}
    clf = fitted(data=data, sample_weight=weight, **params)
    scores, proba = clf.decision_function(data[0]), clf.predict_proba(data[0])
    z = StandardScaler().fit_transform(scores[:, None], sample_weight=weight)
    lr = LogisticRegression(C=1e4 / weight.sum(), tol=1e-12, solver="newton-cholesky")
    np.testing.assert_allclose(proba, lr.fit(z, y, weight).predict_proba(z), atol=1e-5)
    assert ((proba[:, 1] > 0.5) == clf.predict(data[0])).all()
    assert ((scores > 0) == clf.predict(data[0])).all()


@pytest.mark.filterwarnings("ignore:By the released norms most rows")
def test_a_private_ranking_takes_frozen_classifiers():
    """Their posteriors are its columns, and the user gives no range of these."""
    public, data = (make_biased_classification(600, random_state=seed) for seed in (0, 1))
    columns = public.target, public.sensitive_features
    frozen = [FrozenEstimator(LogisticRegression().fit(public.data, y)) for y in columns]
    clf = AUCFairClassifier(epsilon=2.0, model=Posteriors(*frozen), random_state=0)
    clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    assert clf.privacy_.epsilon <= 2.0
    assert clf.decision_function(data.data).std() > 0


INTER, INTRA = (AUCParity(name, surrogate="quadratic") for name in ("inter_group", "intra_group"))
IN_PLACE = {"objective": "auc", "slack": 0.4, "random_state": 0}
# The slack is the surrogate's, so that true gaps may miss it.
quiet = pytest.mark.filterwarnings(
    "ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning"
)


def steps(batch_size=20, **params):
    return LevelSet(batch_size=batch_size, step_size=0.05, **params)


def streamed(clf, data, sizes, sparse=()):
    X, y, group = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        for i, index in enumerate(np.split(np.arange(len(y)), np.cumsum(sizes))):
            chunk = sp.csr_array(X[index]) if i in sparse else X[index]
            clf.partial_fit(chunk, y[index], classes=[0, 1], sensitive_features=group[index])
    return clf


def in_place(data, sizes, solver=None, **params):
    clf = AUCFairClassifier(INTER, solver=solver or steps(), **{**IN_PLACE, **params})
    return streamed(clf, data, sizes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "objective", "sparse"),
    [([200], "log", ()), ([1, 1, 1, 97, 200], "auc", (3,))],
)
def test_a_stream_gives_the_model_of_one_fit(sizes, objective, sparse):
    data = table(3)
    clf = AUCFairClassifier("inter_group", objective=objective, slack=0.1)
    stream = streamed(clf, data, sizes, sparse)
    once = fitted(data=data, objective=objective, slack=0.1)
    np.testing.assert_allclose(stream.coef_, once.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(stream.intercept_, once.intercept_, rtol=1e-5, atol=1e-8)
    assert stream.violation_ == pytest.approx(once.violation_, abs=1e-9)
    assert stream.groups_.tolist() == once.groups_.tolist()


@pytest.mark.slow
def test_beyond_its_memory_a_stream_is_a_sample():
    X, y, group = data = table(n=3000)
    clf = AUCFairClassifier("inter_group", stream_memory=500, random_state=0, slack=0.1)
    chunks = [1000, 1000], [400, 1300, 900]  # which do not matter
    stream, same = (streamed(clone(clf), data, sizes) for sizes in chunks)
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
        (lambda X, y, g: (X, y, {"sensitive_features": g.astype(str)}), "another kind than before"),
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
    copy, first = pickle.loads(pickle.dumps(clf)), clf.module_.state_dict()
    before = {name: value.clone() for name, value in first.items()}
    for one in (clf, copy):
        streamed(one, data, [])
    after, same = clf.module_.state_dict(), copy.module_.state_dict()
    assert all(torch.equal(after[name], same[name]) for name in after)
    assert any(not torch.equal(after[name], before[name]) for name in after)
    assert all(torch.equal(first[name], before[name]) for name in before)


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
    clf = AUCFairClassifier(INTER, **params)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(X, y, sensitive_features=group)

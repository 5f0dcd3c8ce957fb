"""Rates and rankings with epsilon: what they keep, what they say, what they refuse."""

import pickle
import re
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.utils import Bunch
from torch import nn

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import AUCParity, FalseNegativeRate
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    PrivacyWarning,
    SmallGroupWarning,
)
from fairconstrained.metrics import inter_group_auc_gap
from fairconstrained.privacy import privacy_spent
from fairconstrained.privacy.plans import gaussian_multiplier
from fairconstrained.solvers import DPSGDA, NoisyTables
from tests.helpers.fits import CAPS, FORGIVEN, METRIC_OF
from tests.helpers.private_fits import LARGE, Keeps, words_of

UNKEPT = "ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning"
PRIVACY = "ignore::fairconstrained.exceptions.PrivacyWarning"
SMALL = "ignore::fairconstrained.exceptions.SmallGroupWarning"
quiet = pytest.mark.filterwarnings(UNKEPT)
noisy = pytest.mark.filterwarnings(UNKEPT, PRIVACY, SMALL)  # fits of few rows


def private(constraint="demographic_parity", data=LARGE, *, n=None, groups=None, **params):
    params = {"epsilon": 1.0, "random_state": 0, "delta": 1e-6, **params}
    group = data.sensitive_features if groups is None else groups
    clf = RateConstrainedClassifier(constraint, **params)
    return clf.fit(data.data[:n], data.target[:n], sensitive_features=group[:n])


def metric(clf, constraint, data):
    groups = {} if constraint in CAPS else {"sensitive_features": data.sensitive_features}
    return METRIC_OF[constraint](data.target, clf.predict(data.data), **groups)


@quiet
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_labels_keep_the_slack_within_the_noise(noise):
    constraint = "equalized_odds" if noise == "gaussian" else "false_negative_rate"
    clf = private(constraint, slack=0.1, solver=DPSGDA(histogram_noise=noise))
    assert metric(private(constraint, slack=10.0), constraint, LARGE) > 0.2
    measured = metric(clf, constraint, LARGE)
    assert measured <= 0.1 + 0.02
    # The error is of two standard deviations.
    assert clf.violation_ == pytest.approx(measured, abs=max(0.02, 1.5 * clf.excess_error_))


@pytest.mark.slow
@quiet
def test_networks_keep_it_too():
    def model(d, k):
        return nn.Sequential(nn.Linear(d, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, k))

    clf = private(model=model, slack=0.1, epsilon=3.0)
    assert metric(clf, "demographic_parity", LARGE) <= 0.12
    assert clf.score(LARGE.data, LARGE.target) > 0.73


@pytest.mark.slow
def test_without_constraint_and_noise_it_nears_the_logistic_regression():
    clf = private(slack=10.0, epsilon=1e3, solver=DPSGDA(clip=100.0, sampling_rate=1.0))
    reference = LogisticRegression(C=1 / (20_000 * 1e-4)).fit(LARGE.data, LARGE.target)
    ours, expected = (model.score(LARGE.data, LARGE.target) for model in (clf, reference))
    assert ours == pytest.approx(expected, abs=0.003)


@quiet
def test_a_public_range_undoes_the_units_of_columns():
    low, high = LARGE.data.min(axis=0), LARGE.data.max(axis=0)
    units = 10.0 ** np.arange(-3, 3)
    scaled = Bunch(**{**LARGE, "data": LARGE.data * units + 5})
    plain = private(feature_range=(low, high))
    other = private(data=scaled, feature_range=(low * units + 5, high * units + 5))
    scores, expected = other.decision_function(scaled.data), plain.decision_function(LARGE.data)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@noisy  # by its noise
def test_without_a_seed_the_noise_is_the_systems():
    """Numpy's global seed, which others may know, does not decide the noise."""
    fits = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002 (what others may have set)
        fits.append(private(n=3000, solver=DPSGDA(n_steps=20), random_state=None).coef_)
    assert not np.array_equal(*fits)


@quiet
def test_the_promise_covers_every_release():
    """The attribute's phases, priced again, cost what it says; each is one that fit made."""
    clf = private(epsilon=0.7, delta=1e-5)
    privacy = clf.privacy_
    assert 0.99 * 0.7 <= privacy.epsilon <= 0.7
    assert privacy.delta == 1e-5
    assert privacy.unit == "record"
    assert privacy.n_steps == round(1.5 * (20_000 / gaussian_multiplier(0.7, 1e-5)) ** (2 / 3))
    assert privacy.sampling_rate == 0.05
    assert privacy_spent(privacy.phases, delta=1e-5) == pytest.approx(privacy.epsilon)
    assert len(privacy.mechanisms) == 6
    assert {len(phase.releases) for phase in privacy.phases} == {1, 2}


@quiet
def test_callbacks_see_released_numbers_only_and_may_stop():
    seen = []
    clf = private(n=3000, callbacks=lambda iterate: seen.append(iterate) or len(seen) == 3)
    assert clf.n_iter_ == 3
    assert all(iterate.hard[0].isnan() for iterate in seen)
    assert clf.privacy_.epsilon <= 1.0  # the price of the whole plan


@quiet
@pytest.mark.slow
def test_small_groups_are_named_with_their_released_count():
    groups = np.where(np.arange(20_000) < 12, "rare", LARGE.sensitive_features.astype(str))
    left_out = r"leaves out group rare \(\d+ rows, fewer than \d+\), by the released counts"
    with pytest.warns(SmallGroupWarning, match=left_out):
        private(groups=groups)
    few = np.where(np.arange(20_000) < 90, "few", LARGE.sensitive_features.astype(str))
    with pytest.warns(SmallGroupWarning, match=r"group few \(about \d+ rows\).*released counts"):
        private(groups=few, epsilon=5.0, solver=DPSGDA(sampling_rate=0.02))


@quiet
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_hopeless_noise_and_a_large_delta_are_named():
    with pytest.warns(PrivacyWarning, match=r"times what a row can contribute"):
        private(FalseNegativeRate(max=0.5), n=300, epsilon=0.05)
    with pytest.warns(PrivacyWarning, match=r"delta=0.001 is not below 1/n"):
        private(n=2000, delta=1e-3)


RATES = RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=5), slack=1.0)


@quiet
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # one label only
@pytest.mark.parametrize(
    ("clf", "wrong"), [(RATES, (0, 1)), (AUCFairClassifier(epsilon=1.0), None)]
)
def test_rows_out_of_range_are_answered_with_the_parameter_that_they_need(clf, wrong):
    clf = clone(clf).set_params(random_state=0)
    raw = 1000.0 * LARGE.data + 5000.0
    rows = {"y": LARGE.target, "sensitive_features": LARGE.sensitive_features}
    with pytest.warns(PrivacyWarning, match=r"Give feature_range=\(low, high\)"):
        clf.set_params(feature_range=wrong).fit(raw, **rows)
    clf.set_params(feature_range=(raw.min(axis=0), raw.max(axis=0)))
    assert "feature_range" not in " ".join(words_of(lambda: clf.fit(raw, **rows)))


@noisy
def test_raw_columns_get_released_scales():
    """Columns from thousandths to hundreds of thousands, among them one that says nothing."""
    rng = np.random.default_rng(0)
    useless = 1e5 * rng.normal(size=(len(LARGE.target), 1))
    raw = np.hstack((LARGE.data * [1.0, 30.0, 1.0, 1000.0, 1.0, 5.0], useless))
    rows = {"y": LARGE.target, "sensitive_features": LARGE.sensitive_features}
    accuracies = []
    for given in (None, (-4 * raw.std(axis=0), 4 * raw.std(axis=0)), (0, 1)):
        clf = RateConstrainedClassifier(epsilon=1.0, slack=1.0, random_state=0, feature_range=given)
        fitted = clf.fit(raw, **rows)
        accuracies.append(fitted.score(raw, LARGE.target))
    released, public, unscaled = accuracies
    assert released > public - 0.02
    assert released > unscaled + 0.05


def test_an_estimated_excess_warns_and_tells_its_error():
    unmoved = DPSGDA(n_steps=60, sampling_rate=0.5, max_dual=1e-9)
    estimate = r"an estimated 0\.\d+, with an error of 0\.\d+"
    with pytest.warns(ConstraintNotSatisfiedWarning, match=estimate) as caught:
        private(slack=0.0, epsilon=20.0, solver=unmoved)
    assert "max_iter" not in str(caught[0].message)
    with pytest.warns(ConvergenceWarning, match="Increase max_iter"):
        stopped = private(max_iter=1, solver=unmoved)
    assert stopped.excess_error_ == np.inf  # its table was not released


def test_a_seed_is_named_and_is_neither_pickled_nor_shown():
    """Whoever has the seed can subtract the noise."""
    with pytest.warns(PrivacyWarning, match="random_state seeds the noise"):
        clf = private(slack=10.0, n=3000, solver=DPSGDA(n_steps=5))
    assert pickle.loads(pickle.dumps(clf)).random_state is None
    assert clf.random_state == 0
    unfitted = RateConstrainedClassifier(epsilon=1.0, random_state=0)
    assert pickle.loads(pickle.dumps(unfitted)).random_state == 0
    few = {"slack": 10.0, "n": 3000, "solver": DPSGDA(n_steps=5), "random_state": None}
    assert "seeds the noise" not in " ".join(words_of(lambda: private(**few)))


@noisy
@pytest.mark.parametrize("clf", [RATES, AUCFairClassifier()], ids=["rates", "ranking"])
def test_no_count_is_negative(clf):
    """Noisy counts of small groups are negative half of the time; no group is."""
    groups = np.where(np.arange(2000) < 8, np.arange(2000) % 4, 9).astype(str)
    rows = {"X": LARGE.data[:2000], "y": LARGE.target[:2000], "sensitive_features": groups}
    said = []
    for seed in range(2):
        seeded = clone(clf).set_params(random_state=seed, epsilon=0.05)
        said += words_of(partial(seeded.fit, **rows), SmallGroupWarning)
    assert any("(0 rows)" in text for text in said)
    assert not any(re.search(r"-\d+ rows", text) for text in said)


SOLVER = DPSGDA(n_steps=10, sampling_rate=0.9)
RECORDS = DPFermiClassifier(solver=NoisyTables(n_steps=10, batch_size=450), protect="record")


@noisy
@pytest.mark.parametrize(
    ("clf", "size", "wrap"),
    [
        (RateConstrainedClassifier(solver=SOLVER), 1e160, np.asarray),
        (RateConstrainedClassifier(solver=SOLVER), -1e308, sparse.csr_array),
        (RateConstrainedClassifier(model=(4,), solver=SOLVER), -1e308, np.asarray),
        (RECORDS, 1e160, sparse.csr_array),
        (AUCFairClassifier(), -1e308, np.asarray),
        (AUCFairClassifier(), 1e160, sparse.csr_array),
    ],
)
def test_no_row_decides_whether_a_fit_ends(clf, size, wrap):
    """Squares of such entries overflow: a fit that fails by them would give the row away."""
    X = np.vstack((LARGE.data[:500], np.full((1, 6), size)))
    y, groups = LARGE.target[:501], LARGE.sensitive_features[:501]
    clf = clone(clf).set_params(epsilon=2.0, delta=1e-4, feature_range=(-1, 1), random_state=0)
    clf.fit(wrap(X), y, sensitive_features=groups)
    assert np.isfinite(clf.decision_function(LARGE.data)).all()


@noisy
def test_a_fitted_module_holds_no_rows_of_training_and_of_prediction():
    clf = private(n=300, model=Keeps, epsilon=5.0, solver=DPSGDA(n_steps=5))
    for predict in (clf.predict, clf.predict_proba, clf.decision_function, lambda X: X):
        predict(LARGE.data[:300])
        assert not hasattr(clf.module_, "last")
        assert not clf.module_.seen.any()


@noisy
@pytest.mark.parametrize("given", [(-4, 4), None], ids=["a range", "released scales"])
def test_sparse_rows_have_the_private_model_of_dense_ones(given):
    """For one seed, up to rounding: the same sums, noise and clips."""
    X = np.where(np.abs(LARGE.data[:3000]) < 0.3, 0.0, LARGE.data[:3000])
    found = []
    for wrap in (np.asarray, sparse.csr_array):
        clf = clone(RATES).set_params(feature_range=given, slack=0.05, random_state=0)
        rows = {"y": LARGE.target[:3000], "sensitive_features": LARGE.sensitive_features[:3000]}
        found.append(clf.fit(wrap(X), **rows).decision_function(X))
    np.testing.assert_allclose(*found, atol=1e-5)


# Whether most rows lie outside of their range is read off released norms, so the noise decides.
norms = pytest.mark.filterwarnings("ignore:By the released norms:UserWarning")


def data(n=4000, seed=0):
    made = make_biased_classification(n, 6, random_state=seed)
    X = np.clip(made.data, -4, 4)
    return X, made.target, made.sensitive_features


def fitted(bunch=None, constraint="inter_group", **params):
    X, y, groups = data() if bunch is None else bunch
    params = {"epsilon": 1.0, "feature_range": (-4, 4), "random_state": 0} | params
    return AUCFairClassifier(constraint, **params).fit(X, y, sensitive_features=groups)


@norms
@pytest.mark.parametrize("constraint", ["group_auc", "intra_group"])
def test_with_a_large_budget_it_nears_the_moment_solution(constraint):
    X, y, _ = rows = data(20_000)
    exact = fitted(rows, AUCParity(constraint, surrogate="binormal"), epsilon=None, slack=0.02)
    private = fitted(rows, constraint, epsilon=50.0, slack=0.02)
    aucs = [roc_auc_score(y, clf.decision_function(X)) for clf in (exact, private)]
    assert aucs[1] == pytest.approx(aucs[0], abs=0.01)
    correlation = np.corrcoef(exact.decision_function(X), private.decision_function(X))[0, 1]
    assert correlation > 0.99
    assert private.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.05)
    assert private.violation_ <= 0.02 + FORGIVEN


@norms
@pytest.mark.slow
def test_the_reported_gap_is_that_of_the_rows_up_to_the_noise_of_a_table():
    X, y, groups = bunch = data(20_000)
    errors = []
    for seed in range(3):
        clf = fitted(bunch, slack=0.02, random_state=seed)
        gap = inter_group_auc_gap(y, clf.decision_function(X), sensitive_features=groups)
        errors.append(clf.violation_ - gap)
    assert np.abs(errors).max() < 0.02


@norms
def test_small_groups_and_noise_are_named_by_released_counts():
    X, y, groups = data(20_000)
    groups = np.where(np.arange(20_000) < 20, "tiny", np.array(groups).astype(str))
    for kind, words in ((SmallGroupWarning, "tiny"), (PrivacyWarning, "tiny.*mostly noise")):
        assert re.search(words, words_of(lambda: fitted((X, y, groups)), kind)[-1])


@norms
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_small_group_lets_no_fit_fail_after_its_releases():
    """A group of 26 rows, by its released counts sometimes empty in one label or in both."""
    X, y, groups = data(3000)
    groups = np.where(np.arange(3000) < 26, "tiny", np.array(groups).astype(str))
    for seed in range(8):
        clf = fitted((X, y, groups), "intra_group", random_state=seed)
        assert np.isfinite(clf.coef_).all()

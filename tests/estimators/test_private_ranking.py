"""Private AUCFairClassifier: what it reaches, what it refuses, and what it says of its noise."""

import warnings

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import IncompatibleSolverError, PrivacyWarning, SmallGroupWarning
from fairconstrained.metrics import inter_group_auc_gap
from fairconstrained.solvers import QCQP, SGDA
from tests.helpers.fits import FORGIVEN

# Whether most rows lie outside of their range is read off released norms, so the noise decides.
pytestmark = pytest.mark.filterwarnings(
    "ignore:By the released norms:fairconstrained.exceptions.PrivacyWarning"
)


def data(n=4000, seed=0):
    made = make_biased_classification(n, 6, random_state=seed)
    X = np.clip(made.data, -4, 4)
    return X, made.target, made.sensitive_features


def fitted(bunch=None, constraint="inter_group", **params):
    X, y, groups = data() if bunch is None else bunch
    params = {"epsilon": 1.0, "feature_range": (-4, 4), "random_state": 0} | params
    return AUCFairClassifier(constraint, **params).fit(X, y, sensitive_features=groups)


@pytest.mark.parametrize("constraint", ["group_auc", "intra_group"])
def test_with_a_large_budget_it_nears_the_moment_solution(constraint):
    X, y, groups = data(20_000)
    exact = fitted(
        (X, y, groups), AUCParity(constraint, surrogate="binormal"), epsilon=None, slack=0.02
    )
    private = fitted((X, y, groups), constraint, epsilon=50.0, slack=0.02)
    aucs = [roc_auc_score(y, clf.decision_function(X)) for clf in (exact, private)]
    assert aucs[1] == pytest.approx(aucs[0], abs=0.01)
    correlation = np.corrcoef(exact.decision_function(X), private.decision_function(X))[0, 1]
    assert correlation > 0.99
    assert private.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=0.05)
    assert private.violation_ <= 0.02 + FORGIVEN


@pytest.mark.slow
def test_the_reported_gap_is_that_of_the_rows_up_to_the_noise_of_a_table():
    X, y, groups = bunch = data(20_000)
    errors = []
    for seed in range(3):
        clf = fitted(bunch, slack=0.02, random_state=seed)
        gap = inter_group_auc_gap(y, clf.decision_function(X), sensitive_features=groups)
        errors.append(clf.violation_ - gap)
    assert np.abs(errors).max() < 0.02


def test_solvers_that_do_not_suit_are_refused():
    with pytest.raises(IncompatibleSolverError, match=r"SGDA .* rows can be drawn"):
        fitted(data(200), solver=SGDA())
    with pytest.raises(IncompatibleSolverError, match="QCQP"):
        fitted(solver=QCQP())


def test_weights_and_streams_are_refused():
    X, y, groups = data(200)
    clf = AUCFairClassifier(epsilon=1.0)
    with pytest.raises(ValueError, match="sample_weight must be None with epsilon"):
        clf.fit(X, y, sensitive_features=groups, sample_weight=np.ones(200))
    with pytest.raises(ValueError, match="partial_fit needs epsilon=None"):
        clf.partial_fit(X, y, sensitive_features=groups)


def test_small_groups_and_noise_are_named_by_released_counts():
    X, y, groups = data(20_000)
    groups = np.where(np.arange(20_000) < 20, "tiny", np.array(groups).astype(str))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted((X, y, groups))
    kinds = {w.category: str(w.message) for w in caught}
    assert "tiny" in kinds[SmallGroupWarning]
    assert "tiny" in kinds[PrivacyWarning]
    assert "mostly noise" in kinds[PrivacyWarning]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_small_group_lets_no_fit_fail_after_its_releases():
    """A group of 26 rows, by its released counts sometimes empty in one label or in both."""
    X, y, groups = data(3000)
    groups = np.where(np.arange(3000) < 26, "tiny", np.array(groups).astype(str))
    for seed in range(8):
        clf = fitted((X, y, groups), "intra_group", random_state=seed)
        assert np.isfinite(clf.coef_).all()

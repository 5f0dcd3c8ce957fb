"""Private AUCFairClassifier: one row moves the releases by at most one, and nothing else leaves."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from fairconstrained import AUCFairClassifier
from fairconstrained.constraints import AUCParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import IncompatibleSolverError, PrivacyWarning, SmallGroupWarning
from fairconstrained.metrics import inter_group_auc_gap
from fairconstrained.models.features import as_features
from fairconstrained.privacy import Budget
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.private.moments import plan_moments, release, score_table
from fairconstrained.solvers import QCQP, SGDA
from tests.helpers.fits import FORGIVEN
from tests.helpers.releases import answered_by

# Whether most rows lie outside of their range is read off released norms, so the noise decides.
pytestmark = pytest.mark.filterwarnings(
    "ignore:By the released norms:fairconstrained.exceptions.PrivacyWarning"
)

D = 3
LOW, WIDTH = torch.full((D,), -1.0).double(), torch.tensor([2.0, 4.0, 0.5]).double()
tables = arrays(float, (6, D), elements=st.floats(-1e3, 1e3, allow_subnormal=False))
cells = arrays(np.int64, 6, elements=st.integers(0, 3))


def data(n=4000, seed=0):
    made = make_biased_classification(n, 6, random_state=seed)
    X = np.clip(made.data, -4, 4)
    return X, made.target, made.sensitive_features


def fitted(bunch=None, constraint="inter_group", **params):
    X, y, groups = data() if bunch is None else bunch
    params = {"epsilon": 1.0, "feature_range": (-4, 4), "random_state": 0} | params
    return AUCFairClassifier(constraint, **params).fit(X, y, sensitive_features=groups)


def released_sums(X, n_rows, cell, answer=0.0, low=LOW, width=WIDTH):
    """The sums that are released in units of their sensitivity, where each release gets an answer.

    With the same answers both data sets have the same centre and length.
    """
    releases = Releases(plan_moments(Budget(1.0, 1e-5, "record")))
    with pytest.MonkeyPatch.context() as patch:
        asked = answered_by(patch, lambda add_noise, total, *_: torch.full_like(total, answer))
        rows = as_features(X), n_rows, torch.as_tensor(cell), 4
        release(*rows, low, width, releases, None)
    total, histogram, *moments = (exact.ravel() for _, _, exact in asked)
    return [total, histogram, torch.cat(moments)]


def moved(X, cell, *answer):
    """How far the first row moves each release."""
    n = len(cell)  # it is public: in place of the row is one that adds nothing
    whole, without = (released_sums(X[k:], n, cell[k:], *answer) for k in (0, 1))
    return [float((a - b).norm()) for a, b in zip(whole, without, strict=True)]


@given(tables, cells, st.floats(-1.0, 1.0), st.sampled_from([np.asarray, sp.csr_array]))
@settings(max_examples=50)
def test_a_row_moves_each_release_by_at_most_one(X, cell, answer, convert):
    assert max(moved(convert(X), cell, answer)) <= 1 + 1e-6


@pytest.mark.parametrize(("far", "convert"), [(1e6, sp.csr_array), (1e12, np.asarray)])
def test_a_row_moves_each_release_by_at_most_one_far_from_zero(far, convert):
    """A public range of width 1 at 1e6: the rounding of sums of squares was dozens of rows."""
    rng = np.random.default_rng(0)
    X = far + rng.uniform(size=(4000, D))
    X[rng.uniform(size=X.shape) < 0.8] = 0.0  # stored as CSR also where it is dense
    cell, one = rng.integers(0, 4, 4000), torch.ones(D).double()
    assert max(moved(convert(X), cell, 0.0, far * one, one)) <= 1 + 1e-6


@given(arrays(float, 6, elements=st.floats(-50, 50)), cells)
def test_a_row_is_in_one_bin(z, cell):
    whole = score_table(torch.as_tensor(z), torch.as_tensor(cell), 4)
    without = score_table(torch.as_tensor(z[1:]), torch.as_tensor(cell[1:]), 4)
    assert float((whole - without).norm()) == 1.0
    assert whole.sum() == 6


def test_a_long_row_moves_them_by_one():
    """The bound is met: the noise is not larger than it must be."""
    X = np.zeros((2, D))
    X[0] = 100.0
    assert moved(X, np.array([0, 1])) == pytest.approx([1, 1, 1])


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

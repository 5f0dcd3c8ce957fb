"""Private partial parity: what is released and refused; the noisy table read without leak."""

import warnings

import numpy as np
import pytest
import torch

from fairconstrained import PartialParityClassifier, metrics
from fairconstrained.constraints import PARTIAL_PRIVATE, Space
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning

INTERVAL = (0.1, 0.5)


def table(n=4000):
    data = make_biased_classification(n, 6, 2, 2, bias=0.6, class_sep=1.5, random_state=0)
    low, high = data.data.min(axis=0) - 0.1, data.data.max(axis=0) + 0.1
    return data.data, data.target, data.sensitive_features, (low, high)


def fitted(constraint, **params):
    X, y, group, public = table()
    params = {"interval": INTERVAL, "slack": 0.1, "random_state": 0, **params}
    clf = PartialParityClassifier(constraint, feature_range=public, **params)
    with warnings.catch_warnings():  # noise may put the estimate above the slack
        warnings.simplefilter("ignore", ConstraintNotSatisfiedWarning)
        return clf.fit(X, y, sensitive_features=group)


def rows(n=500, seed=0):
    rng = np.random.default_rng(seed)
    scores = torch.as_tensor(rng.normal(size=(n, 1)))
    y, group = (torch.as_tensor(rng.integers(2, size=n)) for _ in range(2))
    return scores + 0.7 * group[:, None], y, group, torch.ones(n, dtype=torch.float64)


def test_distributions_in_bins_are_the_gaps_at_the_edges():
    """Against G from sorted scores at the same thresholds, without leak."""
    constraint = PARTIAL_PRIVATE["statistical_parity"](INTERVAL, n_grid=7, reach=2.0).bind(
        Space([0, 1], ["a", "b"]), 0.05
    )
    scores, y, group, weight = rows()
    values = constraint.hard_values(
        scores, constraint.partition.place(y, group, weight), torch.zeros(0)
    )
    values = values + 0.05
    expected = []
    for edge in np.linspace(-2.0, 2.0, 7):
        above = (scores[:, 0] > edge).numpy()
        rates = [above[group.numpy() == g].mean() for g in (0, 1)]
        shares = [(min(r, 0.5) - min(r, 0.1)) / 0.4 for r in rates]
        expected.append(shares[0] - shares[1])
    assert values.numpy() == pytest.approx(np.concatenate((expected, np.negative(expected))))
    exact = metrics.partial_statistical_parity(
        None, scores[:, 0].numpy(), sensitive_features=group.numpy(), interval=INTERVAL
    )
    assert 0.5 * exact < values.max() <= exact + 1e-12
    assert "threshold 3 of 7" in constraint.describe(2)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["statistical_parity", "equal_opportunity"])
def test_private_training_moves_the_true_gap_to_its_slack(constraint):
    """With a generous budget; the released estimate is near the true gap."""
    X, y, group, _ = table()
    interval = (0.3, 0.9) if constraint == "equal_opportunity" else INTERVAL
    free, clf = (
        fitted(constraint, epsilon=20.0, slack=slack, interval=interval) for slack in (2.0, 0.1)
    )
    measure = getattr(metrics, f"partial_{constraint}")
    options = {"sensitive_features": group, "interval": interval}
    before, after = (measure(y, c.decision_function(X), **options) for c in (free, clf))
    assert before > 0.2
    assert after < max(0.6 * before, 0.2)
    assert clf.violation_ == pytest.approx(after, abs=0.15)
    assert clf.privacy_.epsilon <= 20.0
    assert np.isnan(clf.history_["objective"]).all()
    assert clf.interval_ == interval

"""Parity of precision and of false omission rates: ratios of sums that both depend on the model."""

import numpy as np
import pytest
import torch

from fairconstrained import metrics
from fairconstrained.constraints import (
    DemographicParity,
    FalseOmissionRateParity,
    PredictiveParity,
    RejectionRate,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import certify
from tests.helpers.fits import FORGIVEN, fitted, table
from tests.helpers.notions import bound, hard_values, random_rows, soft_values

METRICS = {
    PredictiveParity: (metrics.predictive_parity_difference, metrics.predictive_parity_ratio),
    FalseOmissionRateParity: (
        metrics.false_omission_rate_difference,
        metrics.false_omission_rate_ratio,
    ),
}
every_notion = pytest.mark.parametrize("notion", METRICS)


@every_notion
@pytest.mark.parametrize("params", [{"slack": 0.9}, {"ratio": 0.1}])
@pytest.mark.parametrize("nobody", [["a"], ["a", "b"]])
def test_a_group_without_such_predictions_keeps_no_slack_below_one(notion, params, nobody):
    """The metric is nan there; soft values of probabilities that underflow are finite as well."""
    rows, constraint = random_rows(2, n_groups=2), bound(notion(**params), (2, 2))
    side = -1.0 if notion is PredictiveParity else 1.0
    without = torch.isin(rows.group, torch.tensor([ord(g) - ord("a") for g in nobody]))
    scores = torch.where(without[:, None], side * 1e4, -side * rows.scores.abs())
    rows = rows._replace(scores=scores)
    for values in (hard_values(constraint, rows), soft_values(constraint, rows)):
        assert values.isfinite().all()
        assert values.max() > 0.05
        assert constraint.measure(values) == pytest.approx(1.0, abs=1e-9) or len(nobody) == 2
    with pytest.warns(match="group 0 has no rows with"):
        gap = METRICS[notion][0](rows.y, scores[:, 0] > 0, sensitive_features=rows.group)
    assert np.isnan(gap)


def best_thresholds(y, score, group, slack, metric):
    """The least error of thresholds by group that keep the slack: for two groups, all pairs."""
    cuts = np.quantile(score, np.linspace(0.02, 0.98, 60))
    errors, of_groups = [], []
    for g in (0, 1):
        above = score[group == g] > cuts[:, None]
        own = y[group == g]
        errors.append((above != own).sum(axis=1))
        if metric is METRICS[PredictiveParity][0]:
            of_groups.append((above & (own == 1)).sum(axis=1) / above.sum(axis=1))
        else:
            of_groups.append((~above & (own == 1)).sum(axis=1) / (~above).sum(axis=1))
    allowed = np.abs(of_groups[0][:, None] - of_groups[1]) <= slack
    return (errors[0][:, None] + errors[1])[allowed].min() / len(y)


@every_notion
def test_fits_keep_the_slack_and_are_as_good_as_thresholds_by_group(notion):
    data = make_biased_classification(1500, bias=0.6, random_state=0)
    y, group = data.target, data.sensitive_features
    X = np.column_stack((data.data, group))
    free = fitted(notion(1.0), (X, y, group))
    clf = fitted(notion(0.02), (X, y, group))
    metric = METRICS[notion][0]
    predicted = clf.predict(X)
    gap = metric(y, predicted, sensitive_features=group)
    assert free.violation_ > 0.05
    assert gap == pytest.approx(clf.violation_)
    assert gap <= 0.02 + FORGIVEN
    least = best_thresholds(y, free.decision_function(X), group, 0.02, metric)
    assert np.mean(predicted != y) <= least + 0.01


@pytest.mark.slow
def test_a_fit_predicts_the_class_in_every_group():
    """Without the constraint nobody of group 1 is accepted; a floor keeps more than a few."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=3000)
    X = np.column_stack((rng.normal(size=3000), 4.0 * group))
    y = (X[:, 0] - X[:, 1] + rng.normal(size=3000) > 0).astype(int)
    free = fitted(DemographicParity(1.0), (X, y, group)).predict(X)
    assert free[group == 1].mean() < 0.005
    floors = RejectionRate({0: 1.0, 1: 0.98}, per_group=True)
    clf = fitted([PredictiveParity(0.1), floors], (X, y, group))
    accepted = clf.predict(X)
    assert clf.feasible_
    assert accepted[group == 1].mean() >= 0.02 - FORGIVEN
    assert metrics.predictive_parity_difference(y, accepted, sensitive_features=group) <= 0.101


@pytest.mark.parametrize(
    ("notion", "params"),
    [(PredictiveParity(slack=0.05), {"margin": 1.0}), (FalseOmissionRateParity(ratio=0.95), {})],
    ids=["margin", "ratio"],
)
def test_margins_and_ratios(notion, params):
    X, y, group = table(n=1000)
    clf = fitted(notion, (X, y, group), **params)
    gap, ratio = (m(y, clf.predict(X), sensitive_features=group) for m in METRICS[type(notion)])
    assert clf.feasible_
    assert ratio >= 0.95 if notion.ratio else gap <= 0.05 + FORGIVEN


@every_notion
def test_certificates_are_of_binomials_given_the_prediction(notion):
    """Rows of each rate are those with the prediction; bounds shrink as their root."""
    rng = np.random.default_rng(0)
    uppers = []
    for n in (1000, 16_000):
        y, group = rng.integers(2, size=n), rng.integers(2, size=n)
        predicted = np.where(rng.random(n) < 0.6 + 0.1 * group, y, 1 - y)
        given = {"y_true": y, "y_pred": predicted, "sensitive_features": group}
        found = certify(**given, constraint=notion(slack=0.5))
        assert found.estimate == pytest.approx(
            METRICS[notion][0](y, predicted, **{"sensitive_features": group})
        )
        uppers.append(found.upper - found.estimate)
    assert 0 < uppers[1] < 0.4 * uppers[0]

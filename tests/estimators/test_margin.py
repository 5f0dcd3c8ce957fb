"""margin=: each constraint is narrowed by its own standard errors, in all estimators."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from fairconstrained import LossParityClassifier, PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import CONSTRAINTS, DemographicParity, EqualizedOdds, Space
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.metrics import demographic_parity_difference

SPACE = Space([0, 1], ["a", "b", "c"])
NO_AUX = torch.zeros(0)


def rows_of(constraint, n=600, seed=0):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(2, size=n), rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    weight = rng.uniform(0.5, 1.5, size=n)
    scores = torch.as_tensor(rng.normal(size=(n, 1)) + 0.5 * y[:, None])
    return scores, constraint.partition.place(*map(torch.as_tensor, (y, group, weight)))


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_standard_errors_of_rates_are_those_of_the_bootstrap(name):
    """The delta method, against 100 draws of exponential weights: within 3 standard errors."""
    constraint = CONSTRAINTS[name]().bind(SPACE, 0.1)
    scores, rows = rows_of(constraint)
    exact = constraint.deviations(scores, rows, NO_AUX)
    drawn = MomentConstraint.deviations(constraint, scores, rows, NO_AUX)
    assert (exact > 0).all()
    torch.testing.assert_close(exact, drawn, rtol=0.25, atol=0.0)


def test_standard_error_of_a_difference_of_rates():
    """sqrt(p (1 - p) / n + q (1 - q) / m) with equal weights."""
    constraint = DemographicParity().bind(Space([0, 1], ["a", "b"]), 0.1)
    group = torch.tensor([0] * 40 + [1] * 10)
    scores = torch.where(torch.arange(50) % 5 < 2, 1.0, -1.0).double()[:, None]
    rows = constraint.partition.place(
        torch.zeros(50, dtype=torch.long), group, torch.ones(50).double()
    )
    expected = np.sqrt(0.4 * 0.6 / 40 + 0.4 * 0.6 / 10)
    assert constraint.deviations(scores, rows, NO_AUX).tolist() == pytest.approx([expected] * 2)


DATA = make_biased_classification(3000, n_groups=3, random_state=0)
FIT = (DATA.data, DATA.target), {"sensitive_features": DATA.sensitive_features}


def fitted(estimator):
    return estimator.fit(*FIT[0], **FIT[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda margin: RateConstrainedClassifier(EqualizedOdds(slack=0.2), margin=margin),
        lambda margin: RateConstrainedClassifier("false_negative_rate", slack=0.1, margin=margin),
        lambda margin: LossParityClassifier(slack=0.06, margin=margin),
        lambda margin: PartialParityClassifier(
            "demographic_parity", interval=(0.0, 0.6), slack=0.3, margin=margin
        ),
    ],
)
def test_violation_is_smaller_by_about_the_margin(make):
    plain, narrow = fitted(make(0.0)), fitted(make(1.0))
    assert narrow.violation_ < plain.violation_ - 0.005
    assert narrow.feasible_
    assert narrow.score(*FIT[0]) <= plain.score(*FIT[0]) + 0.01
    assert len(narrow.history_["violation"]) == narrow.n_iter_


def test_each_pair_has_its_own_margin():
    """Measured on the rows of training: every gap is below the slack less its standard error."""
    clf = fitted(RateConstrainedClassifier(slack=0.1, margin=1.0))
    predicted = clf.predict(DATA.data)
    rates = [predicted[DATA.sensitive_features == g] for g in range(3)]
    for p in rates:
        for q in rates:
            error = np.sqrt(p.var() / len(p) + q.var() / len(q))
            assert p.mean() - q.mean() <= 0.1 - error + 0.004  # errors are those of a rough fit


def number_above(estimators, metric, n_rows, n_samples, slack):
    """How many of the models, fitted on samples, exceed the slack on 40,000 new rows."""
    data = make_biased_classification(70_000, random_state=0)
    X, y, group = data.data, data.target, data.sensitive_features
    above = np.zeros(len(estimators), dtype=int)
    for seed in range(n_samples):
        rows = np.random.default_rng(seed).choice(30_000, size=n_rows, replace=False)
        for i, clf in enumerate(estimators):
            clf.fit(X[rows], y[rows], sensitive_features=group[rows])
            above[i] += metric(clf, X[30_000:], y[30_000:], group[30_000:]) > slack
    return above


def allowed(margin, n_samples):
    """A normal error exceeds the margin with probability 1 - Phi(margin): its 99 % quantile."""
    return binom.ppf(0.99, n_samples, norm.sf(margin))


@pytest.mark.slow
def test_new_rows_keep_the_slack_as_often_as_the_margin_says():
    """Fifteen samples of 1,500 rows, slack .05: without a margin a third is above on new rows."""
    margins = np.array([0.0, 1.0, 1.645])
    above = number_above(
        [RateConstrainedClassifier(slack=0.05, margin=margin) for margin in margins],
        lambda clf, X, y, group: demographic_parity_difference(
            y, clf.predict(X), sensitive_features=group
        ),
        n_rows=1500,
        n_samples=15,
        slack=0.05,
    )
    assert above[0] >= 4
    assert (above[1:] <= allowed(margins[1:], 15)).all()
    assert above[2] <= above[1] < above[0]


def test_a_margin_that_leaves_nothing_is_told():
    with pytest.warns(ConstraintNotSatisfiedWarning, match=r"margin=20 uses up the slack .* group"):
        clf = fitted(RateConstrainedClassifier(slack=0.05, margin=20.0))
    assert clf.violation_ <= 0.002

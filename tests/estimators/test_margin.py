"""Slacks are kept to the last row, as users compare; a margin narrows each by its error."""

import itertools
from functools import partial

import fairlearn.metrics
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import fairconstrained as fc
from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.export import model_card
from fairconstrained.models import SingleFit
from tests.helpers.fits import METRIC_OF

SPACE = fc.constraints.Space([0, 1], ["a", "b", "c"])
NO_AUX = torch.zeros(0)


def rows_of(constraint, n=600, seed=0):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(2, size=n), rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    weight = rng.uniform(0.5, 1.5, size=n)
    scores = torch.as_tensor(rng.normal(size=(n, 1)) + 0.5 * y[:, None])
    return scores, constraint.partition.place(*map(torch.as_tensor, (y, group, weight)))


@pytest.mark.parametrize("name", sorted(fc.constraints.CONSTRAINTS))
def test_standard_errors_of_rates_are_those_of_the_bootstrap(name):
    """The delta method, against 100 draws of exponential weights: within 3 standard errors."""
    constraint = fc.constraints.CONSTRAINTS[name]().bind(SPACE, 0.1)
    scores, rows = rows_of(constraint)
    exact = constraint.deviations(scores, rows, NO_AUX)
    drawn = MomentConstraint.deviations(constraint, scores, rows, NO_AUX)
    assert (exact > 0).all()
    torch.testing.assert_close(exact, drawn, rtol=0.25, atol=0.0)


def test_standard_error_of_a_difference_of_rates():
    """sqrt(p (1 - p) / n + q (1 - q) / m) with equal weights."""
    space = fc.constraints.Space([0, 1], ["a", "b"])
    constraint = fc.constraints.DemographicParity().bind(space, 0.1)
    group = torch.tensor([0] * 40 + [1] * 10)
    scores = torch.where(torch.arange(50) % 5 < 2, 1.0, -1.0).double()[:, None]
    rows = constraint.partition.place(torch.zeros_like(group), group, torch.ones(50).double())
    expected = np.sqrt(0.4 * 0.6 / 40 + 0.4 * 0.6 / 10)
    assert constraint.deviations(scores, rows, NO_AUX).tolist() == pytest.approx([expected] * 2)


DATA = make_biased_classification(3000, n_groups=3, random_state=0)
FIT = (DATA.data, DATA.target), {"sensitive_features": DATA.sensitive_features}


def fitted(estimator):
    return estimator.fit(*FIT[0], **FIT[1])


@pytest.mark.parametrize(
    "clf",
    [
        fc.RateConstrainedClassifier(fc.constraints.EqualizedOdds(slack=0.2)),
        fc.RateConstrainedClassifier("false_negative_rate", slack=0.1),
        fc.LossParityClassifier(slack=0.06),
        fc.PartialParityClassifier("demographic_parity", interval=(0.0, 0.6), slack=0.3),
    ],
)
def test_violation_is_smaller_by_about_the_margin(clf):
    plain, narrow = (fitted(clone(clf).set_params(margin=margin)) for margin in (0.0, 1.0))
    assert narrow.violation_ < plain.violation_ - 0.005
    assert narrow.feasible_
    assert narrow.score(*FIT[0]) <= plain.score(*FIT[0]) + 0.01
    assert len(narrow.history_["violation"]) == narrow.n_iter_


def test_each_pair_has_its_own_margin():
    """Measured on the rows of training: every gap is below the slack less its standard error."""
    clf = fitted(fc.RateConstrainedClassifier(slack=0.1, margin=1.0))
    predicted = clf.predict(DATA.data)
    rates = [predicted[DATA.sensitive_features == g] for g in range(3)]
    for p, q in itertools.permutations(rates, 2):
        error = np.sqrt(p.var() / len(p) + q.var() / len(q))
        assert p.mean() - q.mean() <= 0.1 - error + 0.004  # errors are those of a rough fit


def test_a_margin_that_leaves_nothing_is_told():
    with pytest.warns(ConstraintNotSatisfiedWarning, match=r"margin=20 uses up the slack .* group"):
        clf = fitted(fc.RateConstrainedClassifier(slack=0.05, margin=20.0))
    assert clf.violation_ <= 0.002


PARITIES = ("demographic_parity", "equalized_odds", "equal_opportunity", "error_rate_parity")


def draw(seed, n=240, n_groups=2):
    """Few rows in groups of round sizes: gaps at the slack itself are common."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % n_groups
    X = rng.normal(size=(n, 3))
    X[:, 0] += 0.8 * (group == 0)
    y = (X[:, 0] + X[:, 1] + rng.normal(size=n) > 0.5).astype(int)
    return X, y, group


TREE = DecisionTreeClassifier(min_samples_leaf=10, random_state=0)


def kept(clf):
    return clf.feasible_ and clf.violation_ <= clf.slack


AT_THE_SLACK = [*((name, 0.05, 240) for name in PARITIES), (PARITIES[0], 0.06, 100)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "slack", "n"), [*AT_THE_SLACK, (PARITIES[0], 0.0, 240)])
def test_labels_keep_the_slack_by_the_metric_itself(name, slack, n, seed):
    """Of 50 rows in a group a gap of 0.06 is one of 3 rows, or rounds to more, as in fairlearn."""
    X, y, group = draw(seed, n=n)
    clf = fc.RateConstrainedClassifier(name, slack=slack).fit(X, y, sensitive_features=group)
    rows = {"y_true": y, "y_pred": clf.predict(X), "sensitive_features": group}
    assert kept(clf)
    assert METRIC_OF[name](**rows) <= slack
    assert clf.training_violation_ == clf.violation_
    if name == "demographic_parity":
        assert fairlearn.metrics.demographic_parity_difference(**rows) <= slack


@pytest.mark.parametrize("seed", range(2))
def test_ratios_caps_lists_weights_strata_and_margins_keep_theirs(seed):
    X, y, group = draw(seed, n_groups=3)
    weight, stratum = 1.0 + (np.arange(len(y)) % 3), np.arange(len(y)) % 2
    fit = {"X": X, "y": y, "sensitive_features": group}
    clf = fc.RateConstrainedClassifier(fc.constraints.DemographicParity(ratio=0.8)).fit(**fit)
    ratio = fc.metrics.demographic_parity_ratio(y, clf.predict(X), sensitive_features=group)
    assert clf.feasible_
    assert ratio >= 0.8
    several = ["demographic_parity", fc.constraints.FalseNegativeRate(max=0.4, per_group=True)]
    clf = fc.RateConstrainedClassifier(several, slack=0.1).fit(**fit)
    assert clf.feasible_
    assert clf.violations_["demographic_parity"] <= 0.1
    assert clf.violations_["false_negative_rate"] <= 0.4
    clf = fc.RateConstrainedClassifier().fit(**fit, sample_weight=weight)
    assert kept(clf)
    rows = {"sensitive_features": group, "sample_weight": weight}
    assert fc.metrics.demographic_parity_difference(y, clf.predict(X), **rows) <= 0.05
    assert kept(fc.RateConstrainedClassifier(slack=0.1).fit(**fit, control_features=stratum))
    assert kept(fc.RateConstrainedClassifier(slack=0.1, margin=0.5).fit(**fit))
    parallel = fc.constraints.DemographicParity(attributes="parallel")
    columns = np.column_stack((group, stratum))
    assert kept(fc.RateConstrainedClassifier(parallel).fit(X, y, sensitive_features=columns))


RANKING = fc.AUCFairClassifier(slack=0.05, min_group_size=0, random_state=0)
OF_RANKS = {"interval": (0, 0.5), "slack": 0.1, "min_group_size": 0}
RANKS = fc.PartialParityClassifier("rank_parity", **OF_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clf", "metric", "seed"),
    [
        *((RANKING, fc.metrics.group_auc_gap, seed) for seed in (6, 8)),
        *((RANKS, partial(fc.metrics.ccdf_gap, interval=(0, 0.5)), s) for s in (6, 20, 21, 22, 23)),
    ],
)
def test_the_metric_of_a_feasible_fit_is_within_the_slack_to_the_last_digit(clf, metric, seed):
    """Of two groups of 50 rows the gap can be the slack exactly: .05000000000000004 is not."""
    data = make_biased_classification(100, 6, random_state=seed)
    given = {"sensitive_features": data.sensitive_features}
    clf = clone(clf).fit(data.data, data.target, **given)
    gap = metric(data.target, clf.decision_function(data.data), **given)
    assert clf.feasible_
    assert clf.violation_ == pytest.approx(gap, abs=1e-14)
    assert max(clf.violation_, gap) <= clf.slack


@pytest.mark.slow
@pytest.mark.parametrize("model", [LogisticRegression(), TREE, SingleFit(TREE)], ids=str)
def test_the_value_of_training_rows_is_the_metric_of_predictions_of_them(model):
    X, y, group = draw(0, n=600)
    clf = fc.RateConstrainedClassifier(slack=0.1, model=model, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert kept(clf)
    gap = fc.metrics.demographic_parity_difference(y, clf.predict(X), sensitive_features=group)
    assert clf.training_violation_ == pytest.approx(gap, abs=1e-12)
    assert f"{clf.training_violation_:.6g} on all training rows" in str(model_card(clf))

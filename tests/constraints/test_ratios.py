"""Ratios of rates: constraints, fits, certificates, against the metric and fairlearn's."""

import fairlearn.metrics
import numpy as np
import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    Space,
)
from fairconstrained.losses import hard_classes
from fairconstrained.metrics import certify
from fairconstrained.metrics.bounds import SHORTFALL
from fairconstrained.model_selection import CertifiedClassifier
from fairconstrained.monitoring import FairnessMonitor
from fairconstrained.solvers import Iterate, Solver
from tests.helpers.fits import fitted, table
from tests.helpers.notions import ScoredRows, bound, hard_values, random_rows

METRIC = {
    DemographicParity: metrics.demographic_parity_ratio,
    EqualOpportunity: metrics.equal_opportunity_ratio,
    EqualizedOdds: metrics.equalized_odds_ratio,
}
METHOD = {"pairwise": "between_groups", "overall": "to_overall"}


def measured(kind, clf, data, **options):
    X, y, group = data
    return METRIC[kind](y, clf.predict(X), sensitive_features=group, **options)


@pytest.mark.parametrize("reference", METHOD)
@pytest.mark.parametrize("kind", METRIC)
def test_the_measure_is_one_less_fairlearns_ratio(kind, reference):
    rows = random_rows(1, 2, 4, n=150)
    constraint = bound(kind(ratio=0.8, reference=reference), (2, 4))
    metric = getattr(fairlearn.metrics, METRIC[kind].__name__)
    predicted, given = hard_classes(rows.scores).numpy(), rows.beside_labels
    expected = metric(rows.y.numpy(), predicted, method=METHOD[reference], **given)
    values = hard_values(constraint, rows)
    assert constraint.measure(values) == pytest.approx(1.0 - expected)
    assert bool((values > 1e-3).any()) == (expected < 0.8)


def test_of_several_classes_the_worst_counts():
    rows = random_rows(2, 3, 3, n=150)
    constraint = bound(DemographicParity(ratio=0.7), (3, 3))
    predicted, given = hard_classes(rows.scores).numpy(), rows.beside_labels
    expected = metrics.demographic_parity_ratio(rows.y.numpy(), predicted, **given)
    assert constraint.measure(hard_values(constraint, rows)) == pytest.approx(1.0 - expected)


def test_the_positive_class_decides():
    """Nine of ten against eight of ten is a ratio of 8 / 9, or of a half for the others."""
    predicted = np.repeat([1.0, 0.0, 1.0, 0.0], [18, 2, 16, 4])
    scores, y = torch.as_tensor(2.0 * predicted - 1.0)[:, None], torch.zeros(40, dtype=torch.long)
    rows = ScoredRows(scores, y, torch.arange(40) // 20, torch.ones(40, dtype=torch.float64))
    for pos_label, ratio in ((None, 8 / 9), (1, 8 / 9), (0, 0.5)):
        notion = DemographicParity(ratio=0.8, pos_label=pos_label)
        constraint = notion.bind(Space([0, 1], ["a", "b"]))
        assert constraint.measure(hard_values(constraint, rows)) == pytest.approx(1.0 - ratio)


def test_rates_that_are_all_zero_have_no_ratio():
    """As in the metric; and a model that accepts nobody is not what a fit settles for."""
    rows = random_rows(4, 2, 3)
    rows = rows._replace(scores=-rows.scores.abs())
    constraint = bound(DemographicParity(ratio=0.8), (2, 3))
    values = hard_values(constraint, rows)
    assert np.isnan(constraint.measure(values))
    assert (values > 0).all()


class Free(Solver):
    """Ends at the model without constraints."""

    length = 1

    def iterate(self, problem, x, dual, tol, rng):
        x = problem.variables(problem.free)
        yield Iterate(x, *problem.evaluate(x), dual, residual=0.0)


@pytest.mark.filterwarnings("ignore:Free keeps its result")
@pytest.mark.parametrize("others", [[], [ErrorRateParity(slack=0.5)]])
def test_rates_of_zero_are_left_out_by_name(others):
    """By fits, metrics, certificates and monitors; the ratios of other rates decide."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(600, 2)), np.array(["f", "m"])[np.arange(600) % 2]
    y = (X[:, 0] > 0).astype(int)
    y[:2] = 2  # a label that nobody is predicted to have
    clf = RateConstrainedClassifier([DemographicParity(ratio=0.5), *others], solver=Free())
    with pytest.warns(UndefinedMetricWarning, match="left out of the constraint: prediction 2 in"):
        clf.fit(X, y, sensitive_features=group)
    assert clf.left_out_ == ["prediction 2 in group f; group m (rates of zero have no ratio)"]
    assert clf.feasible_
    assert clf.excess_ < 0
    predicted = clf.predict(X)
    with pytest.warns(UndefinedMetricWarning, match=r"^predicted 2: rates of zero in every group"):
        ratio = metrics.demographic_parity_ratio(y, predicted, sensitive_features=group)
    assert clf.violations_["demographic_parity"] == pytest.approx(1 - ratio)
    given = {"y_true": y, "y_pred": predicted, "sensitive_features": group}
    found = certify(**given, constraint=DemographicParity(ratio=0.5))
    assert found.estimate == pytest.approx(1 - ratio)
    assert not found.kept  # nothing is known about the third label


@pytest.mark.filterwarnings("ignore:Free keeps its result")
def test_where_no_ratio_is_left_nothing_is_kept():
    X, group = np.random.default_rng(0).normal(size=(600, 2)), np.arange(600) % 2
    y = (np.arange(600) < 6).astype(int)
    criteria = [DemographicParity(ratio=0.5), ErrorRateParity(slack=0.5)]
    clf = RateConstrainedClassifier(criteria, solver=Free())
    with pytest.warns(UndefinedMetricWarning, match="demographic_parity has nothing left to comp"):
        clf.fit(X, y, sensitive_features=group)
    assert not clf.feasible_
    given = {"y_pred": clf.predict(X), "sensitive_features": group}
    assert np.isnan(certify(**given, constraint=criteria[0]).estimate)
    monitor = FairnessMonitor(criteria[0]).update(**given)
    assert np.isnan(monitor.estimate_)
    assert monitor.left_out_ == ["predicted 1 (rates of zero have no ratio)"]


def test_small_groups_are_those_of_a_gap_of_the_same_size():
    rows = np.array([[400, 400, 4], [400, 400, 0]])
    space = Space([0, 1], list("abc"))
    for notion in (DemographicParity(ratio=0.8), DemographicParity(slack=0.2)):
        assert notion.bind(space).without_small(rows, "auto")[1] == [
            "group c (4 rows, fewer than 5)"
        ]


@pytest.mark.parametrize(
    ("kind", "n_classes", "n_groups"),
    [
        (DemographicParity, 2, 4),
        (EqualOpportunity, 2, 2),
        pytest.param(EqualizedOdds, 3, 2, marks=pytest.mark.slow),
    ],
)
def test_a_feasible_fit_keeps_the_ratio_exactly(kind, n_classes, n_groups):
    data = table(n_classes, n_groups)
    free = measured(kind, fitted(kind(slack=np.inf), data), data)
    ratio = 0.5 * (1.0 + free)
    clf = fitted(kind(ratio=ratio), data)
    found = measured(kind, clf, data)
    assert clf.feasible_
    assert ratio <= found <= ratio + 0.1
    assert clf.violation_ == pytest.approx(1.0 - found, abs=1e-9)


@pytest.mark.slow
def test_no_dummy_model_where_the_ratio_binds():
    """Issue 611 of fairlearn: a bound on a ratio gave a constant. Here it is the best of slacks.

    Of fits with a bound on the difference, the one of least error that keeps the ratio as well is
    no better than the fit with the ratio by more than half a percent.
    """
    X, y, _ = data = table(n=2000)
    clf = fitted(DemographicParity(ratio=0.8), data)
    errors = {0.5: min(y.mean(), 1 - y.mean())}
    for slack in np.linspace(0.01, 0.2, 9):
        other = fitted("demographic_parity", data, slack=slack)
        if measured(DemographicParity, other, data) >= 0.8:
            errors[slack] = np.mean(other.predict(X) != y)
    assert np.mean(clf.predict(X) != y) <= min(errors.values()) + 0.005
    assert min(errors.values()) < errors[0.5] - 0.1
    assert 0.2 < clf.predict(X).mean() < 0.8


def test_rare_outcomes_keep_their_ratio():
    """Rates of a few percent, of which a tolerance of 0.001 would be a large part."""
    X, _, group = table(n=2000)
    score = X @ [0.4, 0.4, 1.0, 0.1, 0.1, 0.1] + (group == 0)
    rare = (score > np.quantile(score, 0.97)).astype(int)
    clf = fitted(DemographicParity(ratio=0.8), (X, rare, group))
    assert clf.feasible_
    ratio = metrics.demographic_parity_ratio(rare, clf.predict(X), sensitive_features=group)
    assert ratio >= 0.8
    assert 0.01 < clf.predict(X).mean() < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_private_fits_estimate_the_ratio():
    data = table(n=4000)
    clf = fitted(DemographicParity(ratio=0.8), data, epsilon=5.0, random_state=0)
    assert clf.violation_ == pytest.approx(1.0 - measured(DemographicParity, clf, data), abs=0.1)
    assert clf.violation_ < 0.3


@pytest.mark.parametrize("hits", [(210, 168), (210, 140), (120, 150)])
def test_certificates_of_a_ratio_have_the_larger_bound_of_both_orders(hits):
    """The bound itself errs at most as stated, for all rates."""
    predictions = np.concatenate([np.arange(300) < k for k in hits]).astype(int)
    given = {"y_pred": predictions, "sensitive_features": np.repeat([0, 1], 300)}
    bounds = [SHORTFALL.bound(pair, (300, 300), 0.05) for pair in (hits, hits[::-1])]
    found = certify(**given, constraint=DemographicParity(ratio=0.8))
    assert found.upper == pytest.approx(max(bounds), abs=1e-3)
    assert found.kept == (max(bounds) <= 0.2)


def test_the_statement_says_what_is_bounded():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=6000)
    predictions = (rng.random(6000) < np.take([0.5, 0.48, 0.45], group)).astype(int)
    given = {"y_pred": predictions, "sensitive_features": group}
    certificate = certify(**given, constraint=DemographicParity(ratio=0.8))
    ratio = metrics.demographic_parity_ratio(predictions, predictions, sensitive_features=group)
    assert certificate.kept
    assert certificate.estimate == pytest.approx(1.0 - ratio)
    assert certificate.slack == pytest.approx(0.2)
    said = str(certificate)
    assert "one minus the smallest ratio of demographic_parity within 0.2 IS CERTIFIED" in said
    assert "group 2 falls short of group 0, predicted 1" in said
    assert "exact test of the ratio" in " ".join(said.split())


@pytest.mark.slow
def test_certified_classifiers_take_the_ratio():
    data = table(n=4000)
    model = RateConstrainedClassifier(DemographicParity(ratio=0.7))
    clf = CertifiedClassifier(model, random_state=0)
    clf.fit(data[0], data[1], sensitive_features=data[2])
    assert clf.certified_
    assert clf.certificate_.slack == pytest.approx(0.3)
    np.testing.assert_allclose(clf.candidates_["constraint__ratio"][:2], [0.97, 0.91])

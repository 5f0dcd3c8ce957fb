"""Caps on mean costs; ratios of rates and of precision; parity for sets of confusion matrices."""

import fairlearn.metrics
import numpy as np
import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ErrorRateParity,
    ExpectedCost,
    FalseOmissionRateParity,
    PredictiveParity,
    RejectionRate,
    RobustParity,
    Space,
)
from fairconstrained.datasets import make_biased_classification, make_loan_applications
from fairconstrained.groups import GroupProbabilities, RecordedGroups
from fairconstrained.losses import hard_classes
from fairconstrained.metrics import certify, demographic_parity_difference, expected_cost
from fairconstrained.metrics.bounds import SHORTFALL
from fairconstrained.monitoring import FairnessMonitor
from fairconstrained.solvers import Iterate, Solver
from tests.helpers.fits import FORGIVEN, METRIC_OF, fitted, table
from tests.helpers.notions import ScoredRows, bound, hard_values, random_rows, soft_values

COSTS = {
    "error": (None, 2),
    "table": ([[0.0, 1.0], [5.0, 0.5]], 2),
    "balanced": ("balanced", 2),
    "three": ([[0, 1, 2], [3, 0, 1], [7, 2, 0]], 3),
    "balanced three": ("balanced", 3),
}


def by_hand(costs, y, predicted, weight):
    n_classes = int(y.max()) + 1
    if costs is None:
        return 1 - accuracy_score(y, predicted, sample_weight=weight)
    if costs == "balanced":
        return 1 - balanced_accuracy_score(y, predicted, sample_weight=weight)
    assert np.shape(costs) == (n_classes, n_classes)
    return np.average(np.asarray(costs)[y, predicted], weights=weight)


@pytest.mark.parametrize("per_group", [False, True])
@pytest.mark.parametrize("name", COSTS)
def test_constraint_and_metric_are_the_mean_cost(name, per_group):
    """Of two classes with costs of 1 and "balanced" as scikit-learn's accuracies."""
    costs, n_classes = COSTS[name]
    rows = random_rows(0, n_classes, 3, n=200)
    constraint = bound(ExpectedCost(0.3, costs=costs, per_group=per_group), (n_classes, 3))
    y, group, weight = (column.numpy() for column in rows[1:])
    scores = rows.scores.numpy()
    predicted = (scores[:, 0] > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    groups = [group == g for g in range(3)] if per_group else [group >= 0]
    expected = max(by_hand(costs, y[own], predicted[own], weight[own]) for own in groups)
    found = constraint.measure(hard_values(constraint, rows))
    assert found == pytest.approx(expected)
    given = {"sensitive_features": group if per_group else None, "sample_weight": weight}
    assert expected_cost(y, predicted, costs=costs, **given) == pytest.approx(expected)


def test_a_single_label_is_in_its_place():
    """Costs are in the order of the labels, of which the data may have one."""
    costs = [[0.0, 1.0], [5.0, 2.0]]
    assert expected_cost([1, 1], [1, 1], costs=costs) == 2.0
    assert expected_cost([0, 0], [0, 0], costs=costs) == 0.0


@pytest.mark.parametrize("costs", [[[0, 1], [5, 0]], [[0, 40], [10, 0]]])
def test_training_by_costs_has_lower_costs_than_by_errors(costs):
    data = table(n=1000)
    X, y, _ = data
    fits = [fitted(DemographicParity(0.1), data, costs=own) for own in (None, costs)]
    by_errors, by_costs = (expected_cost(y, clf.predict(X), costs=costs) for clf in fits)
    assert all(clf.feasible_ for clf in fits)
    assert by_costs < 0.9 * by_errors
    assert fits[1].history_["error"][-1] == pytest.approx(by_costs / np.max(costs))


def test_a_constant_that_costs_least_is_not_blamed_on_the_slack():
    """Not even without a slack that could bind: nothing is to be tried, and so no warning."""
    loans = make_loan_applications(300, random_state=0)
    clf = RateConstrainedClassifier(slack=np.inf, costs=[[0, 1], [5, 0]])
    clf.fit(
        loans.data[["income"]].fillna(0.0),
        loans.target,
        sensitive_features=loans.sensitive_features["sex"],
    )
    assert not clf.coef_.any()


def test_balanced_costs_are_costs_of_one_over_the_frequency_of_the_label():
    """Also where groups are shares of rows."""
    X, y, group = table(n=1000)
    kept = (y == 0) | (np.arange(1000) % 5 == 0)
    X, y, group = X[kept], y[kept], group[kept]
    table_of_costs = [[0, 1 / np.mean(y == 0)], [1 / np.mean(y == 1), 0]]
    shares = GroupProbabilities(np.eye(2)[group])
    given = (table_of_costs, group), ("balanced", group), ("balanced", shares)
    fits = [fitted(DemographicParity(0.1), (X, y, g), costs=costs) for costs, g in given]
    for clf in fits[1:]:
        np.testing.assert_allclose(clf.coef_, fits[0].coef_, atol=1e-6)
    assert balanced_accuracy_score(y, fits[0].predict(X)) > 0.6


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("balance", "'balanced', or finite"),
        ([[0, 1, 1], [1, 0, 1]], "of shape"),
        ([[0, -1], [1, 0]], ">= 0"),
        ([[0, np.nan], [1, 0]], "finite"),
    ],
)
def test_costs_that_are_none(costs, message):
    y = table()[1]
    for fit in (
        lambda: fitted(ExpectedCost(0.2, costs=costs)),
        lambda: fitted(costs=costs),
        lambda: expected_cost(y, y, costs=costs),
    ):
        with pytest.raises(ValueError, match=message):
            fit()


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
    rows = random_rows(4, 2, 3)
    rows = rows._replace(scores=-rows.scores.abs())
    constraint = bound(DemographicParity(ratio=0.8), (2, 3))
    values = hard_values(constraint, rows)
    assert np.isnan(constraint.measure(values))
    assert (values > 0).all()


class Free(Solver):
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
    names = "prediction 2 in group f; prediction 2 in group m"
    assert clf.left_out_ == [f"{names} (rates of zero have no ratio)"]
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
@pytest.mark.parametrize("word", ["", "; "])
def test_a_message_names_the_first_of_many_groups(word):
    X, group = np.random.default_rng(0).normal(size=(600, 2)), np.arange(600) % 20
    group = np.array([f"{word}{g}" for g in group])
    clf = RateConstrainedClassifier(DemographicParity(ratio=0.5), solver=Free())
    with pytest.warns(
        UndefinedMetricWarning, match=r"19 and 8 more \(rates of zero.*\); demographic_parity has"
    ):
        clf.fit(X, (np.arange(600) < 40).astype(int), sensitive_features=group)
    assert f"group {word}9" in clf.left_out_[0]


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
        _, left_out = notion.bind(space).without_small(rows, "auto")
        assert left_out == ["group c (4 rows, fewer than 5)"]


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
    """Issue 611 of fairlearn: a bound on a ratio gave a constant. No slack does clearly better."""
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


OMISSION = metrics.false_omission_rate_difference, metrics.false_omission_rate_ratio
METRICS = {
    PredictiveParity: (metrics.predictive_parity_difference, metrics.predictive_parity_ratio),
    FalseOmissionRateParity: OMISSION,
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


@pytest.mark.parametrize("notion", [PredictiveParity(0.05), FalseOmissionRateParity(ratio=0.95)])
def test_margins_and_ratios(notion):
    X, y, group = table(n=1000)
    clf = fitted(notion, (X, y, group), margin=0.0 if notion.ratio else 1.0)
    gap, ratio = (m(y, clf.predict(X), sensitive_features=group) for m in METRICS[type(notion)])
    assert clf.feasible_
    assert ratio >= 0.95 if notion.ratio else gap <= 0.05 + FORGIVEN


TWO = np.array([[0.9, 0.1], [0.2, 0.8]])
THREE = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.05, 0.9]])


def within(confusion, bound, rng):
    while True:
        matrix = confusion + bound * rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], confusion.shape)
        matrix[:, -1] = 1.0 - matrix[:, :-1].sum(axis=1)
        if (np.abs(matrix - confusion) <= bound + 1e-12).all() and (matrix >= 0).all():
            return matrix


@pytest.mark.parametrize("parity", [DemographicParity(0.1), EqualizedOdds(), PredictiveParity(0.1)])
@pytest.mark.parametrize("confusion", [TWO, THREE], ids=["two groups", "three"])
def test_no_matrix_of_the_set_has_a_larger_gap(parity, confusion):
    """Of two groups some matrix attains it; without a bound it is the gap by the inverse."""
    rows = random_rows(0, 2, len(confusion), n=2000)
    y, group, weight = (column.numpy() for column in rows[1:])
    predicted = (rows.scores.numpy()[:, 0] + 0.5 * group > 0).astype(int)
    rows = rows._replace(scores=rows.scores + 0.5 * rows.group[:, None])

    def largest(width):
        constraint = bound(RobustParity(parity, confusion, width), (2, len(confusion)))
        return constraint.measure(hard_values(constraint, rows))

    def gap(matrix):
        recorded = RecordedGroups(group, matrix)
        given = {"sensitive_features": recorded, "sample_weight": weight}
        return METRIC_OF[parity.name](y, predicted, **given)

    assert largest(0.0) == pytest.approx(gap(confusion))
    rng = np.random.default_rng(0)
    gaps = [gap(within(confusion, 0.04, rng)) for _ in range(40)]
    assert gap(confusion) < max(gaps) <= largest(0.04) + 1e-9
    if len(confusion) == 2:
        corners = RecordedGroups(group, confusion).corners(0.04)
        assert largest(0.04) == pytest.approx(max(gap(own.confusion) for own in corners))


def test_fits_keep_the_gap_of_the_true_groups_where_the_assumed_matrix_is_wrong():
    """The true matrix is in the set; fits by the assumed one exceed the slack, on average."""
    true, assumed = np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.85, 0.15], [0.15, 0.85]])
    parity, gaps = DemographicParity(0.1), []
    for seed in range(3):
        X, y, group, _ = make_biased_classification(20_000, bias=0.5, random_state=seed).values()
        recorded = (np.random.default_rng(seed).random(20_000) < true[group, 1]).astype(int)
        for notion, known in (
            (parity, RecordedGroups(recorded, assumed)),
            (RobustParity(parity, assumed, 0.12), recorded),
        ):
            clf = RateConstrainedClassifier(notion).fit(X, y, sensitive_features=known)
            assert clf.feasible_
            found = demographic_parity_difference(y, clf.predict(X), sensitive_features=group)
            gaps.append(found)
    by_inverse, robust = np.mean(np.reshape(gaps, (3, 2)), axis=0)
    assert by_inverse > 0.12
    assert robust <= 0.105

"""Caps on mean costs, as constraints, as metrics, and costs in place of errors in training."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from fairconstrained.constraints import DemographicParity, ExpectedCost
from fairconstrained.groups import GroupProbabilities
from fairconstrained.metrics import expected_cost
from tests.helpers.fits import fitted, table
from tests.helpers.notions import bound, hard_values, random_rows

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
    """Under the same constraint, for either of two labels that costs more."""
    data = table(n=1000)
    X, y, _ = data
    fits = [fitted(DemographicParity(0.1), data, costs=own) for own in (None, costs)]
    by_errors, by_costs = (expected_cost(y, clf.predict(X), costs=costs) for clf in fits)
    assert all(clf.feasible_ for clf in fits)
    assert by_costs < 0.9 * by_errors
    assert fits[1].history_["error"][-1] == pytest.approx(by_costs / np.max(costs))


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
    X, y, group = table()
    for fit in (
        lambda: fitted(ExpectedCost(0.2, costs=costs), (X, y, group)),
        lambda: fitted(data=(X, y, group), costs=costs),
        lambda: expected_cost(y, y, costs=costs),
    ):
        with pytest.raises(ValueError, match=message):
            fit()


def test_costs_of_a_fit_need_a_loss_and_no_privacy():
    with pytest.raises(ValueError, match="must not all be zero"):
        fitted(costs=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="must be None with epsilon"):
        fitted(costs=[[0, 1], [5, 0]], epsilon=1.0)

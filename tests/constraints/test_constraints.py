"""Every notion of the table, for labels and groups of several numbers, against its definition.

The oracle below computes each notion from its formula, row by row, knowing nothing of tables.
"""

from itertools import cycle

import numpy as np
import pytest
import torch

from fairconstrained import constraints
from fairconstrained.losses import LOSSES, class_probabilities, hard_classes
from tests.helpers.fits import METRIC_OF
from tests.helpers.notions import bound, hard_values, random_rows, soft_values

SHAPES = [(2, 2), (3, 3), (2, 5), (3, 2), (2, 3)]
REFERENCES = ["pairwise", "rest", "overall"]


def variants(notion):
    if issubclass(notion, constraints.Parity):
        return [notion(0.1, reference=reference) for reference in REFERENCES]
    assert issubclass(notion, constraints.Cap)
    return [notion(0.1), notion(0.1, per_group=True)]


NOTIONS = [variant for notion in constraints.CONSTRAINTS.values() for variant in variants(notion)]
NOTIONS += [
    constraints.LossParity(0.1, within="positive"),
    constraints.LossParity(0.1, within="labels", loss="brier"),
]
every_notion = pytest.mark.parametrize("notion", NOTIONS, ids=repr)
SHAPED = list(zip(NOTIONS, cycle(SHAPES), strict=False))
each_in_some_shape = pytest.mark.parametrize(("notion", "shape"), SHAPED, ids=repr)


def targets(P):
    return [1] if P.shape[1] == 2 else range(P.shape[1])


def _loss_events(y, P, loss_parity, scores):
    everybody = np.ones(len(y), dtype=bool)
    labels = {"all": [everybody], "positive": [y == c for c in range(1, P.shape[1])]}
    labels["labels"] = [y == c for c in range(P.shape[1])]
    loss = LOSSES[loss_parity.loss](scores, torch.as_tensor(y)).numpy()
    return [(rows, loss) for rows in labels[loss_parity.within]]


# For labels y and class probabilities P: the pairs (how much rows count, what is averaged).
EVENTS = {
    "demographic_parity": lambda y, P: [(y >= 0, P[:, k]) for k in targets(P)],
    "equalized_odds": lambda y, P: [(y == c, P[:, k]) for c in range(len(P.T)) for k in targets(P)],
    "equal_opportunity": lambda y, P: [(y == c, P[:, c]) for c in targets(P)],
    "false_positive_rate_parity": lambda y, P: [(y != c, P[:, c]) for c in targets(P)],
    "error_rate_parity": lambda y, P: [(y >= 0, 1.0 - P[np.arange(len(y)), y])],
    "false_negative_rate": lambda y, P: [(y == c, 1.0 - P[:, c]) for c in targets(P)],
    "false_positive_rate": lambda y, P: [(y != c, P[:, c]) for c in targets(P)],
    "rejection_rate": lambda y, P: [(y >= 0, 1.0 - P[:, c]) for c in targets(P)],
    "predictive_parity": lambda y, P: [(P[:, c], y == c) for c in targets(P)],
    "false_omission_rate_parity": lambda y, P: [(1.0 - P[:, c], y == c) for c in targets(P)],
}


def oracle(notion, rows, P):
    """The notion in its own units: a largest gap, or a largest rate."""
    y, group, weight = rows.y.numpy(), rows.group.numpy(), rows.weight.numpy()
    if isinstance(notion, constraints.LossParity):
        events = _loss_events(y, P, notion, rows.scores)
    else:
        events = EVENTS[notion.name](y, P)

    def rate(event, members):
        return np.average(event[1], weights=event[0] * members * weight)

    groups = [group == g for g in np.unique(group)]
    everybody = group >= 0
    of_groups = [np.array([rate(event, g) for g in groups]) for event in events]
    if isinstance(notion, constraints.Cap):
        worst = of_groups if notion.per_group else [rate(event, everybody) for event in events]
        return max(np.max(rates) for rates in worst)
    if notion.reference == "pairwise":
        return max(np.ptp(rates) for rates in of_groups)
    others = {"rest": lambda g: ~g, "overall": lambda g: everybody}[notion.reference]
    return max(
        abs(r - rate(event, others(g)))
        for event, rates in zip(events, of_groups, strict=True)
        for g, r in zip(groups, rates, strict=True)
    )


METHODS = {"pairwise": "between_groups", "overall": "to_overall"}


def keywords(notion, rows):
    if isinstance(notion, constraints.Cap):
        return rows.beside_labels | ({} if notion.per_group else {"sensitive_features": None})
    return rows.beside_labels | {"method": METHODS[notion.reference]}


@each_in_some_shape
def test_soft_and_hard_values_follow_the_definition(notion, shape):
    """Values are the notion minus slack; `measure` is the notion in its own units, as metrics."""
    rows = random_rows(0, *shape, n=150)
    constraint = bound(notion, shape, temperature=3.0)
    soft = class_probabilities(rows.scores, 3.0).numpy()
    hard = np.eye(shape[0])[hard_classes(rows.scores)]
    for values, P in ((soft_values(constraint, rows), soft), (hard_values(constraint, rows), hard)):
        expected = oracle(notion, rows, P)
        assert constraint.measure(values) == pytest.approx(expected, abs=1e-12)
        assert values.max().item() == pytest.approx(expected - 0.1, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_metrics_follow_the_definition(shape):
    rows = random_rows(0, *shape, n=150)
    predicted = hard_classes(rows.scores).numpy()
    for notion in NOTIONS:
        if isinstance(notion, constraints.LossParity) or getattr(notion, "reference", "") == "rest":
            continue
        expected = oracle(notion, rows, np.eye(shape[0])[predicted])
        measured = METRIC_OF[notion.name](rows.y.numpy(), predicted, **keywords(notion, rows))
        assert measured == pytest.approx(expected, abs=1e-12), notion


@every_notion
def test_soft_values_tend_to_the_hard_ones(notion):
    """Within 2 exp(-temperature * margin) per rate; `sharpened` doubles the temperature."""
    shape = (3, 3)
    rows = random_rows(3, *shape)
    best = rows.scores.topk(2).values
    margin = (best[:, 0] - best[:, 1]).min().item()
    assert margin > 1e-3
    hard = hard_values(bound(notion, shape), rows)
    for temperature in (1.0, 10.0, 1e3, 1e5):
        constraint = bound(notion, shape, temperature)
        gap = (soft_values(constraint, rows) - hard).abs().max().item()
        assert gap <= 4 * np.exp(-temperature * margin) + 1e-12
        sharper, twice = constraint.sharpened(), bound(notion, shape, 2 * temperature)
        torch.testing.assert_close(soft_values(sharper, rows), soft_values(twice, rows))
    torch.testing.assert_close(hard_values(sharper, rows), hard)


def test_paper_form_over_both_classes_is_the_two_sided_gap_to_the_rest():
    """RaCO's P(k | z) - P(k | not z) <= slack for all z and k: of two classes k, one suffices."""
    n_groups = 3
    rows = random_rows(4, 2, n_groups)
    members, names = np.eye(n_groups), ["a", "b", "c"]
    weights = [
        [[(k == c) * side[r] for c in range(2)] for r in range(2 * n_groups)]
        for k in range(2)
        for side in np.hstack((members, -members))
    ]
    rest = [[other for other in names if other != name] for name in names]
    unions = [*([name] for name in names), *rest]
    cells = {name: {"group": name} for name in names}
    paper = constraints.RateConstraint(cells, unions, weights, slack=0.1)
    ours = constraints.DemographicParity(0.1, reference="rest")
    for values in (soft_values, hard_values):
        found = values(bound(ours, (2, n_groups)), rows).sort().values
        expected = values(bound(paper, (2, n_groups)), rows).sort().values
        torch.testing.assert_close(found, expected)

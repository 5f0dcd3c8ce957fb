"""Parity of the true groups for all confusion matrices within bounds."""

import numpy as np
import pytest

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import (
    DemographicParity,
    EqualizedOdds,
    PredictiveParity,
    RobustParity,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.groups import RecordedGroups
from fairconstrained.metrics import certify, demographic_parity_difference
from tests.helpers.fits import METRIC_OF
from tests.helpers.notions import bound, hard_values, random_rows

TWO = np.array([[0.9, 0.1], [0.2, 0.8]])
THREE = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.05, 0.9]])


def within(confusion, bound, rng):
    """A matrix of the set: a corner or a mixture of corners, row by row."""
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
        data = make_biased_classification(20_000, bias=0.5, random_state=seed)
        X, y, group = data.data, data.target, data.sensitive_features
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


def test_there_are_no_certificates():
    """What an expectation says bounds no rate."""
    robust = RobustParity(DemographicParity(0.1), TWO, 0.05)
    with pytest.raises(ValueError, match="constraint must be one of"):
        certify(y_pred=[0, 1], sensitive_features=[0, 1], constraint=robust)

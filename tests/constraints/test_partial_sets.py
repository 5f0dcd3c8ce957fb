"""Partial parity: sets of rows, words, stacks, bins of the group AUC, bad input."""

import numpy as np
import pytest
import torch

from fairconstrained.constraints import (
    PARTIAL,
    DemographicParity,
    PartialDemographicParity,
    PartialEqualizedOdds,
    PartialEqualOpportunity,
    PartialGroupAUC,
    PartialStatisticalParity,
    Space,
    Stack,
)
from fairconstrained.constraints.partial_notions import _EDGES
from fairconstrained.percentiles import auc_inside, rank_of_scores, read_intervals
from tests.helpers.notions import at_temperature, hard_values, random_rows, soft_values
from tests.helpers.partial import bound, rates_of, variables

# --- sets of rows --------------------------------------------------------------------------------


def test_small_sets_are_left_out_and_counted():
    counts = np.array([[20, 20, 3], [20, 3, 20]])
    constraint, dropped = bound(PartialStatisticalParity((0.0, 0.04))).without_small(counts, 1)
    words = "(23 rows, 0.92 of them in the interval)"
    assert dropped == [f"group b {words}", f"group c {words}"]
    assert len(constraint.slack) == 0
    odds = bound(PartialEqualizedOdds((0.0, 0.5)))
    kept, dropped = odds.without_small(counts, 5)
    assert [word.split(" (")[0] for word in dropped] == ["group c, label 0", "group b, label 1"]
    assert [kept.describe(j) for j in range(len(kept.slack))] == [
        "partial_equalized_odds: group a, label 0 against group b, label 0",
        "partial_equalized_odds: group b, label 0 against group a, label 0",
        "partial_equalized_odds: group a, label 1 against group c, label 1",
        "partial_equalized_odds: group c, label 1 against group a, label 1",
    ]
    assert odds.without_small(counts, 1) == (odds, [])


def test_a_dropped_set_leaves_the_others_values():
    rows = random_rows(11, n_groups=3)
    counts = np.array([[20, 20, 1], [20, 20, 1]])
    for notion in PARTIAL.values():
        kept, dropped = bound(notion((0.1, 0.6))).without_small(counts, 3)
        assert dropped
        two = bound(notion((0.1, 0.6)), 2)
        aux = variables(two, rows.take(rows.group < 2))
        assert soft_values(kept, rows, aux).numpy() == pytest.approx(
            soft_values(two, rows.take(rows.group < 2), aux).numpy(), abs=1e-12
        )


def test_words_for_values():
    constraint = bound(PartialStatisticalParity((0.1, 0.5), 0.2, n_grid=2), 2)
    assert [constraint.describe(j) for j in (0, 3, 4)] == [
        "partial_statistical_parity: group a above the others at 10%",
        "partial_statistical_parity: group b above the others at 90%",
        "partial_statistical_parity: group a below the others at 10%",
    ]


def test_a_stack_gives_each_member_its_extra_variables():
    rows = random_rows(12)
    space = Space([0, 1], list("abc"))
    given = [
        PartialStatisticalParity((0.1, 0.5), n_grid=3),
        DemographicParity(),
        PartialStatisticalParity((0.5, 0.9), n_grid=4),
        PartialEqualOpportunity((0.0, 0.5)),
    ]
    members = [at_temperature(notion, 2.0).bind(space, 0.05) for notion in given]
    stack = Stack(space, members)
    aux = stack.init_aux(rows.scores, rows.on(stack))
    aux = aux + torch.linspace(-1, 1, len(aux), dtype=aux.dtype)
    pieces = torch.split(aux, [3, 0, 4, 0])
    for sharp in (False, True):
        one = stack.sharpened() if sharp else stack
        each = [member.sharpened() if sharp else member for member in members]
        expected = torch.cat([soft_values(m, rows, a) for m, a in zip(each, pieces, strict=True)])
        assert soft_values(one, rows, aux).numpy() == pytest.approx(expected.numpy(), abs=1e-12)
        hard = torch.cat([hard_values(m, rows, a) for m, a in zip(each, pieces, strict=True)])
        assert hard_values(one, rows, aux).numpy() == pytest.approx(hard.numpy(), abs=1e-12)
    assert (
        soft_values(stack.sharpened(), rows, aux) - soft_values(stack, rows, aux)
    ).abs().max() > 0.01
    assert not stack.difference_of_convex
    assert Stack(space, members[2:]).difference_of_convex


# --- partial group AUC ---------------------------------------------------------------------------


def test_bins_err_by_at_most_half_the_mass_they_share():
    """The bound in the docstring, for steps that are indicators; and it is not vacuous."""
    for seed in range(5):
        rows = random_rows(seed, n_groups=2, n=300)
        z, group = rows.scores[:, 0].numpy(), rows.group.numpy()
        intervals = read_intervals((0.1, 0.6), ["a", "b"])
        exact = auc_inside(intervals.fraction(rank_of_scores(z, group, rows.weight, 2).rank))
        constraint = bound(PartialGroupAUC((0.1, 0.6), 0.0), 2, temperature=1e6)
        binned = soft_values(constraint, rows, torch.zeros(0)) + 0.5
        edges = np.concatenate(([-np.inf], _EDGES.numpy(), [np.inf]))
        above = torch.as_tensor(z[:, None] > edges).double()
        rates = np.stack(rates_of(rows, above))
        mass = -np.diff(intervals.fraction(rates), axis=1)
        error = abs(float(binned[0]) - exact[0, 1])
        assert 0 < error <= 0.5 * mass[0] @ mass[1] < 0.1


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("notion", PARTIAL.values())
def test_bad_parameters_are_named(notion):
    with pytest.raises(ValueError, match=r"interval must be .* got \(0.5, 0.1\)"):
        bound(notion((0.5, 0.1)))
    with pytest.raises(ValueError, match=f"{notion.__name__}.slack must be a number >= 0"):
        bound(notion((0.1, 0.5), -0.1))
    with pytest.raises(ValueError, match=f"{notion.__name__}.surrogate must be one of"):
        bound(notion((0.1, 0.5), surrogate="hinge"))
    with pytest.raises(ValueError, match=f"{notion.__name__} needs two classes; got 3"):
        notion((0.1, 0.5)).bind(Space([0, 1, 2], ["a", "b"]), 0.1)


def test_bad_grids_and_thresholds_are_named():
    for n_grid in (0, 2.5, True, "ten"):
        with pytest.raises(ValueError, match=f"n_grid must be an integer >= 1; got {n_grid!r}"):
            bound(PartialStatisticalParity((0.1, 0.5), n_grid=n_grid))
    with pytest.raises(ValueError, match="threshold must be a finite number"):
        bound(PartialDemographicParity((0.1, 0.5), threshold=None))
    with pytest.raises(ValueError, match="leak must be a number >= 0"):
        bound(PartialDemographicParity((0.1, 0.5), leak=-1))

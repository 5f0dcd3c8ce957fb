"""Tables of moments: parts, several constraints at once, small groups, sensitivity, users' own."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.interpolate import BSpline

from fairconstrained.constraints import (
    CONSTRAINTS,
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalseNegativeRate,
    FalsePositiveRate,
    FalsePositiveRateParity,
    LossParity,
    PartialEqualOpportunity,
    PartialStatisticalParity,
    RateConstraint,
    SoftBins,
    Space,
)
from fairconstrained.constraints.moments import Stack
from fairconstrained.constraints.steps import STEPS, Above, ScoreBins
from fairconstrained.constraints.surrogates import SplineBins
from fairconstrained.constraints.tables import ClassProbabilities, Columns
from tests.helpers.notions import bound, hard_values, random_rows, soft_values, table

REFERENCES = ["pairwise", "rest", "overall"]
every_name = pytest.mark.parametrize("name", CONSTRAINTS)
SPACE = Space([0, 1], ["a", "b", "c"])
MEMBERS = [
    DemographicParity(0.1),
    FalseNegativeRate(0.2),
    LossParity(0.3),
    EqualOpportunity(0.4, reference="overall"),
    LossParity(0.5, within="labels"),
    AUCParity("intra_group", surrogate=SoftBins(12)),  # sharpened it has more columns
    PartialStatisticalParity((0.1, 0.5), n_grid=3),
    PartialEqualOpportunity((0.0, 0.5)),
    PartialStatisticalParity((0.5, 0.9), n_grid=4),
]


def stacked(notions, temperature=1.0):
    members = [bound(notion, (2, 3), temperature) for notion in notions]
    return Stack(SPACE, members), members


@pytest.mark.parametrize("chosen", [MEMBERS, MEMBERS[:1], MEMBERS[::-2], MEMBERS[-3:]])
def test_a_stack_is_its_members_one_after_the_other(chosen):
    rows = random_rows(8)
    stack, members = stacked(chosen, 2.0)
    aux = stack.init_aux(rows.scores, rows.on(stack))
    aux = aux + torch.linspace(-1, 1, len(aux), dtype=aux.dtype)
    each = torch.split(aux, [member.n_aux for member in members])
    sharp = [member.sharpened() for member in members]
    for one, others in ((stack, members), (stack.sharpened(), sharp)):
        for values in (soft_values, hard_values):
            found = values(one, rows, aux)
            expected = [values(m, rows, a) for m, a in zip(others, each, strict=True)]
            torch.testing.assert_close(found, torch.cat(expected))
            for (_, share), of_member in zip(one.split(found), expected, strict=True):
                torch.testing.assert_close(share, of_member)
    moved = soft_values(stack.sharpened(), rows, aux) - soft_values(stack, rows, aux)
    assert moved.abs().max() > 0.01
    assert stack.difference_of_convex == (chosen == MEMBERS[-3:])


@settings(max_examples=20)
@given(scores=hnp.arrays(float, (4, 3), elements=st.floats(-1e3, 1e3)))
def test_rows_of_tables_that_are_released_are_bounded(scores):
    """Columns within `widths` add up to one: the l1 sensitivity is the number of widths."""
    scores, y = torch.as_tensor(scores), torch.tensor([0, 1, 1, 0])
    of_one = ScoreBins(6, 2.0), SplineBins(9), Above(torch.tensor([-1.0, 2.0]), STEPS["ramp"], 3.0)
    for statistics, z in ((of_one, scores[:, :1]), ((ClassProbabilities(3),) * 2, scores)):
        for statistic in (*statistics, Columns(statistics)):
            assert sum(statistic.widths) == statistic.n_columns
            for rows in (statistic.soft(z, y), statistic.hard(z, y)):
                for block in torch.split(rows, statistic.widths, dim=1):
                    k, total = block.shape[1], block.sum(dim=1)
                    assert (block >= -1e-12).all()
                    assert (total <= 1 + 1e-9).all()
                    assert k == 1 or (total >= 1 - 1e-9).all()
                    less_mean = (block - 1 / k).square().sum(dim=1)
                    assert k == 1 or (less_mean <= (1 - 1 / k) * (1 + 1e-9)).all()
    assert len(stacked(MEMBERS[:2])[0].statistic.widths) == 1  # one histogram serves both


def test_without_small_drops_what_rests_on_few_rows_and_nothing_else():
    rows = random_rows(10, n=200)
    few = (rows.y == 1) & (rows.group == 2)
    keep = torch.cat(((~few).nonzero()[:, 0], few.nonzero()[:3, 0]))
    rows = rows.take(keep)
    cells = np.zeros((2, 3), dtype=int)
    np.add.at(cells, (rows.y.numpy(), rows.group.numpy()), 1)
    constraint = EqualizedOdds(0.1).bind(SPACE, 0.05)
    same, dropped = constraint.without_small(cells, 3)
    assert same is constraint
    assert dropped == []
    kept, dropped = constraint.without_small(cells, 4)
    assert dropped == ["group c, label 1 (3 rows, fewer than 4)"]
    names = [constraint.describe(j) for j in range(len(constraint.slack))]
    expected = [j for j, name in enumerate(names) if "group c, label 1" not in name]
    assert len(expected) == 8  # 6 pairs of groups for label 0, 2 for label 1
    assert [kept.describe(j) for j in range(len(kept.slack))] == [names[j] for j in expected]
    torch.testing.assert_close(soft_values(kept, rows), soft_values(constraint, rows)[expected])


@pytest.mark.parametrize("min_rows", [0, 1])
def test_rates_of_no_rows_are_always_left_out(min_rows):
    """They are 0 / 0, and would make every sum of the Lagrangian nan."""
    rows = random_rows(11)
    rows = rows.take((rows.group != 1).nonzero()[:, 0])
    cells = np.array([[9, 0, 9], [9, 0, 9]])
    for reference in REFERENCES:
        constraint = DemographicParity(0.1, reference=reference).bind(SPACE, 0.05)
        assert soft_values(constraint, rows).isnan().any()
        kept, dropped = constraint.without_small(cells, min_rows)
        assert dropped == ["group b (0 rows)"]
        assert len(kept.slack) == (2 if reference == "pairwise" else 4)
        assert soft_values(kept, rows).isfinite().all()


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_single_group_has_no_parity_to_keep(reference):
    constraint = bound(EqualizedOdds(0.1, reference=reference), (2, 1))
    assert soft_values(constraint, random_rows(13, 2, 1)).shape == (0,)


@every_name
def test_an_infinite_slack_never_binds(name):
    constraint = bound(CONSTRAINTS[name](np.inf), (2, 3))
    for values in (soft_values, hard_values):
        found = values(constraint, random_rows(14))
        assert found.isfinite().all()
        assert (found < -1e5).all()


def by_hand(notion_pairs, part):
    """Ordered pairs of unions that are single parts, for the positive of two classes."""
    weights = np.zeros((len(notion_pairs), len(part), 2))
    for j, (first, second) in enumerate(notion_pairs):
        weights[j, first, 1], weights[j, second, 1] = 1.0, -1.0
    return RateConstraint(part, [[name] for name in part], weights, slack=0.1)


PAIRS = [(g, h) for g in range(3) for h in range(3) if g != h]
GROUPS = {group: {"group": group} for group in "abc"}
CELLS = {f"{y}{group}": {"group": group, "label": y} for y in (0, 1) for group in "abc"}
POSITIVES = {name: cell for name, cell in CELLS.items() if cell["label"] == 1}


@pytest.mark.parametrize(
    ("notion", "constraint"),
    [
        (DemographicParity(0.1), by_hand(PAIRS, GROUPS)),
        (EqualizedOdds(0.1), by_hand([*PAIRS, *np.add(PAIRS, 3)], CELLS)),
        (EqualOpportunity(0.1), by_hand(PAIRS, POSITIVES)),
    ],
)
def test_rate_constraints_written_by_hand_equal_the_notions(notion, constraint):
    rows, shape = random_rows(15), (2, 3)
    ours, theirs = bound(notion, shape, 2.0), bound(constraint, shape, 2.0)
    assert theirs.n_parts == ours.n_parts
    for values in (soft_values, hard_values):
        torch.testing.assert_close(values(theirs, rows), values(ours, rows))
    slack = np.linspace(-0.1, 0.2, len(ours.slack))  # it may have one for each value
    assert bound(constraint.set_params(slack=slack), shape).slack.tolist() == slack.tolist()


@pytest.mark.parametrize("slack", [0, 0.0, 1, np.float32(0.5), np.int64(1), None])
def test_slacks_of_any_numeric_type_are_taken_and_none_means_the_estimators(slack):
    expected = 0.05 if slack is None else float(slack)
    assert bound(DemographicParity(slack), (2, 2)).slack.tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("notion", "first"),
    [
        (DemographicParity(), "demographic_parity: group a against group b"),
        (DemographicParity(reference="rest"), "group a against group b or c"),
        (DemographicParity(reference="overall"), "group a against all rows"),
        (EqualOpportunity(), "equal_opportunity: group a, label 1 against group b, label 1"),
        (EqualOpportunity(pos_label=0), "group a, label 0 against group b, label 0"),
        (FalsePositiveRateParity(pos_label=0), "false_positive_rate_parity of 0: group a, la"),
        (FalseNegativeRate(), "false_negative_rate: label 1"),
        (FalseNegativeRate(per_group=True), "false_negative_rate: group a, label 1"),
        (FalsePositiveRate(per_group=True), "false_positive_rate of 1: group a, label 0"),
        (LossParity(within="positive", pos_label=0), "equal_opportunity: group a, label 0"),
        (PartialStatisticalParity((0.1, 0.5)), "partial_statistical_parity: group a above the o"),
        (
            AUCParity("inter_group"),
            "inter_group: AUC(group a, label 1 | group b, label 0) against "
            "AUC(group b, label 1 | group a, label 0)",
        ),
    ],
)
def test_descriptions_name_labels_and_groups(notion, first):
    assert first in notion.bind(SPACE, 0.05).describe(0)


def test_affine_maps_are_the_values_of_tables_and_their_gradients():
    """For stacks of notions with 28,560 pairs and 240 parts."""
    space = Space([0, 1], list(range(120)))
    notions = [EqualizedOdds(0.1), DemographicParity(0.2, reference="rest"), FalseNegativeRate(0.3)]
    stack = Stack(space, [notion.bind(space) for notion in notions])
    rows, none = random_rows(1, n_groups=120, n=1500), torch.zeros(0)
    own = rows.on(stack)
    affine, sums = stack.affine(own.counts()), table(stack, rows)
    torch.testing.assert_close(affine.values(sums), soft_values(stack, rows), atol=1e-12, rtol=0)
    leaf = sums.clone().requires_grad_()
    weights = torch.as_tensor(np.random.default_rng(0).normal(size=len(stack.slack)))
    (expected,) = torch.autograd.grad(weights @ stack.evaluate(leaf, own.counts(), none), leaf)
    torch.testing.assert_close(affine.on_table(weights), expected, atol=1e-12, rtol=1e-9)


def test_a_thousand_groups_pair_by_pair_are_largest_minus_smallest():
    """999,000 values; dense combinations would take 7.4 GiB, these some tens of MB."""
    space = Space([0, 1], list(range(1000)))
    constraint = DemographicParity(0.05).bind(space)
    assert len(constraint.slack) == 999_000
    assert len(pickle.dumps(constraint)) < 64e6
    rows = random_rows(0, n_groups=1000, n=8000)
    values = constraint.hard_values(rows.scores, rows.on(constraint), torch.zeros(0))
    positive = (rows.scores[:, 0] > 0).double() * rows.weight
    weight = torch.zeros(1000).double().index_add(0, rows.group, rows.weight)
    rates = torch.zeros(1000).double().index_add(0, rows.group, positive) / weight
    assert constraint.measure(values) == pytest.approx(float(rates.max() - rates.min()))
    assert constraint.describe(0) == "demographic_parity: group 0 against group 1"


NO_AUX = torch.zeros(0)


def column(*scores):
    return torch.tensor(scores, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(("n_columns", "reach"), [(4, 1.0), (9, 3.0), (64, 8.0)])
def test_shares_are_cubic_b_splines_on_equal_knots(n_columns, reach):
    """Of z / sqrt(1 + (z / r)^2), against scipy's design matrix."""
    z = np.random.default_rng(0).normal(scale=2 * reach, size=200)
    squashed = z / np.sqrt(1 + (z / reach) ** 2)
    width = 2 * reach / (n_columns - 3)
    knots = -reach + width * np.arange(-3, n_columns + 1)
    expected = BSpline.design_matrix(squashed, knots, 3).toarray()
    shares = SplineBins(n_columns, reach).soft(torch.as_tensor(z)[:, None], NO_AUX)
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_no_score_is_too_far_out_for_a_slope():
    """Heavy tails: a kink at the last knot, or a flat end, would hold a solver up there."""
    z = column(-40.0, -8.0, 0.0, 8.0, 40.0).requires_grad_()
    mean = SplineBins(64).soft(z, NO_AUX) @ torch.arange(64.0, dtype=torch.float64)
    (slope,) = torch.autograd.grad(mean.sum(), z)
    assert (slope > 0).all()
    np.testing.assert_allclose(slope, slope.flip(0), rtol=1e-12)

"""ERMI: its definition, its saddle form, its derivatives, and the metric."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairconstrained.constraints import DemographicParity, EqualizedOdds, EqualOpportunity
from fairconstrained.constraints.moments import Stack
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.losses import class_probabilities
from fairconstrained.metrics import exponential_renyi_mutual_information as ermi
from tests.helpers.notions import bound, random_rows, table
from tests.helpers.numeric import numerical_jacobian

NOTIONS = [DemographicParity(), EqualizedOdds(), EqualOpportunity()]
SHAPES = [(2, 2), (2, 3), (3, 2), (4, 5)]
notions = pytest.mark.parametrize("notion", NOTIONS, ids=lambda n: n.name)
SHAPED = list(zip([*NOTIONS, EqualOpportunity()], SHAPES, strict=True))
notions_and_shapes = pytest.mark.parametrize(("notion", "shape"), SHAPED)


def saddle_value(information, dual, sums):
    return (information.weights(dual) * sums).sum() - 1.0


def tables(notion, shape, seed=0):
    constraint = bound(notion, shape)
    rows = random_rows(seed, *shape)
    counts = rows.on(constraint).counts()
    return MutualInformation.within(constraint, counts), table(constraint, rows)


def by_definition(notion, shape, seed=0):
    """Sum over labels of P(y) times sum_jr P(j, r | y)^2 / (P(j | y) P(r | y)) - 1, row by row."""
    rows = random_rows(seed, *shape)
    probabilities = class_probabilities(rows.scores).numpy()
    y, group, weight = rows.y.numpy(), rows.group.numpy(), rows.weight.numpy()
    labels = [1] if notion.name == "equal_opportunity" and shape[0] == 2 else range(shape[0])
    conditions = [y >= 0] if notion.name == "demographic_parity" else [y == k for k in labels]
    value = 0.0
    for rows_of in conditions:
        w = (weight * rows_of) / weight[rows_of].sum()
        joint = np.stack([w * (group == r) @ probabilities for r in range(shape[1])])
        squares = joint**2 / joint.sum(axis=0) / joint.sum(axis=1, keepdims=True)
        value += weight[rows_of].sum() * (squares.sum() - 1.0)
    return value / sum(weight[rows_of].sum() for rows_of in conditions)


@notions_and_shapes
def test_it_is_the_papers_definition(notion, shape):
    information, sums = tables(notion, shape)
    assert information.value(sums).item() == pytest.approx(by_definition(notion, shape))


@notions_and_shapes
def test_the_saddle_form_is_largest_at_the_closed_form(notion, shape):
    """Its value there is ERMI, its gradient is zero, any other W gives less."""
    information, sums = tables(notion, shape)
    best = information.optimal_dual(sums)
    value = information.value(sums)
    assert saddle_value(information, best, sums) == pytest.approx(value.item(), abs=1e-12)
    assert information.ascent(best, sums).abs().max() < 1e-12
    for seed in range(5):
        other = best + torch.randn(best.shape, generator=torch.Generator().manual_seed(seed))
        assert saddle_value(information, other, sums) < value
        # and the ascent is the numerical gradient
    point = torch.full_like(best, 0.3)
    slope = numerical_jacobian(lambda dual: saddle_value(information, dual, sums).reshape(1), point)
    torch.testing.assert_close(slope[0], information.ascent(point, sums))


@notions
def test_psi_is_the_papers_row_by_row(notion):
    """- sum_rj W_rj^2 F_j(x_i) + 2 sum_j W_{s_i j} F_j(x_i) / sqrt(p_{s_i}) - 1, averaged."""
    shape = (3, 4)
    constraint, rows = bound(notion, shape), random_rows(1, *shape)
    rows = rows._replace(weight=torch.ones_like(rows.weight))
    counts = rows.on(constraint).counts()
    information, sums = MutualInformation.within(constraint, counts), table(constraint, rows)
    dual = torch.randn(sums.shape, generator=torch.Generator().manual_seed(0)).double()
    part = constraint.partition.part(rows.y, rows.group)
    probabilities = class_probabilities(rows.scores)
    psi, n_rows = 0.0, int((part >= 0).sum())
    for i in range(len(part)):
        if part[i] < 0:
            continue
        peers = information.condition == information.condition[part[i]]
        share = counts[part[i]] / counts[peers].sum()
        psi += -(dual[peers] ** 2 @ probabilities[i]).sum()
        psi += 2 * dual[part[i]] @ probabilities[i] / share.sqrt() - 1
    assert saddle_value(information, dual, sums).item() == pytest.approx(float(psi / n_rows))


@notions_and_shapes
def test_the_envelope_theorem_holds(notion, shape):
    """The gradient of psi at the best W is that of ERMI, in the scores."""
    constraint, rows = bound(notion, shape), random_rows(2, *shape)
    information = MutualInformation.within(constraint, rows.on(constraint).counts())

    def sums(scores):
        return constraint.statistic.sums(scores, rows.on(constraint))

    numerical = numerical_jacobian(
        lambda scores: information.value(sums(scores)).reshape(1), rows.scores
    )[0]
    best = information.optimal_dual(sums(rows.scores))
    scores = rows.scores.clone().requires_grad_()
    total = (information.weights(best) * sums(scores)).sum()
    (gradient,) = torch.autograd.grad(total, scores)
    torch.testing.assert_close(gradient, numerical, rtol=1e-6, atol=1e-9)
    assert gradient.abs().max() > 1e-5


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(NOTIONS), st.sampled_from(SHAPES))
def test_zero_if_independent_and_never_outside_of_its_range(seed, notion, shape):
    information, sums = tables(notion, shape, seed)
    value = information.value(sums).item()
    assert -1e-12 <= value <= min(shape) - 1 + 1e-12
    rates = sums.sum(dim=0) / sums.sum()
    independent = information.counts[:, None] * rates
    assert information.value(independent).item() == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(NOTIONS), st.sampled_from(SHAPES))
def test_the_ball_holds_the_best_dual_and_projection_is_the_nearest_point(seed, notion, shape):
    information, sums = tables(notion, shape, seed)
    best = information.optimal_dual(sums)
    torch.testing.assert_close(information.project(best), best)
    far = 100.0 * torch.randn(best.shape, generator=torch.Generator().manual_seed(seed)).double()
    near = information.project(far)
    for condition in range(information.n_conditions):
        own = information.condition == condition
        assert near[own].norm() == pytest.approx(float(information.radius[own][0]))
        angle = (near[own] * far[own]).sum() / near[own].norm() / far[own].norm()
        assert angle.item() == pytest.approx(1.0)
    zeros = torch.zeros_like(best)
    torch.testing.assert_close(information.project(zeros), zeros)


@notions
def test_in_a_stack_cells_that_nothing_compares_do_not_count(notion):
    """A stack gives them a part, too; so it is with groups that were left out for their size."""
    shape, rows = (2, 3), random_rows(4, 2, 3)
    member = bound(notion, shape)
    for own in (member, member.without_small(np.array([[9, 9, 1]] * 2), 2)[0]):
        values = []
        for constraint in (own, Stack(own.space, [own])):
            information = MutualInformation.within(constraint, rows.on(constraint).counts())
            sums = table(constraint, rows)
            values.append(information.value(sums).item())
            best = information.optimal_dual(sums)
            saddle = saddle_value(information, best, sums).item()
            assert saddle == pytest.approx(values[-1])
            assert information.ascent(best, sums).abs().max() < 1e-12
        assert values[0] == pytest.approx(values[1])
        assert values[0] > 1e-5


@notions_and_shapes
def test_the_metric_is_that_of_the_table_of_labels(notion, shape):
    constraint, rows = bound(notion, shape), random_rows(3, *shape)
    predicted = rows.y.roll(7)
    sums = rows.on(constraint).sum(torch.nn.functional.one_hot(predicted, shape[0]))
    counts = rows.on(constraint).counts()
    expected = MutualInformation.within(constraint, counts).value(sums)
    labels = rows.y.numpy(), predicted.numpy()
    found = ermi(*labels, constraint=notion.name, **rows.beside_labels)
    assert found == pytest.approx(expected.item())


def test_missing_cells_warn_and_give_nan():
    y = [0, 0, 1, 1]
    with pytest.warns(SmallGroupWarning, match="group b has no rows"):
        value = ermi(y, y, sensitive_features=list("abaa"), constraint="equalized_odds")
    assert np.isnan(value)
    with pytest.warns(SmallGroupWarning, match="single group"):
        assert np.isnan(ermi(y, y, sensitive_features=list("aaaa")))
    with pytest.raises(ValueError, match="constraint must be one of"):
        ermi(y, y, sensitive_features=list("abab"), constraint="parity")

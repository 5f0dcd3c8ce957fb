"""Values and gradients at moving thresholds: closed forms against autograd and differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairconstrained.constraints import PARTIAL, PartialDemographicParity, Stack
from fairconstrained.constraints.steps import STEPS, Above
from fairconstrained.losses import log_loss
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems import FairERM, Linearization, Rows
from fairconstrained.problems.objectives import MeanLoss
from tests.helpers.notions import ScoredRows
from tests.helpers.partial import bound

AT_THRESHOLDS = ["statistical_parity", "rank_parity"]
every_notion = pytest.mark.parametrize("name", AT_THRESHOLDS)
every_step = pytest.mark.parametrize("surrogate", sorted(STEPS))


def problem(name, surrogate="logistic", n=300, fit_intercept=True):
    rng = np.random.default_rng(0)
    X, weight = as_features(rng.normal(size=(n, 4))), torch.as_tensor(rng.uniform(0.5, 2.0, n))
    y, group = (torch.as_tensor(rng.integers(0, k, n)) for k in (2, 3))
    constraint = bound(PARTIAL[name]((0.1, 0.6), surrogate=surrogate))
    model = LinearModel.preconditioned(X, weight, 1, 1e-2, fit_intercept)
    stack = Stack(constraint.space, [constraint])
    return FairERM(model, Rows((X,), y, group, weight), MeanLoss(log_loss), stack, 1e-2)


def some_point(problem):
    x = problem.start()
    return x + torch.as_tensor(0.3 * np.random.default_rng(1).normal(size=len(x)))


def by_autograd(problem, x):
    """The same terms from a graph on the scores."""

    def terms(scores, aux, batch):
        values = problem.constraint.values(
            scores, problem.constraint.place(batch.y, batch.group, batch.weight), aux
        )
        return torch.cat((problem.risk.soft(scores, batch.y, batch.weight)[None], values))

    lin = problem.of_scores(terms, x)
    penalty = problem.model.penalty(x[: problem.model.n_params])

    def pullback(weights):
        gradient = lin.pullback(weights)
        gradient[: problem.model.n_params] += problem.alpha * weights[0] * penalty.gradient
        return gradient

    value = lin.value.clone()
    value[0] += problem.alpha * penalty.value
    return Linearization(value, pullback)


@every_notion
@every_step
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_terms_are_those_of_a_graph(name, surrogate, fit_intercept):
    """Values, the gradients of several weighted sums at once, of one, and the whole Jacobian."""
    erm = problem(name, surrogate, fit_intercept=fit_intercept)
    x = some_point(erm)
    terms, expected = erm.linearize(x), by_autograd(erm, x)
    assert len(terms.value) == 1 + 2 * 3 * 10
    torch.testing.assert_close(terms.value, expected.value)
    weights = torch.as_tensor(np.random.default_rng(2).normal(size=(4, len(terms.value))))
    gradients = expected.pullbacks(weights)
    assert (gradients[:, -10:] != 0).any()  # thresholds matter
    torch.testing.assert_close(terms.pullbacks(weights), gradients)
    torch.testing.assert_close(terms.pullback(weights[1]), gradients[1])
    torch.testing.assert_close(terms.jacobian(), expected.jacobian())


@every_notion
def test_rows_of_no_part_take_no_part(name):
    """Groups that a constraint leaves out change its values and their gradients in nothing."""
    erm = problem(name)
    member, without = erm.constraint.members[0].without_small(np.full((2, 3), 100), 0)
    assert not without
    member, _ = member.without_small(np.array([[50, 50, 0], [50, 50, 1]]), 2)
    erm = FairERM(erm.model, erm.data, erm.risk, Stack(member.space, [member]), erm.alpha)
    x, last = some_point(erm), erm.data.group == 2
    unit = torch.zeros(len(erm.linearize(x).value)).double()
    unit[3] = 1.0
    moved = erm.data.X.X.clone()
    moved[last] += 1.0
    other = FairERM(
        erm.model,
        replace(erm.data, blocks=(as_features(moved.numpy()),)),
        erm.risk,
        erm.constraint,
        1e-2,
    )
    one, two = erm.linearize(x), other.linearize(x)
    torch.testing.assert_close(one.value[1:], two.value[1:])
    torch.testing.assert_close(one.pullback(unit), two.pullback(unit))


@every_step
def test_slopes_of_steps_are_their_derivatives(surrogate):
    """By the score and, with the other sign, by the threshold; and the pullback is their sum."""
    scores = torch.linspace(-1.03, 0.98, 41).double()[:, None]
    thresholds = torch.tensor([-0.31, 0.27]).double()
    above, step = Above(thresholds, STEPS[surrogate], 2.0), 1e-6
    soft, pullback = above.linearize(scores, torch.zeros(41, dtype=torch.long))
    slopes = above.slopes(soft)
    shifted = [above.soft(scores + side * step, scores) for side in (1, -1)]
    torch.testing.assert_close((shifted[0] - shifted[1]) / (2 * step), slopes, atol=1e-6, rtol=0)
    by_threshold = [
        Above(thresholds + side * step, STEPS[surrogate], 2.0).soft(scores, scores)
        for side in (1, -1)
    ]
    difference = (by_threshold[0] - by_threshold[1]) / (2 * step)
    torch.testing.assert_close(difference, -slopes, atol=1e-6, rtol=0)
    weights = torch.as_tensor(np.random.default_rng(0).normal(size=soft.shape))
    torch.testing.assert_close(pullback(weights)[:, 0], (weights * slopes).sum(dim=1))


@every_notion
@every_step
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_first_thresholds_have_the_middle_rates(name, surrogate, spread):
    """In the mean over the sets the share above is in the middle of its bounds, tied or not."""
    rng, n = np.random.default_rng(3), 400
    rows = ScoredRows(
        scores=torch.as_tensor(spread * rng.normal(size=(n, 1))),
        y=torch.as_tensor(rng.integers(0, 2, n)),
        group=torch.as_tensor(rng.integers(0, 3, n)),
        weight=torch.ones(n).double(),
    )
    constraint = bound(PARTIAL[name]((0.1, 0.6), surrogate=surrogate))
    aux = constraint.init_aux(rows.scores, rows.on(constraint))
    sums = constraint.sums(rows.scores, rows.on(constraint), aux)
    rates = sums / rows.on(constraint).counts()[:, None]
    middle = 0.5 * (constraint.least + constraint.most).mean(dim=0)
    torch.testing.assert_close(rates.mean(dim=0), middle, atol=1e-9, rtol=0)


def test_only_distributions_alone_move_their_thresholds():
    """Rates have theirs fixed; beside another member the general way is taken, to equal values."""
    space = bound(PartialDemographicParity((0.1, 0.6))).space
    rates = bound(PartialDemographicParity((0.1, 0.6)))
    both = problem("statistical_parity")
    members = [both.constraint.members[0], rates]
    none = torch.zeros(0)
    assert both.constraint.steps_at(torch.zeros(10)) is not None
    assert Stack(space, [rates]).steps_at(none) is None
    stacked = FairERM(both.model, both.data, both.risk, Stack(space, members), both.alpha)
    assert stacked.constraint.steps_at(torch.zeros(10)) is None
    x = some_point(both)
    one, two = both.linearize(x), stacked.linearize(x)
    m = len(one.value)
    torch.testing.assert_close(one.value, two.value[:m])
    weights = torch.zeros(len(two.value)).double()
    weights[:m] = torch.as_tensor(np.random.default_rng(4).normal(size=m))
    torch.testing.assert_close(one.pullback(weights[:m]), two.pullback(weights))

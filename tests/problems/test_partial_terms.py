"""Values and gradients at moving thresholds: closed forms against autograd and differences."""

import numpy as np
import pytest
import torch

from fairconstrained.constraints import PARTIAL
from fairconstrained.constraints.stack import Stack
from fairconstrained.constraints.steps import STEPS
from fairconstrained.losses import log_loss
from fairconstrained.models.features import as_features
from fairconstrained.models.linear import LinearModel
from fairconstrained.problems import FairERM, Linearization, Rows
from fairconstrained.problems.objectives import MeanLoss
from tests.helpers.notions import bound

AT_THRESHOLDS = ["statistical_parity", "rank_parity"]
every_notion = pytest.mark.parametrize("name", AT_THRESHOLDS)
every_step = pytest.mark.parametrize("surrogate", sorted(STEPS))


def problem(name, surrogate, n=300):
    rng = np.random.default_rng(0)
    X, weight = as_features(rng.normal(size=(n, 4))), torch.as_tensor(rng.uniform(0.5, 2.0, n))
    y, group = (torch.as_tensor(rng.integers(0, k, n)) for k in (2, 3))
    constraint = bound(PARTIAL[name]((0.1, 0.6), surrogate=surrogate), (2, 3), 1.5)
    model = LinearModel.preconditioned(X, weight, 1, 1e-2, fit_intercept=True)
    stack = Stack(constraint.space, [constraint])
    return FairERM(model, Rows((X,), y, group, weight), MeanLoss(log_loss), stack, 1e-2)


def some_point(problem):
    x = problem.start()
    return x + torch.as_tensor(0.3 * np.random.default_rng(1).normal(size=len(x)))


def by_autograd(problem, x):
    """The same terms from a graph on the scores."""

    def terms(scores, aux, batch):
        values = problem.constraint.values(
            scores, problem.constraint.partition.place(batch.y, batch.group, batch.weight), aux
        )
        return torch.cat((problem.risk.soft(scores, batch.y, batch.weight)[None], values))

    lin = problem.linearize_scores(terms, x)
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
def test_terms_are_those_of_a_graph(name, surrogate):
    """Values, the gradients of several weighted sums at once, of one, and the whole Jacobian."""
    erm = problem(name, surrogate)
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

"""Early stopping: where training begins, when it ends and what it returns."""

import numpy as np
import pytest
import torch

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Network
from fairconstrained.solvers import EarlyStoppedSGDA, Status, run
from tests.helpers.erm import erm


@pytest.mark.parametrize(("n_bins", "n_classes"), [(3, 2), (None, 3)])
@pytest.mark.slow
def test_a_perceptron_starts_at_the_constrained_linear_model(n_bins, n_classes):
    rng = np.random.default_rng(0)  # six rows of each label and group: too few to hold any out
    y, group = np.indices((n_classes, 2)).reshape(2, -1).repeat(6, axis=1)
    X, seen, steps = rng.normal(size=(len(y), 3)) + (y + 3.0 * group)[:, None], [], []
    params = {"slack": 0.1, "alpha": 0.1, "random_state": 0, "min_group_size": 1}
    linear = RateConstrainedClassifier(callbacks=[steps.append], **params)
    linear.fit(X, y, sensitive_features=group)
    if linear.status_.startswith(Status.KNOWN.value):
        steps.pop()  # where no network begins
    solver = EarlyStoppedSGDA(n_steps=2, n_evaluations=1)
    network = Network((2 * n_classes, 7), n_bins=n_bins)
    clf = RateConstrainedClassifier(model=network, solver=solver, callbacks=[seen.append], **params)
    clf.fit(X, y, sensitive_features=group)
    assert linear.multipliers_.max() > 0.01
    np.testing.assert_allclose(seen[0].dual, linear.multipliers_, atol=1e-12)
    assert float(seen[0].hard[0]) == pytest.approx(float(steps[-1].hard[0]), abs=1e-12)
    seen.clear()
    before = clf.set_params(warm_start=True).multipliers_
    clf.fit(X, y, sensitive_features=group)  # goes on from its own fit
    assert torch.equal(seen[0].dual, torch.tensor(before))
    assert not np.allclose(before, linear.multipliers_)


def test_training_ends_where_held_out_rows_gain_nothing():
    """Random labels: whatever is learnt is noise, and the loss of rows held out grows."""
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=(2, 200))
    X = rng.normal(size=(200, 3))
    network = erm(X, y, group, [DemographicParity(0.1)], model=Network((32,)), alpha=0.0)
    solver = EarlyStoppedSGDA(step_size=0.05, patience=3)
    dual = torch.zeros(network.n_constraints).double()
    torch.manual_seed(0)
    solution = run(
        solver,
        network,
        network.start(),
        dual,
        torch.Generator().manual_seed(0),
        max_iter=None,
        tol=1e-4,
    )
    assert solution.n_iter < solver.length
    excess = [max(i.excess, 1e-3) for i in solution.history]
    merits = [float(i.soft[0]) + e for i, e in zip(solution.history, excess, strict=True)]
    assert min(excess) <= 1e-3
    assert merits.index(min(merits)) <= solution.n_iter - 1 - solver.patience
    assert solution.iterate is EarlyStoppedSGDA().select(solution.history)


@pytest.mark.slow
def test_a_module_of_the_user_that_starts_at_random_learns_what_a_linear_model_learns():
    """With larger steps of the multipliers it went to constant predictions and back."""
    data = make_biased_classification(1500, random_state=1)
    rows = data.data, data.target

    def module(n_inputs, n_outputs):
        layers = torch.nn.Linear(n_inputs, 64), torch.nn.ReLU(), torch.nn.Linear(64, n_outputs)
        return torch.nn.Sequential(*layers)

    found = []
    for model in ("linear", module):
        clf = RateConstrainedClassifier(slack=0.05, model=model, random_state=1)
        clf.fit(*rows, sensitive_features=data.sensitive_features)
        assert clf.feasible_
        found.append(clf.score(*rows))
    assert found[1] >= found[0] - 0.02

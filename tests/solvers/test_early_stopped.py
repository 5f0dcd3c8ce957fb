"""Early stopping: rows held out, steps by hand, when training ends and what it returns."""

import math

import numpy as np
import pytest
import torch

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.models import Network
from fairconstrained.solvers import EarlyStoppedSGDA, Status, run
from tests.helpers.erm import erm


def problem(y, group, *, constrained=True, model="linear", d=3, alpha=0.1):
    """A logistic problem on random columns that tell a little about the labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(len(y), d)) + 0.5 * np.asarray(y)[:, None]
    weight = rng.uniform(0.5, 1.5, size=len(y))
    notions = [DemographicParity(0.1)] if constrained else []
    return erm(X, y, group, notions, weight=weight, model=model, alpha=alpha)


def cells(counts):
    """Labels and groups with so many rows in each cell, by (label, group)."""
    pairs = [pair for pair, count in counts.items() for _ in range(count)]
    return np.array(pairs).T


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_one_row_in_so_many_of_each_label_and_group_is_held_out():
    y, group = cells({(0, 0): 40, (0, 1): 13, (1, 0): 4, (1, 1): 23})
    whole = problem(y, group)
    part, held = whole.divided(5, generator())
    counts = {
        (a, b): int(((y[held] == a) & (group[held] == b)).sum()) for a in (0, 1) for b in (0, 1)
    }
    assert counts == {(0, 0): 8, (0, 1): 2, (1, 0): 0, (1, 1): 4}
    rest = np.setdiff1d(np.arange(80), held)
    assert part.n_rows == 80 - 14
    for name in ("y", "group", "weight"):
        own, all_rows = (getattr(problem.data, name) for problem in (part, whole))
        assert torch.equal(own, all_rows[rest])
    assert torch.equal(part.data.X.to_dense(), whole.data.X.to_dense()[rest])
    again, other = whole.divided(5, generator())[1], whole.divided(5, generator(1))[1]
    assert torch.equal(again, held)
    assert not torch.equal(other, held)


def test_first_steps_and_averages_by_hand():
    """Without constraints and with full batches: plain steps, warm-up, cosine and average."""
    y, group = cells({(0, 0): 4, (0, 1): 4, (1, 0): 4, (1, 1): 4})  # too few to hold any out
    whole = problem(y, group, constrained=False)
    n_steps, size, averaging = 40, 0.5, 0.3
    solver = EarlyStoppedSGDA(
        step_size=size,
        n_steps=n_steps,
        n_evaluations=n_steps,
        averaging=averaging,
        optimizer=torch.optim.SGD,
    )
    found = solver.iterate(whole, whole.start(), torch.zeros(0), 0.0, generator())
    x = average = whole.start()
    assert torch.equal(next(found).x, x)
    for step in range(1, 8):
        factor = (
            min(1, step / (0.05 * n_steps)) * 0.5 * (1 + math.cos(math.pi * (step - 1) / n_steps))
        )
        terms = whole.linearize(x)
        x = x - size * factor * terms.pullback(torch.ones(1).double())
        kept = min(averaging, step / (step + 9))
        average = kept * average + (1 - kept) * x
        torch.testing.assert_close(next(found).x, average)


@pytest.mark.parametrize(("n_bins", "n_classes"), [(3, 2), (None, 3)])
@pytest.mark.slow
def test_a_perceptron_starts_at_the_constrained_linear_model(n_bins, n_classes):
    rng = np.random.default_rng(0)  # six rows of each label and group: too few to hold any out
    y, group = cells({(a, b): 6 for a in range(n_classes) for b in (0, 1)})
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
    y, group = rng.integers(2, size=200), rng.integers(2, size=200)
    network = problem(y * 0 + rng.integers(2, size=200), group, model=Network((32,)), alpha=0.0)
    solver = EarlyStoppedSGDA(step_size=0.05, patience=3)
    dual = torch.zeros(network.n_constraints).double()
    torch.manual_seed(0)
    solution = run(solver, network, network.start(), dual, generator(), max_iter=None, tol=1e-4)
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

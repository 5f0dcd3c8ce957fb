"""DPFermiClassifier: the problem it solves, its solvers, as an estimator, and with privacy."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

from fairconstrained import DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.metrics import exponential_renyi_mutual_information as ermi
from fairconstrained.solvers import FERMI, LBFGS, NoisyTables
from tests.helpers.fits import METRIC_OF, table
from tests.helpers.private_fits import LARGE

FAIRNESS = ("demographic_parity", "equalized_odds", "equal_opportunity")


def fitted(constraint="demographic_parity", data=None, sample_weight=None, **params):
    X, y, group = table() if data is None else data
    clf = DPFermiClassifier(constraint, **{"epsilon": None, "random_state": 0, **params})
    return clf.fit(X, y, sensitive_features=group, sample_weight=sample_weight)


def objective(w, data, constraint, penalty):
    X, y, group = data
    p = 1 / (1 + np.exp(-(X @ w[:-1] + w[-1])))
    loss = 0.5e-4 * ((X.std(axis=0) * w[:-1]) ** 2).sum()
    loss -= np.log(np.where(y == 1, p, 1 - p)).mean()
    everywhere = np.full(len(y), True)
    labels = {FAIRNESS[0]: [everywhere], FAIRNESS[1]: [y == 0, y == 1], FAIRNESS[2]: [y == 1]}
    rows = sum(given.sum() for given in labels[constraint])
    for given in labels[constraint]:
        for r in np.unique(group):
            for F in (p, 1 - p):
                joint, inside = np.mean(F[given] * (group[given] == r)), np.mean(group[given] == r)
                loss += penalty * given.sum() / rows * joint**2 / (F[given].mean() * inside)
    return loss - penalty


@pytest.mark.parametrize("constraint", FAIRNESS)
def test_the_fit_minimises_the_objective_of_the_page(constraint):
    data = table(n_groups=3)
    clf = fitted(constraint, data, penalty=3.0, solver=LBFGS())
    w = np.concatenate((clf.coef_[0], clf.intercept_))
    value = objective(w, data, constraint, 3.0)
    slope = approx_fprime(w, objective, 1e-6, data, constraint, 3.0)
    assert np.abs(slope).max() < 1e-4  # of forward differences
    assert clf.history_["objective"][-1] == pytest.approx(value, abs=1e-9)
    # It is not convex: another method may end in another minimum, a little lower.
    elsewhere = minimize(objective, np.zeros_like(w), args=(data, constraint, 3.0))
    assert value <= elsewhere.fun + 1e-3
    # and it is no trivial point
    free = fitted(constraint, data, penalty=0.0)
    start = np.concatenate((free.coef_[0], free.intercept_))
    assert objective(start, data, constraint, 3.0) > value + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("constraint", FAIRNESS)
def test_the_penalty_lowers_mutual_information_and_the_gap(constraint):
    shape = dict(zip(FAIRNESS, [(2, 3), (2, 2), (3, 3)], strict=True))[constraint]
    data = table(*shape, n=2000)
    values, gaps = [], []
    for penalty in (0.0, 1.0, 30.0):
        clf = fitted(constraint, data, penalty=penalty)
        predicted = clf.predict(data[0])
        values.append(ermi(data[1], predicted, sensitive_features=data[2], constraint=constraint))
        gaps.append(clf.history_["soft_violation"][-1])
        gap = METRIC_OF[constraint](data[1], predicted, sensitive_features=data[2])
        assert clf.violation_ == pytest.approx(gap, abs=1e-12)
        assert len(np.unique(predicted)) == shape[0]
    assert gaps[2] < 0.7 * gaps[0]
    assert values[2] < values[0]


@pytest.mark.slow
def test_labels_reach_what_a_constraint_reaches():
    """Many groups within labels: gap and error no larger than the constraint's."""
    *data, _ = make_biased_classification(1500, 20, 4, 2, random_state=0).values()
    penalised = fitted("equalized_odds", data, penalty=64.0)
    paper = fitted("equalized_odds", data, penalty=64.0, solver=LBFGS())
    bounded = RateConstrainedClassifier("equalized_odds", slack=penalised.violation_)
    bounded.fit(*data[:2], sensitive_features=data[2])
    assert penalised.violation_ < 0.5 * paper.violation_
    assert penalised.violation_ < 0.02
    assert penalised.score(*data[:2]) >= bounded.score(*data[:2]) - 0.015


@pytest.mark.slow
def test_stochastic_penalties_answer_to_labels():
    """At the same penalty labels are nearer to parity than with the paper's probabilities."""
    gaps = {}
    for name in ("labels", "probabilities"):
        solver = FERMI(table=name, n_steps=300)
        gaps[name] = fitted(data=table(n=2000), penalty=16.0, solver=solver).violation_
    assert gaps["labels"] < 0.02
    assert gaps["labels"] <= gaps["probabilities"]


@pytest.mark.slow
@pytest.mark.parametrize(("constraint", "size"), [(FAIRNESS[0], 64), (FAIRNESS[1], 512)])
def test_batches_lead_to_the_optimum_too(constraint, size):
    solver = FERMI(batch_size=size, n_steps=400, table="probabilities")
    fits = (fitted(constraint, table(n=1000), penalty=2.0, solver=one) for one in (solver, LBFGS()))
    found, exact = (clf.history_["objective"][-1] for clf in fits)
    assert found == pytest.approx(exact, abs=3e-3)


def test_empty_label_cells_are_named_and_left_out():
    X, y, group = table(n_groups=3)
    group = np.where((group == 2) & (y == 1), 1, group)
    with pytest.warns(SmallGroupWarning, match=r"group 2, label 1 \(0 rows\)"):
        clf = fitted("equalized_odds", (X, y, group), penalty=5.0)
    assert np.isfinite(clf.coef_).all()


def test_gradients_of_weighted_batches_are_unbiased():
    """Their mean over a partition of the rows into batches is the gradient of all rows."""
    found = []

    class Look(LBFGS):
        def iterate(self, problem, x, dual, tol, rng):
            rows = torch.randperm(problem.n_rows, generator=rng)
            x = x + torch.randn(len(x), generator=rng, dtype=x.dtype)
            matrix = torch.randn(problem.information.n_parts, 2, generator=rng, dtype=x.dtype)
            parts = [problem.saddle_gradients(x, matrix, part) for part in rows.reshape(-1, 4)]
            means = [torch.stack(column).mean(dim=0) for column in zip(*parts, strict=True)]
            found.append((means, problem.saddle_gradients(x, matrix, rows)))
            yield from super().iterate(problem, x, dual, tol, rng)

    weight = np.random.default_rng(0).uniform(0.1, 3.0, size=len(table()[1]))
    fitted(penalty=2.0, solver=Look(), sample_weight=weight)
    (means, whole), *_ = found
    for mean, exact in zip(means, whole, strict=True):
        torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)


UNITS = ("sensitive_features", "record")


def private(unit="sensitive_features", n=None, group=None, weight=None, **params):
    params = {"delta": 1e-6, "random_state": 0, "protect": unit, **params}
    group = LARGE.sensitive_features if group is None else group
    rows = {"sensitive_features": group[:n], "sample_weight": weight}
    return DPFermiClassifier(**params).fit(LARGE.data[:n], LARGE.target[:n], **rows)


def gap_and_error(clf):
    predicted = clf.predict(LARGE.data)
    groups = {"sensitive_features": LARGE.sensitive_features}
    gap = demographic_parity_difference(LARGE.target, predicted, **groups)
    return gap, np.mean(predicted != LARGE.target)


@pytest.mark.slow
def test_released_moments_come_near_the_fit_without_privacy():
    exact, private_ = private(penalty=4.0, epsilon=None), private(penalty=4.0)
    (gap, error), (exact_gap, exact_error) = gap_and_error(private_), gap_and_error(exact)
    assert gap == pytest.approx(exact_gap, abs=0.02)
    assert error == pytest.approx(exact_error, abs=0.005)
    assert private_.violation_ == pytest.approx(gap, abs=0.03)


@pytest.mark.parametrize("unit", UNITS)
def test_noisy_tables_lower_the_gap(unit):
    params = {"unit": unit, "solver": NoisyTables(n_steps=200)}
    free, fair = (private(penalty=penalty, **params) for penalty in (0.0, 10.0))
    assert gap_and_error(fair)[0] < 0.3 * gap_and_error(free)[0]
    assert fair.violation_ == pytest.approx(gap_and_error(fair)[0], abs=0.03)


def test_records_may_fill_a_corner_of_their_range():
    """Rows that all point the same way: without released centres every fit was a constant."""
    rng = np.random.default_rng(0)
    n = 10_000
    group = rng.integers(2, size=n)
    X = rng.uniform(0.6, 1.0, (n, 40))
    z = 6 * (X[:, :10] - 0.8).sum(axis=1) + (group - 0.5)
    y = (z + 0.5 * rng.logistic(size=n) > 0).astype(int)
    clf = DPFermiClassifier(protect="record", epsilon=2.0, delta=1e-6, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert (clf.predict(X) != y).mean() < 0.25


@pytest.mark.slow
def test_unequal_weights_move_released_moments_as_the_fit_without_privacy():
    """Positives that count thrice: far more rows get the label, with noise or without."""
    weight = np.where(LARGE.target == 1, 3.0, 1.0)
    # From seed to seed the rate moves by .04.
    fits = [private(weight=weight, penalty=4.0, random_state=seed) for seed in range(4)]
    exact, plain = private(weight=weight, penalty=4.0, epsilon=None), private(penalty=4.0)
    rate = np.mean([clf.predict(LARGE.data).mean() for clf in fits])
    exact_rate, plain_rate = (c.predict(LARGE.data).mean() for c in (exact, plain))
    assert rate == pytest.approx(exact_rate, abs=0.04)
    assert rate > plain_rate + 0.15


@pytest.mark.parametrize("unit", UNITS)
def test_with_nothing_to_compare_it_trains_privately_without_penalty(unit):
    one_group = np.zeros(len(LARGE.target), dtype=int)
    clf = private(unit=unit, n=4000, group=one_group, epsilon=5.0, solver=NoisyTables(n_steps=40))
    assert np.mean(clf.predict(LARGE.data) == LARGE.target) > 0.6

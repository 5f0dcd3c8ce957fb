"""RateConstrainedClassifier as an object: predictions, networks, reproducibility, copies, names."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import EqualizedOdds
from fairconstrained.solvers import SGDA, AugmentedLagrangian
from tests.helpers.fits import FORGIVEN, fitted, measured, table

SHORT = SGDA(n_steps=60)


class Network(nn.Module):
    """A user's module: batch statistics, dropout, and scores of shape (n,) for two classes."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2)
        )
        self.last = nn.Linear(8, n_outputs)

    def forward(self, X):
        scores = self.last(self.hidden(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores


def factory(n_features, n_outputs):
    return Network(n_features, n_outputs)


MODELS = ["linear", (4,), Network, factory]


def short_fit(model="linear", **params):
    """A fit that is not asked for feasibility, of a model that need not be good."""
    solver = None if model == "linear" else SHORT
    return fitted(model=model, solver=solver, slack=np.inf, random_state=0, **params)


@pytest.mark.parametrize(
    ("model", "n_classes", "shape"),
    [("linear", 2, (400,)), ("linear", 3, (400, 3)), (Network, 2, (400,)), ((4,), 3, (400, 3))],
)
def test_scores_probabilities_and_labels_agree(model, n_classes, shape):
    X, _, _ = data = table(n_classes, 2)
    clf = short_fit(model, data=data)
    scores, proba = clf.decision_function(X), clf.predict_proba(X)
    assert scores.shape == shape
    assert proba.shape == (400, n_classes)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    best = scores > 0 if n_classes == 2 else scores.argmax(axis=1)
    assert (clf.predict(X) == best).all()
    assert (clf.predict(X) == proba.argmax(axis=1)).all()
    assert clf.score(X, data[1]) > 1.2 / n_classes


@pytest.mark.parametrize("model", MODELS)
def test_predictions_depend_on_their_row_only_and_round_trips_keep_every_bit(model):
    """No dropout, no statistics of the batch, no groups: rows alone, twice, in any order."""
    X, _, _ = table()
    clf = short_fit(model)
    scores = clf.decision_function(X)
    alone = np.concatenate([clf.decision_function(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, scores[:20], rtol=1e-12)
    np.testing.assert_allclose(clf.decision_function(X[::-1]), scores[::-1], rtol=1e-12)
    other = pickle.loads(pickle.dumps(clf))
    assert (other.decision_function(X) == scores).all()
    assert vars(other).keys() == vars(clf).keys()
    assert other.constraints_ == clf.constraints_


@pytest.mark.slow
@pytest.mark.parametrize(("model", "n_classes"), [((8,), 3), (Network, 2)])
def test_networks_meet_the_constraint_on_training_labels(model, n_classes):
    data = table(n_classes, 2)
    solver = SGDA(n_steps=400, batch_size=128)
    clf = fitted(data=data, model=model, solver=solver, slack=0.15, random_state=0)
    assert clf.violation_ == pytest.approx(measured(clf, "demographic_parity", data), abs=1e-12)
    assert clf.violation_ <= 0.15 + FORGIVEN
    assert clf.score(*data[:2]) > 1.2 / n_classes
    assert not clf.module_.training
    assert {p.dtype for p in clf.module_.parameters()} == {torch.float64}
    assert clf.n_iter_ == SGDA().length == len(clf.history_["objective"])


def test_a_linear_module_reaches_the_optimum_of_the_linear_model():
    """The same convex problem without penalty: no point is below the minimum, the last is near."""
    solver = SGDA(n_steps=600, step_size=0.05)
    module = fitted(model=nn.Linear, solver=solver, alpha=0.0, slack=np.inf, random_state=0)
    minimum = fitted(alpha=0.0, slack=np.inf).history_["objective"][-1]
    assert module.history_["objective"].min() >= minimum - 1e-12
    assert module.history_["objective"][-1] == pytest.approx(minimum, rel=1e-4)


def test_the_seed_alone_decides():
    X, _, _ = table()

    def scores(seed, outside):
        torch.manual_seed(outside)
        np.random.seed(outside)  # noqa: NPY002 (the global generator, on purpose)
        solver = SGDA(n_steps=30, batch_size=50)
        clf = fitted(model=Network, solver=solver, slack=np.inf, random_state=seed)
        return clf.decision_function(X)

    assert (scores(1, outside=5) == scores(1, outside=6)).all()
    assert (scores(1, outside=5) != scores(2, outside=5)).any()
    generator = np.random.RandomState(3)
    assert (scores(generator, 5) != scores(generator, 5)).any()  # it moves on, as elsewhere


def test_a_fit_leaves_global_state_alone():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
        short_fit(Network).predict(table()[0])
        assert (torch.get_rng_state() == before[0]).all()
        assert (np.random.get_state()[1] == before[1][1]).all()  # noqa: NPY002
        assert torch.get_num_threads() == 2
        assert torch.get_default_dtype() == torch.float32
        assert torch.is_grad_enabled()
    finally:
        torch.set_num_threads(threads)


def test_parameters_of_solver_and_constraint_are_reachable():
    clf = RateConstrainedClassifier(EqualizedOdds(slack=0.1), solver=AugmentedLagrangian(penalty=3))
    assert clf.get_params()["solver__penalty"] == 3
    clf.set_params(solver__penalty=7, constraint__slack=0.2)
    assert repr(clf) == (
        "RateConstrainedClassifier(constraint=EqualizedOdds(slack=0.2),\n"
        "                          solver=AugmentedLagrangian(penalty=7))"
    )
    assert "AugmentedLagrangian" in clf._repr_html_()


@pytest.mark.slow
def test_a_warm_start_goes_on_from_the_last_network():
    """A first iterate near the end of the last fit, where a cold one is near its start."""
    X, y, group = table()
    seen = []
    clf = fitted(
        model=Network,
        solver=SGDA(n_steps=300),
        slack=np.inf,
        warm_start=True,
        random_state=0,
        callbacks=lambda iterate: seen.append(float(iterate.soft[0])),
    )
    end = clf.history_["objective"].min()
    former, scores = clf.module_, clf.decision_function(X)
    clf.set_params(solver__step_size=1e-4).fit(X, y, sensitive_features=group)
    first_cold, first_warm = seen[0], seen[SGDA().length]
    assert abs(first_warm - end) < 0.2 * abs(first_cold - end)
    # The former network is another object and did not change.
    assert clf.module_ is not former
    with torch.no_grad():
        again = former(torch.tensor(X)).reshape(-1).numpy()
    assert (again == scores).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": (4,)}, "warm_start=True needs .* model"),
        ({"n_features": 3}, "warm_start=True needs .* 3 features of the last fit; it had 6"),
        ({"n_classes": 3}, r"needs the classes of the last fit, \[0 1\]; got \[0 1 2\]"),
    ],
)
def test_warm_starts_that_do_not_fit_are_refused(change, message):
    clf = fitted(warm_start=True, slack=np.inf)
    former = dict(vars(clf))
    X, y, group = table(change.get("n_classes", 2), 2)
    clf.set_params(model=change.get("model", "linear"))
    with pytest.raises(ValueError, match=message):
        clf.fit(X[:, : change.get("n_features", 6)], y, sensitive_features=group)
    assert clf.coef_ is former["coef_"]
    assert clf.n_features_in_ == 6

"""RateConstrainedClassifier as an object: predictions, networks, copies, searches, failed fits."""

import linecache
import pickle
import re

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from fairconstrained import RateConstrainedClassifier, exceptions
from fairconstrained.constraints import DemographicParity
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.solvers import SGDA, AugmentedLagrangian
from tests.helpers.fits import fitted, table
from tests.helpers.modules import normalised

SHORT = SGDA(n_steps=60)


def short_fit(model="linear", **params):
    solver = None if model == "linear" else SHORT
    return fitted(model=model, solver=solver, slack=np.inf, random_state=0, **params)


@pytest.mark.parametrize("model", ["linear", (4,), normalised])
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
        clf = fitted(model=normalised, solver=solver, slack=np.inf, random_state=seed)
        return clf.decision_function(X)

    assert (scores(1, outside=5) == scores(1, outside=6)).all()
    assert (scores(1, outside=5) != scores(2, outside=5)).any()
    generator = np.random.RandomState(3)
    assert (scores(generator, 5) != scores(generator, 5)).any()  # it moves on, as elsewhere


@pytest.mark.slow
def test_a_warm_start_goes_on_from_the_last_network():
    """A first iterate near the end of the last fit, where a cold one is near its start."""
    X, y, group = table()
    seen = []
    params = {"model": normalised, "solver": SGDA(n_steps=300), "slack": np.inf, "warm_start": True}

    def note(iterate):
        seen.append(float(iterate.soft[0]))

    clf = fitted(random_state=0, callbacks=note, **params)
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


def test_parameters_of_solvers_and_constraints_can_be_searched():
    X, y, group = table()
    clf = RateConstrainedClassifier(DemographicParity(), solver=AugmentedLagrangian())
    pipe = Pipeline([("scale", StandardScaler()), ("clf", clf)])
    grid = {"clf__solver__penalty": [1.0, 30.0], "clf__constraint__reference": ["overall"]}
    with config_context(enable_metadata_routing=True):
        found = GridSearchCV(pipe, grid, cv=2, error_score="raise")
        found.fit(X, y, sensitive_features=group)
    assert found.best_estimator_[-1].solver.penalty == found.best_params_["clf__solver__penalty"]
    assert clf.solver.penalty == 10.0
    # The notion that was searched is the one that was trained: each group against everybody.
    given = {"sensitive_features": group, "method": "to_overall"}
    gap = demographic_parity_difference(y, found.predict(X), **given)
    assert found.best_estimator_[-1].violation_ == pytest.approx(gap, abs=1e-12)


# The labels of the table are not separable: no model has both rates so low.
INFEASIBLE = {
    "constraint": ["false_negative_rate", "false_positive_rate"],
    "slack": 0.01,
    "callbacks": lambda iterate: True,
}


def warned(category, data, **params):
    X, y, group = data
    clf = RateConstrainedClassifier(**params)
    with pytest.warns(category) as record:
        clf.fit(X, y, sensitive_features=group)
    (warning,) = record
    assert warning.filename == __file__
    assert "clf.fit(" in linecache.getline(__file__, warning.lineno)
    return str(warning.message)


def test_warnings_point_to_the_line_that_called_fit():
    X, y, group = table()
    warned(exceptions.MissingSensitiveFeaturesWarning, data=(X, y, None))
    rare = np.where(np.arange(400) == 7, 2, group)
    warned(exceptions.SmallGroupWarning, data=(X, y, rare), min_group_size=2, slack=np.inf)
    message = warned(ConvergenceWarning, data=(X, y, group), slack=np.inf, max_iter=1, tol=1e-15)
    # No residual, which no tol would reach: a baseline is the result.
    assert message.endswith("stopped after 1 iterations. Increase max_iter.")
    message = warned(exceptions.ConstraintNotSatisfiedWarning, data=(X, y, group), **INFEASIBLE)
    assert re.search(r"^false_negative_rate: label 1: exceeds its slack by 0\.\d+ .* Try", message)


def failing(error):
    def callback(iterate):
        raise error

    return callback


@pytest.mark.parametrize("error", [RuntimeError("mine"), KeyboardInterrupt()])
def test_a_failed_refit_leaves_the_former_fit(error):
    X, y, group = table()
    clf = fitted()
    former, predictions = dict(vars(clf)), clf.predict_proba(X)
    clf.set_params(callbacks=failing(error), slack=0.3)
    with pytest.raises(type(error)) as caught:
        clf.fit(X[:, :3], y, sensitive_features=group)
    assert any("as it was before this call" in note for note in caught.value.__notes__)
    changed = {"callbacks", "slack"}
    assert vars(clf).keys() == former.keys()
    assert all(vars(clf)[name] is former[name] for name in former.keys() - changed)
    np.testing.assert_array_equal(clf.predict_proba(X), predictions)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_module_given_twice_leaves_the_former_fit_alone():
    data = make_biased_classification(200, random_state=0)
    net = nn.Linear(10, 1)
    params = {"slack": 1.0, "model": lambda d, k: net, "max_iter": 2}
    first, second = (RateConstrainedClassifier(**params, random_state=seed) for seed in (0, 1))
    rows = (data.data, data.target)
    before = first.fit(*rows, sensitive_features=data.sensitive_features).decision_function(rows[0])
    second.fit(rows[0], 1 - rows[1], sensitive_features=data.sensitive_features)
    assert (first.decision_function(rows[0]) == before).all()
    assert net.weight.dtype == torch.float32

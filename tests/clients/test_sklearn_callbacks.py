"""scikit-learn's own callbacks (1.9 and later) on our fits."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import fairconstrained as fc
from fairconstrained.solvers import DPSGDA
from tests.helpers.clients import rows

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
ROWS = rows()
FAST = [
    fc.AUCFairClassifier(),
    fc.PartialParityClassifier(slack=0.3),
    fc.LossParityClassifier(model=(4,), slack=0.5, max_iter=5),
    fc.DPFermiClassifier(epsilon=None, max_iter=5),
]


class Stops:
    def __init__(self, after):
        self.after, self.ended, self.set_up = after, [], 0

    def setup(self, estimator, context):
        self.set_up += 1

    def teardown(self, estimator, context):
        self.set_up -= 1

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.ended.append((context.task_name, X, fitted_estimator))
        return len(self.ended) >= self.after


@pytest.mark.parametrize("estimator", FAST, ids=lambda e: f"{type(e).__name__} {e.model}")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_a_monitor_scores_the_model_of_every_iteration_and_the_fitted_one(estimator):
    monitor = callback.ScoringMonitor(scoring="accuracy")
    clf = clone(estimator).set_params(random_state=0).set_callbacks(monitor)
    clf.fit(**ROWS)
    logs = monitor.get_logs().data
    assert [row["task_name"] for row in logs] == ["fit"] + ["iteration"] * clf.n_iter_
    assert logs[0]["accuracy"] == clf.score(ROWS["X"], ROWS["y"])
    alone = clone(estimator).set_params(random_state=0).fit(**ROWS)
    np.testing.assert_array_equal(*(one.predict_proba(ROWS["X"]) for one in (alone, clf)))


def test_a_callback_ends_training_and_sees_the_rows_of_the_user():
    stops = Stops(after=3)
    clf = fc.RateConstrainedClassifier(slack=0.02).set_callbacks(stops)
    clf.fit(**ROWS)
    assert clf.n_iter_ == 3
    assert [name for name, *_ in stops.ended] == ["iteration"] * 3 + ["fit"]
    assert all(seen is ROWS["X"] for _, seen, _ in stops.ended)
    assert stops.set_up == 0


def test_an_error_in_a_fit_still_ends_the_callbacks_and_leaves_the_estimator_as_it_was():
    stops = Stops(after=99)
    clf = fc.RateConstrainedClassifier().set_callbacks(stops)
    before = dict(vars(clf))
    with pytest.raises(ValueError, match="rows, but X has"):
        clf.fit(**{**ROWS, "sensitive_features": ROWS["sensitive_features"][:-1]})
    assert stops.set_up == 0
    assert vars(clf) == before


def test_a_private_fit_tells_callbacks_neither_rows_nor_models():
    stops = Stops(after=99)
    given = {"feature_range": (-5, 5), "random_state": 0}
    clf = fc.RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=4), **given)
    clf.set_callbacks(stops).fit(**ROWS)
    assert len(stops.ended) == clf.n_iter_ + 1
    assert all(rows is None and model is None for _, rows, model in stops.ended)


def test_an_estimator_with_callbacks_is_cloned_and_pickled():
    clf = fc.RateConstrainedClassifier().set_callbacks(Stops(after=99))
    assert clone(clf).fit(**ROWS).converged_
    again = pickle.loads(pickle.dumps(clf.fit(**ROWS)))
    np.testing.assert_array_equal(*(one.predict(ROWS["X"]) for one in (again, clf)))

"""Fits of clones with the same rows share a wrapped classifier, and are those without a store."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import RateConstrainedClassifier, model_selection, sharing
from fairconstrained.constraints import ExpectedCost
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_scorer

FOLDS, STEP = 3, "rateconstrainedclassifier"
CRITERIA = ["demographic_parity", "equalized_odds", "equal_opportunity"]
data = make_biased_classification(600, random_state=0)
ROWS = {"X": data.data, "y": data.target, "sensitive_features": data.sensitive_features}
SCORING = {"accuracy": "accuracy", "dp": demographic_parity_scorer}


class Counting(DecisionTreeClassifier):
    fits = 0

    def fit(self, X, y, **params):
        Counting.fits += 1
        return super().fit(X, y, **params)


def wrapped(**changed):
    params = {"model": Counting(max_depth=3, random_state=0), "random_state": 0, **changed}
    return RateConstrainedClassifier(**params)


def counted(function, *args, **params):
    Counting.fits = 0
    return function(*args, **params), Counting.fits


def searched(estimator, grid):
    with config_context(enable_metadata_routing=True):
        given = {"scoring": SCORING, "refit": "accuracy", "error_score": "raise"}
        cv = model_selection.StratifiedSensitiveKFold(FOLDS)
        return GridSearchCV(estimator, grid, cv=cv, **given).fit(**ROWS)


def fitted(estimator, **changed):
    return estimator.fit(**{**ROWS, **changed})


def same(one, other):
    scores = (clf.decision_function(data.data) for clf in (one, other))
    np.testing.assert_array_equal(*scores)
    assert one.training_violation_ == other.training_violation_
    return True


@pytest.mark.slow
def test_a_search_fits_the_classifier_once_for_each_fold_and_finds_what_single_fits_find():
    slacks = [0.02, 0.3]
    _, once = counted(fitted, wrapped())
    search, fits = counted(searched, wrapped(), {"constraint": CRITERIA, "slack": slacks})
    assert fits == FOLDS * once + once
    assert same(search.best_estimator_, fitted(wrapped(**search.best_params_)))
    pipeline, grid = make_pipeline(StandardScaler(), wrapped()), {f"{STEP}__slack": slacks}
    assert counted(searched, pipeline, grid)[1] == (FOLDS + 1) * once
    last = searched(wrapped(), {"constraint": CRITERIA[-1:], "slack": slacks[-1:]})
    for score in ("mean_test_dp", "mean_test_accuracy"):
        assert search.cv_results_[score][-1] == last.cv_results_[score][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "rows"),
    [
        ({}, {"X": data.data + 1.0}),
        ({}, {"y": 1 - data.target}),
        ({}, {"sensitive_features": np.roll(data.sensitive_features, 1)}),
        ({}, {"sample_weight": np.linspace(1, 2, 600)}),
        ({"random_state": 1}, {}),
        ({"model__max_depth": 2}, {}),
    ],
    ids=["X", "y", "groups", "weights", "seed", "classifier"],
)
def test_whatever_else_changes_is_fitted_anew(params, rows):
    first = wrapped()
    fitted(clone(first))
    changed = fitted(clone(first).set_params(**params), **rows)
    expected, fits = counted(fitted, wrapped().set_params(**params), **rows)
    assert same(changed, expected)
    assert fits > 0


def test_rows_changed_in_place_are_others():
    first, X = wrapped(), data.data.copy()
    fitted(clone(first), X=X)
    X[:, 0] = 0.0
    assert same(fitted(clone(first), X=X), fitted(wrapped(), X=X))


@pytest.mark.slow
def test_copies_and_pickles_begin_anew_and_the_store_ends_with_its_owner():
    first = wrapped()
    second = fitted(clone(first))
    for other in (copy.deepcopy(second), pickle.loads(pickle.dumps(second))):
        assert same(other, second)
        assert counted(fitted, other)[1] > 0
    assert counted(fitted, clone(first))[1] == 0
    store = weakref.ref(sharing.store_of(first))
    del first
    gc.collect()
    assert store() is None
    assert same(fitted(second), fitted(wrapped()))


@pytest.mark.slow
def test_threads_wait_for_each_other():
    with parallel_config(backend="threading", n_jobs=4):
        search, fits = counted(searched, wrapped(), {"slack": [0.02, 0.1, 0.3]})
    alone, once = counted(searched, wrapped(), {"slack": [0.02]})
    assert fits == once
    assert search.cv_results_["mean_test_dp"][0] == alone.cv_results_["mean_test_dp"][0]


@pytest.mark.slow
def test_without_a_seed_clones_share_one_and_others_do_not():
    first = wrapped(random_state=None)
    assert same(fitted(clone(first)), fitted(clone(first)))
    seeds = {fitted(wrapped(random_state=None)).decision_function(data.data)[0] for _ in range(4)}
    assert len(seeds) > 1


@pytest.mark.filterwarnings("ignore")
def test_private_fits_never_share_their_noise():
    first = RateConstrainedClassifier(epsilon=1.0, feature_range=(-5.0, 5.0))
    one, other = fitted(clone(first)), fitted(clone(first))
    assert not np.array_equal(one.coef_, other.coef_)


def test_a_classifier_that_cannot_be_pickled_is_fitted_each_time():
    class Local(Counting):
        pass

    first = wrapped(model=Local(max_depth=3, random_state=0))
    fits = [counted(fitted, clone(first))[1] for _ in range(2)]
    assert fits[0] == fits[1] > 0


def test_the_store_is_bounded_and_forgets_failures():
    """It has half a gigabyte, for results of 200 MB and one of 600 MB."""
    store, asked = sharing.Store(), []

    def compute(n):
        asked.append(n)
        return np.empty(n << 20, dtype=np.int8)  # which takes no memory until it is read

    for key in (200, 201, 200, 202, 200, 201, 600, 600, 201):
        assert len(store.recall(key, lambda n=key: compute(n))) == key << 20
    assert asked == [200, 201, 202, 201, 600, 600]
    with pytest.raises(ZeroDivisionError):
        store.recall(0, lambda: 1 / 0)
    assert store.recall(0, lambda: 1) == 1


@pytest.mark.slow
def test_a_curve_asks_for_the_classifiers_of_one_point_and_keeps_the_order():
    many = make_biased_classification(4_000, random_state=0)  # gaps of fewer rows are chance
    given = {"X": many.data, "y": many.target, "sensitive_features": many.sensitive_features}
    given |= {"param_name": "slack", "cv": FOLDS}
    _, once = counted(model_selection.tradeoff_curve, wrapped(), param_range=[0.1], **given)
    given = {**given, "param_range": [0.1, 0.02, 0.3, 0.05]}
    curve, fits = counted(model_selection.tradeoff_curve, wrapped(), **given)
    assert fits == once
    assert curve["slack"].tolist() == [0.1, 0.02, 0.3, 0.05]
    order = np.argsort(curve["slack"])
    gaps = -curve["mean_test_dp"].to_numpy()[order]
    assert gaps[0] < gaps[2] < gaps[3]


@pytest.mark.slow
def test_the_smallest_gap_asks_for_the_classifiers_of_one_fit():
    floor = ExpectedCost(0.4)
    constraint = ["demographic_parity", floor]
    _, once = counted(fitted, wrapped(constraint=constraint, min_group_size=0))
    search, fits = counted(fitted, model_selection.SmallestGapClassifier(wrapped(), floor))
    assert len(search.tried_) > 2
    assert fits == once


@pytest.mark.slow
@pytest.mark.parametrize("constraint", CRITERIA)
def test_points_of_a_curve_are_no_worse_than_fits_that_begin_anew(constraint):
    data = make_biased_classification(12_000, random_state=1)
    rows = {"X": data.data, "y": data.target, "sensitive_features": data.sensitive_features}
    first = sharing.follow(RateConstrainedClassifier(constraint))
    for slack in (0.2, 0.1, 0.05, 0.02):
        warm = clone(first).set_params(slack=slack).fit(**rows)
        cold = RateConstrainedClassifier(constraint, slack=slack).fit(**rows)
        assert warm.feasible_
        assert warm.history_["error"][-1] < cold.history_["error"][-1] + 0.001

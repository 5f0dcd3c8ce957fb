"""Splits by label and group, choice among feasible candidates, trade-off curves, Pareto fronts."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import model_selection
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, SmallGroupWarning
from fairconstrained.metrics import demographic_parity_scorer


def held_out(folds):
    return [test.tolist() for _, test in folds]


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1], size=n)
    x = rng.normal(size=(n, 3)) + (group == "a")[:, None]
    y = (x[:, 0] + rng.normal(size=n) > 0.3).astype(int)
    return x, y, group


@given(st.integers(2, 5), st.integers(0, 1000), st.booleans(), st.integers(1, 2))
@settings(max_examples=30)
def test_every_stratum_is_spread_evenly_over_a_partition(n_splits, seed, shuffle, columns):
    """Test folds partition the rows, and stratum counts in two folds differ by at most one."""
    rng = np.random.default_rng(seed)
    sensitive = rng.integers(2, size=(150, columns))
    y = rng.choice(["no", "yes"], size=150)
    seed = seed if shuffle else None
    cv = model_selection.StratifiedSensitiveKFold(n_splits, shuffle=shuffle, random_state=seed)
    folds = list(cv.split(np.zeros(150), y, sensitive_features=sensitive))
    again = clone(cv, safe=False).split(np.zeros(150), y, sensitive_features=sensitive)
    assert held_out(again) == held_out(folds)
    assert len(folds) == cv.get_n_splits(None, y, sensitive_features=sensitive) == n_splits
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(150))
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(150))
    strata = pd.DataFrame(sensitive).assign(y=y)
    counts = pd.concat([strata.iloc[test].value_counts() for _, test in folds], axis=1)
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_groups_mean_the_same_and_no_groups_are_plain_stratification():
    x, y, group = table()
    cv = model_selection.StratifiedSensitiveKFold(3)
    by_groups = held_out(cv.split(x, y, groups=group))
    assert by_groups == held_out(cv.split(x, y, sensitive_features=group))
    assert held_out(cv.split(x, y)) == held_out(StratifiedKFold(3).split(x, y)) != by_groups
    with pytest.raises(ValueError, match="sensitive_features or groups, not both"):
        list(cv.split(x, y, group, group))


def test_strata_with_fewer_rows_than_folds_are_named():
    y, group = [0] * 10 + [1] * 10, ["f"] * 8 + ["m"] * 11 + ["f"]
    cv = model_selection.StratifiedSensitiveKFold(3)
    message = "label 0 in group m: 2 rows; label 1 in group f: 1 row"
    with pytest.warns(SmallGroupWarning, match=message) as record:
        folds = held_out(cv.split(y, y, sensitive_features=group))
    assert len(record) == 1
    assert sorted(np.concatenate(folds)) == list(range(20))
    with pytest.raises(ValueError, match="n_splits=3 is more than the rows of every stratum"):
        list(cv.split([0, 1, 0, 1], [0, 1, 0, 1], sensitive_features=list("aabb")))


class Recorder(ClassifierMixin, BaseEstimator):
    """Records the share of group c in its training rows; demands the groups in fit."""

    __metadata_request__fit = {"sensitive_features": True}  # noqa: RUF012

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, X, y, *, sensitive_features):
        self.classes_ = np.unique(y)
        self.share_ = np.mean(np.asarray(sensitive_features) == "c")
        return self

    def predict(self, X):
        return (np.asarray(X)[:, 0] > self.shift).astype(int)


def test_searches_pass_the_groups_to_the_splitter():
    x, y, group = table()
    args, cv = (LogisticRegression(), x, y), model_selection.StratifiedSensitiveKFold(3)
    splits = list(cv.split(x, y, sensitive_features=group))
    scores = cross_val_score(*args, groups=group, cv=cv)
    np.testing.assert_array_equal(scores, cross_val_score(*args, cv=splits))
    options = {"scoring": lambda clf, X, y: clf.share_, "cv": cv, "error_score": "raise"}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(Recorder(), {"shift": [0.0]}, **options)
        search.fit(x, y, sensitive_features=group)
    shares = [search.cv_results_[f"split{i}_test_score"][0] for i in range(3)]
    assert shares == pytest.approx([np.mean(group == "c")] * 3, abs=0.01)


def results(accuracy, gaps):
    return {"mean_test_accuracy": np.array(accuracy), "mean_test_dp": -np.array(gaps)}


@given(
    points=st.lists(
        st.tuples(st.sampled_from([0.5, 0.7, 0.9, np.nan]), st.sampled_from([0, 0.1, 0.2, np.nan])),
        min_size=1,
        max_size=8,
    ),
    bound=st.sampled_from([0.0, 0.1, 0.15]),
)
def test_select_feasible_is_optimal_by_its_definition(points, bound):
    accuracy, gaps = np.array(points).T
    choose = model_selection.select_feasible("accuracy", "dp", max_violation=bound)
    usable = [i for i, point in enumerate(points) if not np.isnan(point).any()]
    if not usable:
        with pytest.raises(ValueError, match=r"nan score in 'accuracy' or 'dp'"):
            choose(results(accuracy, gaps))
        return
    feasible = [i for i in usable if gaps[i] <= bound]
    with warnings.catch_warnings(record=True, action="always") as caught:
        best = choose(results(accuracy, gaps))
    infeasible = [w.category for w in caught] == [ConstraintNotSatisfiedWarning]
    assert infeasible == (not feasible)
    if feasible:
        assert best == min(feasible, key=lambda i: (-accuracy[i], gaps[i], i))
    else:
        assert best == min(usable, key=lambda i: (gaps[i], -accuracy[i], i))


def test_select_feasible_says_what_is_wrong():
    with pytest.raises(ValueError, match="max_violation must be a number >= 0; got nan"):
        model_selection.select_feasible(max_violation=np.nan)
    with pytest.raises(ValueError, match=r"'eo' is not among .* \['accuracy', 'dp'\]"):
        model_selection.select_feasible(violation="eo")(results([0.9], [0.1]))
    with pytest.raises(ValueError, match="violation must name a scorer of a negated gap"):
        model_selection.select_feasible()(results([0.9, 0.8], [0.1, -0.8]))
    words = "'dp' within max_violation=0.05; .* 0.1"
    with pytest.warns(ConstraintNotSatisfiedWarning, match=words):
        model_selection.select_feasible()(results([0.9, 0.8], [0.2, 0.1]))


def curve(estimator, **changed):
    x, y, group = table()
    given = {"sensitive_features": group, "param_name": "C", "param_range": [1.0], **changed}
    return model_selection.tradeoff_curve(estimator, x, y, **given)


@pytest.mark.parametrize("on", [False, True], ids=["plain", "pipeline"])
def test_tradeoff_curve_is_the_cross_validation_of_each_value(on):
    """Mean and deviation of the scores of the folds, whatever the global setting."""
    estimator = make_pipeline(StandardScaler(), Recorder()) if on else Recorder()
    (x, y, group), name = table(), "recorder__shift" if on else "shift"
    shifts = [0.0, 1.0, 0.5]  # not the order in which they are fitted, nor its inverse
    with config_context(enable_metadata_routing=on):
        points = curve(estimator, param_name=name, param_range=shifts, cv=3)
    assert points[name].tolist() == shifts
    with config_context(enable_metadata_routing=True):
        for (_, row), shift in zip(points.iterrows(), shifts, strict=True):
            scoring = {"accuracy": "accuracy", "dp": demographic_parity_scorer}
            options = {"scoring": scoring, "params": {"sensitive_features": group}}
            options["cv"] = model_selection.StratifiedSensitiveKFold(3)
            scores = cross_validate(estimator.set_params(**{name: shift}), x, y, **options)
            for score in ("accuracy", "dp"):
                folds = scores[f"test_{score}"]
                assert row[f"mean_test_{score}"] == pytest.approx(np.mean(folds))
                assert row[f"std_test_{score}"] == pytest.approx(np.std(folds))
    assert (points["mean_fit_time"] >= 0).all()
    assert not any("train" in column for column in points)


def test_strata_that_are_routed_to_fits_are_those_of_the_scores():
    """Within them the gap is another one than between all rows."""
    x, y, group = table()
    job, folds = x[:, 1] > 0, [(np.arange(150), np.arange(150, 300))]
    given = {"sensitive_features": group, "control_features": job}
    points = curve(LogisticRegression(), cv=folds, params={"control_features": job})
    with config_context(enable_metadata_routing=True):
        options = {"scoring": demographic_parity_scorer, "cv": folds, "params": given}
        (score,) = cross_validate(LogisticRegression(), x, y, **options)["test_score"]
    (train, test) = folds[0]
    taken = LogisticRegression().fit(x[train], y[train]).predict(x[test])
    rates = pd.Series(taken).groupby([job[test], group[test]]).mean().unstack()
    assert score == points["mean_test_dp"][0] == pytest.approx(-np.ptp(rates, axis=1).max())


def test_a_list_of_scorers_is_a_dict_of_them_by_their_names():
    names = ["accuracy", "f1"]
    by_name = {"accuracy": "accuracy", "f1": "f1"}
    listed, named = (curve(LogisticRegression(), scoring=one) for one in (names, by_name))
    pd.testing.assert_frame_equal(*(t.filter(regex="_test_") for t in (listed, named)))
    assert listed["mean_test_f1"].notna().all()


@pytest.mark.parametrize(
    ("estimator", "changed", "message"),
    [
        (3, {}, "estimator must have a method fit; got 3"),
        (LogisticRegression(), {"param_name": "slak"}, "Invalid parameter 'slak'"),
        (LogisticRegression(), {"param_range": [-1.0]}, "'C' parameter of LogisticRegression"),
        (LogisticRegression(), {"param_range": 0.1}, "param_range must list values of 'C'"),
        (LogisticRegression(), {"sensitive_features": ["a"]}, "sensitive_features"),
    ],
)
def test_tradeoff_curve_raises_what_is_wrong(estimator, changed, message):
    with pytest.raises(ValueError, match=message):
        curve(estimator, **changed)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_folds_of_a_curve_go_to_processes_that_pickle_functions_by_name():
    """As scikit-learn's searches; trees run no threads, which processes could not take over."""
    tree = DecisionTreeClassifier(random_state=0)
    changed = {"param_name": "max_depth", "param_range": [1, 3], "cv": 2}
    with parallel_config("multiprocessing"):
        points = curve(tree, n_jobs=2, **changed)
    times = ["mean_fit_time", "std_fit_time"]
    expected = curve(tree, **changed).drop(columns=times)
    pd.testing.assert_frame_equal(points.drop(columns=times), expected)


coordinate = st.one_of(st.sampled_from([0.0, 0.1, 0.2, np.inf, np.nan]), st.floats(0, 1))


@given(st.integers(0, 12).flatmap(lambda n: arrays(float, (2, n), elements=coordinate)))
@settings(max_examples=200)
def test_pareto_front_is_its_definition(points):
    """On the front: no nan, and no point that is no worse in both and better in one."""

    def beats(p, q):
        return np.all(p <= q) and np.any(p < q)

    expected = [not np.isnan(q).any() and not any(beats(p, q) for p in points.T) for q in points.T]
    assert model_selection.pareto_front(*points).tolist() == expected


def test_pareto_front_needs_equal_lengths():
    with pytest.raises(ValueError, match=r"got shapes \(2,\) and \(3,\)"):
        model_selection.pareto_front([1, 2], [1, 2, 3])

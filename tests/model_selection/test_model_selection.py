"""Splits by label and group, choice among feasible candidates, trade-off curves, Pareto fronts."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained.exceptions import ConstraintNotSatisfiedWarning, SmallGroupWarning
from fairconstrained.metrics import (
    demographic_parity_difference,
    demographic_parity_ratio,
    demographic_parity_scorer,
    equalized_odds_scorer,
    fairness_scorer,
)
from fairconstrained.model_selection import (
    StratifiedSensitiveKFold,
    pareto_front,
    select_feasible,
    tradeoff_curve,
)


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], p=[0.6, 0.3, 0.1], size=n)
    x = rng.normal(size=(n, 3)) + (group == "a")[:, None]
    y = (x[:, 0] + rng.normal(size=n) > 0.3).astype(int)
    return x, y, group


# --- StratifiedSensitiveKFold --------------------------------------------------------------------


@given(
    n_splits=st.integers(2, 5),
    seed=st.integers(0, 1000),
    shuffle=st.booleans(),
    columns=st.integers(1, 2),
)
@settings(max_examples=30)
def test_every_stratum_is_spread_evenly_over_a_partition(n_splits, seed, shuffle, columns):
    """Test folds partition the rows, and stratum counts in two folds differ by at most one."""
    rng = np.random.default_rng(seed)
    sensitive = rng.integers(2, size=(150, columns))
    y = rng.choice(["no", "yes"], size=150)
    cv = StratifiedSensitiveKFold(n_splits, shuffle=shuffle, random_state=seed if shuffle else None)
    folds = list(cv.split(np.zeros(150), y, sensitive_features=sensitive))
    assert len(folds) == cv.get_n_splits(None, y, sensitive_features=sensitive) == n_splits
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(150))
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(150))
    strata = pd.DataFrame(sensitive).assign(y=y)
    counts = pd.concat([strata.iloc[test].value_counts() for _, test in folds], axis=1)
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def held_out(folds):
    return [test.tolist() for _, test in folds]


def test_groups_mean_the_same_and_no_groups_are_plain_stratification():
    x, y, group = table()
    cv = StratifiedSensitiveKFold(3)
    by_groups = held_out(cv.split(x, y, groups=group))
    assert by_groups == held_out(cv.split(x, y, sensitive_features=group))
    assert held_out(cv.split(x, y)) == held_out(StratifiedKFold(3).split(x, y)) != by_groups
    with pytest.raises(ValueError, match="sensitive_features or groups, not both"):
        list(cv.split(x, y, group, group))


def test_shuffling_is_reproducible():
    x, y, group = table()

    def split(seed):
        cv = StratifiedSensitiveKFold(3, shuffle=True, random_state=seed)
        return held_out(clone(cv, safe=False).split(x, y, sensitive_features=group))

    assert split(0) == split(0) != split(1)


def test_strata_with_fewer_rows_than_folds_are_named():
    y, group = [0] * 10 + [1] * 10, ["f"] * 8 + ["m"] * 11 + ["f"]
    cv = StratifiedSensitiveKFold(3)
    message = "label 0 in group m: 2 rows; label 1 in group f: 1 rows"
    with pytest.warns(SmallGroupWarning, match=message) as record:
        folds = held_out(cv.split(y, y, sensitive_features=group))
    assert len(record) == 1
    assert sorted(np.concatenate(folds)) == list(range(20))
    with pytest.raises(ValueError, match="n_splits=3 is more than the rows of every stratum"):
        list(cv.split([0, 1, 0, 1], [0, 1, 0, 1], sensitive_features=list("aabb")))


@pytest.mark.parametrize(
    ("y", "sensitive", "message"),
    [
        ([0, 1, 0, np.nan], list("aabb"), "y"),
        ([0, 1, 0, 0.5], list("aabb"), "y must hold class labels; got 0.5"),
        ([0, 1, 0, 1], list("aab"), "sensitive_features has 3 rows"),
        ([0, 1, 0, 1], ["a", None, "b", "b"], "sensitive_features has 1 missing"),
    ],
)
def test_bad_labels_and_groups_are_refused(y, sensitive, message):
    with pytest.raises(ValueError, match=message):
        list(StratifiedSensitiveKFold(2).split(np.zeros(4), y, sensitive_features=sensitive))


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


def share_of_c(estimator, X, y):
    return estimator.share_


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_searches_route_the_groups_to_the_splitter(n_jobs):
    x, y, group = table()
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            Recorder(),
            {"shift": [0.0]},
            scoring=share_of_c,
            cv=StratifiedSensitiveKFold(3),
            n_jobs=n_jobs,
            error_score="raise",
        ).fit(x, y, sensitive_features=group)
    shares = [search.cv_results_[f"split{i}_test_score"][0] for i in range(3)]
    assert shares == pytest.approx([np.mean(group == "c")] * 3, abs=0.01)


def test_without_routing_searches_pass_groups():
    x, y, group = table()
    args = LogisticRegression(), x, y
    with_groups = cross_val_score(*args, groups=group, cv=StratifiedSensitiveKFold(3))
    splits = list(StratifiedSensitiveKFold(3).split(x, y, sensitive_features=group))
    assert with_groups.tolist() == cross_val_score(*args, cv=splits).tolist()


# --- select_feasible -----------------------------------------------------------------------------


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
    choose = select_feasible("accuracy", "dp", max_violation=bound)
    usable = [i for i, point in enumerate(points) if not np.isnan(point).any()]
    if not usable:
        with pytest.raises(ValueError, match=r"nan score in 'accuracy' or 'dp'"):
            choose(results(accuracy, gaps))
        return
    feasible = [i for i in usable if gaps[i] <= bound]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = choose(results(accuracy, gaps))
    infeasible = [w.category for w in caught] == [ConstraintNotSatisfiedWarning]
    assert infeasible == (not feasible)
    if feasible:
        assert best == min(feasible, key=lambda i: (-accuracy[i], gaps[i], i))
    else:
        assert best == min(usable, key=lambda i: (gaps[i], -accuracy[i], i))


def test_select_feasible_says_what_is_wrong():
    with pytest.raises(ValueError, match=r"'eo' is not among .* \['accuracy', 'dp'\]"):
        select_feasible(violation="eo")(results([0.9], [0.1]))
    with pytest.raises(ValueError, match="violation must name a scorer of a negated gap"):
        select_feasible()(results([0.9, 0.8], [0.1, -0.8]))
    with pytest.warns(
        ConstraintNotSatisfiedWarning, match="'dp' within max_violation=0.05; .* 0.1"
    ):
        select_feasible()(results([0.9, 0.8], [0.2, 0.1]))


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_select_feasible_in_a_search(n_jobs):
    x, y, group = table()
    x = np.c_[x, group == "a"]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()),
        {"logisticregression__C": [1e-5, 1e-2, 1.0]},
        scoring={
            "accuracy": "accuracy",
            "dp": fairness_scorer(demographic_parity_difference, column=3),
        },
        refit=select_feasible(max_violation=0.35),
        cv=3,
        n_jobs=n_jobs,
        error_score="raise",
    )
    search = pickle.loads(pickle.dumps(clone(search))).fit(x, y)
    gaps, accuracy = -search.cv_results_["mean_test_dp"], search.cv_results_["mean_test_accuracy"]
    feasible = gaps <= 0.35
    assert 0 < feasible.sum() < 3  # the choice is not trivial
    assert accuracy[search.best_index_] == accuracy[feasible].max()
    assert feasible[search.best_index_]
    assert search.best_estimator_.predict(x).shape == y.shape


# --- tradeoff_curve ------------------------------------------------------------------------------

MODELS = {
    "plain": (Recorder(), "shift"),
    "pipeline": (make_pipeline(StandardScaler(), Recorder()), "recorder__shift"),
}


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", MODELS)
def test_tradeoff_curve_is_the_cross_validation_of_each_value(model, n_jobs, on):
    """Mean and deviation of the scores of the folds, whatever the global setting."""
    x, y, group = table()
    estimator, name = MODELS[model]
    shifts = [1.0, 0.0, 0.5]
    with config_context(enable_metadata_routing=on):
        curve = tradeoff_curve(
            estimator,
            x,
            y,
            sensitive_features=group,
            param_name=name,
            param_range=shifts,
            cv=3,
            n_jobs=n_jobs,
        )
    assert curve[name].tolist() == shifts
    folds = list(StratifiedSensitiveKFold(3).split(x, y, sensitive_features=group))
    for (_, row), shift in zip(curve.iterrows(), shifts, strict=True):
        accuracy, gaps = [], []
        for train, test in folds:
            fitted = clone(estimator).set_params(**{name: shift})
            with config_context(enable_metadata_routing=True):
                fitted.fit(x[train], y[train], sensitive_features=group[train])
            y_pred = fitted.predict(x[test])
            accuracy.append(np.mean(y_pred == y[test]))
            gaps.append(
                demographic_parity_difference(y[test], y_pred, sensitive_features=group[test])
            )
        assert row["mean_test_accuracy"] == pytest.approx(np.mean(accuracy))
        assert row["std_test_accuracy"] == pytest.approx(np.std(accuracy))
        assert row["mean_test_dp"] == pytest.approx(-np.mean(gaps))
        assert row["std_test_dp"] == pytest.approx(np.std(gaps))
    assert (curve["mean_fit_time"] >= 0).all()
    assert not any("train" in column for column in curve)


def test_tradeoff_curve_with_train_scores_other_scorers_splitters_and_weights():
    x, y, group = table()
    with config_context(enable_metadata_routing=True):
        model = LogisticRegression().set_fit_request(sample_weight=True)
        curve = tradeoff_curve(
            model,
            x,
            y,
            sensitive_features=group,
            param_name="C",
            param_range=np.array([1e-6, 1.0]),
            cv=KFold(2),
            scoring={"eo": equalized_odds_scorer},
            params={"sample_weight": np.where(y == 1, 1.0, 1e-6)},
            return_train_score=True,
        )
    assert {"mean_test_eo", "std_test_eo", "mean_train_eo", "std_train_eo"} <= set(curve)
    assert curve["mean_test_eo"][0] == curve["mean_train_eo"][0] == 0.0  # everybody is positive


def test_tradeoff_curves_of_several_estimators_are_those_of_each():
    """An estimator without the parameter gives one row, and so does one alone without a range."""
    x, y, group = table()
    given = {"sensitive_features": group, "cv": 3}
    varied = {"param_name": "C", "param_range": [1e-3, 1.0]}
    models = {"LR": LogisticRegression(), "none": DummyClassifier(), "shift": Recorder()}
    curves = tradeoff_curve(models, x, y, **given, **varied)
    assert curves["estimator"].tolist() == ["LR", "LR", "none", "shift"]
    assert list(curves)[:2] == ["estimator", "C"]
    alone = {"LR": varied, "none": {}, "shift": {}}
    for name, points in curves.groupby("estimator"):
        expected = tradeoff_curve(models[name], x, y, **given, **alone[name])
        scores = ["mean_test_accuracy", "std_test_dp", "split2_test_dp"]
        np.testing.assert_array_equal(points[scores], expected[scores])
    both = tradeoff_curve(
        models,
        x,
        y,
        **given,
        param_name={"LR": "C", "shift": "shift"},
        param_range={"LR": [1.0], "shift": [0.5, 1.0]},
    )
    assert both["estimator"].tolist() == ["LR", "none", "shift", "shift"]
    assert both["shift"].tolist()[2:] == [0.5, 1.0]
    assert both["C"].isna().tolist() == [False, True, True, True]


def test_tradeoff_curve_refuses_a_parameter_that_no_estimator_has():
    x, y, group = table()
    for models in (LogisticRegression(), {"LR": LogisticRegression(), "NB": GaussianNB()}):
        with pytest.raises(ValueError, match=r"param_name must be .* of at least one .* 'slak'"):
            tradeoff_curve(
                models, x, y, sensitive_features=group, param_name="slak", param_range=[1]
            )


def test_tradeoff_curve_raises_what_a_fit_raises():
    x, y, group = table()
    args = {"sensitive_features": group, "param_name": "C", "param_range": [-1.0]}
    with pytest.raises(ValueError, match="'C' parameter of LogisticRegression"):
        tradeoff_curve(LogisticRegression(), x, y, **args)
    with pytest.raises(ValueError, match="sensitive_features"):
        tradeoff_curve(
            LogisticRegression(),
            x,
            y,
            sensitive_features=group[:-1],
            param_name="C",
            param_range=[1.0],
        )


def test_ratio_scorers_are_not_taken_for_violations():
    x, y, group = table()
    curve = tradeoff_curve(
        LogisticRegression(),
        x,
        y,
        sensitive_features=group,
        param_name="C",
        param_range=[1.0],
        cv=2,
        scoring={
            "accuracy": "accuracy",
            "gap": demographic_parity_scorer,
            "ratio": fairness_scorer(demographic_parity_ratio),
        },
    )
    assert select_feasible(violation="gap", max_violation=1.0)(curve) == 0
    with pytest.raises(ValueError, match="negated gap"):
        select_feasible(violation="ratio", max_violation=1.0)(curve)


# --- pareto_front --------------------------------------------------------------------------------

coordinate = st.one_of(st.sampled_from([0.0, 0.1, 0.2, np.inf, np.nan]), st.floats(0, 1))


@given(st.integers(0, 12).flatmap(lambda n: arrays(float, (2, n), elements=coordinate)))
@settings(max_examples=200)
def test_pareto_front_is_its_definition(points):
    """On the front: no nan, and no point that is no worse in both and better in one."""

    def beats(p, q):
        return np.all(p <= q) and np.any(p < q)

    expected = [not np.isnan(q).any() and not any(beats(p, q) for p in points.T) for q in points.T]
    assert pareto_front(*points).tolist() == expected


def test_equal_points_are_on_the_front_together():
    assert pareto_front([1, 1, 2, 2], [2, 2, 1, 3]).tolist() == [True, True, True, False]


def test_pareto_front_of_many_points_is_a_decreasing_staircase():
    error, violation = np.random.default_rng(0).random((2, 200_000))
    front = pareto_front(pd.Series(error), violation)
    order = np.argsort(error[front])
    assert np.all(np.diff(violation[front][order]) < 0)


def test_pareto_front_needs_equal_lengths():
    with pytest.raises(ValueError, match=r"got shapes \(2,\) and \(3,\)"):
        pareto_front([1, 2], [1, 2, 3])

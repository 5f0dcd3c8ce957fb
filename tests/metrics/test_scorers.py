"""Scorers in scikit-learn's searches, with metadata routing and by a column of X."""

import copy
import functools
import pickle

import fairlearn.metrics
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.metrics import (
    demographic_parity_difference,
    demographic_parity_ratio,
    demographic_parity_scorer,
    equalized_odds_difference,
    fairness_scorer,
    loss_gap,
)

LABELS = {  # the metric of each ready-made scorer, by what it reads
    "demographic_parity": demographic_parity_difference,
    "demographic_parity_ratio": demographic_parity_ratio,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "equalized_odds": equalized_odds_difference,
    "error_rate_parity": metrics.error_rate_difference,
    "mutual_information": metrics.exponential_renyi_mutual_information,
    "false_positive_rate_parity": metrics.false_positive_rate_difference,
    "predictive_parity": metrics.predictive_parity_difference,
    "false_omission_rate_parity": metrics.false_omission_rate_difference,
}
AUCS = "group_auc inter_group_auc intra_group_auc positive_equality negative_equality bpsn_bnsp"
SCORES = {name: getattr(metrics, f"{name}_gap") for name in AUCS.split()}
READY_MADE = {**LABELS, **SCORES, "loss_gap": loss_gap}
CV = KFold(3)


@pytest.fixture(scope="module")
def data():
    """X with a text column and a number, y, and the groups; every cell has rows in every fold."""
    rng = np.random.default_rng(0)
    sex = np.array(["f", "m"])[np.arange(240) % 2]
    x = rng.normal(size=240) + (sex == "m")
    y = (x + rng.normal(size=240) > 0.5).astype(int)
    return pd.DataFrame({"sex": sex, "x": x}), y, sex


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def pipeline(model=None):
    columns = make_column_transformer((OneHotEncoder(), [0]), (StandardScaler(), [1]))
    return make_pipeline(columns, LogisticRegression() if model is None else model)


def to_polars(X):
    return pl.DataFrame(X.to_dict("list"))


class Fixed(ClassifierMixin, BaseEstimator):
    def __init__(self, y_pred):
        self.y_pred = y_pred

    @property
    def classes_(self):
        return np.unique(self.y_pred)

    def predict(self, X):
        return self.y_pred


def folds(scoring, X, y, **options):
    given = {"cv": CV, "error_score": "raise", **options}
    return cross_val_score(pipeline(), X, y, scoring=scoring, **given)


@pytest.mark.parametrize(
    ("metric", "sign"),
    [
        (fairlearn.metrics.selection_rate_ratio, 1),
        (fairlearn.metrics.accuracy_score_group_min, 1),
        (fairlearn.metrics.zero_one_loss_group_max, -1),
        (fairlearn.metrics.true_positive_rate_difference, -1),
        (metrics.false_negative_rate, -1),
        (metrics.exponential_renyi_mutual_information, -1),
        (functools.partial(demographic_parity_ratio, method="to_overall"), 1),
        (functools.partial(demographic_parity_difference, method="to_overall"), -1),
    ],
)
def test_the_sign_follows_from_the_name_whosever_the_metric(metric, sign, data):
    X, y, sex = data
    y_pred = np.where(np.arange(240) % 5 == 0, 1 - y, y)
    value = metric(y, y_pred, sensitive_features=sex)
    assert value > 0
    assert fairness_scorer(metric, column="sex")(Fixed(y_pred), X, y) == sign * value


def test_a_metric_that_does_not_tell_its_direction_must_be_told(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="greater_is_better must say whether constrained_balance"):
        fairness_scorer(constrained_balance)
    with pytest.raises(ValueError, match=r"metric must be a function, .* got 'accuracy'"):
        fairness_scorer("accuracy")
    for greater, sign in ((True, 1), (False, -1)):
        scorer = fairness_scorer(constrained_balance, column="sex", greater_is_better=greater)
        assert np.sign(scorer(Fixed(np.roll(y, 1)), X, y)) == sign


@pytest.mark.parametrize("name", READY_MADE)
def test_ready_made_scorers(name, data, routing):
    X, y, sex = data
    model = pipeline().fit(X, y)
    reads = {**dict.fromkeys(SCORES, "decision_function"), "loss_gap": "predict_proba"}
    values = getattr(model, reads.get(name, "predict"))(X)
    found = getattr(metrics, f"{name}_scorer")(model, X, y, sensitive_features=sex)
    sign = 1 if name.endswith("_ratio") else -1
    assert found == sign * READY_MADE[name](y, values, sensitive_features=sex) != 0


@pytest.mark.parametrize(
    ("routed", "on", "container"),
    [(True, True, pd.DataFrame), (False, True, pd.DataFrame), (False, False, to_polars)],
)
def test_grid_search_with_routing_or_a_column(routed, on, container, data):
    X, y, sex = data
    X = container(X)
    model, grid = pipeline(), {"logisticregression__C": [1e-3, 1.0]}
    scorer, given = fairness_scorer(demographic_parity_difference, column="sex"), {}
    if routed:
        model = pipeline(RateConstrainedClassifier())
        grid = {"rateconstrainedclassifier__slack": [0.1, 1.0]}
        scorer, given = demographic_parity_scorer, {"sensitive_features": sex}
    scoring = {"accuracy": "accuracy", "dp": scorer}
    options = {"refit": "dp", "cv": CV, "error_score": "raise"}
    with config_context(enable_metadata_routing=on):
        search = GridSearchCV(model, grid, scoring=scoring, **options).fit(X, y, **given)
        final = search.score(X, y, **given)
        assert clone(search).scoring["dp"](search, X, y, **given) == final
    means = search.cv_results_["mean_test_dp"]
    assert search.best_index_ == np.argmax(means)
    assert np.all(means < 0)
    assert final == -demographic_parity_difference(y, search.predict(X), sensitive_features=sex)


def constrained_balance(y_true, y_pred, *, sensitive_features):
    """Half the error plus the gap: a smaller gap is bought with errors."""
    gap = demographic_parity_difference(y_true, y_pred, sensitive_features=sensitive_features)
    return 0.5 * np.mean(y_true != y_pred) + gap


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: (X, "sex"),
        lambda X: (X.assign(again=X["sex"]), ["sex", "again"]),  # crossed
        lambda X: (X, 0),
        lambda X: (X, -2),
        lambda X: (to_polars(X), "sex"),
        lambda X: (to_polars(X), 0),
        lambda X: (X.to_numpy(), 0),
        lambda X: (X.to_numpy(), [0]),
        lambda X: (X.to_numpy().tolist(), 0),
        lambda X: (X.set_axis([1, 0], axis=1), 1),
        lambda X: (sparse.csr_array(np.c_[X["sex"] == "m", X["x"]].astype(float)), 0),
    ],
)
def test_a_column_by_name_or_position_of_every_container(convert, data):
    """Only the scorer reads X here; the estimator has its predictions ready."""
    X, y, sex = data
    y_pred = np.where(np.arange(240) % 5 == 0, 1 - y, y)
    container, column = convert(X)
    expected = -equalized_odds_difference(y, y_pred, sensitive_features=sex)
    scorer = fairness_scorer(equalized_odds_difference, column=column)
    assert scorer(Fixed(y_pred), container, y) == expected < 0


def test_weights_reach_the_metric(data):
    X, y, sex = data
    weight = np.random.default_rng(0).exponential(size=240)
    y_pred = np.roll(y, 1)
    kwargs = {"sensitive_features": sex, "sample_weight": weight}
    expected = -demographic_parity_difference(y, y_pred, **kwargs)
    by_column = fairness_scorer(demographic_parity_difference, column="sex")
    assert by_column(Fixed(y_pred), X, y, sample_weight=weight) == expected
    with config_context(enable_metadata_routing=True):
        scorer = fairness_scorer(demographic_parity_difference)
        scorer.set_score_request(sensitive_features=True, sample_weight=True)
        assert scorer(Fixed(y_pred), X, y, **kwargs) == expected


class WithinStrata(LogisticRegression):
    def fit(self, X, y, control_features=None):
        return super().fit(X, y)


def test_a_metric_without_strata_judges_fits_that_have_them(data, routing):
    X, y, sex = data
    model = WithinStrata().set_fit_request(control_features=True)
    params = {"sensitive_features": sex, "control_features": sex}
    scoring = fairness_scorer(fairlearn.metrics.demographic_parity_difference)
    options = {"cv": CV, "error_score": "raise", "params": params}
    scores = cross_val_score(model, X[["x"]], y, scoring=scoring, **options)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", ["demographic_parity", "demographic_parity_ratio"])
def test_a_tuned_threshold_tells_rows_apart(name, data, routing):
    """The gap of a constant is none, and the ratio of two rates of zero is not defined."""
    X, y, sex = data
    tuned = TunedThresholdClassifierCV(pipeline(), scoring=getattr(metrics, f"{name}_scorer"))
    tuned.fit(X, y, sensitive_features=sex)
    assert np.isfinite(tuned.best_score_)
    assert len(np.unique(tuned.predict(X))) == 2


@pytest.mark.parametrize("round_trip", [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy])
def test_scorers_survive_pickle_and_keep_their_request(round_trip, data):
    X, y, sex = data
    model = pipeline().fit(X, y)
    by_column = fairness_scorer(demographic_parity_difference, column="sex", method="to_overall")
    assert round_trip(by_column)(model, X, y) == by_column(model, X, y)
    assert repr(round_trip(by_column)) == repr(by_column)
    assert repr(by_column).startswith("fairness_scorer(demographic_parity_difference, column='sex'")
    assert "demographic_parity_difference" in repr(demographic_parity_scorer)
    with config_context(enable_metadata_routing=True):
        params = {"sensitive_features": sex}
        scores = folds(round_trip(demographic_parity_scorer), X, y, params=params)
    assert np.all(scores <= 0)


@pytest.mark.parametrize("response", ["predict", "predict_proba"])
def test_a_scorer_finds_the_groups_it_holds_by_the_index_of_x(data, response):
    X, y, sex = data
    X, metric = X.drop(columns="sex"), demographic_parity_difference
    metric = loss_gap if "proba" in response else metric
    options = {"response_method": response}
    held = fairness_scorer(metric, sensitive_features=pd.Series(sex), **options)
    asking = fairness_scorer(metric, **options)
    model, rows = LogisticRegression().fit(X, y), np.random.default_rng(0).permutation(240)[:90]
    with config_context(enable_metadata_routing=True):
        expected = asking(model, X.iloc[rows], y[rows], sensitive_features=sex[rows])
    assert held(model, X.iloc[rows], y[rows]) == expected
    assert pickle.loads(pickle.dumps(held))(model, X.iloc[rows], y[rows]) == expected
    weighted = fairness_scorer(metric, sensitive_features=sex, **options)
    assert weighted(model, X, y, sample_weight=np.ones(240)) == held(model, X, y)
    assert "sensitive_features=<Series>" in repr(held)


def test_groups_that_the_scorer_lacks_are_named(data):
    X, y, sex = data
    X, model = X.drop(columns="sex"), LogisticRegression()
    model.fit(X, y)
    half = fairness_scorer(demographic_parity_difference, sensitive_features=pd.Series(sex[:120]))
    with pytest.raises(ValueError, match="has no row 120, nor 119 other rows of the index of X"):
        half(model, X, y)
    twice = pd.Series(sex, index=np.arange(240) // 2)
    doubled = fairness_scorer(demographic_parity_difference, sensitive_features=twice)
    with pytest.raises(ValueError, match=r"index without repetitions .* got 0 more than once"):
        doubled(model, X, y)
    of_others = fairness_scorer(demographic_parity_difference, sensitive_features=sex[:5])
    with pytest.raises(ValueError, match="sensitive_features has 5 rows"):
        of_others(model, X, y)
    with pytest.raises(ValueError, match=r"column must be None .* got column='sex'"):
        fairness_scorer(demographic_parity_difference, column="sex", sensitive_features=sex)


HOW_TO = r"parity_difference got no sensitive_features(.|\n)*enable_metadata_routing=True"


def test_without_sensitive_features_the_routed_scorer_explains_what_to_do(data):
    X, y, sex = data
    with pytest.raises(ValueError, match=HOW_TO):
        folds(demographic_parity_scorer, X, y)
    with pytest.warns(UserWarning, match=HOW_TO):  # scikit-learn's default: nan and a warning
        scores = folds(demographic_parity_scorer, X, y, error_score=np.nan)
    assert np.isnan(scores).all()
    with config_context(enable_metadata_routing=True):
        grid, scoring = {"logisticregression__C": [1.0]}, demographic_parity_scorer
        search = GridSearchCV(pipeline(), grid, scoring=scoring, cv=CV)
        search.fit(X, y, sensitive_features=sex)
        with pytest.raises(ValueError, match=HOW_TO):  # forgotten
            search.score(X, y)


@pytest.mark.parametrize(
    ("convert", "column", "message"),
    [
        (lambda X: X, "gender", r"got 'gender', and X has the columns \['sex', 'x'\]"),
        (lambda X: X, 7, r"got 7, and X has the columns \['sex', 'x'\]"),
        (lambda X: X.to_numpy(), "sex", "got 'sex', and X has the columns 0 to 1"),
        (lambda X: X.to_numpy(), 2, "got 2, and X has the columns 0 to 1"),
    ],
)
def test_an_unknown_column_is_refused(convert, column, message, data):
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        fairness_scorer(demographic_parity_difference, column=column)(Fixed(y), convert(X), y)

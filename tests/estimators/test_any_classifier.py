"""Any scikit-learn classifier as the model: the same promises; settings that the head undoes."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import fairconstrained as fc
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, UndoneSettingWarning
from fairconstrained.export import model_card
from fairconstrained.fit.task import undone_settings
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.models import Posteriors
from tests.helpers.fits import FORGIVEN, measured, table
from tests.helpers.marks import slow_where

TREES = ensemble.HistGradientBoostingClassifier(max_iter=20, random_state=0)


def fitted(constraint="demographic_parity", model=TREES, data=None, **params):
    X, y, group = table(n=1000) if data is None else data
    clf = fc.RateConstrainedClassifier(constraint, model=model, random_state=0, **params)
    return clf.fit(X, y, sensitive_features=group)


def test_new_rows_see_the_violation_that_the_fit_tells():
    X, y, group = table(n=6000)
    parts = train_test_split(X, y, group, stratify=2 * y + group, random_state=0)
    train, test = parts[::2], parts[1::2]
    clf = fitted(slack=0.03, data=train)
    assert measured(clf, "demographic_parity", test) <= 0.03 + 0.03  # two standard errors
    assert measured(clone(TREES).fit(*train[:2]), "demographic_parity", test) > 0.15


def test_it_is_the_constrained_linear_model_of_the_posteriors():
    """Fitting on the out-of-fold columns by hand gives the same coefficients and violation."""
    X, y, group = table(n=1000)
    clf = fitted(model=GaussianNB(), slack=0.1)
    columns = clf.model_.fitted_.columns(X)
    np.testing.assert_allclose(clf.decision_function(X), columns @ clf.coef_[0] + clf.intercept_[0])
    rng = np.random.RandomState(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    parts = [[1, 0], [1, 0]]
    held_out, _ = Posteriors(GaussianNB()).columns(X, y, group, parts, random_state=rng)
    linear = fc.RateConstrainedClassifier(slack=0.1).fit(held_out, y, sensitive_features=group)
    np.testing.assert_allclose(linear.coef_, clf.coef_, rtol=1e-4, atol=1e-4)
    gap = measured(linear, "demographic_parity", (held_out, y, group))
    assert gap == pytest.approx(clf.violation_, abs=1e-9)


SEARCH = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [2, 3]}, cv=2)
BOTH = Posteriors(DecisionTreeClassifier(max_depth=3), GaussianNB(), cv=3)
MODELS = [TREES, ensemble.RandomForestClassifier(10), LinearSVC(), SEARCH, BOTH]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_constraint_holds_out_of_fold_and_predictions_need_no_group(model):
    clf = fitted("equalized_odds" if model is SEARCH else "demographic_parity", model)
    assert clf.feasible_
    assert clf.violation_ <= 0.05 + FORGIVEN
    X, y, _ = table(n=1000)
    assert clf.score(X, y) > max(np.mean(y), 1 - np.mean(y))
    np.testing.assert_allclose(clf.predict_proba(X).sum(axis=1), 1.0)


OTHERS = {
    "losses": fc.LossParityClassifier(slack=0.02),
    "AUCs": fc.AUCFairClassifier(),
    "ranks": fc.PartialParityClassifier(interval=(0.0, 1.0), slack=0.1),
}


@pytest.mark.parametrize("name", slow_where(OTHERS, "ranks"))
def test_whatever_the_estimator(name):
    X, y, group = table(n=1000)
    clf = clone(OTHERS[name]).set_params(model=TREES, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert clf.violation_ <= clf.slack + FORGIVEN
    assert clf.predict(X).shape == y.shape


@pytest.mark.slow
def test_a_cache_saves_the_classifiers_of_another_slack(tmp_path):
    """What depends on the rows only is fitted once; the models are those without the cache."""
    X, y, group = table(n=1000)
    plain = [fitted(slack=slack) for slack in (0.3, 0.05)]
    cached = Posteriors(TREES, memory=str(tmp_path))
    stored = []
    for slack, expected in zip((0.3, 0.05), plain, strict=True):
        clf = fitted(model=cached, slack=slack)
        np.testing.assert_array_equal(clf.decision_function(X), expected.decision_function(X))
        stored.append(len(list(tmp_path.rglob("output.pkl"))))
    assert stored == [2, 2]  # for the label and the groups
    fitted(model=cached, data=(X, y, group[::-1]), slack=0.3)
    clf.set_params(random_state=1).fit(X, y, sensitive_features=group)
    assert len(list(tmp_path.rglob("output.pkl"))) == 6


class Slow:
    rows = 0

    def __init__(self, model):
        self.model, self.classes_ = model, model.classes_

    def fit(self, X, y):
        raise AssertionError("it has been fitted")

    def predict_proba(self, X):
        Slow.rows += len(X)
        return self.model.predict_proba(X)


class CountingTree(DecisionTreeClassifier):
    rows = 0

    def predict_proba(self, X, check_input=True):
        CountingTree.rows += len(X)
        return super().predict_proba(X, check_input)


def test_training_rows_are_asked_about_out_of_fold_and_by_all_models():
    """Two models a fold, each about its fold, and then about all rows as about new ones."""
    X, y, group = table(n=1000)
    clf = fc.RateConstrainedClassifier(model=CountingTree(max_depth=4), slack=0.1, random_state=0)
    CountingTree.rows = 0
    clf.fit(X, y, sensitive_features=group)
    depends = CountingTree.rows - (2 + 3) * 1000
    assert 0 < depends < 0.5 * 3 * 1000
    gap = demographic_parity_difference(y, clf.predict(X), sensitive_features=group)
    assert clf.training_violation_ == pytest.approx(gap, abs=1e-12)
    assert CountingTree.rows == (2 + 3 + 3) * 1000 + 2 * depends


@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
def test_frozen_models_are_asked_once_about_a_row(constraint):
    X, y, group = table(n=1000)
    frozen = [FrozenEstimator(Slow(GaussianNB().fit(X, target))) for target in (y, group)]
    clf = fc.RateConstrainedClassifier(constraint, model=Posteriors(*frozen), random_state=0)
    Slow.rows = 0
    clf.fit(X, y, sensitive_features=group)
    assert Slow.rows == 2 * 1000
    assert clf.training_violation_ == clf.violation_
    clf.predict(X[:100])
    assert 2 * 1000 + 100 <= Slow.rows < 2 * 1100  # not about all groups
    Slow.rows = 0
    clf.decision_function(X[:100])
    assert Slow.rows == 2 * 100
    first = clone(clf)
    Slow.rows = 0
    for slack in (0.3, 0.1, 0.05):
        clone(first).set_params(slack=slack).fit(X, y, sensitive_features=group)
    assert Slow.rows == 2 * 1000


def test_tables_with_words_categories_and_missing_values():
    X, y, group = table(n=1000)
    frame = pd.DataFrame({"size": pd.Categorical(np.where(X[:, 0] > 0, "large", "small"))})
    frame["amount"] = np.where(np.arange(len(X)) % 5, X[:, 1], np.nan)
    clf = fitted(data=(frame, np.where(y == 1, "yes", "no"), group))
    assert clf.feature_names_in_.tolist() == ["size", "amount"]
    assert set(clf.predict(frame)) <= {"yes", "no"}
    assert clf.feasible_
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame.rename(columns={"size": "extent"}))


def test_texts():
    X, y, group = table(n=600)
    texts = [" ".join(f"w{i}" for i in np.flatnonzero(row > 0)) or "none" for row in X]
    model = make_pipeline(CountVectorizer(), LogisticRegression())
    clf = fitted(model=model, data=(texts, y, group))
    assert clf.score(texts, y) > 0.6
    assert "It predicts 0 or 1. Training" in model_card(clf).sections["Model"]
    ranking = fc.AUCFairClassifier("inter_group", model=model, slack=0.2, random_state=0)
    assert ranking.fit(texts, y, sensitive_features=group).score(texts, y) > 0.6


def test_a_frozen_model_is_made_fair_with_new_rows():
    X, y, group = table(n=3000)
    old = GaussianNB().fit(X[:1500], y[:1500])
    before = pickle.dumps(old)
    new = X[1500:], y[1500:], group[1500:]
    clf = fitted(model=FrozenEstimator(old), data=new)
    assert pickle.dumps(old) == before
    assert [model.estimator for model in clf.model_.fitted_.labels.models] == [old]
    assert measured(clf, "demographic_parity", new) <= 0.05 + FORGIVEN + 0.02
    assert measured(old, "demographic_parity", new) > 0.2


def test_without_constraints_it_is_the_calibrated_classifier():
    X, y, _ = table(n=1000)
    with pytest.warns(MissingSensitiveFeaturesWarning):
        clf = fc.RateConstrainedClassifier(model=TREES, random_state=0).fit(X, y)
    assert clf.coef_.shape == (1, 2)
    posterior = clf.model_.fitted_.columns(X)[:, 1]
    agree = clf.predict(X) == (posterior > 0.5)
    assert agree.mean() > 0.97


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.PrivacyWarning")
def test_a_private_head_on_public_models_is_nearly_as_good_as_without_privacy():
    X, y, group, _ = make_biased_classification(20_000, bias=0.4, random_state=0).values()
    public, own = slice(0, 4000), slice(4000, None)
    models = [GaussianNB().fit(X[public], target[public]) for target in (y, group)]
    errors = []
    for epsilon in (None, 1.0):
        rows, head = (X[own], y[own], group[own]), Posteriors(*map(FrozenEstimator, models))
        clf = fitted("equalized_odds", head, rows, epsilon=epsilon)
        errors.append(1 - clf.score(*rows[:2]))
        assert measured(clf, "equalized_odds", rows) < 0.08
    assert errors[1] < errors[0] + 0.01


PLAIN = LogisticRegression()
BALANCED = LogisticRegression(class_weight="balanced")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (BALANCED, "class_weight='balanced' of LogisticRegression"),
        (FixedThresholdClassifier(PLAIN, threshold=0.2), "threshold=0.2"),
        (TunedThresholdClassifierCV(PLAIN), "TunedThresholdClassifierCV"),
        (make_pipeline(StandardScaler(), BALANCED), "class_weight"),
        (make_pipeline(StandardScaler(), CalibratedClassifierCV(BALANCED)), "class_weight"),
        (ensemble.VotingClassifier([("a", PLAIN), ("b", BALANCED)]), "class_weight"),
        (FrozenEstimator(FixedThresholdClassifier(PLAIN, threshold=0.2)), "threshold=0.2"),
        (GridSearchCV(PLAIN, {"class_weight": [None, "balanced"]}), "class_weight='balanced'"),
        (LogisticRegression(class_weight={0: 1, 1: 2}), "class_weight={0: 1, 1: 2}"),
        (GaussianNB(priors=[0.5, 0.5]), "priors=[0.5, 0.5] of GaussianNB"),
        (GridSearchCV(make_pipeline(PLAIN), [{"lr__class_weight": ["balanced"]}]), "class_weight"),
    ],
)
def test_settings_are_found_inside(model, name):
    assert name in "; ".join(undone_settings(model))


def test_boosters_and_samplers():
    lightgbm, sampling = pytest.importorskip("lightgbm"), pytest.importorskip("imblearn")
    trees = lightgbm.LGBMClassifier(is_unbalance=True, pos_bagging_fraction=0.5)
    assert len(undone_settings(trees)) == 2
    sampler = sampling.over_sampling.RandomOverSampler()
    (found,) = undone_settings(sampling.pipeline.make_pipeline(sampler, PLAIN))
    assert "RandomOverSampler" in found


@pytest.mark.parametrize(
    "model",
    [
        PLAIN,
        FixedThresholdClassifier(PLAIN),
        GridSearchCV(PLAIN, {}),
        MultinomialNB(),
        LogisticRegression(class_weight={0: 1, 1: 1}),
        GridSearchCV(PLAIN, {"class_weight": [None, {"no": 1.0, "yes": 1.0}]}),
    ],
)
def test_nothing_is_found_where_nothing_is_set(model):
    assert undone_settings(model) == []


THREE_GROUPS = {
    "X": np.random.default_rng(0).normal(size=(300, 3)),
    "y": np.random.default_rng(1).integers(0, 2, 300),
    "sensitive_features": np.arange(300) % 3,
}


def test_a_threshold_that_is_undone_is_no_obstacle_for_three_groups():
    """scikit-learn's classifiers with thresholds are for two classes; groups need none."""
    model = FixedThresholdClassifier(PLAIN, threshold=0.2)
    with pytest.warns(UndoneSettingWarning, match=r"threshold=0\.2.*costs="):
        clf = fc.RateConstrainedClassifier(model=model, random_state=0).fit(**THREE_GROUPS)
    plain = fc.RateConstrainedClassifier(model=PLAIN, random_state=0).fit(**THREE_GROUPS)
    X = THREE_GROUPS["X"]
    np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(class_weight={"no": 1, "yes": 9}),
        make_pipeline(GaussianNB(priors=[0.3, 0.7])),
    ],
)
def test_weights_of_single_labels_are_no_obstacle_for_three_groups(model):
    rows = {**THREE_GROUPS, "y": np.array(["no", "yes"])[THREE_GROUPS["y"]]}
    with pytest.warns(UndoneSettingWarning, match="of (LogisticRegression|GaussianNB)"):
        clf = fc.RateConstrainedClassifier(model=model, random_state=0).fit(**rows)
    assert set(clf.predict(rows["X"])) <= {"no", "yes"}


def test_a_model_that_cannot_tell_the_groups_apart_is_named():
    priors = Posteriors(PLAIN, GaussianNB(priors=[0.5, 0.5]))
    with pytest.raises(ValueError, match=r"GaussianNB.*tell the 3 groups.*priors.*group_model"):
        fc.RateConstrainedClassifier(model=priors, random_state=0).fit(**THREE_GROUPS)

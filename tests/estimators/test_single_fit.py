"""One plain classifier that learns from a head, keeps the slack out of fold and predicts alone."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import AUCFairClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, FalseNegativeRate, LossParity
from fairconstrained.models import SingleFit
from tests.helpers.fits import FORGIVEN, measured, table

TREE = DecisionTreeClassifier(max_depth=4, random_state=0)
LOGISTIC = LogisticRegression()
PIPELINE = make_pipeline(StandardScaler(), LOGISTIC)


def fitted(constraint="demographic_parity", model=LOGISTIC, data=None, sample_weight=None, **given):
    X, y, group = table(n=1000) if data is None else data
    clf = RateConstrainedClassifier(constraint, model=SingleFit(model), random_state=0, **given)
    return clf.fit(X, y, sensitive_features=group, sample_weight=sample_weight)


CRITERIA = {
    "errors": "error_rate_parity",
    "ratio": DemographicParity(ratio=0.8),
    "cap": FalseNegativeRate(max=0.1, per_group=True),
    "list": [DemographicParity(0.05, reference="overall"), FalseNegativeRate(max=0.25)],
}


@pytest.mark.parametrize("name", CRITERIA)
def test_the_slack_is_kept_out_of_fold_and_the_classifier_predicts_alone(name):
    data = X, y, _ = table(n=2000)
    clf = fitted(CRITERIA[name], data=data)
    assert clf.feasible_
    single = clf.model_.estimator_
    assert type(single) is LogisticRegression
    np.testing.assert_array_equal(clf.predict(X), single.predict(X))
    np.testing.assert_allclose(clf.predict_proba(X), single.predict_proba(X))
    assert clf.score(X, y) > max(np.mean(y), 1 - np.mean(y))


@pytest.mark.parametrize(
    "model", [TREE, PIPELINE, RidgeClassifier()], ids=lambda m: type(m).__name__
)
def test_whatever_the_classifier(model):
    """The gap of new predictions falls, and labels are those of the classifier."""
    data = table(n=1000)
    clf = fitted(model=model)
    assert clf.violation_ <= 0.05 + FORGIVEN
    X = data[0]
    np.testing.assert_array_equal(clf.predict(X), clf.model_.estimator_.predict(X))
    free = fitted(model=model, slack=1.0)
    gaps = [measured(own, "demographic_parity", data) for own in (clf, free)]
    assert gaps[0] < 0.7 * gaps[1]


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
def test_a_head_for_other_slacks_is_neither_a_constant_nor_lost():
    """Labels of a thousand rows miss what the head has, again and again."""
    data = X, y, _ = table(n=1000)
    clf = fitted("equalized_odds", data=data)
    assert clf.violation_ < 0.1
    assert clf.score(X, y) > 0.7


def test_what_is_hardly_better_than_equal_scores_is_said():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=1000)
    X = np.column_stack((group, rng.normal(size=1000)))
    y = (rng.random(1000) < 0.1 + 0.8 * group).astype(int)
    with pytest.warns(ConvergenceWarning, match="equal scores have .* Try a larger slack"):
        fitted(data=(X, y, group), slack=0.01)


def test_the_classifier_decides_as_the_head_does():
    """Nearly all labels are those of posteriors with the same classifier and slack."""
    X, y, group = table(n=2000)
    head = RateConstrainedClassifier(model=LOGISTIC, random_state=0)
    expected = head.fit(X, y, sensitive_features=group).predict(X)
    assert np.mean(fitted(data=(X, y, group)).predict(X) == expected) > 0.95
    assert np.mean(clone(LOGISTIC).fit(X, y).predict(X) == expected) < 0.93


def test_out_of_fold_labels_know_nothing_of_the_label_of_their_row():
    """Trees that know all rows by heart cannot guess labels that are drawn by coin."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(900, 3)), rng.integers(2, size=900), rng.integers(2, size=900)
    clf = fitted(model=DecisionTreeClassifier(random_state=0), data=data, slack=1.0)
    assert abs(clf.score(*data[:2]) - 0.5) > 0.1  # one of two models has seen the row
    assert 0.45 < clf.history_["error"][-1] < 0.55


def test_weights_count_as_rows():
    """A row of weight 2 is two rows: the same posteriors, head and classifier."""
    X, y, group = table()
    half = np.arange(len(y)) % 2 == 0
    twice = np.repeat(np.arange(len(y)), 1 + (np.arange(len(y)) % 3 == 0))
    coefs = []
    for rows, weight in ((np.arange(len(y)), np.bincount(twice)), (twice, None)):
        folds = [np.flatnonzero(half[rows]), np.flatnonzero(~half[rows])]
        model = SingleFit(LOGISTIC, cv=[folds, folds[::-1]])
        clf = RateConstrainedClassifier(slack=1.0, model=model)
        clf.fit(X[rows], y[rows], sensitive_features=group[rows], sample_weight=weight)
        coefs.append(clf.model_.estimator_.coef_)
    np.testing.assert_allclose(*coefs, rtol=0.01)


def test_a_margin_narrows_the_slack():
    group = table(n=1000)[2]
    error = np.sqrt(sum(0.25 / np.sum(group == g) for g in (0, 1)))
    clf = fitted(margin=1.0)
    assert clf.feasible_
    assert clf.violation_ <= 0.05 - 0.8 * error


def test_the_model_travels_without_models_of_the_groups():
    clf = fitted(model=TREE)
    assert not hasattr(clf.model_, "fitted_")
    again = pickle.loads(pickle.dumps(clf))
    X = table(n=1000)[0]
    np.testing.assert_array_equal(again.predict(X), clf.predict(X))


def test_pipelines_take_weights_by_metadata_routing():
    plain = fitted(model=PIPELINE)
    with config_context(enable_metadata_routing=True):
        asking = LogisticRegression().set_fit_request(sample_weight=True)
        asked = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asking)
        routed = fitted(model=asked)
        with pytest.raises(ValueError, match="sample_weight"):
            fitted(model=PIPELINE)  # where nothing is requested
    found = [clf.model_.estimator_[-1].coef_ for clf in (plain, routed)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("clf", "message"),
    [
        (RateConstrainedClassifier(model=SingleFit(FrozenEstimator(LOGISTIC))), "frozen"),
        (RateConstrainedClassifier(model=SingleFit(KNeighborsClassifier())), "take sample_weight"),
        (RateConstrainedClassifier(model=SingleFit(StandardScaler())), "must be a classifier"),
        (RateConstrainedClassifier(LossParity(), model=SingleFit(LOGISTIC)), "got loss_parity"),
        (RateConstrainedClassifier(warm_start=True, model=SingleFit(LOGISTIC)), "warm_start must"),
        (RateConstrainedClassifier(epsilon=1.0, model=SingleFit(LOGISTIC)), "reads the rows"),
        (AUCFairClassifier(model=SingleFit(LOGISTIC)), "cannot be SingleFit"),
    ],
    ids=str,
)
def test_refused_before_any_fit(clf, message, monkeypatch):
    def fit(self, X, y, sample_weight=None):
        pytest.fail("it was fitted")

    monkeypatch.setattr(LogisticRegression, "fit", fit)
    X, y, group = table()
    with pytest.raises(ValueError, match=message):
        clf.fit(X, y, sensitive_features=group)

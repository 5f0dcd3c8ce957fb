"""The smallest gap at a given quality; who says the same of everybody is never chosen."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn import config_context
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from fairconstrained import (
    AUCFairClassifier,
    LossParityClassifier,
    RateConstrainedClassifier,
    exceptions,
)
from fairconstrained.constraints import (
    DemographicParity,
    ErrorRateParity,
    ExpectedCost,
    FalseNegativeRate,
    LossParity,
)
from fairconstrained.metrics import (
    demographic_parity_difference,
    demographic_parity_scorer,
    fairness_scorer,
)
from fairconstrained.metrics.inputs import nearly_constant
from fairconstrained.model_selection import (
    CertifiedClassifier,
    SmallestGapClassifier,
    select_feasible,
    tradeoff_curve,
)
from tests.helpers.fits import fitted, table

BY_RATES = RateConstrainedClassifier("demographic_parity")


def exact(cell, group, y, most):
    """The smallest gap of all rules on cells whose error is at most `most`: an integer program."""
    n, positives = np.bincount(cell), np.bincount(cell, y)
    of_group = [np.bincount(cell, group == g, len(n)) / (group == g).sum() for g in (0, 1)]
    difference = of_group[0] - of_group[1]
    error = (n - 2 * positives) / len(y)
    constraints = [
        LinearConstraint(np.append(difference, -1.0), ub=0),
        LinearConstraint(np.append(-difference, -1.0), ub=0),
        LinearConstraint(np.append(error, 0.0), ub=most - y.mean()),
    ]
    objective, whole = np.append(np.zeros(len(n)), 1.0), np.append(np.ones(len(n)), 0)
    return milp(objective, constraints=constraints, bounds=Bounds(0, 1), integrality=whole).fun


@pytest.mark.slow
def test_of_rules_on_cells_it_is_that_of_an_integer_program():
    """A column for each cell: a linear model is any rule, and rates jump by those of cells."""
    rng = np.random.default_rng(0)
    value = rng.integers(20, size=3000)
    group = (rng.random(3000) < 0.2 + 0.03 * value).astype(int)
    cell = 2 * value + group
    y = (rng.random(3000) < rng.random(40)[cell] * (0.4 + 0.6 * group)).astype(int)
    X = np.eye(40)[cell]
    free = fitted(DemographicParity(1.0), (X, y, group))
    most = 1 - free.score(X, y) + 0.02
    clf = SmallestGapClassifier(BY_RATES, ExpectedCost(most))
    clf.fit(X, y, sensitive_features=group)
    assert np.mean(clf.predict(X) != y) <= most + 1e-3
    assert clf.gap_ >= exact(cell, group, y, most + 1e-3) - 1e-9
    assert clf.gap_ <= exact(cell, group, y, most) + 0.015
    assert clf.gap_ < free.violation_ - 0.02


def test_other_criteria_and_several_floors_hold_in_every_fit():
    X, y, group = table(n=1000)
    estimator = RateConstrainedClassifier(["demographic_parity", ErrorRateParity(0.1)])
    floors = [ExpectedCost(0.35, costs="balanced"), FalseNegativeRate(0.35)]
    clf = SmallestGapClassifier(estimator, floors).fit(X, y, sensitive_features=group)
    predicted = clf.predict(X)
    assert clf.feasible_
    assert clf.gap_ == demographic_parity_difference(y, predicted, sensitive_features=group)
    assert clf.estimator_.violations_["error_rate_parity"] <= 0.101
    assert clf.estimator_.violations_["false_negative_rate"] <= 0.351


@pytest.mark.parametrize(
    ("constraint", "floor"),
    [
        ("demographic_parity", ExpectedCost(0.0)),
        (["demographic_parity", ExpectedCost(0.0)], FalseNegativeRate(1.0)),
    ],
)
def test_a_bound_out_of_reach_is_said(constraint, floor):
    X, y, group = table()
    clf = SmallestGapClassifier(RateConstrainedClassifier(constraint), floor)
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match="expected_cost"):
        clf.fit(X, y, sensitive_features=group)
    assert not clf.feasible_
    assert len(clf.tried_) == 1


def test_without_groups_there_is_nothing_to_compare():
    X, y, _ = table()
    clf = SmallestGapClassifier(BY_RATES, ExpectedCost(0.5))
    for rows in (pd.DataFrame(X).add_prefix("x"), X):
        with pytest.warns(match="cannot compare"):
            clf.fit(rows, y)
        assert np.isnan(clf.gap_)
        assert hasattr(clf, "feature_names_in_") == hasattr(rows, "columns")
    assert clf.predict(X).shape == y.shape


@pytest.mark.parametrize(
    ("estimator", "floors", "message"),
    [
        (BY_RATES, [], "floors must be caps"),
        (BY_RATES, DemographicParity(0.1), "floors must be caps"),
        (BY_RATES, ExpectedCost(), "floors must be caps"),
        (3, ExpectedCost(0.5), "estimator must have a method fit; got 3"),
        (RateConstrainedClassifier(epsilon=1.0), ExpectedCost(0.5), "without epsilon"),
        (LossParityClassifier(), "accuracy", "floors must be caps"),
        (RateConstrainedClassifier(DemographicParity(0.1)), ExpectedCost(0.5), "whose gap"),
    ],
)
def test_bad_input(estimator, floors, message):
    X, y, group = table()
    with pytest.raises(ValueError, match=message):
        SmallestGapClassifier(estimator, floors).fit(X, y, sensitive_features=group)


pytestmark = pytest.mark.filterwarnings("ignore:One or more of the test scores")


def draw(n=400, n_classes=2, far=4.0):
    """Groups so far apart that a small gap leaves hardly any choice."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % 2
    X = np.column_stack((far * group + rng.normal(size=n), rng.normal(size=n)))
    score = X[:, 0] + 0.3 * rng.normal(size=n)
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    return X, y, group


@pytest.mark.parametrize("kind", [int, str])
def test_nearly_constant_is_a_share_of_a_hundredth(kind):
    for n, others, constant in ((100, 1, True), (100, 2, False), (20, 0, True), (20, 1, False)):
        labels = np.array([0] * (n - others) + [1] * others).astype(kind)
        assert nearly_constant(labels) == constant


by_scorers = pytest.mark.parametrize(
    "scorer", [demographic_parity_scorer, fairness_scorer(demographic_parity_difference, column=2)]
)


@pytest.mark.filterwarnings("ignore:.* has no score, but nan")
@pytest.mark.parametrize("n_classes", [2, 3])
@by_scorers
def test_a_search_passes_over_a_constant(n_classes, scorer):
    """Its gap is none and its accuracy is enough to be chosen otherwise."""
    X, y, group = draw(n_classes=n_classes)
    X = np.column_stack((X, group))
    candidates = [DummyClassifier(strategy="constant", constant=0), LogisticRegression()]
    routed = {"sensitive_features": group} if scorer is demographic_parity_scorer else {}
    asked = {"scoring": {"accuracy": "accuracy", "dp": scorer}, "refit": False, "cv": 2}
    search = GridSearchCV(Pipeline([("clf", candidates[0])]), {"clf": candidates}, **asked)
    with config_context(enable_metadata_routing=True):
        results = search.fit(X, y, **routed).cv_results_
    words = "No useful model was found.*1 candidates with a nan"
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match=words):
        assert select_feasible()(results) == 1
    only = {key: values[:1] for key, values in results.items()}
    with pytest.raises(exceptions.NoUsefulModelError, match="No useful model was found"):
        select_feasible()(only)


@by_scorers
def test_a_curve_keeps_near_constants_and_says_which_they_are(scorer):
    X, y, group = draw()
    X = np.column_stack((X, group))
    candidates = [DummyClassifier(strategy="constant", constant=0), LogisticRegression()]
    asked = {"param_name": "clf", "param_range": candidates, "cv": 2, "sensitive_features": group}
    scoring = {"accuracy": "accuracy", "dp": scorer}
    curve = tradeoff_curve(Pipeline([("clf", candidates[1])]), X, y, scoring=scoring, **asked)
    assert curve["mean_test_dp"][0] == 0
    assert curve["useful"].tolist() == [False, True]
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match="No useful model was found"):
        assert select_feasible()(curve) == 1


def test_a_constant_is_not_certified():
    X, y, group = draw(n=4000, far=0.0)
    constant = DummyClassifier(strategy="constant", constant=0)
    coin = DummyClassifier(strategy="uniform", random_state=0)
    whole = Pipeline([("clf", constant)])
    claim = {"constraint": "demographic_parity", "slack": 0.1, "random_state": 0}
    clf = CertifiedClassifier(whole, **claim, candidates={"clf": [constant, coin]})
    clf.fit(X, y, sensitive_features=group)
    assert clf.candidates_["kept"].tolist() == [True, True]
    assert clf.estimator_[-1].strategy == "uniform"
    clf = CertifiedClassifier(whole, **claim, candidates={"clf": [constant]})
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match="No useful model was found"):
        assert not clf.fit(X, y, sensitive_features=group).certified_
    with pytest.raises(exceptions.NotCertifiedError, match="No useful model was found"):
        clf.set_params(on_failure="raise").fit(X, y, sensitive_features=group)


@pytest.mark.slow
def test_the_smallest_gap_is_that_of_a_useful_model():
    """The floor lets a constant pass, whose gap is none."""
    X, y, group = draw(far=1.5)
    clf = SmallestGapClassifier(RateConstrainedClassifier(), ExpectedCost(0.6), tol=0.02)
    clf.fit(X, y, sensitive_features=group)
    assert clf.feasible_
    assert not nearly_constant(clf.predict(X))
    assert not clf.tried_.loc[~clf.tried_["useful"], "kept"].any()
    assert (clf.tried_.loc[clf.tried_["kept"], "excess"] <= 0.0).all()


def test_a_constant_on_rows_that_no_copy_knows_is_not_chosen():
    """At the least slack a forest accepts some training rows and, out of fold, hardly any."""
    rng = np.random.default_rng(5)
    group = rng.integers(2, size=200)
    X = np.column_stack((1.5 * group + rng.normal(size=200), rng.normal(size=200)))
    y = (X[:, 0] + rng.normal(size=200) > 2.2).astype(int)
    forest = RandomForestClassifier(20, random_state=0)
    estimator = RateConstrainedClassifier(model=forest, random_state=0)
    clf = SmallestGapClassifier(estimator, ExpectedCost(0.3), tol=0.02)
    clf.fit(X, y, sensitive_features=group)
    assert clf.tried_["useful"].tolist() == [True, False, True]
    assert clf.estimator_.label_shares_.max() < 0.99


@pytest.mark.parametrize("constraint", [DemographicParity(), LossParity()])
def test_shares_of_labels_are_those_of_weighted_predictions(constraint):
    X, y, group = draw(n_classes=3)
    weight = np.arange(len(y)) % 3
    clf = RateConstrainedClassifier(constraint)
    clf.fit(X, y, sensitive_features=group, sample_weight=weight)
    shares = np.bincount(clf.predict(X), weight) / weight.sum()
    np.testing.assert_allclose(clf.label_shares_, shares, rtol=1e-12)
    # Rankings predict by another threshold than zero.
    ranking = AUCFairClassifier().fit(X[y < 2], y[y < 2], sensitive_features=group[y < 2])
    assert not hasattr(ranking, "label_shares_")

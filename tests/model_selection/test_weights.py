"""Sample weights reach every fit, row by row, with metadata routing on and off."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import RateConstrainedClassifier
from fairconstrained.constraints import ExpectedCost
from fairconstrained.model_selection import (
    CertifiedClassifier,
    SmallestGapClassifier,
    tradeoff_curve,
)
from fairconstrained.models import SingleFit

N = 240
RNG = np.random.default_rng(0)
GROUP = np.arange(N) % 2
X = np.column_stack((RNG.normal(size=(N, 2)), np.arange(N)))  # the last column is the row's number
Y = (X[:, 0] + RNG.normal(size=N) > 0).astype(int)
WEIGHT = RNG.random(N) + 0.5
GIVEN = {"sensitive_features": GROUP, "sample_weight": WEIGHT}
CLAIM = {"constraint": "demographic_parity", "slack": 0.9, "random_state": 0}
FITS = []  # whether each fit had its rows' weights


class Noting(RateConstrainedClassifier):
    def fit(self, X, y, *, sensitive_features=None, control_features=None, sample_weight=None):
        FITS.append(np.array_equal(sample_weight, WEIGHT[X[:, -1].astype(int)]))
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        return super().fit(X, y, **given)


class NotingRegression(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        FITS.append(sample_weight is not None and np.ptp(sample_weight) > 0)
        return super().fit(X, y, sample_weight=sample_weight)


def searched(clf, grid):
    return GridSearchCV(clf, grid, **STRICT).fit(X, Y, **GIVEN)


FAIR, STRICT = Noting(slack=0.5, max_iter=3), {"cv": 2, "error_score": "raise"}
CURVE = {"sensitive_features": GROUP, "params": {"sample_weight": WEIGHT}, "cv": 2}
WAYS = {
    "cross_validate": lambda clf, name: cross_validate(clf, X, Y, params=GIVEN, **STRICT),
    "search": lambda clf, name: searched(clf, {f"{name}slack": [0.5]}),
    "certified": lambda clf, name: CertifiedClassifier(clf, **CLAIM).fit(X, Y, **GIVEN),
    "search of certified": lambda clf, name: searched(
        CertifiedClassifier(clf, **CLAIM), {"confidence": [0.9]}
    ),
    "curve": lambda clf, name: tradeoff_curve(
        *(clf, X, Y), **CURVE, param_name=f"{name}slack", param_range=[0.5]
    ),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:No useful model was found"),
    pytest.mark.filterwarnings("ignore:The certificate leaves out"),
]


@pytest.fixture(autouse=True)
def _forget():
    FITS.clear()


def scaled(step, *, routing):
    scaler = StandardScaler(with_mean=False, with_std=False)
    pipeline = Pipeline([("scale", scaler), ("clf", step)])
    if routing:
        scaler.set_fit_request(sample_weight=False)
        pipeline.set_score_request(sample_weight=True)  # scikit-learn 1.6 asks for it
    return pipeline


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_weights_reach_estimators(way, routing):
    with config_context(enable_metadata_routing=routing):
        way(FAIR, "")
    assert set(FITS) == {True}


def test_weights_reach_all_fits_of_the_smallest_gap():
    SmallestGapClassifier(FAIR, ExpectedCost(0.6), tol=0.2).fit(X, Y, **GIVEN)
    assert set(FITS) == {True}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_weights_reach_a_step_of_a_pipeline_by_requests(way):
    with config_context(enable_metadata_routing=True):
        way(scaled(FAIR, routing=True), "clf__")
    assert set(FITS) == {True}
    with config_context(enable_metadata_routing=True):
        silent = Pipeline([("scale", StandardScaler()), ("clf", FAIR)])
        silent.set_score_request(sample_weight=True)
        # Of what lacks a request later versions of scikit-learn give the step.
        with pytest.raises(Exception, match=r"set_fit_request"):
            way(silent, "clf__")


def test_weights_reach_a_step_of_a_pipeline_by_its_name_without_routing():
    pipe = scaled(FAIR, routing=False)
    pipe.fit(X, Y, clf__sensitive_features=GROUP, clf__sample_weight=WEIGHT)
    assert FITS == [True]
    words = "passes metadata by requests, also with routing off.*config_context"
    with pytest.raises(ValueError, match=words):
        CertifiedClassifier(pipe, **CLAIM).fit(X, Y, **GIVEN)
    with pytest.raises(ValueError, match=f"tradeoff_curve {words}"):
        WAYS["curve"](pipe, "clf__")


@pytest.mark.parametrize("kind", ["pipeline", "SingleFit"])
@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_a_pipeline_as_model_or_an_error_says_how(routing, kind):
    def fair(step):
        model = scaled(step, routing=routing)
        model = model if kind == "pipeline" else SingleFit(model)
        return RateConstrainedClassifier(slack=0.5, max_iter=3, model=model)

    step = NotingRegression()
    with config_context(enable_metadata_routing=routing):
        if routing:
            with pytest.raises(ValueError, match=r"'clf'.*NotingRegression\(\).set_fit_request"):
                fair(step).fit(X, Y, **GIVEN)
            step.set_fit_request(sample_weight=True)
        FITS.clear()
        fair(step).fit(X, Y, **GIVEN)
    assert set(FITS) == {True}

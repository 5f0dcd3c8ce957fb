"""Settings that the head of a wrapped classifier undoes are named, wherever they are."""

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import RateConstrainedClassifier
from fairconstrained.exceptions import UndoneSettingWarning
from fairconstrained.fit.undone_settings import undone_settings

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
        (VotingClassifier([("a", PLAIN), ("b", BALANCED)]), "class_weight"),
        (FrozenEstimator(FixedThresholdClassifier(PLAIN, threshold=0.2)), "threshold=0.2"),
        (GridSearchCV(PLAIN, {"class_weight": [None, "balanced"]}), "class_weight='balanced'"),
        (LogisticRegression(class_weight={0: 1, 1: 2}), "class_weight={0: 1, 1: 2}"),
        (GridSearchCV(make_pipeline(PLAIN), [{"lr__class_weight": ["balanced"]}]), "class_weight"),
    ],
)
def test_settings_are_found_inside(model, name):
    assert name in "; ".join(undone_settings(model))


def test_boosters_and_samplers():
    lightgbm, sampling = pytest.importorskip("lightgbm"), pytest.importorskip("imblearn")
    trees = lightgbm.LGBMClassifier(is_unbalance=True, scale_pos_weight=3)
    assert len(undone_settings(trees)) == 2
    sampler = sampling.over_sampling.RandomOverSampler()
    assert (
        "RandomOverSampler" in undone_settings(sampling.pipeline.make_pipeline(sampler, PLAIN))[0]
    )


@pytest.mark.parametrize(
    "model",
    [
        PLAIN,
        FixedThresholdClassifier(PLAIN),
        GridSearchCV(PLAIN, {}),
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
        clf = RateConstrainedClassifier(model=model, random_state=0).fit(**THREE_GROUPS)
    plain = RateConstrainedClassifier(model=PLAIN, random_state=0).fit(**THREE_GROUPS)
    X = THREE_GROUPS["X"]
    np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-9)


def test_a_model_that_cannot_tell_the_groups_apart_is_named():
    priors = GaussianNB(priors=[0.5, 0.5])
    with pytest.raises(ValueError, match=r"GaussianNB.*tell the 3 groups.*priors.*group_model"):
        RateConstrainedClassifier(model=priors, random_state=0).fit(**THREE_GROUPS)


@pytest.mark.slow
def test_what_the_warning_says_keeps_the_recall():
    rng = np.random.default_rng(0)
    group, X = rng.integers(0, 2, 2000), rng.normal(size=(2000, 4))
    X[:, 0] += 0.6 * group
    y = (X[:, 0] + X[:, 1] + rng.normal(size=2000) > 2.6).astype(int)
    fit = {"X": X, "y": y, "sensitive_features": group}
    with pytest.warns(UndoneSettingWarning, match=r'class_weight.*costs="balanced"'):
        undone = RateConstrainedClassifier(model=BALANCED, random_state=0).fit(**fit)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UndoneSettingWarning)
        kept = RateConstrainedClassifier(model=PLAIN, costs="balanced", random_state=0).fit(**fit)
    assert kept.feasible_
    assert recall_score(y, undone.predict(X)) < 0.5
    assert recall_score(y, kept.predict(X)) > 0.8

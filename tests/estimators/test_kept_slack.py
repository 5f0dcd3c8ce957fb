"""The slack is kept to the last row, as users compare; the rows are said in the same words."""

import re
import warnings
from pathlib import Path

import fairlearn.metrics
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import fairconstrained
from fairconstrained import (
    AUCFairClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
    metrics,
)
from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.export import model_card
from fairconstrained.models import SingleFit

WORDS = (
    "measured on the training rows, and for a scikit-learn classifier as `model` out of fold: by "
    "copies that were not fitted to the row"
)
MEASURES = {
    "demographic_parity": metrics.demographic_parity_difference,
    "equalized_odds": metrics.equalized_odds_difference,
    "equal_opportunity": metrics.equal_opportunity_difference,
    "error_rate_parity": metrics.error_rate_difference,
}


def draw(seed, n=240, n_groups=2):
    """Few rows in groups of round sizes: gaps at the slack itself are common."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % n_groups
    X = rng.normal(size=(n, 3))
    X[:, 0] += 0.8 * (group == 0)
    y = (X[:, 0] + X[:, 1] + rng.normal(size=n) > 0.5).astype(int)
    return X, y, group


def kept(clf):
    """Whether the fit keeps its slack by the comparison that users write."""
    return clf.feasible_ and clf.violation_ <= clf.slack


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", list(MEASURES))
def test_labels_keep_the_slack_by_the_metric_itself(name, seed):
    X, y, group = draw(seed)
    clf = RateConstrainedClassifier(name, slack=0.05).fit(X, y, sensitive_features=group)
    assert kept(clf)
    assert MEASURES[name](y, clf.predict(X), sensitive_features=group) <= 0.05
    assert clf.training_violation_ == clf.violation_


@pytest.mark.parametrize("seed", range(3))
def test_gaps_at_the_slack_round_as_in_fairlearn(seed):
    """Of 50 rows in a group a gap of 0.06 is one of 3 rows, or rounds to more."""
    X, y, group = draw(seed, n=100)
    clf = RateConstrainedClassifier(slack=0.06).fit(X, y, sensitive_features=group)
    gap = fairlearn.metrics.demographic_parity_difference(
        y, clf.predict(X), sensitive_features=group
    )
    assert kept(clf)
    assert gap <= 0.06


@pytest.mark.parametrize("seed", range(2))
def test_ratios_caps_lists_weights_strata_and_margins_keep_theirs(seed):
    X, y, group = draw(seed, n_groups=3)
    weight, stratum = 1.0 + (np.arange(len(y)) % 3), np.arange(len(y)) % 2
    fit = {"X": X, "y": y, "sensitive_features": group}
    clf = RateConstrainedClassifier(DemographicParity(ratio=0.8)).fit(**fit)
    ratio = metrics.demographic_parity_ratio(y, clf.predict(X), sensitive_features=group)
    assert clf.feasible_
    assert ratio >= 0.8
    several = ["demographic_parity", FalseNegativeRate(max=0.4, per_group=True)]
    clf = RateConstrainedClassifier(several, slack=0.1).fit(**fit)
    assert clf.feasible_
    assert clf.violations_["demographic_parity"] <= 0.1
    assert clf.violations_["false_negative_rate"] <= 0.4
    clf = RateConstrainedClassifier().fit(**fit, sample_weight=weight)
    assert kept(clf)
    gap = metrics.demographic_parity_difference(
        y, clf.predict(X), sensitive_features=group, sample_weight=weight
    )
    assert gap <= 0.05
    assert kept(RateConstrainedClassifier(slack=0.1).fit(**fit, control_features=stratum))
    assert kept(RateConstrainedClassifier(slack=0.1, margin=0.5).fit(**fit))
    parallel = DemographicParity(attributes="parallel")
    columns = np.column_stack((group, stratum))
    assert kept(RateConstrainedClassifier(parallel).fit(X, y, sensitive_features=columns))


def test_no_slack_is_kept_too():
    X, y, group = draw(0)
    clf = RateConstrainedClassifier(slack=0.0).fit(X, y, sensitive_features=group)
    assert kept(clf)
    assert metrics.demographic_parity_difference(y, clf.predict(X), sensitive_features=group) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "clf",
    [
        LossParityClassifier(slack=0.01),
        AUCFairClassifier(slack=0.02),
        PartialParityClassifier(slack=0.1),
        RateConstrainedClassifier(model=(4,), slack=0.1, random_state=0),
    ],
    ids=lambda clf: type(clf).__name__,
)
def test_every_estimator_keeps_its_slack(clf):
    X, y, group = draw(1)
    assert kept(clf.fit(X, y, sensitive_features=group))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        DecisionTreeClassifier(min_samples_leaf=10, random_state=0),
        SingleFit(DecisionTreeClassifier(min_samples_leaf=10, random_state=0)),
    ],
    ids=["regression", "tree", "single fit"],
)
def test_the_value_of_training_rows_is_the_metric_of_predictions_of_them(model):
    """`violation_` of a wrapped classifier is out of fold, and another number."""
    X, y, group = draw(0, n=600)
    clf = RateConstrainedClassifier(slack=0.1, model=model, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert kept(clf)
    gap = metrics.demographic_parity_difference(y, clf.predict(X), sensitive_features=group)
    assert clf.training_violation_ == pytest.approx(gap, abs=1e-12)
    assert f"{clf.training_violation_:.6g} on these rows" in str(model_card(clf))


def test_the_rows_are_said_in_the_same_words():
    root = Path(fairconstrained.__file__).parents[1]
    files = [
        *(
            root / f"fairconstrained/estimators/{name}.py"
            for name in (
                *("rate_constrained", "auc_fair", "loss_parity", "partial_parity", "dp_fermi"),
            )
        ),
        *(
            root / f"docs/guide/{name}.md"
            for name in (*("rate_constrained", "auc_fair", "loss_parity", "partial_parity"),)
        ),
        *(root / name for name in ("docs/start.md", "docs/glossary.md")),
    ]
    for file in files:
        assert WORDS in re.sub(r"\s+", " ", file.read_text()), file
    X, y, group = draw(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        card = str(model_card(RateConstrainedClassifier().fit(X, y, sensitive_features=group)))
    assert WORDS in re.sub(r"\s+", " ", card).replace("Measured", "measured")

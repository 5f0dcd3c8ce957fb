"""Metrics within strata of control features, and of attributes side by side."""

import functools

import fairlearn.metrics
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score

from fairconstrained import metrics


def rows(n=600, seed=0):
    rng = np.random.default_rng(seed)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "race": rng.choice([*"xyz"], n)})
    age = rng.choice(["old", "young"], n)
    y = rng.integers(2, size=n)
    predicted = rng.random(n) < 0.3 + 0.2 * y + 0.2 * (age == "old") * (people["sex"] == "f")
    return y, predicted.astype(int), people, age


def false_omission_rate(y_true, y_pred, sample_weight=None):
    return 1 - precision_score(y_true, y_pred, pos_label=0, sample_weight=sample_weight)


COMPARED = {
    "demographic_parity_difference": (fairlearn.metrics.selection_rate, "difference", np.max),
    "demographic_parity_ratio": (fairlearn.metrics.selection_rate, "ratio", np.min),
    "equal_opportunity_difference": (fairlearn.metrics.true_positive_rate, "difference", np.max),
    "equal_opportunity_ratio": (fairlearn.metrics.true_positive_rate, "ratio", np.min),
    "false_positive_rate_difference": (fairlearn.metrics.false_positive_rate, "difference", np.max),
    "predictive_parity_difference": (precision_score, "difference", np.max),
    "predictive_parity_ratio": (precision_score, "ratio", np.min),
    "false_omission_rate_difference": (false_omission_rate, "difference", np.max),
    "false_omission_rate_ratio": (false_omission_rate, "ratio", np.min),
    "false_negative_rate": (fairlearn.metrics.false_negative_rate, "group_max", np.max),
}


@pytest.mark.parametrize("name", COMPARED)
def test_within_strata_it_is_the_worst_of_fairlearns_metric_frame(name):
    y, predicted, people, age = rows()
    weight = np.random.default_rng(1).random(len(y))
    rate, aggregate, worst = COMPARED[name]
    given = {"sensitive_features": people["race"], "control_features": age}
    columns = {"y_true": y, "y_pred": predicted, "sample_params": {"sample_weight": weight}}
    frame = fairlearn.metrics.MetricFrame(metrics=rate, **columns, **given)
    found = getattr(metrics, name)(y, predicted, sample_weight=weight, **given)
    assert found == pytest.approx(worst(getattr(frame, aggregate)()))


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("stratified", [False, True])
def test_parallel_attributes_are_the_worst_of_each_by_itself(name, stratified):
    y, predicted, people, age = rows()
    metric, worst = getattr(metrics, name), COMPARED[name][2]
    strata = [age == "old", age == "young"] if stratified else [slice(None)]
    each = [
        metric(y[inside], predicted[inside], sensitive_features=people[column][inside])
        for column in people
        for inside in strata
    ]
    options = {"control_features": age} if stratified else {}
    for given in (people, people.to_numpy(), {c: people[c] for c in people}):
        options["sensitive_features"] = given
        assert metric(y, predicted, attributes="parallel", **options) == worst(each)
    assert worst([*each, metric(y, predicted, **options)]) != worst(each)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        (metrics.group_auc_gap, {}),
        (metrics.intra_group_auc_gap, {}),
        (metrics.partial_statistical_parity, {"interval": (0.1, 0.6)}),
    ],
)
def test_scores_too(metric, options):
    y, _, people, age = rows()
    score = np.random.default_rng(2).normal(size=len(y)) + (age == "old") * (people["sex"] == "f")
    each = [
        metric(y[age == s], score[age == s], sensitive_features=people["sex"][age == s], **options)
        for s in np.unique(age)
    ]
    found = metric(y, score, sensitive_features=people["sex"], control_features=age, **options)
    assert found == max(each)


def test_intervals_by_group_are_for_the_groups_of_all_parts():
    """A stratum, or an attribute, need not have every group that has an interval."""
    score, halves = np.arange(12.0), np.repeat(["old", "young"], 6)
    people = pd.DataFrame({"sex": list("fm") * 6, "place": list("nsnsnswnwnwn")})
    intervals = {"n": (0, 0.5), "s": (0, 0.5), "w": (0.5, 1), "f": (0, 1), "m": (0.5, 1)}
    gap = functools.partial(metrics.partial_statistical_parity, None, interval=intervals)
    found = gap(score, sensitive_features=people, attributes="parallel", control_features=halves)
    used = {"sex": "fm", "place": "nsw"}
    each = [
        metrics.partial_statistical_parity(
            *(None, score[halves == half]),
            sensitive_features=people[name][halves == half],
            interval={g: intervals[g] for g in groups if g in set(people[name][halves == half])},
        )
        for name, groups in used.items()
        for half in ("old", "young")
    ]
    assert found == max(each)
    with pytest.raises(ValueError, match=r"groups that the data do not have: \['x'\]"):
        gap(score, sensitive_features=people, attributes="parallel", interval={**intervals, "x": 1})


def test_one_label_in_a_stratum_is_not_taken_for_the_positive_one():
    """All of the young are granted: none of them is a positive whom the model could miss."""
    y = np.array(["granted"] * 4 + ["granted", "refused"] * 2)
    predicted = np.array(["granted"] * 4 + ["granted", "granted", "refused", "refused"])
    age, sex = ["young"] * 4 + ["old"] * 4, list("ffmmffmm")
    given = {"sensitive_features": sex, "control_features": age}
    with pytest.warns(UserWarning, match="no rows with label 'refused'"):
        found = metrics.equal_opportunity_difference(y, predicted, pos_label="refused", **given)
    assert np.isnan(found)
    # A ranking that is not told which label is on top cannot know it of a stratum with one.
    score, inside = (
        np.arange(8.0),
        functools.partial(metrics.partial_equal_opportunity, interval=(0.0, 0.5), threshold=3.0),
    )
    for metric in (metrics.positive_equality_gap, metrics.loss_gap, inside):
        with pytest.raises(ValueError, match=r"which of the labels \['granted'\]"):
            metric(y, score / 8, **given)
    assert metrics.loss_gap(y, score / 8, pos_label="granted", **given) > 0
    with pytest.warns(UserWarning, match="no positive rows"):
        assert np.isnan(metrics.positive_equality_gap(y, score, pos_label="refused", **given))
    assert metrics.group_auc_gap(y, score, **given) == 0.5


@pytest.mark.slow
def test_intervals_resample_strata_with_their_rows():
    """The interval contains the value, and differs from that of other strata."""
    y, predicted, people, age = rows(300)
    metric = functools.partial(metrics.demographic_parity_difference, attributes="parallel")
    given = {"sensitive_features": people, "control_features": age}
    value = metric(y, predicted, **given)
    low, high = metrics.confidence_interval(metric, y, predicted, **given, random_state=0)
    assert low < value < high
    others = {**given, "control_features": age[::-1]}
    other = metrics.confidence_interval(metric, y, predicted, **others, random_state=0)
    assert other != (low, high)
    held = functools.partial(metric, control_features=age)
    with pytest.raises(ValueError, match="control_features must be given to confidence_interval"):
        metrics.confidence_interval(held, y, predicted, sensitive_features=people)
    with pytest.raises(ValueError, match="inversion"):
        metrics.confidence_interval(metric, y, predicted, **given, method="inversion")


def test_scorers_take_both():
    y, _, people, age = rows()
    X = pd.get_dummies(people, dtype=float).assign(age=age == "old")
    X = X.assign(sex=people["sex"] == "f", race=people["race"] == "x").astype(float)
    clf = LogisticRegression().fit(X, y)
    metric, columns = metrics.demographic_parity_difference, ["sex", "race"]
    score = metrics.fairness_scorer(metric, column=columns, attributes="parallel")
    given = {"sensitive_features": X[columns]}
    expected = metric(y, clf.predict(X), **given, attributes="parallel")
    assert score(clf, X, y) == -expected
    with config_context(enable_metadata_routing=True):
        routed = metrics.fairness_scorer(metric)
        routed.set_score_request(sensitive_features=True, control_features=True)
        found = routed(clf, X, y, **given, control_features=age)
    assert found == -metric(y, clf.predict(X), **given, control_features=age)

"""Metrics: what they refuse, losses from probabilities, and their documentation."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from fairconstrained import metrics
from fairconstrained.metrics import loss_gap
from tests.helpers.metrics import METRICS

READERS = ["equalized_odds_difference", "false_negative_rate", "separation_gap"]  # of each kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_pred": [0, 1, 1]}, "y_pred has 3 rows, but y_true has 4"),
        ({"sensitive_features": list("aab")}, "sensitive_features has 3 rows"),
        ({"sensitive_features": [None] * 4}, "sensitive_features is missing in every row"),
        ({"y_true": [0, 1, np.nan, 1]}, "y_true"),
        ({"y_pred": ["a", None, "b", "a"]}, "y_pred has missing values"),
        ({"y_pred": np.array([0, "a", 1, 1], dtype=object)}, "y_pred must hold labels of one type"),
        ({"y_pred": [0.0, 0.7, 1.0, 1.0]}, "y_pred must hold class labels; got 0.7"),
        ({"y_pred": np.zeros((4, 2))}, "y_pred must have one label per row"),
        ({"y_pred": list("abab")}, "y_true and y_pred must hold the same kind of labels"),
        ({"y_true": [], "y_pred": [], "sensitive_features": []}, "minimum of 1 is required"),
        ({"sample_weight": [1, 1, 1]}, "sample_weight must have shape"),
        ({"sample_weight": [1, 1, 1, -2]}, "sample_weight must not be negative; got -2"),
        ({"sample_weight": [1, 1, 1, np.nan]}, "sample_weight"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    kwargs = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1], "sensitive_features": list("aabb")}
    for name in READERS:
        with pytest.raises(ValueError, match=message):
            METRICS[name](**{**kwargs, **change})


def test_unknown_options_are_refused():
    y, group = [0, 1, 0, 1], list("aabb")
    with pytest.raises(ValueError, match=r"method must be one of .*; got 'max'"):
        metrics.demographic_parity_ratio(y, y, sensitive_features=group, method="max")
    with pytest.raises(ValueError, match=r"agg must be one of .*; got 'sum'"):
        metrics.equalized_odds_difference(y, y, sensitive_features=group, agg="sum")
    with pytest.raises(ValueError, match=r"pos_label must be one of the labels \[0, 1\]; got 2"):
        metrics.demographic_parity_difference(y, y, sensitive_features=group, pos_label=2)
    with pytest.raises(ValueError, match=r"loss must be one of .*; got 'hinge'"):
        loss_gap(y, y, sensitive_features=group, loss="hinge")
    with pytest.raises(ValueError, match="sensitive_features must hold one group per row"):
        metrics.demographic_parity_difference(y, y, sensitive_features=None)
    with pytest.raises(TypeError, match="sensitive_features"):
        metrics.demographic_parity_difference(y, y)


def probabilities(n_classes, seed=0, n=200):
    rng = np.random.default_rng(seed)
    y, group = rng.integers(n_classes, size=n), rng.integers(3, size=n)
    return y, rng.dirichlet(np.ones(n_classes), size=n), group, rng.exponential(size=n)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_loss_gap_is_the_spread_of_log_losses(n_classes):
    y, proba, group, weight = probabilities(n_classes)
    losses = [
        log_loss(y[rows], proba[rows], sample_weight=weight[rows], labels=range(n_classes))
        for rows in (group == g for g in range(3))
    ]
    found = loss_gap(y, proba, sensitive_features=group, sample_weight=weight)
    assert found == pytest.approx(np.ptp(losses), rel=1e-9)
    squares = [0.5 * np.mean((np.eye(n_classes)[y] - proba)[group == g] ** 2) for g in range(3)]
    brier = loss_gap(y, proba, sensitive_features=group, loss="brier")
    assert brier == pytest.approx(n_classes * np.ptp(squares), rel=1e-9)


def test_probabilities_of_the_positive_class_alone():
    y, proba, group, _ = probabilities(2)
    both = loss_gap(y, proba, sensitive_features=group)
    assert loss_gap(y, proba[:, 1], sensitive_features=group) == both
    assert loss_gap(np.where(y, "b", "a"), proba[:, [1]], sensitive_features=group) == both
    assert loss_gap(y, proba[:, 0], sensitive_features=group, pos_label=0) == both
    assert loss_gap(y, proba[:, ::-1], sensitive_features=group, labels=[1, 0]) == both


def test_classes_that_do_not_occur_need_labels():
    y, proba, group, _ = probabilities(3)
    rows = y < 2
    args = y[rows], proba[rows]
    with pytest.raises(ValueError, match="labels must name the 3 columns of y_proba"):
        loss_gap(*args, sensitive_features=group[rows])
    assert loss_gap(*args, sensitive_features=group[rows], labels=[0, 1, 2]) > 0
    # of two classes the missing one is known
    assert loss_gap([0, 0], [0.5, 0.0], sensitive_features=[1, 2]) == pytest.approx(np.log(2))
    # a sure and wrong prediction has a finite loss
    assert 30 < loss_gap([0, 1], [1.0, 1.0], sensitive_features=["a", "b"]) < 40


@pytest.mark.parametrize(
    ("y_proba", "message"),
    [
        ([0.5, 1.5], "y_proba must hold probabilities"),
        ([[0.5, 0.6], [0.5, 0.5]], "y_proba must hold probabilities"),
        ([0.5, np.nan], "y_proba"),
        ([0.5, 0.5, 0.5], "y_proba must have shape"),
    ],
)
def test_bad_probabilities_are_refused(y_proba, message):
    with pytest.raises(ValueError, match=message):
        loss_gap([0, 1], y_proba, sensitive_features=["a", "b"])


@pytest.mark.parametrize(
    ("name", "moved"),
    list(zip(READERS, ["y_pred", "sensitive_features", "sample_weight"], strict=True)),
)
def test_samples_in_another_order_are_refused(name, moved):
    """The index of pandas says which entry belongs to which sample; positions say otherwise."""
    columns = {
        "y_true": pd.Series([0, 1, 0, 1]),
        "y_pred": pd.Series([0, 1, 1, 1]),
        "sensitive_features": pd.Series(list("aabb")),
        "sample_weight": pd.Series([1.0, 2.0, 1.0, 1.0]),
    }
    columns[moved] = columns[moved].iloc[::-1]
    with pytest.raises(ValueError, match="has the samples of y_true in another order"):
        METRICS[name](**columns)
    columns["sensitive_features"] = np.ma.masked_array([1, 1, 2, 2], mask=[1, 0, 0, 0])
    with pytest.raises(ValueError, match=r"has (masked values|the samples of y_true in another)"):
        METRICS[name](**columns)


def test_reports_and_certificates_look_at_the_order_too():
    y, groups = pd.Series([0, 1, 0, 1]), pd.Series(list("aabb")).iloc[::-1]
    with pytest.raises(ValueError, match="sensitive_features has the samples of y_true in another"):
        metrics.group_report(y, y, sensitive_features=groups)
    with pytest.raises(ValueError, match="y_score has the samples of y_true in another"):
        metrics.group_report(y, y, sensitive_features=list("aabb"), y_score=y.iloc[::-1])
    X = pd.DataFrame({"x": y})
    with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
        metrics.certify(
            object(), X, y, sensitive_features=groups, constraint="demographic_parity", slack=0.1
        )

"""Metrics: fairlearn's values, definitions written out row by row, invariances, absent groups."""

import inspect
import warnings
from contextlib import nullcontext

import fairlearn.metrics
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import confusion_matrix, log_loss

from fairconstrained import metrics
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import loss_gap
from tests.helpers.metrics import METRICS

names = pytest.mark.parametrize("name", METRICS)
SCORED = [
    *("loss_gap", "bpsn_bnsp_gap", "group_auc_gap", "inter_group_auc_gap", "intra_group_auc_gap"),
    *("negative_equality_gap", "positive_equality_gap", "wasserstein_distance_between_groups"),
    *("ccdf_gap", "partial_demographic_parity", "partial_equal_opportunity"),
    *("partial_equalized_odds", "partial_group_auc", "partial_statistical_parity"),
]
every_name = pytest.mark.parametrize("name", [*METRICS, *SCORED])


def value_of(name, y_true, y_pred, group, weight=None):
    """Any metric; those of scores or probabilities take the predicted labels as such."""
    metric = getattr(metrics, name)
    options = {"interval": (0.1, 0.5)} if "interval" in inspect.signature(metric).parameters else {}
    return metric(y_true, y_pred, sensitive_features=group, sample_weight=weight, **options)


def binary(seed, n_groups=3, n=400):
    """Labels and predictions of every kind in every group, with weights of which some are zero."""
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    y_true = rng.integers(2, size=n)
    y_pred = (rng.random(n) < 0.2 + 0.1 * group + 0.3 * y_true).astype(int)
    weight = rng.exponential(size=n) * (rng.random(n) < 0.9)
    return y_true, y_pred, group, weight


def values(y_true, y_pred, group, weight=None, **kwargs):
    return {
        name: metric(y_true, y_pred, sensitive_features=group, sample_weight=weight, **kwargs)
        for name, metric in METRICS.items()
        if set(kwargs) <= set(inspect.signature(metric).parameters)
    }


CAPS = ["false_negative_rate", "false_positive_rate"]  # fairlearn's know no groups
FAIRLEARN = sorted((set(METRICS) & set(fairlearn.metrics.__all__)) - set(CAPS))
OPTIONS = {"method": "to_overall", "agg": "mean"}


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in FAIRLEARN]
    + [
        (name, {option: value})
        for name in FAIRLEARN
        for option, value in OPTIONS.items()
        if option in inspect.signature(METRICS[name]).parameters
    ],
)
@pytest.mark.parametrize(("seed", "n_groups", "weighted"), [(0, 2, False), (1, 5, True)])
def test_equals_fairlearn(name, options, seed, n_groups, weighted):
    y_true, y_pred, group, weight = binary(seed, n_groups)
    kwargs = {"sensitive_features": group, **options}
    if weighted:
        kwargs["sample_weight"] = weight
    expected = getattr(fairlearn.metrics, name)(y_true, y_pred, **kwargs)
    assert METRICS[name](y_true, y_pred, **kwargs) == pytest.approx(expected, abs=1e-12)


def test_gaps_of_several_labels_are_sums_written_out_from_confusion_matrices():
    """Over true labels, or predicted ones, of the worst gap between groups of the other."""
    rng = np.random.default_rng(0)
    group, y_true = rng.integers(3, size=900), rng.integers(4, size=900)
    y_pred = np.where(rng.random(900) < 0.3 + 0.2 * group, y_true, rng.integers(4, size=900))
    tables = np.stack([confusion_matrix(y_true[group == g], y_pred[group == g]) for g in range(3)])
    for name, axis in (("separation_gap", 2), ("sufficiency_gap", 1)):
        worst = np.ptp(tables / tables.sum(axis=axis, keepdims=True), axis=0).max(axis=axis - 1)
        found = METRICS[name](y_true, y_pred, sensitive_features=group)
        assert found == pytest.approx(worst.sum(), abs=1e-12)


SUMMED = {"separation_gap", "sufficiency_gap"}  # over the labels
PARAMETERS = {name: inspect.signature(metric).parameters for name, metric in METRICS.items()}
OF_ALL_LABELS = [name for name in METRICS if "pos_label" not in PARAMETERS[name]]
OF_ONE_LABEL = [n for n in METRICS if "odds" not in n and n not in {*SUMMED, *OF_ALL_LABELS}]


@pytest.mark.parametrize("name", OF_ONE_LABEL)
def test_one_class_against_the_rest_is_the_binary_problem(name):
    """P(prediction = c | ...) of several classes is that of the indicators of c."""
    rng = np.random.default_rng(1)
    group, y_true, y_pred = rng.integers(2, size=300), *rng.integers(3, size=(2, 300))
    of_class = METRICS[name](y_true, y_pred, sensitive_features=group, pos_label=1)
    indicators = METRICS[name](y_true == 1, y_pred == 1, sensitive_features=group)
    assert of_class == pytest.approx(indicators, abs=1e-12)


@every_name
@given(data=st.data())
@settings(max_examples=4)
def test_invariances(name, data):
    """Order of rows, names of groups, and integer weights as repeated rows do not matter."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    n, n_groups = 120, data.draw(st.integers(2, 4))
    n_classes = data.draw(st.integers(2, 3)) if name in METRICS else 2
    group = np.arange(n) % n_groups
    y_true = np.arange(n) // n_groups % n_classes  # every cell has rows
    y_pred = rng.integers(n_classes, size=n) if name in METRICS else np.round(rng.random(n), 1)
    weight, shuffle = rng.integers(1, 4, size=n), rng.permutation(n)
    moved = y_true[shuffle], y_pred[shuffle], np.array(list("dbca"))[group[shuffle]]
    repeated = y_true.repeat(weight), y_pred.repeat(weight), group.repeat(weight)
    with warnings.catch_warnings(action="ignore", category=UndefinedMetricWarning):
        value = value_of(name, y_true, y_pred, group, weight)
        assert value_of(name, *moved, weight[shuffle]) == pytest.approx(value, abs=1e-9)
        assert value_of(name, *repeated) == pytest.approx(value, abs=1e-9)
    assert name in SCORED or 0 <= value <= (n_classes if name in SUMMED else 1)


WORDS = ["refused", "granted"]
ORDERED = pd.CategoricalDtype(WORDS, ordered=True)


@pytest.mark.parametrize(
    "relabel",
    [
        lambda y: np.where(y, 1, -1),
        lambda y: y.astype(float),
        lambda y: pl.Series(y.astype(bool)),
        lambda y: pd.Series(np.array(WORDS)[y], dtype=ORDERED),
    ],
)
def test_every_metric_knows_the_favourable_label_of_two(relabel):
    """1 and True are, and the last one of ordered categories, also where it is first by name."""
    y_true, y_pred, group, weight = binary(5)
    expected = values(y_true, y_pred, group, weight)
    assert values(relabel(y_true), relabel(y_pred), group, weight) == pytest.approx(expected)


EITHER = [  # of two classes: the value is the same
    *("demographic_parity_difference", "equalized_odds_difference", "independence_gap"),
    *("separation_gap", "sufficiency_gap", "exponential_renyi_mutual_information", *OF_ALL_LABELS),
]


@names
@pytest.mark.parametrize(
    ("labels", "asked"), [(np.array(WORDS), r"\['gr"), (np.array([1, 2]), r"\[1, 2\]")]
)
def test_of_other_labels_the_favourable_one_must_be_named_where_it_matters(name, labels, asked):
    """Fairlearn takes 1 for selection rates and refuses the others; the larger label is 2."""
    y_true, y_pred, group, weight = binary(6)
    args = {"sensitive_features": group, "sample_weight": weight}
    if name in EITHER:
        expected = METRICS[name](y_true, y_pred, **args)
        found = METRICS[name](labels[y_true], labels[y_pred], **args)
        assert found == pytest.approx(expected, abs=1e-12)
        return
    with pytest.raises(ValueError, match=f"pos_label must say which of the labels {asked}"):
        METRICS[name](labels[y_true], labels[y_pred], **args)
    for code, label in enumerate(labels.tolist()):
        expected = METRICS[name](y_true, y_pred, pos_label=code, **args)
        assert METRICS[name](labels[y_true], labels[y_pred], pos_label=label, **args) == expected


@pytest.mark.parametrize(
    ("only", "pos_label", "rate"),
    [
        *((0, None, 0.0), (-1, None, 0.0), (False, None, 0.0), (1, None, 1.0), (True, None, 1.0)),
        *(("yes", "yes", 1.0), ("no", "yes", 0.0), (0, 0, 1.0)),
    ],
)
def test_one_label_only_is_negative_if_it_is_0_minus_1_or_false(only, pos_label, rate):
    """A predictor that never errs on one label: FPR 0 on negatives, FNR 0 on positives."""
    y, cap = [only] * 4, {0.0: "false_positive_rate", 1.0: "false_negative_rate"}
    assert METRICS[cap[rate]](y, y, pos_label=pos_label) == 0.0
    with pytest.warns(SmallGroupWarning, match="no rows with (a )?label"):
        assert np.isnan(METRICS[cap[1 - rate]](y, y, pos_label=pos_label))
    zero = pytest.warns(UndefinedMetricWarning, match="zero in every group")
    given = {"sensitive_features": list("aabb"), "pos_label": pos_label}
    with nullcontext() if rate else zero:
        ratio = METRICS["demographic_parity_ratio"](y, y, **given)
    assert ratio == pytest.approx(1.0 if rate else np.nan, nan_ok=True)


def test_a_rate_that_is_zero_in_every_group_is_left_out_of_a_ratio():
    """No false positives at all: the ratio is that of the true positive rates, as in fairlearn."""
    y_true, y_pred = np.array([0, 1, 1, 0, 1, 1]), np.array([0, 1, 0, 0, 1, 1])
    group = list("aaabbb")
    with pytest.warns(UndefinedMetricWarning, match="predicted 1 with label 0: rates of zero"):
        found = metrics.equalized_odds_ratio(y_true, y_pred, sensitive_features=group)
    assert found == 0.5
    assert found == fairlearn.metrics.equalized_odds_ratio(y_true, y_pred, sensitive_features=group)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("equal_opportunity_difference", "label 1"),
        ("equalized_odds_difference", "label 1"),
        ("equalized_odds_ratio", "label 1"),
        ("false_negative_rate", "label 1"),
        ("separation_gap", "label 1"),
        ("sufficiency_gap", "prediction 0"),
    ],
)
@pytest.mark.parametrize("by_weight", [False, True])
def test_an_absent_cell_is_named_and_gives_nan(name, cell, by_weight):
    y_true, y_pred = np.array([0, 1, 1, 0, 0, int(by_weight)]), np.array([0, 1, 0, 1, 1, 1])
    given = {"sensitive_features": list("aaabbb"), "sample_weight": [1, 2, 1, 2, 1, 1 - by_weight]}
    with pytest.warns(SmallGroupWarning, match=f"group b has no rows with {cell}") as record:
        assert np.isnan(METRICS[name](y_true, y_pred, **given))
    assert [warning.filename for warning in record] == [__file__]


@every_name
def test_a_group_of_zero_weight_gives_nan(name):
    y_true, y_pred, group, _ = binary(8)
    weight = np.where(group == 1, 0.0, 0.1)
    with pytest.warns(SmallGroupWarning, match="group 1 has no") as record:
        assert np.isnan(value_of(name, y_true, y_pred, group, weight))
    assert record[0].filename == __file__


@pytest.mark.parametrize(
    "name", [n for n in [*METRICS, *SCORED] if n not in {*CAPS, "rejection_rate", "expected_cost"}]
)
def test_a_single_group_has_nothing_to_be_compared_with(name):
    y_true, y_pred, _, _ = binary(9)
    with pytest.warns(SmallGroupWarning, match="single group x") as record:
        value = value_of(name, y_true, y_pred, ["x"] * len(y_true))
    assert np.isnan(value)
    assert record[0].filename == __file__


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
        ({"sample_weight": [1, 1, 1]}, "sample_weight has 3 rows, but y_true has 4"),
        ({"sample_weight": [1, 1, 1, -2]}, "sample_weight must not be negative; got -2"),
        ({"sample_weight": [1, 1, 1, np.nan]}, "sample_weight"),
        ({"sample_weight": [1, 1, 1, 1e-300]}, "between 1e-100 and 1e[+]100, .* got 1e-300 to 1.0"),
        ({"sample_weight": [1, 1, 0, 1e300]}, "1e-100 and 1e[+]100, .* got 1.0 to 1e[+]300"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    kwargs = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 1], "sensitive_features": list("aabb")}
    for name in READERS:
        with pytest.raises(ValueError, match=message):
            METRICS[name](**{**kwargs, **change})


def test_a_warning_names_the_first_of_many_cells():
    """Each in a stratum of its own."""
    y = np.arange(400) % 2
    given = {"sensitive_features": y, "control_features": np.arange(400)}
    with pytest.warns(SmallGroupWarning, match="stratum 11 .* and 388 more; nothing is left"):
        metrics.demographic_parity_difference(y, y, **given)


def test_unknown_options_are_refused():
    y, group = [0, 1, 0, 1], list("aabb")
    with pytest.raises(ValueError, match=r"method must be one of .*; got 'max'"):
        metrics.demographic_parity_ratio(y, y, sensitive_features=group, method="max")
    with pytest.raises(ValueError, match=r"agg must be one of .*; got 'sum'"):
        metrics.equalized_odds_difference(y, y, sensitive_features=group, agg="sum")
    with pytest.raises(ValueError, match=r"pos_label must be one of the labels \[0, 1\]; got 2"):
        metrics.demographic_parity_difference(y, y, sensitive_features=group, pos_label=2)
    with pytest.raises(ValueError, match=r"attributes must be one of \['crossed', 'parallel'\]"):
        metrics.error_rate_difference(y, y, sensitive_features=group, attributes="each")
    with pytest.raises(ValueError, match=r"loss must be one of .*; got 'hinge'"):
        loss_gap(y, y, sensitive_features=group, loss="hinge")
    with pytest.raises(ValueError, match="sensitive_features must hold one group per row"):
        metrics.demographic_parity_difference(y, y, sensitive_features=None)
    with pytest.raises(TypeError, match="sensitive_features"):
        metrics.demographic_parity_difference(y, y)
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        metrics.demographic_parity_difference(y, y, sensitive_features=group, weights=y)


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
    # two columns are of the labels in order, whichever is the favourable one
    assert loss_gap(y, proba, sensitive_features=group, pos_label=0) == both
    named = {"labels": [0, 1], "pos_label": 0}
    assert loss_gap(y, proba[:, 0], sensitive_features=group, **named) == both


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
        ([0.5, 0.5, 0.5], "y_proba has 3 rows, but y_true has 2"),
    ],
)
def test_bad_probabilities_are_refused(y_proba, message):
    with pytest.raises(ValueError, match=message):
        loss_gap([0, 1], y_proba, sensitive_features=["a", "b"])


@pytest.mark.parametrize("moved", ["y_pred", "sensitive_features", "sample_weight"])
def test_samples_in_another_order_and_masks_are_refused(moved):
    """The index of pandas says which entry belongs to which sample; positions say otherwise."""
    columns = {
        "y_true": pd.Series([0, 1, 0, 1]),
        "y_pred": pd.Series([0, 1, 1, 1]),
        "sensitive_features": pd.Series(list("aabb")),
        "sample_weight": pd.Series([1.0, 2.0, 1.0, 1.0]),
    }
    other = {**columns, moved: columns[moved].iloc[::-1]}
    masked = np.ma.masked_array([1, 1, 2, 2], mask=[1, 0, 0, 0])
    for reads in (*(METRICS[name] for name in READERS), metrics.group_report):
        with pytest.raises(ValueError, match=f"{moved} has the samples of y_true in another order"):
            reads(**other)
        with pytest.raises(ValueError, match="sensitive_features has masked values"):
            reads(**{**columns, "sensitive_features": masked})


def test_scores_and_certificates_look_at_the_order_too():
    y, groups = pd.Series([0, 1, 0, 1]), pd.Series(list("aabb")).iloc[::-1]
    with pytest.raises(ValueError, match="y_score has the samples of y_true in another"):
        metrics.group_report(y, y, sensitive_features=list("aabb"), y_score=y.iloc[::-1])
    X, claim = pd.DataFrame({"x": y}), {"constraint": "demographic_parity", "slack": 0.1}
    with pytest.raises(ValueError, match="sensitive_features has the samples of X in another"):
        metrics.certify(object(), X, y, sensitive_features=groups, **claim)

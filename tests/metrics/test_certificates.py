"""Certificates: they err at most as stated, for every notion, and say what they rest on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from fairconstrained import metrics
from fairconstrained.constraints import DemographicParity, FalseNegativeRate, RobustParity
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import certify


class Scores(BaseEstimator):
    """The only column of X is the score."""

    def __init__(self, threshold=0.0):
        self.threshold = threshold

    def decision_function(self, X):
        return np.asarray(X)[:, 0]

    def predict(self, X):
        return (self.decision_function(X) > self.threshold).astype(int)


def sample(n, rng, n_groups=2, shift=0.3):
    group = rng.integers(n_groups, size=n)
    y = (rng.random(n) < 0.4).astype(int)
    score = rng.normal(size=n) + y - 0.5 + shift * (group == 0)
    return score[:, None], y, group


INSIDE = {"interval": (0.1, 0.7)}
NOTIONS = [
    ("demographic_parity", metrics.demographic_parity_difference, {}),
    ("equalized_odds", metrics.equalized_odds_difference, {}),
    ("predictive_parity", metrics.predictive_parity_difference, {}),
    ("false_negative_rate", metrics.false_negative_rate, {}),
    ("false_positive_rate", metrics.false_positive_rate, {}),
    ("rejection_rate", metrics.rejection_rate, {}),
    ("group_auc", metrics.group_auc_gap, {}),
    ("inter_group", metrics.inter_group_auc_gap, {}),
    ("intra_group", metrics.intra_group_auc_gap, {}),
    ("positive_equality_gap", metrics.positive_equality_gap, {}),
    ("statistical_parity", metrics.partial_statistical_parity, INSIDE),
    ("rank_parity", metrics.ccdf_gap, INSIDE),
    ("group_auc", metrics.partial_group_auc, INSIDE),
    ("equalized_odds", metrics.partial_equalized_odds, INSIDE),
]


def certified(rows, constraint, slack=0.1, model=None, **options):
    X, y, group = rows
    given = {"sensitive_features": group, "constraint": constraint, "slack": slack, **options}
    return certify(model or Scores(), X, y, **given)


def measured(metric, model, X, y, group, options):
    values = model.predict(X)
    if options or "auc" in metric.__name__ or "equality" in metric.__name__:
        values = model.decision_function(X)
    caps = (metrics.false_negative_rate, metrics.false_positive_rate, metrics.rejection_rate)
    groups = None if metric in caps else group
    return metric(y, values, sensitive_features=groups, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "metric", "options"), NOTIONS[::2])
def test_upper_bounds_hold(name, metric, options):
    """Of 100 samples more than 18 have a chance below 1 %, if exactly 10 % fail."""
    rng = np.random.default_rng(0)
    model = Scores(threshold=0.2)
    truth = measured(metric, model, *sample(100_000, rng), options)
    failed = 0
    for _ in range(100):
        rows = sample(800, rng)
        certificate = certified(rows, name, model=model, confidence=0.9, **options)
        failed += certificate.upper < truth
        observed = measured(metric, model, *rows, options)
        assert certificate.estimate == pytest.approx(observed, abs=1e-9)
        assert certificate.estimate <= certificate.upper
    assert failed <= 18


def test_many_groups_cost_nothing():
    """The bound of the worst pair is that of the pair alone: no correction for the other groups."""
    rng, name = np.random.default_rng(0), "equalized_odds"
    rows = sample(4000, rng, n_groups=2, shift=1.0)
    X, y, _ = sample(8000, rng, n_groups=1, shift=0.5)
    others = X, y, 2 + rng.integers(4, size=8000)
    two = certified(rows, name)
    six = certified([np.concatenate(parts) for parts in zip(rows, others, strict=True)], name)
    assert six.upper == two.upper
    assert six.binding == two.binding


@pytest.mark.slow
@pytest.mark.parametrize(
    "rates", [[0.2, 0.35, 0.275], [0.3, 0.45, 0.3, 0.45]], ids=["one_pair", "several_pairs"]
)
def test_at_the_boundary_the_largest_difference_errs_as_one_pair(rates):
    """An intersection-union test (Berger 1982): at most 5 % are certified, without correction."""
    rng, n_samples, slack = np.random.default_rng(0), 120, 0.15
    group = np.repeat(np.arange(len(rates)), 400)
    kept = 0
    for _ in range(n_samples):
        score = np.where(rng.random(len(group)) < np.take(rates, group), 1.0, -1.0)
        kept += certified((score[:, None], group % 2, group), "demographic_parity", slack).kept
    up_to = 3 * np.sqrt(0.05 * 0.95 / n_samples)
    assert kept / n_samples <= 0.05 + up_to
    if len(rates) == 3:
        assert kept / n_samples >= 0.05 - up_to


def test_the_statement():
    """Its parts are there, in lines of at most 88 columns."""
    rows = sample(3000, np.random.default_rng(0))
    certificate = certified(rows, "equalized_odds", 0.3, name="2024")
    sizes = np.bincount(rows[2])
    for part in (
        "equalized_odds within 0.3 IS CERTIFIED (confidence 0.95)",
        "Scores()",
        "2024: 3000 rows",
        f"0 ({sizes[0]}), 1 ({sizes[1]})",
        "exact test of the difference",
        "independent draws",
        "predicted 1 with label 0",
    ):
        assert part in str(certificate)
    assert json.loads(json.dumps(certificate.to_dict())) == certificate.to_dict()
    assert "is NOT certified" in str(certified(rows, "equalized_odds", 0.01))
    names = {f"a group with a long name, {g}": 1500 for g in range(9)}
    entries = str(replace(certificate, groups=names)).split("  rates, with")[0]
    assert max(map(len, entries.splitlines())) <= 88
    assert all(name in " ".join(entries.split()) for name in names)
    said = str(certified(rows, "equalized_odds", label_names={0: "refused", 1: "granted"}))
    assert "predicted 'granted' with label 'refused'" in said


@pytest.mark.parametrize(
    ("name", "of_a_mixture"),
    [("positive_equality_gap", True), ("bpsn_bnsp", True), ("inter_group", False)],
)
def test_aucs_against_all_groups_assume_the_groups_fractions(name, of_a_mixture):
    """Their bound is given the sizes of cells: it is about a mixture with these fractions."""
    certificate = certified(sample(400, np.random.default_rng(0), n_groups=3), name)
    told = [text for text in certificate.assumptions if "fraction of the samples" in text]
    assert len(told) == of_a_mixture
    flowing = " ".join(str(certificate).split())
    assert all(" ".join(text.split()) in flowing for text in certificate.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("equalized_odds", {}), ("rank_parity", INSIDE)])
def test_bounds_of_all_comparisons_hold_together(name, options):
    """Of four groups, in 90 % of 100 samples; the truth is that of 100,000 rows."""
    rng = np.random.default_rng(2)
    truth, *compared = (
        certified(sample(n, rng, n_groups=4), name, confidence=0.9, **options).rates
        for n in (100_000, *[1600] * 100)
    )
    truth = [rate["rate"] for rate in truth]
    held = 0
    for rates in compared:
        held += all(r["low"] <= t <= r["high"] for r, t in zip(rates, truth, strict=True))
        assert all(r["low"] <= r["rate"] <= r["high"] for r in rates)
    assert held >= 82  # of 90, fewer have a chance below 1 %


@pytest.mark.parametrize("name", ["statistical_parity", "group_auc"])
def test_scores_below_all_that_were_seen(name):
    """Four fifths are tied at the bottom: a fraction as large as the band may score lower."""
    n = 400
    X = np.maximum(np.tile(np.arange(n) - 4 * n // 5, 2), 0)[:, None].astype(float)
    group = np.repeat([0, 1], n)
    certificate = certified((X, X[:, 0] > 0, group), name, interval=(0.7, 1.0))
    half = np.sqrt(np.log(2 / 0.05) / (2 * n))
    assert certificate.estimate == 0.0
    assert certificate.upper >= (half / 0.3 if name == "statistical_parity" else half / 0.6) - 1e-9


def test_scores_that_jump_over_the_interval_count_as_inside():
    """As in the metric: two scores only, with other frequencies in each group."""
    X = np.repeat([[1.0], [0.0], [1.0], [0.0]], [60, 140, 100, 100], axis=0)
    group, inside = np.repeat([0, 1], 200), {"interval": (0.55, 0.65)}
    certificate = certified((X, X[:, 0] > 0, group), "rank_parity", **inside)
    gap = metrics.ccdf_gap(None, X[:, 0], sensitive_features=group, **inside)
    assert certificate.estimate == gap
    assert certificate.estimate == pytest.approx(0.2)


def test_a_mistyped_label_costs_a_warning():
    X, y, group = sample(4000, np.random.default_rng(0), shift=0.0)
    names = group.astype(str).astype(object)
    plain = certified((X, y, names), "demographic_parity")
    names[7] = "Typo"
    with pytest.warns(SmallGroupWarning, match="Typo"):
        certificate = certified((X, y, names), "demographic_parity")
    assert plain.kept
    assert certificate.kept
    assert certificate.left_out == ["group Typo (1 row, fewer than 10)"]
    assert certificate.groups["Typo"] == 1
    assert "IS CERTIFIED (confidence" in str(plain)
    assert "IS CERTIFIED but for what is left out (confidence" in str(certificate)
    everyone = certified((X, y, names), "demographic_parity", min_group_size=1)
    assert not everyone.kept
    assert "Typo" in everyone.binding


@pytest.mark.parametrize("name", ["equalized_odds", "false_negative_rate", "intra_group"])
def test_what_is_left_out_altogether_is_not_certified(name):
    """Where no group is large enough nothing was compared, and nothing is kept, at any slack."""
    few = sample(60, np.random.default_rng(0))
    with pytest.warns(SmallGroupWarning):
        certificate = certified(few, name, 1.0, Scores(100.0), min_group_size=100)
    assert not certificate.kept
    assert certificate.upper == 1.0
    assert np.isnan(certificate.estimate)
    assert "nan" in str(certificate)
    assert certificate.to_dict()["estimate"] is None
    assert json.dumps(certificate.to_dict(), allow_nan=False)


def test_caps_of_groups_and_constraint_objects():
    rows = sample(4000, np.random.default_rng(0), shift=1.0)
    overall = certified(rows, "false_negative_rate", 0.4)
    worst = certified(rows, FalseNegativeRate(per_group=True), 0.4)
    assert worst.estimate > overall.estimate
    assert worst.binding.endswith("group 1")
    with pytest.raises(ValueError, match="reference"):
        certified(rows, DemographicParity(reference="overall"))


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, _, options in NOTIONS])
def test_predictions_alone_give_the_certificate_of_the_model(name, options):
    """Labels or scores, whatever the criterion is about; only the name of the model differs."""
    X, y, group = rows = sample(1000, np.random.default_rng(0))
    predictions = {"y_pred": Scores().predict(X), "y_score": X[:, 0]}
    given = {"sensitive_features": group, "constraint": name, "slack": 0.1, **options}
    alone = certify(y_true=y, **predictions, **given)
    of_model = certified(rows, name, **options)
    assert alone.to_dict() == {**of_model.to_dict(), "estimator": "the given predictions"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("demographic_parity", {}),
        ("group_auc", {}),
        ("statistical_parity", INSIDE),
        ("demographic_parity", INSIDE),
    ],
)
def test_criteria_without_labels_need_none(name, options):
    """Those that are handed in are checked all the same."""
    X, y, group = sample(1000, np.random.default_rng(0))
    predictions = {"y_pred": Scores().predict(X), "y_score": X[:, 0]}
    given = {"sensitive_features": group, "constraint": name, "slack": 0.1, **options}
    alone = certify(**predictions, **given)
    assert alone == certify(y_true=y, **predictions, **given)
    for wrong, match in ((np.where(y == 1, 1.0, np.nan), "NaN"), (y[1:], "999")):
        with pytest.raises(ValueError, match=match):
            certify(y_true=wrong, **predictions, **given)


EXPECTED = RobustParity(DemographicParity(0.1), [[0.9, 0.1], [0.2, 0.8]], 0.05)
MODEL = {"estimator": Scores(), "X": [[0.0], [1.0]], "y": [0, 1]}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "y_pred must hold one label per row for 'equal_opportunity', or give an estimator"),
        ({"y_pred": [0, 1]}, "y_true must hold the true labels for 'equal_opportunity'; got None"),
        ({"y_pred": [0, 1], "y_true": [0, np.nan]}, "y_true"),
        ({"y_pred": [0.2, 0.7], "y_true": [0, 1]}, "y_pred must hold class labels; got 0.2"),
        ({"y_pred": [0, 1], "estimator": Scores(), "X": [[0], [1]]}, "got both"),
        ({"y_score": [0, 1], "constraint": "intra_group"}, "y_true must hold"),
        ({"y_pred": [1, 2], "constraint": DemographicParity(ratio=0.8)}, "pos_label must say"),
        ({"y_pred": [0, 1], "constraint": "group_auc"}, "y_score must hold one score per row"),
        ({**MODEL, "estimator": 3}, "estimator must have a method predict; got 3"),
        ({**MODEL, "estimator": Scores}, r"estimator is a class; give an object of it, Scores\(\)"),
        ({**MODEL, "constraint": "fairness"}, "constraint"),
        ({**MODEL, "constraint": "statistical_parity"}, "constraint"),
        ({**MODEL, "constraint": DemographicParity}, "constraint must be one of"),
        # What an expectation says bounds no rate.
        ({**MODEL, "constraint": EXPECTED}, "constraint must be one of"),
        ({**MODEL, "constraint": DemographicParity(attributes="both")}, "attributes must be one"),
        ({**MODEL, "slack": -1}, "slack"),
        ({**MODEL, "confidence": 1}, "confidence"),
        ({**MODEL, "min_group_size": 1.5}, "min_group_size"),
        (
            {**MODEL, "min_group_size": -5},
            "min_group_size must be 'auto' or an integer >= 0; got -5",
        ),
        ({**MODEL, "sensitive_features": None}, "sensitive_features"),
    ],
)
def test_predictions_that_do_not_suffice_and_wrong_parameters_are_named(given, match):
    options = {"constraint": "equal_opportunity", "slack": 0.1, "sensitive_features": ["a", "b"]}
    with pytest.raises(ValueError, match=match):
        certify(**{**options, **given})


def test_a_certificate_of_rows_whose_group_is_known_names_the_assumption():
    y, y_pred = np.arange(400) // 2 % 2, np.arange(400) % 2
    group = np.where(np.arange(400) < 300, np.arange(400) // 4 % 2, np.nan)
    given = {"y_true": y, "y_pred": y_pred, "slack": 0.2}
    found = certify(sensitive_features=group, constraint="demographic_parity", **given)
    known = {"y_true": y[:300], "y_pred": y_pred[:300], "sensitive_features": group[:300]}
    first = certify(**known, constraint="demographic_parity", slack=0.2)
    assert (found.upper, found.n_samples) == (first.upper, 300)
    assert found.to_dict()["assumptions"][2].startswith("the group of 100 of 400 rows is missing;")
    assert "the group of 100 of 400 rows is missing" in str(found)
    cap = certify(sensitive_features=group, constraint="false_negative_rate", **given)
    assert (cap.n_samples, len(cap.assumptions)) == (400, 2)


MISSING = {  # criteria that depend on how many rows have each label, and their metrics
    "demographic_parity": (metrics.demographic_parity_difference, {}),
    "predictive_parity": (metrics.predictive_parity_difference, {}),
    "group_auc": (metrics.group_auc_gap, {}),
    "statistical_parity": (metrics.partial_statistical_parity, {"interval": (0.1, 0.6)}),
    "rank_parity": (metrics.ccdf_gap, {"interval": (0.1, 0.6)}),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_bound_that_holds_only_since_groups_are_missing_is_undecided(name):
    """Known rows prove the slack, and the number of fits and metrics exceeds it."""
    metric, options = MISSING[name]
    rng = np.random.default_rng(0)
    y, group = rng.integers(2, size=40_000), rng.integers(2, size=40_000).astype(float)
    # Scores say more of the label in one group, and the group of positives is seldom known.
    low = 0.0 if name == "predictive_parity" else -1.0
    score = rng.normal(size=len(y)) + np.where(group == 1, np.where(y == 1, 1.0, low), 0.52 * low)
    group[(y == 1) & (rng.random(len(y)) < 0.8)] = np.nan
    rows = {"y_true": y, "sensitive_features": group, **options}
    decides = name in ("demographic_parity", "predictive_parity")
    rows |= {"y_pred": (score > 0.3).astype(int)} if decides else {"y_score": score}
    known = certify(**rows, constraint=name, slack=1.0)
    assert known.kept
    assert known.standing == pytest.approx(metric(**rows))
    between = certify(**rows, constraint=name, slack=0.5 * (known.upper + known.standing))
    assert between.upper < between.slack < between.standing
    assert not between.kept
    assert "is UNDECIDED, since groups are missing" in str(between)
    assert between.to_dict()["kept"] is False

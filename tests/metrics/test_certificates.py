"""Certificates: they err at most as stated, for every notion, and say what they rest on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier

from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import (
    ccdf_gap,
    certify,
    demographic_parity_difference,
    equalized_odds_difference,
    error_rate_difference,
    false_negative_rate,
    false_positive_rate,
    group_auc_gap,
    inter_group_auc_gap,
    intra_group_auc_gap,
    partial_equalized_odds,
    partial_group_auc,
    partial_statistical_parity,
    positive_equality_gap,
)


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
    ("demographic_parity", demographic_parity_difference, {}),
    ("equalized_odds", equalized_odds_difference, {}),
    ("error_rate_parity", error_rate_difference, {}),
    ("false_negative_rate", false_negative_rate, {}),
    ("false_positive_rate", false_positive_rate, {}),
    ("group_auc", group_auc_gap, {}),
    ("inter_group", inter_group_auc_gap, {}),
    ("intra_group", intra_group_auc_gap, {}),
    ("positive_equality_gap", positive_equality_gap, {}),
    ("statistical_parity", partial_statistical_parity, INSIDE),
    ("rank_parity", ccdf_gap, INSIDE),
    ("group_auc", partial_group_auc, INSIDE),
    ("equalized_odds", partial_equalized_odds, INSIDE),
]


def measured(metric, model, X, y, group, options):
    values = model.predict(X)
    if options or "auc" in metric.__name__ or "equality" in metric.__name__:
        values = model.decision_function(X)
    groups = None if metric in (false_negative_rate, false_positive_rate) else group
    return metric(y, values, sensitive_features=groups, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "metric", "options"), NOTIONS)
def test_upper_bounds_hold(name, metric, options):
    """On 100 samples of 400 rows of each of two groups; the truth is that of 300,000 rows.

    At a confidence of .9 more than 18 failures have a chance below 1 %, if exactly 10 % fail.
    """
    rng = np.random.default_rng(0)
    model = Scores(threshold=0.2)
    truth = measured(metric, model, *sample(300_000, rng), options)
    failed = 0
    for _ in range(100):
        X, y, group = sample(800, rng)
        given = {"sensitive_features": group, "constraint": name, "slack": 0.1, "confidence": 0.9}
        certificate = certify(model, X, y, **given, **options)
        failed += certificate.upper < truth
        observed = measured(metric, model, X, y, group, options)
        assert certificate.estimate == pytest.approx(observed, abs=1e-9)
        assert certificate.estimate <= certificate.upper
    assert failed <= 18


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds"])
def test_many_groups_cost_nothing(name):
    """The bound of the worst pair is that of the pair alone: no correction for the other groups."""
    rng = np.random.default_rng(0)
    X, y, group = sample(4000, rng, n_groups=2, shift=1.0)
    more = sample(8000, rng, n_groups=1, shift=0.5)
    given = {"constraint": name, "slack": 0.1}
    two = certify(Scores(), X, y, sensitive_features=group, **given)
    extra = 2 + rng.integers(4, size=8000)
    six = certify(
        Scores(),
        np.r_[X, more[0]],
        np.r_[y, more[1]],
        sensitive_features=np.r_[group, extra],
        **given,
    )
    assert six.upper == two.upper
    assert six.binding == two.binding


@pytest.mark.slow
@pytest.mark.parametrize(
    "rates", [[0.2, 0.35, 0.275], [0.3, 0.45, 0.3, 0.45]], ids=["one_pair", "several_pairs"]
)
def test_at_the_boundary_the_largest_difference_errs_as_one_pair(rates):
    """The worst pair differs by exactly the slack: at most 5 % are certified, without correction.

    An intersection-union test (Berger 1982). Frequencies in 250 samples, up to three standard
    deviations; of one pair alone at the boundary little is given away.
    """
    rng, n_samples, slack = np.random.default_rng(0), 250, 0.15
    group = np.repeat(np.arange(len(rates)), 400)
    certified = 0
    for _ in range(n_samples):
        score = np.where(rng.random(len(group)) < np.take(rates, group), 1.0, -1.0)
        given = {"sensitive_features": group, "constraint": "demographic_parity", "slack": slack}
        certified += certify(Scores(), score[:, None], group % 2, **given).kept
    up_to = 3 * np.sqrt(0.05 * 0.95 / n_samples)
    assert certified / n_samples <= 0.05 + up_to
    if len(rates) == 3:
        assert certified / n_samples >= 0.05 - up_to


def test_the_statement():
    X, y, group = sample(3000, np.random.default_rng(0))
    certificate = certify(
        Scores(),
        X,
        y,
        sensitive_features=group,
        constraint="equalized_odds",
        slack=0.3,
        name="2024",
    )
    text = str(certificate)
    rows = np.bincount(group)
    for part in (
        "equalized_odds within 0.3 IS CERTIFIED (confidence 0.95)",
        "Scores()",
        "2024: 3000 rows",
        f"0 ({rows[0]}), 1 ({rows[1]})",
        "exact test of the difference",
        "independent draws",
        "predicted 1 with label 0",
    ):
        assert part in text
    assert json.loads(certificate.to_json()) == certificate.to_dict()
    assert "is NOT certified" in str(
        certify(Scores(), X, y, sensitive_features=group, constraint="equalized_odds", slack=0.01)
    )


def test_a_statement_has_lines_of_88_columns():
    """The words of a long model, of many groups and of assumptions are all there."""
    X, y, group = sample(3000, np.random.default_rng(0))
    given = {"sensitive_features": np.char.add("a group with a long name, ", group.astype(str))}
    certificate = certify(Scores(), X, y, **given, constraint="equalized_odds", slack=0.3)
    model = repr(HistGradientBoostingClassifier(max_iter=7))
    long = replace(certificate, estimator=" ".join(9 * [model]))
    entries = str(long).split("  rates, with")[0]
    assert max(map(len, entries.splitlines())) <= 88
    flowing = " ".join(entries.split())
    texts = (long.estimator, *long.groups, long.method, *long.assumptions)
    assert all(" ".join(text.split()) in flowing for text in texts)


@pytest.mark.parametrize(
    ("name", "of_a_mixture"),
    [
        ("positive_equality_gap", True),
        ("negative_equality_gap", True),
        ("bpsn_bnsp", True),
        ("group_auc", False),
        ("inter_group", False),
        ("demographic_parity", False),
    ],
)
def test_aucs_against_all_groups_assume_the_groups_fractions(name, of_a_mixture):
    """Their bound is given the sizes of cells: it is about a mixture with these fractions."""
    X, y, group = sample(400, np.random.default_rng(0), n_groups=3)
    certificate = certify(Scores(), X, y, sensitive_features=group, constraint=name, slack=0.2)
    told = [text for text in certificate.assumptions if "fraction of the samples" in text]
    assert len(told) == of_a_mixture
    flowing = " ".join(str(certificate).split())
    assert all(" ".join(text.split()) in flowing for text in certificate.assumptions)


@pytest.mark.slow
def test_rates_hold_together():
    """Every interval of all 4 rates contains the truth, in 95 % of 200 samples or more."""
    rng = np.random.default_rng(1)
    big_X, big_y, big_group = sample(400_000, rng)
    predicted = Scores().predict(big_X)
    truth = {
        (f"predicted 1 with label {label}", str(g)): predicted[
            (big_y == label) & (big_group == g)
        ].mean()
        for label in (0, 1)
        for g in (0, 1)
    }
    held = 0
    for _ in range(200):
        X, y, group = sample(500, rng)
        rates = certify(
            Scores(), X, y, sensitive_features=group, constraint="equalized_odds", slack=0.1
        ).rates
        held += all(r["low"] <= truth[r["event"], r["group"]] <= r["high"] for r in rates)
    assert held >= 0.92 * 200  # 95 %, less two standard errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("intra_group", {}), ("statistical_parity", INSIDE), ("rank_parity", INSIDE)],
)
def test_bounds_of_all_comparisons_hold_together(name, options):
    """Of four groups, in 90 % of 100 samples; the truth is that of 400,000 rows."""
    rng = np.random.default_rng(2)
    given = {"constraint": name, "slack": 0.5, "confidence": 0.9, **options}

    def compared(n):
        X, y, group = sample(n, rng, n_groups=4)
        return certify(Scores(), X, y, sensitive_features=group, **given).rates

    truth = [rate["rate"] for rate in compared(400_000)]
    held = 0
    for _ in range(100):
        rates = compared(1600)
        held += all(r["low"] <= t <= r["high"] for r, t in zip(rates, truth, strict=True))
        assert all(r["low"] <= r["rate"] <= r["high"] for r in rates)
    assert held >= 82  # of 90, fewer have a chance below 1 %


@pytest.mark.parametrize("name", ["statistical_parity", "group_auc"])
def test_scores_below_all_that_were_seen(name):
    """Four fifths of the scores are tied at the bottom: lower ones cannot be excluded.

    By the band of each group a fraction of up to sqrt(log(2 / .05) / (2 n)) may score lower, and
    then be the bottom of the interval.
    """
    n = 400
    X = np.maximum(np.tile(np.arange(n) - 4 * n // 5, 2), 0)[:, None].astype(float)
    group = np.repeat([0, 1], n)
    certificate = certify(
        Scores(),
        X,
        X[:, 0] > 0,
        sensitive_features=group,
        constraint=name,
        slack=0.1,
        interval=(0.7, 1.0),
    )
    half = np.sqrt(np.log(2 / 0.05) / (2 * n))
    assert certificate.estimate == 0.0
    assert certificate.upper >= (half / 0.3 if name == "statistical_parity" else half / 0.6) - 1e-9


def test_scores_that_jump_over_the_interval_count_as_inside():
    """As in the metric: two scores only, with other frequencies in each group."""
    X = np.repeat([[1.0], [0.0], [1.0], [0.0]], [60, 140, 100, 100], axis=0)
    group, inside = np.repeat([0, 1], 200), {"interval": (0.55, 0.65)}
    certificate = certify(
        Scores(),
        X,
        X[:, 0] > 0,
        sensitive_features=group,
        constraint="rank_parity",
        slack=0.1,
        **inside,
    )
    assert certificate.estimate == ccdf_gap(None, X[:, 0], sensitive_features=group, **inside)
    assert certificate.estimate == pytest.approx(0.2)


def test_a_mistyped_label_costs_a_warning():
    X, y, group = sample(4000, np.random.default_rng(0), shift=0.0)
    names = group.astype(str).astype(object)
    plain = certify(
        Scores(), X, y, sensitive_features=names, constraint="demographic_parity", slack=0.1
    )
    names[7] = "Typo"
    with pytest.warns(SmallGroupWarning, match="Typo: 1 rows"):
        certificate = certify(
            Scores(), X, y, sensitive_features=names, constraint="demographic_parity", slack=0.1
        )
    assert plain.kept
    assert certificate.kept
    assert certificate.left_out == ["group Typo: 1 rows"]
    assert certificate.groups["Typo"] == 1
    everyone = certify(
        Scores(),
        X,
        y,
        sensitive_features=names,
        constraint="demographic_parity",
        slack=0.1,
        min_group_size=1,
    )
    assert not everyone.kept
    assert "Typo" in everyone.binding


def test_rankings_leave_out_small_groups_too():
    """The bound is that of the other groups alone."""
    X, y, group = sample(2000, np.random.default_rng(0))
    more = np.r_[X, [[0.3]] * 3], np.r_[y, [0, 1, 1]]
    names = np.r_[group, [9] * 3]
    for name, options in (("intra_group", {}), ("statistical_parity", INSIDE)):
        given = {"constraint": name, "slack": 0.1, **options}
        alone = certify(Scores(), X, y, sensitive_features=group, **given)
        with pytest.warns(SmallGroupWarning, match="group 9: 3 rows"):
            both = certify(Scores(), *more, sensitive_features=names, **given)
        assert both.upper == alone.upper
        assert both.left_out == ["group 9: 3 rows"]


@pytest.mark.parametrize(
    "name", ["demographic_parity", "equalized_odds", "false_negative_rate", "intra_group"]
)
def test_what_is_left_out_altogether_is_not_certified(name):
    """Where no group is large enough for the slack nothing was compared, and nothing is kept."""
    X, y, group = sample(60, np.random.default_rng(0))
    with pytest.warns(SmallGroupWarning):
        certificate = certify(
            Scores(100.0), X, y, sensitive_features=group, constraint=name, slack=0.001
        )
    assert not certificate.kept
    assert certificate.upper == 1.0
    assert np.isnan(certificate.estimate)
    assert "nan" in str(certificate)
    assert certificate.to_dict()["estimate"] is None
    assert "NaN" not in certificate.to_json()  # which is no JSON


def test_drift():
    """A later sample from the same population has not drifted; one from another has."""
    rng = np.random.default_rng(0)
    given = {"constraint": "equalized_odds", "slack": 0.2}
    first, second, other = (
        certify(Scores(), X, y, sensitive_features=group, name=name, **given)
        for name, (X, y, group) in {
            "now": sample(4000, rng),
            "later": sample(4000, rng),
            "elsewhere": sample(4000, rng, shift=0.8),
        }.items()
    )
    assert not first.compare(second)["drifted"].any()
    changes = first.compare(other).set_index(["event", "group"])
    assert list(changes.index[changes["drifted"]]) == [
        ("predicted 1 with label 0", "0"),
        ("predicted 1 with label 1", "0"),
    ]
    with pytest.raises(ValueError, match="equalized_odds"):
        first.compare(
            certify(
                Scores(),
                *sample(50, rng)[:2],
                sensitive_features=None,
                constraint="false_negative_rate",
                slack=0.5,
            )
        )


def test_caps_of_groups_and_constraint_objects():
    X, y, group = sample(4000, np.random.default_rng(0), shift=1.0)
    overall = certify(
        Scores(), X, y, sensitive_features=group, constraint="false_negative_rate", slack=0.4
    )
    worst = certify(
        Scores(),
        X,
        y,
        sensitive_features=group,
        constraint=FalseNegativeRate(per_group=True),
        slack=0.4,
    )
    assert worst.estimate > overall.estimate
    assert worst.binding.endswith("group 1")
    with pytest.raises(ValueError, match="reference"):
        certify(
            Scores(),
            X,
            y,
            sensitive_features=group,
            constraint=DemographicParity(reference="overall"),
            slack=0.1,
        )


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"constraint": "fairness"}, "constraint"),
        ({"constraint": "statistical_parity"}, "constraint"),
        ({"slack": -1}, "slack"),
        ({"confidence": 1}, "confidence"),
        ({"min_group_size": 1.5}, "min_group_size"),
        ({"sensitive_features": None}, "sensitive_features"),
    ],
)
def test_wrong_parameters(changed, match):
    X, y, group = sample(50, np.random.default_rng(0))
    given = {"sensitive_features": group, "constraint": "demographic_parity", "slack": 0.1}
    with pytest.raises(ValueError, match=match):
        certify(Scores(), X, y, **{**given, **changed})

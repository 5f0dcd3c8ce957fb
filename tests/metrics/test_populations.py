"""Certificates of declared populations: they are about these, and err at most as stated there."""

import json

import numpy as np
import pytest

from fairconstrained import metrics
from fairconstrained.constraints import FalseNegativeRate
from fairconstrained.metrics import Proportions, Weights, certify

# P(positive decision | label) of each group, rows of the group, and positive labels in it.
RATES = np.array([[0.1, 0.8], [0.05, 0.5]])
ROWS, POSITIVES = np.array([0.6, 0.4]), np.array([0.5, 0.4])
RANGES = {0: (0.2, 0.5), 1: (0.5, 0.8)}
DECLARED = Proportions(groups=RANGES, positives={0: (0.3, 0.6), 1: (0.5, 0.6)})


def sample(n, rng, groups=ROWS, positives=POSITIVES):
    group = (rng.random(n) < groups[1]).astype(int)
    y = (rng.random(n) < positives[group]).astype(int)
    predicted = (rng.random(n) < RATES[group, y]).astype(int)
    return {"y_true": y, "y_pred": predicted, "sensitive_features": group}


def truth(name, groups, positives):
    positives, groups = np.asarray(positives), np.asarray(groups)
    joint = groups[:, None] * np.stack((1 - positives, positives), axis=1)
    if name == "demographic_parity":
        selected = (1 - positives) * RATES[:, 0] + positives * RATES[:, 1]
        return abs(selected[0] - selected[1])
    if name == "error_rate_parity":
        wrong = (1 - positives) * RATES[:, 0] + positives * (1 - RATES[:, 1])
        return abs(wrong[0] - wrong[1])
    if name == "predictive_parity":
        selected = joint * RATES
        precision = selected[:, 1] / selected.sum(axis=1)
        return abs(precision[0] - precision[1])
    return joint[:, 1] @ (1 - RATES[:, 1]) / joint[:, 1].sum()


def worst(name, n=9):
    grids = [np.linspace(*DECLARED.positives[g], n) for g in (0, 1)]
    return max(
        truth(name, (g, 1 - g), (a, b))
        for g in np.linspace(*DECLARED.groups[0], n)
        for a in grids[0]
        for b in grids[1]
    )


CHANGED = ["demographic_parity", "error_rate_parity", "false_negative_rate", "predictive_parity"]
UNCHANGED = ["equalized_odds", "equal_opportunity", "false_positive_rate_parity"]


@pytest.mark.parametrize("name", CHANGED)
def test_of_many_rows_the_bound_is_the_worst_within_the_declared_fractions(name):
    """Corners are enough: the grid inside has nothing larger."""
    rows = sample(16_000, np.random.default_rng(2))
    certificate = certify(**rows, constraint=name, slack=0.5, population=DECLARED)
    assert certificate.estimate == pytest.approx(worst(name), abs=0.02)
    assert worst(name) < certificate.upper < worst(name) + 0.06
    assert abs(truth(name, ROWS, POSITIVES) - worst(name)) > 0.02


@pytest.mark.parametrize("name", UNCHANGED)
def test_rates_within_labels_are_the_same_in_every_declared_population(name):
    """The certificate is that of all rows, and says why."""
    rows = sample(2000, np.random.default_rng(0))
    plain = certify(**rows, constraint=name, slack=0.5)
    declared = certify(**rows, constraint=name, slack=0.5, population=DECLARED)
    assert declared.n_samples == 2000
    assert declared.estimate == plain.estimate
    assert declared.upper == pytest.approx(plain.upper, abs=1e-3)
    assert any("does not matter" in text for text in declared.assumptions)


def test_groups_alone_do_not_move_gaps_but_move_caps_on_all_rows():
    rows = sample(20_000, np.random.default_rng(0))
    more = Proportions(groups={0: 0.1, 1: 0.9})
    given = {**rows, "slack": 0.5, "population": more}
    gap = certify(**given, constraint="demographic_parity")
    plain = certify(**rows, slack=0.5, constraint="demographic_parity")
    assert gap.estimate == plain.estimate
    caps = (FalseNegativeRate(per_group=each) for each in (False, True))
    cap, group_cap = (certify(**given, constraint=constraint) for constraint in caps)
    expected = truth("false_negative_rate", (0.1, 0.9), POSITIVES)
    assert cap.estimate == pytest.approx(expected, abs=0.02)
    assert cap.n_samples < 20_000
    assert group_cap.n_samples == 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), list(zip(CHANGED, ["proportions", "weights"] * 2, strict=True))
)
def test_certificates_err_at_most_as_stated(name, kind):
    """In 60 draws at the confidence 0.8 more than 22 errors have a chance below 1e-3."""
    rng, groups, positives = np.random.default_rng(0), np.array([0.4, 0.6]), np.array([0.3, 0.5])
    true = truth(name, groups, positives)
    wrong = 0
    for _ in range(60):
        rows = sample(600, rng)
        g, y = rows["sensitive_features"], rows["y_true"]
        shares, rates = dict(enumerate(groups)), dict(enumerate(positives))
        population = Proportions(groups=shares, positives=rates)
        if kind == "weights":
            p, q = (
                (of[g] * np.where(y == 1, part[g], 1 - part[g]))
                for of, part in ((ROWS, POSITIVES), (groups, positives))
            )
            population = Weights(q / p, most=2.0)
        given = {"constraint": name, "slack": 0.5, "confidence": 0.8, "population": population}
        wrong += certify(**rows, **given).upper < true
    assert wrong <= 22


def test_rankings_and_partial_criteria_of_other_populations():
    """Scores depend on labels, of which group 1 has fewer positive ones."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=20_000)
    y = (rng.random(20_000) < np.where(group == 1, 0.3, 0.6)).astype(int)
    rows = {"y_true": y, "y_score": y + rng.normal(size=20_000), "sensitive_features": group}
    equal = Proportions(positives={0: 0.5, 1: 0.5})
    for name, options in (
        ("group_auc", {}),
        ("statistical_parity", {"interval": (0.0, 1.0)}),
        ("demographic_parity", {"interval": (0.0, 1.0), "threshold": 0.5}),
    ):
        given = {"constraint": name, "slack": 0.5, **rows, **options}
        assert certify(**given).estimate > 0.06
        assert certify(**given, population=equal).estimate < 0.03


def test_the_statement_names_the_population():
    rows = sample(3000, np.random.default_rng(0))
    certificate = certify(**rows, constraint="demographic_parity", slack=0.5, population=DECLARED)
    told = " ".join(str(certificate).split())
    assert "groups: {'0': [0.2, 0.5], '1': [0.5, 0.8]}" in told
    assert "positives: {'0': [0.3, 0.6], '1': [0.5, 0.6]}" in told
    assert "differs from the one this is about in nothing but the declared" in told
    assert json.loads(json.dumps(certificate.to_dict())) == certificate.to_dict()
    assert certify(**rows, constraint="equalized_odds", slack=0.5).population is None


@pytest.mark.parametrize(
    ("population", "match"),
    [
        (lambda: Proportions(), "must declare groups or positives"),
        (lambda: Proportions(groups={0: 0.5, 1: 0.6}), "must be able to add up to 1"),
        (lambda: Proportions(groups={0: (0.5, 0.4), 1: 0.6}), "fractions between 0 and 1"),
        (lambda: Proportions(positives={0: 1.5, 1: 0.6}), "fractions between 0 and 1"),
        (lambda: Proportions(groups={0: 0.5, 2: 0.5}), r"each of the groups \['0', '1'\]"),
        (lambda: Proportions(positives={0: 0.5, 1: 0.5}), "must declare groups as well"),
        (lambda: Proportions(groups={0: 0.5, 1: 0.5}, positives={0: 1, 1: 1}), "no sample"),
        (lambda: Weights(np.ones(300), most=0.5), "values must be at most 0.5; got 1.0"),
        (lambda: Weights(np.ones(300), most=0), "most must be a number > 0"),
        (lambda: Weights(-np.ones(300), most=1), "must not be negative"),
        (lambda: Weights(np.ones(3), most=1), "values has 3 rows"),
    ],
)
def test_populations_that_cannot_be(population, match):
    rows = sample(300, np.random.default_rng(0))
    if match == "no sample":  # of positive labels, of which group 1 has none
        rows["y_true"] = np.where(rows["sensitive_features"] == 1, 0, rows["y_true"])
    with pytest.raises(ValueError, match=match):
        certify(**rows, constraint="false_negative_rate", slack=0.5, population=population())


@pytest.mark.parametrize("constraint", ["demographic_parity", "equal_opportunity"])
def test_declared_groups_that_the_rows_lack_are_refused_by_every_criterion(constraint):
    given = {**sample(300, np.random.default_rng(0)), "constraint": constraint, "slack": 0.5}
    for name, fractions in (("groups", {0: 0.5, 1: 0.2, 2: 0.3}), ("positives", {0: 0.5, 2: 0.5})):
        population = Proportions(**{name: fractions})
        with pytest.raises(ValueError, match=rf"{name} must hold each of the groups \['0', '1'\]"):
            certify(**given, population=population)


def test_criteria_that_may_be_worst_between_the_bounds_take_numbers_only():
    rng = np.random.default_rng(0)
    rows = {"y_score": rng.random(400), "sensitive_features": rng.integers(2, size=400)}
    given = {"constraint": "rank_parity", "interval": (0.1, 0.5), "slack": 0.5}
    with pytest.raises(ValueError, match="y_true must hold"):
        certify(**rows, **given, population=Proportions(positives={0: 0.5, 1: 0.5}))
    rows["y_true"] = rng.integers(2, size=400)
    assert certify(**rows, **given, population=Proportions(positives={0: 0.5, 1: 0.5})).kept
    with pytest.raises(ValueError, match="numbers and no intervals"):
        certify(**rows, **given, population=Proportions(positives={0: (0.4, 0.5), 1: 0.5}))


def test_with_the_fractions_of_the_rows_nearly_all_rows_count():
    rows = sample(20_000, np.random.default_rng(0))
    same = Proportions(groups=dict(enumerate(ROWS)), positives=dict(enumerate(POSITIVES)))
    certificate = certify(**rows, constraint="demographic_parity", slack=0.5, population=same)
    observed = metrics.demographic_parity_difference(**rows)
    assert certificate.estimate == pytest.approx(observed, abs=0.02)
    assert certificate.n_samples > 18_500

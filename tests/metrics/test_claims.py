"""The claim of a certificate: the labels and groups of the model, in strata and by attributes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import DemographicParity, EqualizedOdds, FalseNegativeRate
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import Proportions, certify

RNG = np.random.default_rng(0)
Y, GROUP = RNG.integers(2, size=1000), RNG.integers(2, size=1000)


class NeverInGroupOne:
    """A model of three labels that finds the third one in group 0 only."""

    classes_ = np.arange(3)

    def predict(self, X):
        return np.where((X[:, 0] == 2) & (X[:, 1] == 1), 0, X[:, 0]).astype(int)


def categorical(labels):
    return pd.Series(pd.Categorical(labels, [0, 1, 2]))


def certified(labels, group, constraint="equal_opportunity", **given):
    given = {"y_true": labels, "y_pred": labels, "slack": 0.1, "confidence": 0.9} | given
    return certify(**given, sensitive_features=group, constraint=constraint)


MODEL = {"estimator": NeverInGroupOne(), "X": np.column_stack((Y, GROUP)), "y": Y}
DECLARED = {
    "classes_": {**MODEL, "y_true": None, "y_pred": None},
    "categories of labels": {"y_true": categorical(Y)},
    "categories of predictions": {"y_pred": categorical(Y)},
    "label_names": {"label_names": {0: "none", 1: "some", 2: "all"}},
}


@pytest.mark.parametrize("how", DECLARED)
@pytest.mark.parametrize(
    ("constraint", "groups"),
    [("equal_opportunity", [0, 1]), ("equalized_odds", [0, 1]), ("false_negative_rate", ["all"])],
)
def test_a_label_that_the_rows_lack_is_refused_and_named_beside_the_verdict(
    how, constraint, groups
):
    assert certified(Y, GROUP, constraint).kept
    with pytest.warns(SmallGroupWarning, match=f"group {groups[-1]} with label .* rows\\)"):
        found = certified(Y, GROUP, constraint, **DECLARED[how])
    assert not found.kept
    assert found.upper == 1
    assert len(found.left_out) == len(groups)
    verdict, beside, *_ = str(found).splitlines()
    assert "is NOT certified" in verdict
    assert beside.strip().startswith("left out")


def test_of_two_labels_the_one_that_the_rows_lack_has_no_name():
    all_one = np.ones(1000)
    with pytest.warns(SmallGroupWarning, match=r"group 0 with label 'another label' \(0 rows\)"):
        assert not certified(all_one, GROUP, "equalized_odds").kept


def test_a_label_that_nobody_has_is_part_of_equal_rates_of_predictions():
    found = certified(Y, GROUP, "demographic_parity", y_true=None, label_names={2: "all"})
    assert found.kept
    events = {rate["event"] for rate in found.rates}
    assert events == {"predicted 0", "predicted 1", "predicted 'all'"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "n_groups"), [("equal_opportunity", 2), ("equalized_odds", 3)]
)
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_few_certificates_are_wrong_about_a_rare_label(constraint, n_groups):
    """Of 400 draws in which some 6 of 1,000 rows have it; it is never found in group 1."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(400):
        y = np.where(rng.random(1000) < 0.006, 2, rng.integers(2, size=1000))
        group = rng.integers(n_groups, size=1000)
        given = {"sensitive_features": group, "constraint": constraint, "slack": 0.2}
        found = certify(NeverInGroupOne(), np.column_stack((y, group)), y, **given)
        wrong += found.kept and not any("label 2" in words for words in found.left_out)
    assert wrong <= 20


def test_groups_that_the_rows_lack_are_named_beside_the_verdict():
    race = pd.Categorical(np.where(GROUP == 1, "a", "b"), ["a", "b", "c"])
    people = pd.DataFrame({"race": race, "sex": RNG.choice(["f", "m"], 1000)})
    side_by_side = DemographicParity(attributes="parallel")
    sex = pd.Categorical(np.where(GROUP == 1, people["sex"], "m"))
    crossed = "demographic_parity", "group b & f"
    for given, constraint, name in (
        (race, "demographic_parity", "group c"),
        (people, "demographic_parity", "group c"),
        (people, side_by_side, "group race=c"),
        (people.assign(race=pd.Categorical(np.where(GROUP == 1, "a", "b")), sex=sex), *crossed),
    ):
        with pytest.warns(SmallGroupWarning, match=rf"{name} \(0 rows\)"):
            found = certified(Y, given, constraint, slack=0.2)
        assert found.kept
        assert found.left_out == [f"{name} (0 rows)"]
        assert name in str(found).splitlines()[1]


def test_groups_of_the_model_are_groups_of_the_claim():
    X, race = RNG.normal(size=(1000, 2)), RNG.choice(["a", "b", "c"], 1000)
    sex = RNG.choice(["f", "m"], 1000)
    model = RateConstrainedClassifier(max_iter=2).fit(X, Y, sensitive_features=race)
    rows = race != "c"
    given = {"constraint": "demographic_parity", "slack": 0.9}
    with pytest.warns(SmallGroupWarning, match="group c"):
        found = certify(model, X[rows], Y[rows], sensitive_features=race[rows], **given)
    assert found.left_out == ["group c (0 rows)"]
    assert found.groups["c"] == 0
    assert certify(model, X, Y, sensitive_features=sex, **given).left_out == []  # other columns
    both = pd.DataFrame({"sex": sex, "race": race})
    crossed = RateConstrainedClassifier(max_iter=2).fit(X, Y, sensitive_features=both)
    home = RateConstrainedClassifier(max_iter=2)
    home.fit(X, Y, sensitive_features=both["race"], control_features=both[["sex"]])
    for known in (crossed, home):  # by some of its columns, the others being any
        with pytest.warns(SmallGroupWarning, match="group c"):
            part = certify(known, X[rows], Y[rows], sensitive_features=both["race"][rows], **given)
        assert part.left_out == ["group c (0 rows)"]
    for wrapper in (
        make_pipeline(CalibratedClassifierCV(FrozenEstimator(model))),
        FixedThresholdClassifier(FrozenEstimator(model), threshold=0.4),
    ):
        wrapper.fit(X, Y)
        with pytest.warns(SmallGroupWarning, match="group c"):
            certify(wrapper, X[rows], Y[rows], sensitive_features=race[rows], **given)


def test_rankings_leave_out_groups_without_a_label_by_name():
    scores, y = RNG.normal(size=1000), np.where(GROUP == 1, Y, 0)
    group = np.where(np.arange(1000) < 300, "more", GROUP.astype(str))
    given = {"y_true": y, "y_score": scores, "sensitive_features": group, "slack": 0.5}
    with pytest.warns(SmallGroupWarning, match=r"group 0 with label 1 \(0 rows\)"):
        found = certify(constraint="intra_group", **given)
    assert found.estimate >= 0
    assert certify(constraint="group_auc", **given).left_out == []


def test_where_nothing_is_compared_nothing_is_certified():
    with pytest.warns(SmallGroupWarning, match="nothing to compare it with"):
        found = certified(Y, np.zeros(1000), "demographic_parity", slack=1.0)
    assert not found.kept
    strata = {"control_features": GROUP}
    with pytest.warns(SmallGroupWarning, match="nothing to compare it with"):
        assert not certified(Y, GROUP, "demographic_parity", slack=1.0, **strata).kept


CRITERIA = [
    (DemographicParity(slack=0.2), metrics.demographic_parity_difference),
    (DemographicParity(ratio=0.7), metrics.demographic_parity_ratio),
    (EqualizedOdds(slack=0.2), metrics.equalized_odds_difference),
]


def table(n=1500):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "race": rng.integers(3, size=n)})
    job = rng.choice(["desk", "field"], n)
    y = (rng.random(n) < 0.5).astype(int)
    rate = 0.3 + 0.2 * y + 0.1 * (people["sex"] == "m") * (job == "desk") + 0.05 * people["race"]
    return {"y_true": y, "y_pred": (rng.random(n) < rate).astype(int)}, people, job


def parallel(constraint):
    return type(constraint)(slack=constraint.slack, ratio=constraint.ratio, attributes="parallel")


@pytest.mark.parametrize(("constraint", "metric"), CRITERIA)
def test_the_bound_is_the_largest_of_the_parts_and_the_estimate_is_the_metric(constraint, metric):
    """An intersection-union test (Berger 1982): no correction for the number of parts."""
    labels, people, job = table()
    ratio = constraint.ratio is not None

    def one(rows=slice(None), groups=people["sex"], **given):
        part = {name: values[rows] for name, values in labels.items()}
        given = {"constraint": constraint, "sensitive_features": groups[rows], **given}
        return certify(**part, **given, min_group_size=1)

    strata = [one(job == value) for value in ("desk", "field")]
    columns = [one(groups=people[name]) for name in people]
    in_both = [one(job == v, people[name]) for v in ("desk", "field") for name in people]
    within, side = {"control_features": job}, {"groups": people, "constraint": parallel(constraint)}
    for parts, given in ((strata, within), (columns, side), (in_both, side | within)):
        found = one(**given)
        assert found.upper == max(part.upper for part in parts)
        is_side, options = "groups" in given, within if "control_features" in given else {}
        options = options | ({"attributes": "parallel"} if is_side else {})
        groups = people if is_side else people["sex"]
        value = metric(**labels, sensitive_features=groups, **options)
        assert found.estimate == pytest.approx(1 - value if ratio else value)
        assert sum(found.groups.values()) == 1500 * (1 + is_side)
        assert found.n_samples == 1500
        assert {rate["group"] for rate in found.rates} == set(found.groups)


def test_the_statement_names_strata_and_attributes():
    labels, people, job = table()
    given = {"sensitive_features": people, "constraint": parallel(CRITERIA[0][0])}
    told = str(certify(**labels, control_features=job, **given))
    assert "demographic_parity by each attribute in each stratum within 0.2 is" in told
    assert "sex=f & desk: " in told
    assert "race=2 & field: " in told


def test_what_cannot_be_compared_in_a_stratum_is_named():
    """A stratum with one large group alone has no certificate; the others have theirs."""
    labels, people, job = table()
    job[:200] = "alone"
    sex = people["sex"].to_numpy()
    sex[:200] = "f"
    sex[200] = "x"
    given = {"sensitive_features": sex, "constraint": "demographic_parity", "slack": 0.2}
    with pytest.warns(SmallGroupWarning, match="nothing to compare it with"):
        found = certify(**labels, control_features=job, **given)
    assert found.left_out == [
        "group f & alone (200 rows, nothing to compare it with)",
        f"group x & {job[200]} (1 row, fewer than 5)",
    ]
    assert found.upper < 1


def test_rows_of_unknown_stratum_or_attribute_are_left_out_where_they_count():
    """And the assumption is named; a row whose sex is unknown still counts for race."""
    labels, people, job = table()
    people.loc[:99, "sex"] = None
    given = {"constraint": parallel(CRITERIA[0][0]), "sensitive_features": people}
    found = certify(**labels, **given)
    assert (found.n_samples, sum(found.groups.values())) == (1500, 2900)
    assert any("group of 100 of 1500 rows is missing" in text for text in found.assumptions)
    job = job.astype(object)
    job[:50] = None
    found = certify(**labels, control_features=job, **given)
    assert (found.n_samples, sum(found.groups.values())) == (1450, 2850)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"constraint": FalseNegativeRate(max=0.2)}, "control_features must be None for 'false_"),
        ({"constraint": "group_auc", "slack": 0.1}, "control_features must be None"),
        ({"population": Proportions(positives={"f": 0.5, "m": 0.5})}, "must hold Weights"),
        ({"constraint": DemographicParity(slack=[0.1, 0.2], attributes="parallel")}, "slack must"),
    ],
)
def test_what_is_not_certified_in_strata(changed, match):
    labels, people, job = table(60)
    given = {"sensitive_features": people["sex"], "control_features": job, "slack": None}
    given |= {"constraint": CRITERIA[0][0], "y_score": np.arange(60.0)}
    with pytest.raises(ValueError, match=match):
        certify(**labels, **{**given, **changed})

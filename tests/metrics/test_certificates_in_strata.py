"""Certificates within strata and by several attributes: the worst of those of the parts."""

import numpy as np
import pandas as pd
import pytest

from fairconstrained import metrics
from fairconstrained.constraints import DemographicParity, EqualizedOdds, FalseNegativeRate
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import Proportions, certify

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
        ({"control_features": ["a"]}, "control_features has 1 row"),
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

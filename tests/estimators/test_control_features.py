"""Parity within strata of control features, and of attributes side by side, in fits."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import LossParityClassifier, RateConstrainedClassifier, metrics
from fairconstrained.constraints import DemographicParity, EqualizedOdds, LossParity, Space
from tests.helpers.fits import FORGIVEN, table
from tests.helpers.notions import random_rows, soft_values

SPACE = Space(
    [0, 1], [("f", "old"), ("f", "young"), ("m", "old"), ("m", "young"), ("x", "old")], n_control=1
)


def people(n=1200):
    """Features, labels, sex, and an age group that changes who is favoured."""
    X, y, group = table(n=n)
    rng = np.random.default_rng(0)
    age = np.array(["old", "young"])[(rng.random(n) < np.where(group == 0, 0.7, 0.3)).astype(int)]
    return X, y, np.array(["m", "f"])[group], age


# --- constraints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reference"),
    [(DemographicParity, "pairwise"), (EqualizedOdds, "rest"), (LossParity, "overall")],
)
def test_within_strata_the_values_are_those_of_each_stratum_alone(kind, reference):
    rows = random_rows(0, 2, 5, n=200)
    found = soft_values(kind(0.1, reference=reference).bind(SPACE), rows)
    expected = []
    for groups in ([0, 2, 4], [1, 3]):
        own = rows.take(torch.isin(rows.group, torch.tensor(groups)).nonzero()[:, 0])
        own = own._replace(group=torch.searchsorted(torch.tensor(groups), own.group))
        names = [SPACE.groups[g] for g in groups]
        alone = kind(0.1, reference=reference).bind(Space([0, 1], names))
        expected += soft_values(alone, own).tolist()
    np.testing.assert_allclose(sorted(found.tolist()), sorted(expected))


@pytest.mark.parametrize("kind", [EqualizedOdds, LossParity])
def test_parallel_attributes_have_the_values_of_each_column_alone(kind):
    """With the slack of each."""
    space = Space([0, 1], [("f", "x"), ("f", "y"), ("m", "x"), ("m", "y"), ("m", "z")])
    rows = random_rows(1, 2, 5, n=200)
    found = soft_values(kind([0.1, 0.2], attributes="parallel").bind(space), rows)
    expected = []
    for column, slack in enumerate((0.1, 0.2)):
        names, codes = np.unique([label[column] for label in space.groups], return_inverse=True)
        own = rows._replace(group=torch.as_tensor(codes)[rows.group])
        expected += soft_values(kind(slack).bind(Space([0, 1], names.tolist())), own).tolist()
    np.testing.assert_allclose(sorted(found.tolist()), sorted(expected))


@pytest.mark.parametrize(
    ("notion", "message"),
    [
        (DemographicParity(attributes="each"), r"attributes must be one of \['crossed', 'paral"),
        (DemographicParity([0.1], attributes="parallel"), "one for each of 2 columns"),
        (DemographicParity([0.1, 0.1]), "slack must be a number >= 0"),
        (DemographicParity([0.1, -0.1], attributes="parallel"), "must be a number >= 0; got -0.1"),
    ],
)
def test_wrong_attributes_and_slacks_are_named(notion, message):
    with pytest.raises(ValueError, match=message):
        notion.bind(Space([0, 1], [(a, b) for a in "fm" for b in "xyz"]), 0.1)


# --- fits -----------------------------------------------------------------------------------------

TREES = HistGradientBoostingClassifier(max_iter=10, random_state=0)


@pytest.mark.parametrize(
    ("clf", "metric", "method"),
    [
        (RateConstrainedClassifier(slack=0.03), metrics.demographic_parity_difference, "predict"),
        (
            RateConstrainedClassifier("equalized_odds", slack=0.03),
            metrics.equalized_odds_difference,
            "predict",
        ),
        (LossParityClassifier(slack=0.02), metrics.loss_gap, "predict_proba"),
        (
            RateConstrainedClassifier(slack=0.05, model=TREES),
            metrics.demographic_parity_difference,
            "predict",
        ),
    ],
)
def test_the_slack_bounds_the_worst_stratum(clf, metric, method):
    """By the metric; the strata need not be among the features."""
    X, y, sex, age = people()
    given = {"sensitive_features": sex, "control_features": age}
    clf = clone(clf).fit(X, y, **given)
    assert clf.feasible_
    assert clf.violation_ <= clf.slack + FORGIVEN
    found = metric(y, getattr(clf, method)(X), **given)
    assert clf.training_violation_ == pytest.approx(found, abs=1e-9)
    crossed = [(s, a) for s in ("f", "m") for a in ("old", "young")]
    assert [tuple(group) for group in clf.groups_] == crossed
    other = clone(clf).fit(X, y, sensitive_features=sex)
    assert metric(y, getattr(other, method)(X), **given) > clf.slack + 0.01


@pytest.mark.filterwarnings("ignore")
def test_private_fits_release_counts_of_strata_as_of_groups():
    """Declared categories are the domain of both: whatever occurs, the cells are the same."""
    X, y, sex, age = people()
    given = {
        "sensitive_features": pd.Categorical(sex, ["f", "m", "x"]),
        "control_features": pd.Categorical(age, ["old", "young"]),
    }
    given = {name: pd.Series(values) for name, values in given.items()}
    clf = RateConstrainedClassifier(slack=0.05, epsilon=5.0, random_state=0).fit(X, y, **given)
    assert len(clf.groups_) == 6
    assert clf.privacy_.epsilon <= 5.0
    assert all("x" not in words for words in clf.constraints_)


def test_routing():
    X, y, sex, age = people(400)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(StandardScaler(), RateConstrainedClassifier(slack=0.05))
        given = {"sensitive_features": sex, "control_features": age}
        assert len(pipeline.fit(X, y, **given)[-1].groups_) == 4
        found = cross_validate(pipeline, X, y, params=given, cv=3, return_estimator=True)
    assert all(len(clf[-1].groups_) == 4 for clf in found["estimator"])


def test_lengths_and_orders_are_checked():
    X, y, sex, age = people(60)
    clf = RateConstrainedClassifier()
    with pytest.raises(ValueError, match="control_features has 10 rows, but X has 60"):
        clf.fit(X, y, sensitive_features=sex, control_features=age[:10])
    columns = pd.DataFrame(X), pd.Series(y)
    with pytest.raises(ValueError, match="control_features has the samples of X in another order"):
        clf.fit(*columns, sensitive_features=sex, control_features=pd.Series(age)[::-1])

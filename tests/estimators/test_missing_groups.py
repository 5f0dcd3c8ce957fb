"""Rows of unknown group train the model, and constraints between groups speak of the others."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import AUCParity, FalseNegativeRate
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import (
    demographic_parity_difference,
    false_negative_rate,
    group_auc_gap,
    loss_gap,
    partial_statistical_parity,
)
from fairconstrained.solvers import LevelSet, NoisyTables
from tests.helpers.marks import slow_where

DATA = make_biased_classification(1500, random_state=0)
X, Y = DATA.data, DATA.target
GROUPS = np.where(DATA.sensitive_features == 0, "a", "b").astype(object)
HIDDEN = np.random.default_rng(0).random(1500) < 0.5
PARTLY = np.where(HIDDEN, None, GROUPS)


def fitted(clf, groups=PARTLY, X=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        return clf.fit(X, Y, sensitive_features=groups)


def measured(metric, clf, groups=PARTLY, method="predict", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        return metric(Y, getattr(clf, method)(X), sensitive_features=groups, **options)


MEASURES = {
    "rates": (RateConstrainedClassifier(slack=0.02), demographic_parity_difference, {}),
    "losses": (LossParityClassifier(slack=0.01), loss_gap, {"method": "predict_proba"}),
    "AUCs": (AUCFairClassifier(), group_auc_gap, {"method": "decision_function"}),
    "ranks": (
        PartialParityClassifier(interval=(0.0, 0.5)),
        partial_statistical_parity,
        {"method": "decision_function", "interval": (0.0, 0.5)},
    ),
    "ERMI": (
        DPFermiClassifier(epsilon=None, penalty=5.0),
        demographic_parity_difference,
        {},
    ),
}


@pytest.mark.parametrize("case", slow_where(MEASURES, "AUCs", "ranks"))
def test_what_is_constrained_is_what_metrics_measure(case):
    clf, metric, options = MEASURES[case]
    fitted(clf)
    assert clf.violation_ == pytest.approx(measured(metric, clf, **options), abs=1e-9)
    assert list(clf.groups_) == ["a", "b"]
    assert clf.feasible_


def test_caps_on_all_rows_count_rows_of_unknown_group():
    constraints = ["demographic_parity", FalseNegativeRate(max=0.2)]
    clf = fitted(RateConstrainedClassifier(constraints, slack=0.05))
    cap = false_negative_rate(Y, clf.predict(X))
    assert clf.violations_["false_negative_rate"] == pytest.approx(cap, abs=1e-12)
    gap = measured(demographic_parity_difference, clf)
    assert clf.violations_["demographic_parity"] == pytest.approx(gap, abs=1e-12)


def test_a_warning_counts_them_or_an_error_does():
    message = "sensitive_features is missing for 726 of 1,500 rows"
    with pytest.warns(MissingSensitiveFeaturesWarning, match=message):
        RateConstrainedClassifier().fit(X, Y, sensitive_features=PARTLY)
    with pytest.raises(ValueError, match=message):
        RateConstrainedClassifier(missing_sensitive="raise").fit(X, Y, sensitive_features=PARTLY)
    with pytest.warns(MissingSensitiveFeaturesWarning, match="is missing in every row"):
        RateConstrainedClassifier().fit(X, Y, sensitive_features=[None] * len(Y))
    RateConstrainedClassifier("false_negative_rate", missing_sensitive="raise", slack=0.5).fit(
        X, Y, sensitive_features=PARTLY
    )  # a cap on all rows needs no groups


def test_blocks_and_several_columns():
    columns = pd.DataFrame({"g": PARTLY, "h": np.where(X[:, 0] > 0, 1.0, np.nan)})
    whole = fitted(RateConstrainedClassifier(slack=0.02), columns)
    read = fitted(
        RateConstrainedClassifier(slack=0.02),
        columns,
        Blocks(lambda: iter(np.array_split(X, [7, 700]))),
    )
    np.testing.assert_allclose(read.coef_, whole.coef_, atol=1e-8)
    assert list(whole.groups_) == [("a", 1.0), ("b", 1.0)]


def test_where_every_group_is_needed():
    with pytest.raises(ValueError, match=r"must have the group of every row with group_features"):
        fitted(PartialParityClassifier(group_features=True))
    with pytest.raises(ValueError, match=r"must have the group of every row in partial_fit"):
        AUCFairClassifier(AUCParity(surrogate="quadratic"), solver=LevelSet()).partial_fit(
            X, Y, sensitive_features=PARTLY
        )


def categorical(groups):
    return pd.Series(groups).astype(pd.CategoricalDtype(["a", "b"]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateConstrainedClassifier(epsilon=2.0, random_state=0, max_iter=3),
        lambda: DPFermiClassifier(solver=NoisyTables(n_steps=5), random_state=0),
    ],
)
def test_private_fits_say_nothing_about_who_lacks_a_group(make):
    """Of a declared domain not even whether there are any: messages and shapes are the same."""
    told = []
    for groups in (GROUPS, PARTLY):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf = make().fit(X, Y, sensitive_features=categorical(groups))
        told.append([str(w.message) for w in caught if w.category is not SmallGroupWarning])
        assert list(clf.groups_) == ["a", "b"]
    assert told[0] == told[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(X, Y, sensitive_features=PARTLY)
    words = [str(w.message) for w in caught]
    assert any("is missing for some rows: " in own for own in words)
    assert not any(str(HIDDEN.sum()) in own or str((~HIDDEN).sum()) in own for own in words)


def test_known_rows_stand_for_all_of_their_label():
    """Where of every row three or two copies exist, of one label or the other, and one is known."""
    copies = np.where(Y == 1, 3, 2)
    row = np.repeat(np.arange(len(Y)), copies)
    first = np.r_[True, row[1:] != row[:-1]]
    groups = np.where(first, GROUPS[row], None)
    y_pred = (X[row, 0] > 0).astype(int)
    with pytest.warns(MissingSensitiveFeaturesWarning, match="the other rows of a label stand for"):
        gap = demographic_parity_difference(Y[row], y_pred, sensitive_features=groups)
    true = demographic_parity_difference(Y[row], y_pred, sensitive_features=GROUPS[row])
    assert gap == pytest.approx(true, abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        clf = RateConstrainedClassifier(slack=0.02).fit(X[row], Y[row], sensitive_features=groups)
    every = RateConstrainedClassifier(slack=0.02).fit(
        X[row], Y[row], sensitive_features=GROUPS[row]
    )
    np.testing.assert_allclose(clf.coef_, every.coef_, atol=1e-6)


def test_strata_are_compared_by_the_same_rows():
    """Also where the stratum is missing: a fit and the metric know the group of the same rows."""
    age = np.where(np.arange(len(Y)) % 5 == 0, None, np.where(X[:, 1] > 0, "old", "young"))
    given = {"sensitive_features": PARTLY, "control_features": age}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingSensitiveFeaturesWarning)
        clf = RateConstrainedClassifier(slack=0.02).fit(X, Y, **given)
        gap = demographic_parity_difference(Y, clf.predict(X), **given)
    assert clf.violation_ == pytest.approx(gap, abs=1e-12)

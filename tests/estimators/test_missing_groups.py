"""Rows of unknown group train the model, and constraints between groups speak of the others."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fairconstrained import (
    AUCFairClassifier,
    DPFermiClassifier,
    LossParityClassifier,
    PartialParityClassifier,
    RateConstrainedClassifier,
)
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import (
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    FalseNegativeRate,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, SmallGroupWarning
from fairconstrained.metrics import (
    certify,
    demographic_parity_difference,
    equalized_odds_difference,
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
    "ERMI": (DPFermiClassifier(epsilon=None, penalty=5.0), demographic_parity_difference, {}),
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


SIDE_BY_SIDE = {
    "rates": (DemographicParity, demographic_parity_difference, {}),
    "rates within labels": (EqualizedOdds, equalized_odds_difference, {}),
    "against everybody": (
        partial(DemographicParity, reference="overall"),
        demographic_parity_difference,
        {"method": "to_overall"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SIDE_BY_SIDE)
@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_parallel_attributes_are_compared_by_the_rows_that_have_them(case, data):
    """A row that lacks one attribute counts by its others, in fits as in metrics."""
    notion, metric, options = SIDE_BY_SIDE[case]
    rng = np.random.default_rng(data.draw(st.integers(0, 9999), label="seed"))
    n, n_columns = 200, data.draw(st.integers(2, 3), label="columns")
    values = rng.integers([3, 2, 2][:n_columns], size=(n, n_columns))
    lacking = data.draw(st.sampled_from(["at random", "all but one", "at most one"]), label="lack")
    hidden = rng.random((n, n_columns)) < np.where(Y[:n] == 1, 0.2, 0.5)[:, None]
    one = rng.integers(n_columns, size=(n, 1)) == np.arange(n_columns)
    hidden = {"at random": hidden, "all but one": ~one, "at most one": hidden & one}[lacking]
    people = pd.DataFrame(
        np.where(hidden, None, values.astype(str)), columns=list("abc")[: values.shape[1]]
    )
    own = {"sensitive_features": people, "sample_weight": rng.integers(1, 4, size=n)}
    if data.draw(st.booleans(), label="strata"):
        own["control_features"] = np.where(
            rng.random(n) < 0.1, None, np.where(X[:n, 1] > 0, "o", "y")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = RateConstrainedClassifier(notion(0.05, attributes="parallel"), min_group_size=1)
        y_pred = clf.fit(X[:n], Y[:n], **own).predict(X[:n])
        gap = metric(Y[:n], y_pred, attributes="parallel", **options, **own)
    if np.isnan(gap):  # a cell without rows, which the fit names
        assert clf.left_out_
    else:
        assert clf.violation_ == pytest.approx(gap, abs=1e-9)


def test_an_attribute_compares_rows_that_lack_another():
    """Their values are named, their rows counted, and blocks read them as rows in memory."""
    people = pd.DataFrame({"sex": GROUPS, "age": np.where(X[:, 1] > 0, "old", "young")})
    people.loc[people["sex"] == "a", "age"] = None
    people.loc[:4, "sex"] = "c"
    people.loc[:4, "age"] = None
    clf = RateConstrainedClassifier(DemographicParity(0.03, attributes="parallel"))
    with pytest.warns(SmallGroupWarning, match=r"group c \(5 rows, fewer than 34\)"):
        fitted(clf, people)
    read = RateConstrainedClassifier(DemographicParity(0.03, attributes="parallel"))
    with pytest.warns(SmallGroupWarning, match="group c"):
        fitted(read, people, Blocks(lambda: iter(np.array_split(X, [7, 700]))))
    np.testing.assert_allclose(read.coef_, clf.coef_, atol=1e-8)
    gaps = measured(
        demographic_parity_difference,
        clf,
        people.where(people["sex"] != "c"),
        attributes="parallel",
    )
    assert clf.violation_ == pytest.approx(gaps, abs=1e-9)
    assert list(clf.groups_) == [("b", "old"), ("b", "young")]
    rows = np.arange(5, 1500)
    with pytest.warns(SmallGroupWarning, match=r"group sex=c \(0 rows"):
        certificate = certify(
            clf,
            X[rows],
            Y[rows],
            sensitive_features=people.iloc[rows],
            constraint=DemographicParity(0.5, attributes="parallel"),
        )
    assert certificate.left_out == ["group sex=c (0 rows)"]
    other = people.assign(sex=pd.Series(GROUPS).map({"a": 1, "b": 2}))
    with pytest.raises(ValueError, match="values of another kind than before: 2 after 'b'"):
        clf.set_params(warm_start=True).fit(X, Y, sensitive_features=other)


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

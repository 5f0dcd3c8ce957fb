"""Which of two labels is the favourable one: one rule for fits, metrics and certificates."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate

import fairconstrained as fc
from fairconstrained import constraints
from fairconstrained.metrics import certify, equal_opportunity_scorer, group_report
from fairconstrained.model_selection import CertifiedClassifier
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.fits import table

X, Y, GROUP = table()
WORDS = np.array(["refused", "granted"])[Y]  # the favourable one is the first by name
ASKED = r"pos_label must say which of the labels \['granted', 'refused'\] is the favourable one"
ORDER = pd.CategoricalDtype(["refused", "granted"], ordered=True)
GROUPS = {"sensitive_features": GROUP}
DEPENDENT = [
    constraints.DemographicParity(ratio=0.8),
    constraints.EqualizedOdds(ratio=0.8),
    constraints.EqualOpportunity(slack=0.2),
    constraints.FalsePositiveRateParity(slack=0.2),
    constraints.PredictiveParity(slack=0.2),
    constraints.FalseOmissionRateParity(slack=0.2),
    constraints.FalseNegativeRate(max=0.5),
    constraints.RejectionRate(max=0.9, per_group=True),
]


class Stopped(Exception):
    pass


def stops(iterate):
    raise Stopped


@pytest.mark.parametrize("notion", DEPENDENT, ids=repr)
def test_fits_certificates_and_monitors_ask_for_it_alike(notion):
    fit = fc.RateConstrainedClassifier(notion, callbacks=stops)
    given = {"y_true": WORDS, "y_pred": WORDS, "constraint": notion, **GROUPS}
    watched = {"sensitive_features": GROUP, "y_true": WORDS}
    for refuses in (
        lambda: fit.fit(X, WORDS, **GROUPS),
        lambda: certify(**given),
        lambda: FairnessMonitor(notion).update(WORDS, **watched),
    ):
        with pytest.raises(ValueError, match=ASKED):
            refuses()
    named = clone(notion).set_params(pos_label="granted")
    with pytest.raises(Stopped):
        clone(fit).set_params(constraint=named).fit(X, WORDS, **GROUPS)
    with warnings.catch_warnings(action="ignore"):
        expected = certify(**{**given, "y_true": Y, "y_pred": Y})
        for words in (WORDS, pd.Series(WORDS, dtype=ORDER)):
            of_words = {"y_true": words, "y_pred": WORDS}
            pos_label = "granted" if words is WORDS else None
            found = certify(**{**given, **of_words}, pos_label=pos_label)
            assert (found.upper, found.estimate) == (expected.upper, expected.estimate)
    plain = FairnessMonitor(notion).update(Y, **{**watched, "y_true": Y})
    words = FairnessMonitor(named).update(WORDS, **watched)
    ordered = pl.Series(WORDS, dtype=pl.Enum(["refused", "granted"]))
    declared = FairnessMonitor(notion).update(ordered, **watched)
    assert plain.interval_ == words.interval_ == declared.interval_


def test_reports_searches_and_wrappers_ask_for_it_too():
    clf, claim = fc.RateConstrainedClassifier(slack=0.2), {"constraint": "equal_opportunity"}
    for refuses in (
        lambda: group_report(WORDS, WORDS, **GROUPS),
        lambda: fc.LossParityClassifier("equal_opportunity").fit(X, WORDS, **GROUPS),
        lambda: fc.DPFermiClassifier("equal_opportunity").fit(X, WORDS, **GROUPS),
        lambda: CertifiedClassifier(clf, **claim).fit(X, WORDS, **GROUPS),
        lambda: equal_opportunity_scorer(clf.fit(X, WORDS, **GROUPS), X, WORDS, **GROUPS),
    ):
        with config_context(enable_metadata_routing=True), pytest.raises(ValueError, match=ASKED):
            refuses()
    with pytest.raises(ValueError, match=r"are granted, refused\. Name the favourable one"):
        fc.report(WORDS, WORDS, **GROUPS)


@pytest.mark.parametrize("label", [np.array("granted"), {"granted": 1}, pd.NA, np.nan, [["yes"]]])
def test_it_is_a_single_label(label):
    """An audit takes a list of them."""
    rows = {"y_true": WORDS, "y_pred": WORDS, "pos_label": label, **GROUPS}
    clf = fc.RateConstrainedClassifier(constraints.EqualOpportunity(pos_label=label))
    for refuses in (
        lambda: clf.fit(X, WORDS, **GROUPS),
        lambda: group_report(**rows),
        lambda: certify(**rows, constraint="demographic_parity", slack=0.1),
        lambda: FairnessMonitor(pos_label=label).update(WORDS, **GROUPS),
        lambda: fc.report(**rows),
    ):
        with pytest.raises(ValueError, match=r"pos_label must be one of the labels \['granted'"):
            refuses()


def test_differences_of_selection_rates_and_odds_are_the_same_for_both():
    for name in ("demographic_parity", "equalized_odds", "error_rate_parity"):
        clf = fc.RateConstrainedClassifier(name, slack=0.1)
        words, codes = (clone(clf).fit(X, y, **GROUPS) for y in (WORDS, 1 - Y))
        np.testing.assert_array_equal(words.coef_, codes.coef_)
        given = {"constraint": name, "slack": 0.1, **GROUPS}
        assert certify(words, X, WORDS, **given).upper == certify(codes, X, 1 - Y, **given).upper


def test_the_order_of_categories_declares_it_for_fits():
    clf = fc.RateConstrainedClassifier(constraints.EqualOpportunity(slack=0.05), max_iter=3)
    with warnings.catch_warnings(action="ignore"):
        declared = clone(clf).fit(X, pd.Series(WORDS, dtype=ORDER), **GROUPS)
        clf.set_params(constraint__pos_label="granted").fit(X, WORDS, **GROUPS)
    assert declared.constraints_ == clf.constraints_
    assert all("label granted" in words for words in declared.constraints_)
    assert declared.violation_ == clf.violation_


def test_rankings_keep_the_order_of_scikit_learn_and_say_so():
    for clf in (fc.AUCFairClassifier(slack=0.3), fc.PartialParityClassifier(slack=0.3, max_iter=3)):
        with warnings.catch_warnings(action="ignore"):
            clf.fit(X, WORDS, **GROUPS)
            codes = clone(clf).fit(X, 1 - Y, **GROUPS)
        assert (clf.pos_label_, codes.pos_label_) == ("refused", 1)
        np.testing.assert_array_equal(clf.decision_function(X), codes.decision_function(X))
    given = {"y_true": WORDS, "y_score": X[:, 0], "constraint": "inter_group", "slack": 0.5}
    said = " ".join(str(certify(**given, **GROUPS)).split())
    assert "the label on top of the ranking is 'refused'." in said


def test_searches_over_words_are_as_before():
    search = GridSearchCV(fc.RateConstrainedClassifier(), {"slack": [0.1, 0.2]}, cv=2)
    assert set(search.fit(X, WORDS, **GROUPS).predict(X)) == {"granted", "refused"}
    assert cross_validate(fc.AUCFairClassifier(), X, WORDS, params=GROUPS, cv=2)["test_score"].all()


@pytest.mark.parametrize("dtype", ["boolean", "Int64", float, "str", "M8[ns]"])
def test_missing_labels_are_named(dtype):
    labels = pd.Series([None, *Y[1:]], dtype=dtype)
    with pytest.raises(ValueError, match=r"y has missing values \(NaN, None\): leave these rows"):
        fc.RateConstrainedClassifier().fit(X, labels, **GROUPS)

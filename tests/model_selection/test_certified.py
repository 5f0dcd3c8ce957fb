"""CertifiedClassifier: valid promises, any classifier, scikit-learn's conventions."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import PartialParityClassifier, RateConstrainedClassifier, exceptions
from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.model_selection import CertifiedClassifier, PrivateGridSearch, tradeoff_curve
from fairconstrained.model_selection.certified import FIRST, in_sequences
from fairconstrained.model_selection.splits import holdout_split
from fairconstrained.solvers import DPSGDA
from tests.helpers.marks import with_checks

DATA = make_biased_classification(6000, n_features=6, random_state=0)
X, Y, S = DATA.data, DATA.target, np.asarray(DATA.sensitive_features)
REASON = "which of two words, or of 1 and 2, is the favourable label is not known"
CHECKS = "classifiers_classes classifier_data_not_an_array estimators_dtypes fit2d_1feature"
OF_LABELS = {f"check_{name}": REASON for name in CHECKS.split()}


def by_c(**options):
    """Around a plain logistic model: the stronger the penalty, the more constant its labels."""
    given = {"constraint": "demographic_parity", "slack": 0.15, "random_state": 0, **options}
    given.setdefault("candidates", {"C": [1e-6, 1e-4, 1e-3, 1e-2, 1.0]})
    return CertifiedClassifier(LogisticRegression(), **given)


OF_ONE = by_c(constraint="false_negative_rate", slack=0.5, candidates={"C": [1.0]})


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@with_checks({OF_ONE: OF_LABELS})
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_promises_are_kept_on_new_data():
    """Each may be wrong with a chance of 5 %: three of ten have one of 1 %."""
    new = make_biased_classification(100_000, n_features=6, random_state=0)
    violated = certified = 0
    rng = np.random.default_rng(0)
    for seed in range(10):
        rows = rng.integers(len(new.target), size=3000)
        clf = CertifiedClassifier(RateConstrainedClassifier(slack=0.15), random_state=seed)
        clf.fit(new.data[rows], new.target[rows], sensitive_features=new.sensitive_features[rows])
        groups = {"sensitive_features": new.sensitive_features}
        gap = demographic_parity_difference(new.target, clf.predict(new.data), **groups)
        certified += clf.certified_
        violated += clf.certified_ and gap > 0.15
    assert certified >= 8
    assert violated <= 2


def test_each_sequence_is_tested_until_a_model_fails():
    """Candidates with other values of C, and thresholds of the strictest one."""
    clf = by_c(slack=0.2, candidates={"C": [1e-4, 1e-2, 1.0]})
    table = clf.fit(X, Y, sensitive_features=S).candidates_
    assert clf.certified_
    assert table["threshold"].notna().any()
    for _, sequence in table.groupby(table["threshold"].isna()):
        passed = sequence["kept"].tolist()
        assert passed == sorted(passed, reverse=True)
        assert passed.count(False) <= 1
    kept = table[table["kept"]]
    best = kept.loc[kept["accuracy"].idxmax()]
    _, rows = holdout_split(len(Y), 0.5, 0, S)
    assert best["upper"] == clf.certificate_.upper
    assert best["accuracy"] == np.mean(clf.predict(X[rows]) == Y[rows])
    assert clf.certificate_.confidence == clf.confidence
    np.testing.assert_array_equal(clf.predict(X), clf.estimator_.predict(X))


def passed_in_sequences(p_values, alpha):
    numbers, passed = [list(enumerate(p)) for p in p_values], [0, 0]

    def passes(sequence, number, fraction):
        return bool(p_values[sequence][number] <= fraction * alpha)

    def noted(sequence, number, fraction):
        found = passes(sequence, number, fraction)
        passed[sequence] = max(passed[sequence], number + found)
        return found

    models = [[(sequence, number) for number, _ in of] for sequence, of in enumerate(numbers)]
    in_sequences(*models, noted)
    return passed


P_VALUES = st.lists(st.floats(0, 0.1), max_size=4)


@given(P_VALUES, P_VALUES)
def test_two_sequences_are_the_graphical_procedure(first, second):
    """Bretz et al. 2009: weights move along a sequence, from its end to the other one's model."""
    p_values, weights, passed = (first, second), [FIRST, 1.0 - FIRST], [0, 0]
    while True:
        for of in (0, 1):
            done, other_done = (passed[k] == len(p_values[k]) for k in (of, 1 - of))
            weight = 1.0 if other_done else weights[of]
            if not done and p_values[of][passed[of]] <= weight * 0.05:
                passed[of] += 1
                break
        else:
            break
    assert passed_in_sequences(p_values, 0.05) == passed


def test_no_claim_without_a_certificate():
    clf = by_c(slack=0.05, candidates={"C": [1e-2, 1.0]})
    few = {"X": X[:200], "y": Y[:200], "sensitive_features": S[:200]}
    words = "No useful model was found that is certified"
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match=words):
        clf.fit(**few)
    assert not clf.certified_
    assert not clf.certificate_.kept
    assert not clf.candidates_["kept"].any()
    with pytest.raises(exceptions.NotCertifiedError, match=r"above the slack of 0\.05"):
        clf.set_params(on_failure="raise").fit(**few)
    with pytest.warns(exceptions.MissingSensitiveFeaturesWarning):
        clf = by_c().fit(X, Y)
    assert not clf.certified_
    assert clf.certificate_ is None


def test_a_model_that_keeps_the_slack_only_since_groups_are_missing_is_not_chosen():
    """The certificate of the rows of known group holds; fits and metrics measure more."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(2, size=20_000).astype(float), rng.integers(2, size=20_000)
    score = rng.normal(size=len(y)) + np.where(group == 1, 2.0 * y - 1.0, -0.5)
    group[(y == 1) & (rng.random(len(y)) < 0.8)] = np.nan  # most errors in group 0 are of these
    clf = by_c(constraint="error_rate_parity", slack=0.3, candidates={"C": [1.0]})
    words = "certified, since groups are missing"
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match=words):
        clf.fit(score[:, None], y, sensitive_features=group)
    certificate = clf.certificate_
    assert certificate.upper < 0.3 < certificate.standing
    assert not clf.certified_


def test_weights_reach_the_estimator_that_requests_them():
    """Rows of weight zero do not train: the other half decides alone."""
    with config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=True)
        weight = (X[:, 0] > 0).astype(float)
        given = {"constraint": "error_rate_parity", "slack": 0.9, "candidates": {"C": [1.0]}}
        clf = CertifiedClassifier(inner, random_state=0, **given)
        clf.fit(X, Y, sensitive_features=S, sample_weight=weight)
    train, _ = holdout_split(len(Y), 0.5, 0, S)
    rows = train[weight[train] > 0]
    alone = LogisticRegression().fit(X[rows], Y[rows])
    np.testing.assert_allclose(clf.estimator_.coef_, alone.coef_, atol=1e-3)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_strata_of_the_fit_are_those_of_the_certificate():
    """The gap is the largest within a stratum, of the rows that were split off."""
    job = np.where(X[:, 1] > 0, "manual", "other")
    clf = CertifiedClassifier(
        RateConstrainedClassifier(slack=0.4), candidates={"slack": [0.2]}, random_state=0
    ).fit(X, Y, sensitive_features=S, control_features=job)
    _, test = holdout_split(len(Y), 0.5, 0, {"group": S, "job": job})
    rates = pd.Series(clf.predict(X[test])).groupby([job[test], S[test]]).mean().unstack()
    assert clf.certificate_.estimate == pytest.approx(np.ptp(rates, axis=1).max())
    assert np.ptp(rates, axis=1).max() > np.ptp(rates, axis=1).min() + 0.01
    with pytest.warns(exceptions.ConstraintNotSatisfiedWarning, match="certified"):
        clf.fit(X, Y, sensitive_features=S, control_features=S)  # nobody is compared
    assert not clf.certified_


@pytest.mark.parametrize(
    ("constraint", "slack", "varied", "first"),
    [
        (FalseNegativeRate(max=0.6), 0.6, "constraint__max", [0.06, 0.18]),
        (DemographicParity(ratio=0.7), 0.3, "constraint__ratio", [0.97, 0.91]),
        ("error_rate_parity", 0.2, "slack", [0.02, 0.06]),
    ],
)
def test_constraint_and_slack_are_the_estimators_own(constraint, slack, varied, first):
    """The bound of a constraint object is certified, and candidates vary it, not the slack."""
    model = make_pipeline(StandardScaler(), RateConstrainedClassifier(constraint, slack=0.2))
    clf = CertifiedClassifier(model, random_state=0).fit(X, Y, sensitive_features=S)
    assert clf.certificate_.slack == pytest.approx(slack)
    assert clf.certificate_.constraint.endswith(getattr(constraint, "name", constraint))
    (column,) = [name for name in clf.candidates_ if name.endswith(varied)]
    np.testing.assert_allclose(clf.candidates_[column][:2], first)
    assert clf.candidates_["estimate"].nunique() > 1


def test_models_that_read_the_group():
    """They are given the groups where they are certified and where their accuracy is measured."""
    inner = PartialParityClassifier(group_features=True)
    with config_context(enable_metadata_routing=True):
        inner.set_fit_request(sensitive_features=True)
        inner.set_predict_request(sensitive_features=True)
        inner.set_decision_function_request(sensitive_features=True)
    given = {"candidates": {"partialparityclassifier__slack": [0.3]}, "random_state": 0}
    clf = CertifiedClassifier(make_pipeline(inner), slack=0.9, **given)
    clf.fit(X, Y, sensitive_features=S)
    assert clf.certified_
    assert clf.candidates_["accuracy"].item() > 0.6


@pytest.mark.parametrize(
    ("constraint", "fixed"),
    [(FalseNegativeRate(per_group=True), True), ("false_negative_rate", False)],
)
def test_a_cap_on_all_samples_is_certified_on_draws_of_all_samples(constraint, fixed):
    """Its bound is binomial: the sizes of groups must be as random as in the population."""
    sizes = set()
    for seed in range(5):
        clf = by_c(constraint=constraint, slack=1.0, random_state=seed)
        clf.fit(X, Y, sensitive_features=S)
        sizes.add(tuple(clf.certificate_.groups.values()))
        assert clf.certificate_.n_samples == 3000
    assert (len(sizes) == 1) is fixed


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"certify_size": 1.0}, "certify_size"),
        ({"confidence": 0}, "confidence"),
        ({"estimator": 3}, "estimator must have a method fit; got 3"),
        ({"estimator": LogisticRegression}, "is a class; give an object of it, LogisticRegression"),
        ({"on_failure": "ignore"}, "on_failure"),
        ({"candidates": []}, "candidates"),
        ({"candidates": {"C": 0.1}}, "candidates must be a dict of one parameter to its values"),
        ({"constraint": None}, "constraint"),
        ({"constraint": ["demographic_parity"]}, "constraint must be one of"),
        ({"slack": None}, "slack"),
        ({"slack": None, "constraint": FalseNegativeRate(max={1: 0.2}, per_group=True)}, "slack"),
    ],
)
def test_wrong_parameters(changed, match):
    with pytest.raises(ValueError, match=match):
        by_c().set_params(**changed).fit(X, Y, sensitive_features=S)


def test_criteria_that_are_not_certified_within_strata_are_refused_before_a_fit():
    model = RateConstrainedClassifier(FalseNegativeRate(max=0.2, per_group=True), max_iter=0)
    with pytest.raises(ValueError, match="control_features must be None for 'false_negative_rate'"):
        CertifiedClassifier(model).fit(X, Y, sensitive_features=S, control_features=S)


PRIVATE = RateConstrainedClassifier(solver=DPSGDA(n_steps=2), feature_range=(-4, 4))
CURVE = partial(tradeoff_curve, LogisticRegression(), param_name="C", param_range=[1.0], cv=2)


@pytest.mark.parametrize("train", [by_c().fit, CURVE, PrivateGridSearch(PRIVATE, {}).fit])
def test_labels_at_other_positions_are_said_once_and_names_are_no_labels(train):
    groups = pd.Series(S, index=np.arange(len(S)) + 3000)
    with warnings.catch_warnings(record=True, action="always") as told:
        train(X, pd.Series(Y), sensitive_features=groups)
    assert sum("are matched by position" in str(one.message) for one in told) == 1
    with pytest.raises(ValueError, match="y must hold a value for each sample"):
        train(X, "granted", sensitive_features=S)

"""Model cards say what the fit says."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import DPFermiClassifier, PartialParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity, FalseNegativeRate
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.export import model_card
from fairconstrained.metrics import certify
from fairconstrained.model_selection import (
    CertifiedClassifier,
    PrivateGridSearch,
    SensitiveColumnsClassifier,
)
from fairconstrained.solvers import DPSGDA
from tests.helpers.clients import frame, rows

ROWS = rows(900)


def test_a_card_holds_the_constraint_its_violation_the_groups_and_the_certificate():
    X, y, groups = ROWS.values()
    sex = ["mf"[g] for g in groups]
    clf = RateConstrainedClassifier(["demographic_parity", "equal_opportunity"], slack=0.07)
    clf.fit(X, y, sensitive_features=sex)
    claim = {"constraint": "demographic_parity", "slack": 0.3}
    certificate = certify(clf, X, y, sensitive_features=sex, **claim)
    card = model_card(clf, certificate=certificate)
    assert card.title == "RateConstrainedClassifier: demographic_parity, equal_opportunity"
    for name, value in clf.violations_.items():
        assert f"| {name} | {value:.6g} |" in card.sections["Constraint"]
    assert "It is kept there, to the last row. The slack is 0.07." in card.sections["Constraint"]
    assert card.sections["Groups"].endswith("Groups: f, m.")
    assert str(certificate) in card.sections["Certificate"]
    assert repr(clf) in card.sections["Model"]
    assert "without differential privacy" in card.sections["Privacy"]
    headings = [line for line in str(card).splitlines() if line.startswith("#")]
    assert headings == [f"# {card.title}", *(f"## {name}" for name in card.sections)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_of_a_private_fit_it_says_the_promise_and_that_violations_are_estimates():
    clf = DPFermiClassifier(epsilon=1.0, max_iter=5, random_state=0)
    card = model_card(clf.fit(**ROWS))
    assert str(clf.privacy_) in card.sections["Privacy"]
    assert "noisy numbers that were released" in card.sections["Constraint"]
    assert "penalised and not bounded" in card.sections["Constraint"]
    assert "random_state" not in str(card).replace("(random_state=None)", "")  # the seed


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_of_a_private_search_it_says_what_the_search_has_spent():
    clf = RateConstrainedClassifier(solver=DPSGDA(n_steps=4))
    search = PrivateGridSearch(clf, {"slack": [0.1, 0.2]}, epsilon=2.0)
    card = model_card(search.fit(**ROWS)).sections
    assert str(search.privacy_) in card["Privacy"]
    error = f"error is {search.best_estimator_.excess_error_:.2g} (two standard deviations"
    assert error in card["Constraint"]
    assert "to the last row" not in card["Constraint"]
    assert search.best_estimator_.privacy_.epsilon < 2.0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_of_other_searches_it_says_that_the_promise_is_that_of_one_fit():
    clf = RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(n_steps=4))
    search = GridSearchCV(clf, {"slack": [0.1, 0.2]}, cv=KFold(2))
    with config_context(enable_metadata_routing=True):
        search.fit(**ROWS)
    assert "one fit. What GridSearchCV learnt" in model_card(search).sections["Privacy"]


def test_a_constraint_that_is_not_kept_is_said_to_be_so():
    caps = ["false_negative_rate", "false_positive_rate"]  # no score separates the labels
    clf = RateConstrainedClassifier(caps, slack=0.01)
    with pytest.warns(ConstraintNotSatisfiedWarning, match="exceeds its slack"):
        clf.fit(**ROWS)
    assert "is NOT kept" in model_card(clf).sections["Constraint"]


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (DemographicParity(0.3), "The slack is 0.3."),
        (DemographicParity(ratio=0.75), "The slack is 0.25."),
        (FalseNegativeRate({0: 0.5, 1: 0.6}, per_group=True), "The slack is {0: 0.5, 1: 0.6}."),
        (
            ["demographic_parity", FalseNegativeRate(0.5)],
            "The slack of demographic_parity is 0.4. The slack of false_negative_rate is 0.5.",
        ),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_the_slack_is_that_of_each_criterion_and_who_is_left_out_is_named(constraint, words):
    clf = RateConstrainedClassifier(constraint, slack=0.4, min_group_size=500, max_iter=5)
    section = model_card(clf.fit(**ROWS)).sections["Constraint"]
    assert words in section
    assert all(name in section for name in clf.left_out_)


def test_groups_that_predictions_need_are_named_and_that_nothing_is_proved():
    clf = PartialParityClassifier(slack=0.3, group_features=True)
    card = model_card(clf.fit(**rows()))
    assert "in training and in prediction" in card.sections["Groups"]
    assert card.sections["Certificate"].startswith("None.")


@pytest.mark.parametrize("order", [["no", "yes"], ["yes", "no"]])
def test_the_best_of_ordered_labels_is_named(order):
    X, y, groups = ROWS.values()
    labels = pd.Series(pd.Categorical(np.where(y, "yes", "no"), order, ordered=True))
    clf = RateConstrainedClassifier("equal_opportunity", slack=0.5)
    card = model_card(clf.fit(X, labels, sensitive_features=groups))
    assert f"features. The favourable one is {order[1]}." in card.sections["Model"]


def test_names_of_groups_and_labels_have_no_meaning_in_markdown():
    X, y, groups = ROWS.values()
    clf = RateConstrainedClassifier(slack=0.5)
    clf.fit(X, np.where(y, "$x", "*y*"), sensitive_features=np.where(groups, "a|b", "_c_"))
    sections = model_card(clf).sections
    assert r"It predicts \$x or \*y\* from" in sections["Model"]
    assert sections["Groups"].endswith(r"Groups: \_c\_, a\|b.")


def test_wrappers_are_looked_into():
    table, y = frame()
    X, groups = table.drop(columns="sex"), table["sex"]
    pipe = make_pipeline(StandardScaler(), RateConstrainedClassifier())
    search = GridSearchCV(pipe, {"rateconstrainedclassifier__slack": [0.125]}, cv=2)
    with config_context(enable_metadata_routing=True):
        search.fit(X, y, sensitive_features=groups)
    assert "The slack is 0.125." in model_card(search).sections["Constraint"]
    columns = SensitiveColumnsClassifier(RateConstrainedClassifier(slack=0.125), "sex")
    assert "The slack is 0.125." in model_card(columns.fit(table, y)).sections["Constraint"]
    loose = RateConstrainedClassifier(slack=0.5)
    certified = CertifiedClassifier(loose, candidates={"slack": [0.1]}, random_state=0)
    certified.fit(X, y, sensitive_features=groups)
    assert str(certified.certificate_) in str(model_card(certified))


def test_other_models_are_refused():
    with pytest.raises(NotFittedError):
        model_card(RateConstrainedClassifier())
    with pytest.raises(ValueError, match="must be a classifier of fairconstrained, or hold one"):
        model_card(LogisticRegression().fit(ROWS["X"], ROWS["y"]))

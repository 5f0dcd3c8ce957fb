"""The privacy of a whole search: composition, who sees which fit, what cannot be promised."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import PrivacyWarning
from fairconstrained.model_selection import (
    CertifiedClassifier,
    StratifiedSensitiveKFold,
    epsilon_per_fit,
    search_privacy_cost,
    tradeoff_curve,
)
from fairconstrained.privacy._loss_distributions import from_guarantees
from fairconstrained.solvers import DPFERMI, DPSGDA

pytest.importorskip("dp_accounting")

STEPS = DPSGDA(n_steps=4)


class Private(ClassifierMixin, BaseEstimator):
    """Stands for a private estimator: only its parameters matter."""

    def __init__(self, epsilon=1.0, delta=1e-6, protect="record", slack=0.1):
        self.epsilon = epsilon
        self.delta = delta
        self.protect = protect
        self.slack = slack

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


X = np.random.default_rng(0).normal(size=(24, 2))
y = np.arange(24) % 2


def searched(estimator, grid, cv=None, **kwargs):
    cv = KFold(3) if cv is None else cv
    return GridSearchCV(estimator, grid, cv=cv, error_score="raise", **kwargs).fit(X, y)


def kairouz_oh_viswanath(epsilon, delta, k, total_delta):
    """Theorem 3.3 of the paper for k equal mechanisms: the least epsilon on its list."""
    best = k * epsilon
    for i in range(k // 2 + 1):
        tail = (
            sum(
                math.comb(k, j)
                * (math.exp((k - j) * epsilon) - math.exp((k - 2 * i + j) * epsilon))
                for j in range(i)
            )
            / (1 + math.exp(epsilon)) ** k
        )
        if 1 - (1 - delta) ** k * (1 - tail) <= total_delta:
            best = min(best, (k - 2 * i) * epsilon)
    return best


@given(
    epsilon=st.floats(0.02, 1.0), k=st.integers(1, 60), slack=st.sampled_from([1e-6, 1e-4, 1e-2])
)
@settings(max_examples=40)
def test_composition_is_the_theorem(epsilon, k, slack):
    """Between two points of the theorem's list, where ours is continuous, and never above it."""
    delta = 1e-8
    total = k * delta + slack
    theirs = kairouz_oh_viswanath(epsilon, delta, k, total)
    ours = from_guarantees({(epsilon, delta): k}, total)
    assert theirs - 2 * epsilon <= ours * (1 + 1e-3)
    assert ours <= theirs * (1 + 2e-3)


def test_composition_gains_over_the_sum():
    fits = {(0.1, 1e-7): 100}
    assert from_guarantees(fits, 1e-4) < 0.6 * 10
    assert from_guarantees({(0.1, 1e-7): 50, (0.05, 1e-7): 50}, 1e-4) < from_guarantees(fits, 1e-4)
    assert from_guarantees({}, 1e-5) == 0
    assert from_guarantees({(math.inf, 1e-5): 1}, 1e-4) == math.inf


def test_every_fit_that_sees_a_row_is_counted():
    """A row is in two of three training sets of each of four candidates, and in the refit."""
    grid = {"slack": [0.1, 0.2], "epsilon": [0.5, 1.0]}
    cost = search_privacy_cost(searched(Private(), grid))
    fits = {(0.5, 1e-6): 4, (1.0, 1e-6): 5}
    assert cost.n_fits == 9
    assert cost.delta == pytest.approx(18e-6)
    assert cost.epsilon == pytest.approx(min(7.0, from_guarantees(fits, cost.delta)))
    assert cost.unit == "record"
    without = search_privacy_cost(searched(Private(), grid, refit=False))
    assert (without.n_fits, without.delta) == (8, pytest.approx(16e-6))
    assert without.epsilon < cost.epsilon


def test_the_refit_is_charged_as_the_dearest_candidate():
    grid = {"epsilon": [0.1, 3.0], "delta": [1e-6, 1e-5]}
    search = searched(Private(), grid)
    cost = search_privacy_cost(search, delta=1e-3)
    fits = {(e, d): 2 + (e == 3.0 and d == 1e-5) for e in (0.1, 3.0) for d in (1e-6, 1e-5)}
    assert cost.epsilon == pytest.approx(from_guarantees(fits, 1e-3))


def test_at_the_sum_of_deltas_epsilons_add_up():
    """Basic composition is exact there, and rounding never makes it worse."""
    search = searched(Private(epsilon=0.3), {"slack": [0.1]})
    assert search_privacy_cost(search, delta=3e-6 * (1 + 1e-9)).epsilon == pytest.approx(0.9)
    with pytest.raises(ValueError, match=r"delta must be at least 3e-06, the sum .* got 2e-06"):
        search_privacy_cost(search, delta=2e-6)


@pytest.mark.parametrize(
    ("cv", "n_fits"),
    [
        (KFold(4, shuffle=True, random_state=0), 4),
        (RepeatedKFold(n_splits=3, n_repeats=2, random_state=0), 7),  # an upper bound
        (ShuffleSplit(5, random_state=0), 6),  # a row may be in every training set
        (PredefinedSplit([-1] * 12 + [0] * 6 + [1] * 6), 3),
        ([(np.arange(12), np.arange(12, 24))] * 2, 3),
    ],
)
def test_training_sets_that_may_hold_a_row(cv, n_fits):
    assert search_privacy_cost(searched(Private(), {"slack": [0.1]}, cv=cv)).n_fits == n_fits


@pytest.mark.parametrize("cv", [3, StratifiedKFold(3), StratifiedSensitiveKFold(3)])
def test_folds_that_depend_on_protected_data_are_warned_of(cv):
    search = searched(Private(), {"slack": [0.1]}, cv=cv)
    with pytest.warns(PrivacyWarning, match="KFold may depend on protected data.*does not hold"):
        assert search_privacy_cost(search).n_fits == 3


def test_labels_are_public_where_only_sensitive_features_are_protected():
    estimator = Private(protect="sensitive_features")
    search = searched(estimator, {"slack": [0.1]}, cv=StratifiedKFold(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost = search_privacy_cost(search)
    assert cost.unit == "sensitive_features"
    assert "replace the sensitive features of one row" in str(cost)
    search = searched(estimator, {"slack": [0.1]}, cv=StratifiedSensitiveKFold(3))
    with pytest.warns(PrivacyWarning):
        search_privacy_cost(search)
    search = searched(Private(), {"protect": ["record", "sensitive_features"]})
    with pytest.raises(ValueError, match="protect different things"):
        search_privacy_cost(search)


@pytest.mark.filterwarnings("ignore:The pipeline fits StandardScaler")
def test_pipelines_and_other_searches():
    pipeline = make_pipeline(StandardScaler(), Private(epsilon=0.2))
    search = RandomizedSearchCV(
        pipeline, {"private__epsilon": [0.2, 0.4]}, n_iter=2, cv=KFold(3), random_state=0
    ).fit(X, y)
    cost = search_privacy_cost(search)
    assert cost.n_fits == 5
    assert cost.epsilon <= 2 * 0.2 + 3 * 0.4


def test_a_candidate_without_privacy_has_no_bound():
    cost = search_privacy_cost(searched(Private(), {"epsilon": [1.0, None]}))
    assert cost.epsilon == math.inf


def test_what_cannot_be_told_is_refused():
    with pytest.raises(ValueError, match="no part with the parameters epsilon and delta"):
        search_privacy_cost(searched(LogisticRegression(), {"C": [1.0]}))
    with pytest.raises(ValueError, match="no part with"):  # its epsilon is another one
        search_privacy_cost(searched(SGDClassifier(), {"epsilon": [0.1]}))
    bagging = BaggingClassifier(Private(), n_estimators=2)
    with pytest.raises(ValueError, match=r"BaggingClassifier may fit .* any number of times"):
        search_privacy_cost(searched(bagging, {"n_estimators": [2]}))
    with pytest.raises(ValueError, match="not fitted"):
        search_privacy_cost(GridSearchCV(Private(), {"slack": [0.1]}))


def test_the_words_say_what_is_not_covered():
    cost = search_privacy_cost(searched(Private(), {"slack": [0.1, 0.2]}))
    text = str(cost)
    assert "2 candidates on 2 training sets that hold any one row and the refit, 5 fits" in text
    assert "Not covered: scores of held-out rows are computed from exact data" in text
    assert "best candidate is chosen by them" in text
    assert "depends on no protected data" in text


def test_a_solver_that_may_spend_more_than_its_budget_has_no_bound():
    class Spending(Private):
        def __init__(self, epsilon=1.0, delta=1e-6, protect="record", slack=0.1, solver=None):
            super().__init__(epsilon, delta, protect, slack)
            self.solver = solver

    class Overspending(DPFERMI):
        keeps_budget = False

    search = searched(Spending(solver=Overspending()), {"slack": [0.1, 0.2]})
    with pytest.raises(ValueError, match="Overspending may spend more than epsilon"):
        search_privacy_cost(search)


# --- seeds and steps that learn ------------------------------------------------------------------


class Seeded(Private):
    """With a source of noise."""

    def __init__(self, epsilon=1.0, delta=1e-6, protect="record", random_state=None):
        super().__init__(epsilon, delta, protect)
        self.random_state = random_state


@pytest.mark.parametrize(
    ("estimator", "grid", "named"),
    [
        (Seeded(random_state=3), {"epsilon": [1.0, 2.0]}, r"random_state=3\)"),
        (Seeded(), {"random_state": [0, 1]}, r"random_state=0, 1\)"),
    ],
    ids=["one seed", "a grid over seeds"],
)
def test_seeded_fits_are_not_independent(estimator, grid, named):
    search = searched(estimator, grid)
    with pytest.warns(PrivacyWarning, match=rf"{named}: they are not independent"):
        search_privacy_cost(search)


def test_a_step_that_learns_from_protected_rows_is_named():
    search = searched(make_pipeline(StandardScaler(), Private()), {"private__slack": [0.1]})
    with pytest.warns(PrivacyWarning, match="fits StandardScaler on the protected rows"):
        search_privacy_cost(search)


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(FunctionTransformer(), Seeded()),
        make_pipeline(StandardScaler(), Seeded(protect="sensitive_features")),
    ],
    ids=["learns nothing", "features are public"],
)
def test_steps_that_give_nothing_away_are_not(pipeline):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        search_privacy_cost(searched(pipeline, {"seeded__epsilon": [1.0]}))


# --- a total for a search -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_candidates", "cv"), [(1, 2), (3, 5), (12, 3)])
@pytest.mark.parametrize("refit", [True, False])
def test_a_search_with_the_budget_of_each_fit_costs_the_total(n_candidates, cv, refit):
    """The inverse of search_privacy_cost: within the total, and nearly all of it."""
    total, delta = 2.0, 1e-5
    budget = epsilon_per_fit(total, n_candidates, cv, delta=delta, refit=refit)
    private = Private(epsilon=budget.epsilon, delta=budget.delta)
    grid = {"slack": np.linspace(0.1, 0.2, n_candidates)}
    cost = search_privacy_cost(searched(private, grid, KFold(cv), refit=refit), delta=delta)
    assert 0.99 * total <= cost.epsilon <= total * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0.0, 1, 2), "total"), ((1.0, 0, 2), "n_candidates"), ((1.0, 1, 1), "cv")],
)
def test_budgets_that_cannot_be_are_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        epsilon_per_fit(*arguments)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_what_compares_private_fits_by_exact_numbers_is_named(epsilon):
    """Certificates and curves tell exact numbers of rows that a private fit would protect."""
    data = make_biased_classification(600, 6, random_state=0)
    rows = {"X": data.data, "y": data.target, "sensitive_features": data.sensitive_features}
    clf = RateConstrainedClassifier(epsilon=epsilon, slack=0.2, solver=epsilon and STEPS)
    given = {"param_name": "slack", "param_range": [0.2], "cv": 2}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CertifiedClassifier(clf, candidates={"slack": [0.2]}).fit(**rows)
        tradeoff_curve(clf, **rows, **given)
    said = [str(w.message) for w in caught if "no epsilon covers its result" in str(w.message)]
    expected = [] if epsilon is None else ["CertifiedClassifier", "tradeoff_curve"]
    assert [message.split()[0] for message in said] == expected

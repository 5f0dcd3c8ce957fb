"""All rows are read before a private search splits them: what occurs, what is invalid, what leaks.

Labels and groups that occur are public of the whole, and a secret of a random part.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning
from fairconstrained.model_selection import PrivateGridSearch, private_search
from fairconstrained.privacy import mechanisms
from fairconstrained.solvers import DPSGDA

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + RNG.normal(size=N) > 0, "yes", "no").astype(object)
GROUPS = RNG.choice(["a", "b"], N).astype(object)
FIRST = np.arange(N) < N // 4
STEPS = DPSGDA(n_steps=2)
RATES = RateConstrainedClassifier(feature_range=(-4, 4), solver=STEPS)
SEARCHED = {
    "record": RATES,
    "record_replacement": RATES.__class__(**{**vars(RATES), "protect": "record_replacement"}),
    "sensitive_features": RateConstrainedClassifier(protect="sensitive_features"),
    "frozen": RateConstrainedClassifier(
        model=FrozenEstimator(LogisticRegression().fit(X, Y)), solver=STEPS
    ),
    "ranking": AUCFairClassifier(epsilon=1.0, feature_range=(-4, 4)),
    "pipeline": make_pipeline(FunctionTransformer(), RATES),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def search(clf, y=Y, groups=GROUPS, rows=X, **grid):
    return PrivateGridSearch(clf, grid).fit(rows, y, sensitive_features=groups)


def changed(values, row, value):
    other = values.copy()
    other[row] = value
    return other


TWO = pd.DataFrame({"sex": GROUPS, "old": np.arange(N) % 2})
RARE = {  # inputs with something that only the first or the last row has
    "a label": lambda row: {"y": changed(Y, row, "maybe")},
    "a group": lambda row: {"groups": changed(GROUPS, row, "c")},
    "a missing group": lambda row: {"groups": changed(GROUPS, row, None)},
    "a number among texts": lambda row: {"groups": changed(GROUPS, row, 7)},
    "a combination": lambda row: {
        "groups": TWO.assign(sex=changed(GROUPS, row, "a"), old=changed(TWO["old"], row, 2))
    },
}


@pytest.mark.parametrize("rare", RARE)
@pytest.mark.parametrize("name", SEARCHED)
def test_a_random_part_knows_what_occurs_in_all_rows(name, rare, monkeypatch):
    """Whether the rare value is among the rows of the fits, or of the choice alone."""
    if rare == "a label" and name in ("ranking", "frozen"):
        pytest.skip("they have two labels")
    split = np.flatnonzero(~FIRST), np.flatnonzero(FIRST)
    monkeypatch.setattr(private_search, "holdout_split", lambda *_: split)
    told = []
    for row in (0, N - 1):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = search(SEARCHED[name], **RARE[rare](row)).best_estimator_
        said = [w for w in caught if w.category is MissingSensitiveFeaturesWarning]
        part = private_search._private_part(fitted)
        told.append((part.groups_.tolist(), part.classes_.tolist(), list(map(str, said))))
        assert len(said) == (rare == "a missing group")
    assert told[0] == told[1]
    assert len(part.classes_) == 2 + (rare == "a label")


def fails_before_any_release(patch, **given):
    def noise(*_):
        raise AssertionError("a release")

    patch.setattr(mechanisms, "_added_on_grid", noise)
    with pytest.raises(ValueError, match=r".") as caught:
        search(**given)
    assert not hasattr(caught.value, "privacy")
    return str(caught.value)


@pytest.mark.parametrize("name", SEARCHED)
def test_an_invalid_row_is_refused_before_any_release(name, monkeypatch):
    """Wherever it is: the row may be held out."""
    split = np.flatnonzero(~FIRST), np.flatnonzero(FIRST)
    monkeypatch.setattr(private_search, "holdout_split", lambda *_: split)
    fails_before_any_release(monkeypatch, clf=SEARCHED[name], rows=changed(X, 0, np.nan))


class Learns(TransformerMixin, BaseEstimator):
    """A step that stores exact means of the groups, or cannot read a text."""

    def fit(self, X, y=None, sensitive_features=None):
        self.means_ = pd.DataFrame(X).groupby(np.asarray(sensitive_features)).mean()
        return self

    def transform(self, X):
        return np.asarray(X)


@pytest.mark.parametrize("name", ["record", "sensitive_features"])
def test_a_step_that_requests_the_groups_is_refused(name, monkeypatch):
    with config_context(enable_metadata_routing=True):
        step = Learns().set_fit_request(sensitive_features=True)
    for one in (step, make_pipeline(step)):
        clf = make_pipeline(one, SEARCHED[name])
        said = fails_before_any_release(monkeypatch, clf=clf)
        assert "request sensitive_features" in said


def test_what_steps_say_of_protected_rows_is_not_quoted(monkeypatch):
    step = FunctionTransformer(lambda rows: np.asarray(rows).astype(float))
    clf = make_pipeline(step, RATES)
    rows = changed(X.astype(object), (0, 0), "diagnosis: none")
    said = fails_before_any_release(monkeypatch, clf=clf, rows=rows)
    assert "ValueError" in said
    assert "diagnosis" not in said


def test_a_penalty_is_not_chosen_by_right_predictions(monkeypatch):
    """The smallest would always win."""
    said = fails_before_any_release(monkeypatch, clf=DPFermiClassifier(), penalty=[0.0, 4.0])
    assert "DPFermiClassifier has a penalty" in said


def test_rankings_are_compared_by_their_order(monkeypatch):
    """By ordered pairs, of which a row is in fewer than there are rows: no row adds more than 1."""
    seen, found = [], {}

    def first(values, scale, rng):
        seen.extend(values)
        return 0

    honest = AUCFairClassifier._count_right

    def noted(model, X, y):
        found["auc"] = roc_auc_score(y == "yes", model.decision_function(X))
        found["pairs"] = np.sum(y == "yes") * np.sum(y == "no") / len(y)
        most = honest(model, X, y)
        fewer = [honest(model, np.delete(X, i, 0), np.delete(y, i)) for i in range(len(y))]
        fewer = np.array(fewer) * (len(y) - 1) / len(y)  # the number of rows is public
        assert ((most - fewer >= 0) & (most - fewer <= 1)).all()
        return most

    monkeypatch.setattr(mechanisms, "noisy_argmax", first)
    monkeypatch.setattr(AUCFairClassifier, "_count_right", staticmethod(noted))
    search(SEARCHED["ranking"])
    assert seen == [pytest.approx(found["auc"] * found["pairs"])]


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_no_row_decides_whether_a_ranking_can_be_compared(score):
    """Terms of huge entries of both signs add up to nan."""
    scores, y = RNG.normal(size=50), RNG.integers(2, size=50)

    def count(last):
        rows = np.append(scores[:-1], last)
        model = SimpleNamespace(classes_=[0, 1], decision_function=lambda X: rows)
        return AUCFairClassifier._count_right(model, None, y)

    assert abs(count(score) - count(scores[-1])) <= 1

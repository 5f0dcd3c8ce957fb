"""Out-of-fold posteriors of any classifier, and boosters that read codes in place of words."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from fairconstrained import models
from fairconstrained.fit.rows import TrainingRows
from fairconstrained.models.boosters.words import as_codes
from fairconstrained.models.cross_fitting import LEAST_PROBABILITY
from fairconstrained.models.posteriors import Posteriors

PARITY = [[0, 1], [0, 1]]
ODDS = [[0, 1], [2, 3]]
OPPORTUNITY = [[-1, -1], [0, 1]]
CAP = [[-1, -1], [0, 0]]


def rows(n=400, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(n_groups, size=n)
    X = rng.normal(size=(n, 4)) + 0.5 * group[:, None] * np.array([1.0, 0.0, 0.0, 0.0])
    y = (X[:, 0] + X[:, 1] + rng.normal(size=n) > 0.3).astype(int)
    return X, y, group


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers the first column of the rows that it was fitted on; predicts whether it has."""

    fits: ClassVar[list] = []  # of all clones

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.seen_ = set(X[:, 0].tolist())
        self.fits.append(self.seen_)
        return self

    def predict_proba(self, X):
        seen = np.array([value in self.seen_ for value in X[:, 0]], dtype=float)
        rest = np.tile((1 - 0.3 - 0.2 * seen) / (len(self.classes_) - 1), (len(self.classes_), 1)).T
        rest[:, 0] = 0.3 + 0.2 * seen
        return rest


@pytest.fixture
def recorder():
    Recorder.fits.clear()
    return Recorder()


def test_no_row_is_judged_by_a_model_that_has_seen_it(recorder):
    """The recorder gives other probabilities to rows it knows: out of fold all are alike."""
    X, y, group = rows()
    table, fitted = Posteriors(recorder, cv=4).columns(X, y, group, ODDS)
    assert np.ptp(table, axis=0).max() < 1e-12
    assert (np.abs(fitted.columns(X) - table).max(axis=1) > 1e-6).all()


@pytest.mark.parametrize("parts", [PARITY, ODDS, OPPORTUNITY, CAP], ids=str)
def test_one_model_of_the_groups_is_fitted_where_the_constraint_compares_them(recorder, parts):
    X, y, group = rows()
    Posteriors(recorder, cv=3).columns(X, y, group, parts)
    assert len(recorder.fits) == (3 if parts is CAP else 6)


def test_boosters_stop_early_from_two_thousand_rows_on_unless_they_say_otherwise():
    rng = np.random.default_rng(0)
    X, y, group = rng.normal(size=(3600, 1)), rng.integers(2, size=3600), rng.integers(2, size=3600)
    y[:1], group[:1] = 2, 2  # no row for the other side of a split
    booster = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=3)
    for n_rows, how, stops in ((3599, "auto", True), (2100, "auto", False), (3599, False, False)):
        model = make_pipeline(StandardScaler(), clone(booster).set_params(early_stopping=how))
        part = slice(1, 1 + n_rows)
        fitted = Posteriors(model).columns(X[part], y[part], group[part], PARITY)[1]
        assert all((m[-1].n_iter_ < 60) == stops for m in fitted.labels.models)
    fitted = Posteriors(booster, cv=[(np.arange(3600),) * 2]).columns(X, y, group, [[0] * 3] * 3)[1]
    assert fitted.labels.models[0].n_iter_ == 60


class Context(ClassifierMixin, BaseEstimator):
    """A nearest neighbour that takes no weights, as in-context models; it counts its passes."""

    def fit(self, X, y):
        self.classes_, self.X_, self.y_ = np.unique(y), X, y
        return self

    def predict_proba(self, X):
        Context.rows += len(X)
        nearest = ((X[:, None] - self.X_) ** 2).sum(axis=2).argmin(axis=1)
        return 0.2 + 0.6 * (self.y_[nearest, None] == self.classes_)


@pytest.mark.parametrize("parts", [PARITY, ODDS], ids=str)
def test_a_classifier_without_weights_is_asked_twice_about_a_new_row(parts):
    """One for the label and one for the group, fitted to all rows, answer in place of folds."""
    X, y, group = rows(200)
    Context.rows = 0
    _, fitted = Posteriors(Context()).columns(X, y, group, parts)
    assert Context.rows == 2 * len(X)  # out of fold
    fitted.columns(X[:10])
    assert Context.rows == 2 * len(X) + 20
    assert [len(m.X_) for m in fitted.labels.models + fitted.groups.models] == [200, 200]


def test_each_classifier_learns_from_at_most_so_many_rows(recorder):
    X, y, group = rows()
    table, _ = Posteriors(recorder, max_rows=50).columns(X, y, group, ODDS)
    assert [len(seen) for seen in recorder.fits] == [50] * 6
    assert np.ptp(table, axis=0).max() < 1e-12  # out of fold


def test_labels_tell_more_about_groups_within_labels():
    """Where the label is the group but for noise, P(group | x, y) differs from P(group | x)."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=4000)
    X = np.column_stack((group + rng.normal(size=4000), rng.normal(size=4000)))
    y = (X[:, 1] + 2.0 * group + rng.normal(size=4000) > 1).astype(int)
    table, _ = Posteriors(LogisticRegression()).columns(X, y, group, ODDS)
    exact = LogisticRegression().fit(X[y == 1], group[y == 1]).predict_proba(X)[:, 1]
    density = table[:, 9] * np.mean((y == 1) & (group == 1)) / table[:, 1]
    assert np.abs(density - exact)[y == 1].mean() < 0.01


def test_weights_reach_the_last_step_of_a_pipeline_row_by_row():
    X, y, group = rows()
    weight = np.where(y == 1, 5.0, 1.0)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    folds = [(np.arange(200), np.arange(200, 400)), (np.arange(200, 400), np.arange(200))]
    _, fitted = Posteriors(model, cv=folds).columns(X, y, group, CAP, sample_weight=weight)
    for (train, _), own in zip(folds, fitted.labels.models, strict=True):
        direct = model.fit(X[train], y[train], logisticregression__sample_weight=weight[train])
        np.testing.assert_allclose(own[-1].coef_, direct[-1].coef_)


def test_whole_weights_are_copies_and_the_unit_of_small_ones_does_not_matter():
    X, y, group = rows()

    def columns(X, y, group, weight):
        classifier = Posteriors(GaussianNB(), cv=KFold(2))
        return classifier.columns(X, y, group, ODDS, sample_weight=weight)[0]

    twice = (np.repeat(column, 2, axis=0) for column in (X, y, group, np.ones(len(y))))
    weighted = columns(X, y, group, np.full(len(y), 2.0))
    np.testing.assert_allclose(columns(*twice)[::2], weighted, rtol=1e-6, atol=1e-6)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    one, other = (columns(X, y, group, weight / unit) for unit in (9.0, weight.sum()))
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", [GaussianNB(), LinearSVC(), DecisionTreeClassifier()], ids=str)
def test_posteriors_are_calibrated_whatever_the_classifier_gives(model):
    """Mean posteriors are the fractions of the labels and parts; densities thus average to one."""
    X, y, group = rows(2000)
    table, _ = Posteriors(model).columns(X, y, group, ODDS, random_state=np.random.RandomState(0))
    assert table[:, 1].mean() == pytest.approx(y.mean(), abs=1e-3)
    np.testing.assert_allclose(table[:, [2, 3, 8, 9]].mean(axis=0), 1.0, atol=0.03)
    decile = np.argsort(np.argsort(table[:, 1])) * 10 // len(y)
    for k in range(10):
        assert abs(y[decile == k].mean() - table[decile == k, 1].mean()) < 0.12


def test_cells_without_rows_and_classes_that_folds_lack_cost_nothing_else():
    X, y, group = rows(80)
    of_one_group = np.where(y == 1, 0, group)  # no positives in the second group
    table, _ = Posteriors(LogisticRegression()).columns(X, y, of_one_group, ODDS)
    assert np.isfinite(table).all()
    y = y.copy()
    y[0] = 2  # a single row: the models that judge it have not seen its class
    table, fitted = Posteriors(GaussianNB(), cv=3).columns(X, y, group, [[0, 1]] * 3)
    assert np.isfinite(table).all()
    assert np.isfinite(fitted.columns(X)).all()


@pytest.mark.parametrize("names", [["bad", "good"], [1.5, 0]])
def test_a_frozen_model_must_know_the_labels(names):
    """Otherwise it would say nothing, and the result would be a constant."""
    X, y, group = rows(60)
    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    with pytest.raises(ValueError, match=r"was fitted for the classes \[0, 1\], and is not fitted"):
        Posteriors(frozen).columns(X, np.array(names, dtype=object)[y], group, PARITY)


def test_splitters_must_test_each_row_once():
    X, y, group = rows(100)
    table, _ = Posteriors(GaussianNB(), cv=KFold(3)).columns(X, y, group, PARITY)
    halves = [(np.arange(50), np.arange(50, 100)), (np.arange(50, 100), np.arange(50))]
    Posteriors(GaussianNB(), cv=halves).columns(X, y, group, PARITY)
    assert np.isfinite(table).all()
    with pytest.raises(ValueError, match="exactly one test part"):
        Posteriors(GaussianNB(), cv=ShuffleSplit(3)).columns(X, y, group, PARITY)


ONCE = iter([([0], [1]), ([1], [0])])  # folds that can be read once
REFUSED = [
    *(
        ("cv", cv, "must be an integer >= 2, a splitter, or")
        for cv in (2.5, "ab", None, [1, 2], ONCE)
    ),
    ("cv", 1, "must be an integer >= 2, a splitter, or a list of .*; got 1"),
    ("max_rows", 1, "must be None or an integer >= 2; got 1"),
    *(("estimator", model, "must be a classifier with fit") for model in (None, GaussianNB)),
    ("group_model", GaussianNB, "must be a classifier with fit"),
    ("estimator", FrozenEstimator(GaussianNB()), "is frozen, but not fitted"),
    ("group_model", FrozenEstimator(GaussianNB()), "is frozen, but not fitted"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_parameters_that_cannot_be_are_refused(name, value, message):
    with pytest.raises(ValueError, match=rf"Posteriors\.{name} {message}"):
        Posteriors(**{"estimator": GaussianNB(), name: value}).check()


NAMES = np.array(["c", "a", "b"])  # of the groups; a classifier sorts them
THREE = [[0, 1, 1], [2, 3, 3]]


def frozen_models(seed=1):
    X, y, group = rows(n_groups=3, seed=seed)
    of_label, of_group = GaussianNB().fit(X, y), GaussianNB().fit(X, NAMES[group])
    return of_label, of_group, Posteriors(FrozenEstimator(of_label), FrozenEstimator(of_group))


def secret(X, names=NAMES):
    """Rows as a fit shows them that protects records."""
    return TrainingRows(X, None, None, np.ones(len(X)), np.array([0, 1]), names)


def test_columns_of_secret_rows_are_public_functions_of_x():
    """By frozen models as they are, within the range that is told; one part is left out."""
    X, _, _ = rows(n_groups=3)
    X[0] = 1e308  # what is nan or infinite says nothing
    of_label, of_group, model = frozen_models()
    with np.errstate(all="ignore"):
        table = model.fit_transform(secret(X), lambda: np.array(THREE), torch.Generator())
        np.testing.assert_allclose(model.transform(X), table)
    low, high = model.column_range
    assert ((low <= table + 1e-9) & (table - 1e-9 <= high)).all()
    far = -np.log(LEAST_PROBABILITY)
    np.testing.assert_array_equal(high, [far, 1, *[1, far, 1] * 2])
    p, first = (own.predict_proba(X[1:]) for own in (of_label, of_group))
    p, first = p.clip(1e-3), first.clip(1e-3)
    p, first = p[:, 1] / p.sum(axis=1), first[:, 2] / first.sum(axis=1)
    logit = np.log(p / (1 - p))
    of_parts = (1 - p) * first, p * first
    wanted = [logit, p, *[own * c for own in of_parts for c in (1, logit, p)]]
    np.testing.assert_allclose(table[1:], np.column_stack(wanted), atol=1e-9)


class Centred(GaussianNB):
    """Says of a row how it differs from the others."""

    def predict_proba(self, X):
        return super().predict_proba(X - X.mean(axis=0))


def test_frozen_models_that_mix_secret_rows_are_refused():
    """One row would change the columns of all others."""
    X, y, _ = rows()
    model = Posteriors(FrozenEstimator(Centred().fit(X, y)))
    with pytest.raises(ValueError, match="must treat each row by itself"):
        model.fit_transform(secret(X), lambda: np.array(THREE), torch.Generator())


class Broken(GaussianNB):
    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


class Scores(GaussianNB):
    def predict_proba(self, X):
        return X[:, 0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Broken(), "Broken gives posteriors or decisions that are not"),
        (Scores(), "Scores must give a probability .* each of its 2 classes"),
        (VotingClassifier([("one", GaussianNB())]), "needs predict_proba or decision_f.*Voting"),
    ],
)
def test_models_that_do_not_give_a_finite_probability_of_each_class_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        Posteriors(model).columns(*rows(50), PARITY)


def frame(n=600, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.choice(["large", "small", "tiny"], n, p=[0.5, 0.49, 0.01])
    X = pd.DataFrame(
        {
            "amount": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "size": pd.Categorical(np.where(rng.random(n) < 0.1, None, size)),
            "old": rng.random(n) < 0.3,
            "rank": pd.Categorical(rng.integers(0, 4, n)),
            "count": rng.integers(0, 9, n),
        }
    )
    group = rng.integers(2, size=n)
    y = (X["count"] + 3 * (size == "large") + 2 * group + rng.normal(size=n) > 6).astype(int)
    return X, y.to_numpy(), group


def boosters(X, y):
    """Return boosters of parts of the rows, which know different categories."""
    parts = [np.flatnonzero(X["size"] != word) for word in ("tiny", "large", "none")]
    return [HistGradientBoostingClassifier(max_iter=5).fit(X.iloc[p], y[p]) for p in parts]


def known_words(booster):
    return booster._preprocessor.named_transformers_["encoder"].categories_


def test_codes_are_answered_as_words_to_the_last_bit():
    X, y, _ = frame()
    new = frame(200, seed=1)[0]
    new["size"] = new["size"].cat.set_categories(["unheard of", "tiny", "small", "large"])
    new.loc[:20, "size"] = "unheard of"
    models = boosters(X, y)
    for rows in (X, new, new[:1], new.iloc[:0:-1]):
        for model, (reader, codes) in zip(models, as_codes(models, rows), strict=True):
            assert reader is not model
            np.testing.assert_array_equal(reader.predict_proba(codes), model.predict_proba(rows))


def test_numbers_are_read_once_too():
    X, y, _ = frame()
    numbers = X[["amount", "count"]]
    for rows in (numbers, numbers.to_numpy(), numbers.to_numpy(np.float32)[:, ::-1]):
        booster = HistGradientBoostingClassifier(max_iter=5).fit(rows, y)
        ((reader, codes),) = as_codes([booster], rows)
        assert reader is not booster
        np.testing.assert_array_equal(reader.predict_proba(codes), booster.predict_proba(rows))
        assert as_codes([booster], rows[:0])[0][0] is booster
        assert as_codes([booster], np.ones((2, 3)))[0][0] is booster


def test_other_tables_are_left_to_the_boosters():
    X, y, _ = frame()
    models = boosters(X, y)
    types = {"size": object}, {"count": "category"}, {"count": object}
    for rows in (X[X.columns[::-1]], X.assign(more=1.0), *map(X.astype, types)):
        assert [pair[0] for pair in as_codes(models, rows)] == models
        assert all(pair[1] is rows for pair in as_codes(models, rows))


@pytest.mark.parametrize("weighted", [False, True])
def test_words_in_numbers_give_the_booster_of_the_words(weighted):
    X, y, group = frame()
    X["size"] = X["size"].cat.set_categories(["tiny", "abc", "small", "large"])
    rng = np.random.default_rng(1)
    weight = rng.uniform(1.0, 2.0, len(y)) if weighted else None
    trees = HistGradientBoostingClassifier(max_iter=5, random_state=0)
    folds = list(StratifiedKFold(3).split(X, y))
    model = Posteriors(trees, cv=folds)
    labels = model.columns(X, y, group, [[0, 1], [0, 1]], sample_weight=weight)[1].labels
    for (train, _), booster in zip(folds, labels.models, strict=True):
        w = None if weight is None else weight[train]
        plain = clone(trees).fit(X.iloc[train], y[train], sample_weight=w)
        for one, other in zip(known_words(plain), known_words(booster), strict=True):
            assert one.tolist()[:-1] == other.tolist()[:-1]
            assert one.dtype == other.dtype
        np.testing.assert_array_equal(plain.predict_proba(X), booster.predict_proba(X))


@pytest.mark.parametrize("parts", [PARITY, ODDS, OPPORTUNITY], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_groups_are_asked_for_only_where_a_label_depends_on_them(parts, seed):
    """Of any head the signs are those of all columns; most rows the label's model decides."""
    X, y, group = rows(n=300, seed=seed)
    table, fitted = Posteriors(GaussianNB()).columns(X, y, group, parts)
    rng, asked = np.random.default_rng(seed), []

    def ask(ensemble, some):
        asked.append(len(some))
        return ensemble.evidence(some)

    coef, intercept = 0.1 * rng.normal(size=table.shape[1]), rng.normal()
    coef[0] = 1.0  # on the log odds
    scores = fitted.columns(X) @ coef + intercept
    signs = np.sign(fitted.columns(X, ask, head=(coef[None], intercept)) @ coef + intercept)
    assert np.array_equal(signs, np.sign(scores))
    assert asked[0] == len(X)
    assert sum(asked[1:]) < 0.8 * len(X)


@pytest.mark.parametrize("kind", [models.Linear, models.Network, models.Posteriors])
def test_models_request_no_metadata(kind):
    """Steps of a fit call their methods, with arguments that users do not see."""
    assert not hasattr(kind, "set_transform_request")

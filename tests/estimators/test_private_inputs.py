"""Inputs of private fits: no cell is quoted, no column cut in silence; and what failures tell."""

import contextlib
import io
import itertools
import pickle
import re
import sys
import traceback
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import fairconstrained as fc
from fairconstrained.constraints import EqualizedOdds
from fairconstrained.exceptions import InputWarning, PrivacyWarning, SmallGroupWarning
from fairconstrained.export import model_card
from fairconstrained.model_selection import (
    CertifiedClassifier,
    PrivateGridSearch,
    SensitiveColumnsClassifier,
)
from fairconstrained.privacy import Budget, mechanisms
from fairconstrained.solvers import DPFERMI, DPSGDA, NoisyTables
from tests.helpers.marks import slow_where
from tests.helpers.private_fits import DATA, PRIVATE, Means, errors_of, fitted, words_of
from tests.helpers.releases import answered_by

RNG = np.random.default_rng(0)
N = 8000
GROUPS = RNG.choice(["a", "b"], N)
PLACE = RNG.random(N)
Y = (PLACE + 0.1 * RNG.normal(size=N) > 0.5).astype(int)
STEPS = DPSGDA(n_steps=2)
FEW = slice(0, 400)
SECRET_GROUPS = fc.RateConstrainedClassifier(epsilon=1.0, protect="sensitive_features")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
GENEROUS = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0}
FAR = {
    "linear": fc.RateConstrainedClassifier(slack=0.5, **GENEROUS),
    "network": fc.RateConstrainedClassifier(model=(8,), slack=0.5, **GENEROUS),
    "penalty": fc.DPFermiClassifier(penalty=0.0, protect="record", **GENEROUS),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "form"),
    [((2e6, 9e6), sparse.csr_array), ((-3e100, 3e100), np.asarray), ((1e299, 9e299), np.asarray)],
)
@pytest.mark.parametrize("name", FAR)
def test_columns_of_any_size_are_learnt_without_a_range(name, ends, form):
    """As those within a million were; the best error is .08."""
    low, high = ends
    X = form((low + (high - low) * PLACE)[:, None])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "By the released", PrivacyWarning)
        assert clone(FAR[name]).fit(X, Y, sensitive_features=GROUPS).score(X, Y) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(0.0, 1e-9), (1990.0, 1991.0)])
def test_small_and_narrow_columns_need_their_range(ends):
    X = (ends[0] + (ends[1] - ends[0]) * PLACE)[:, None]
    without, within = (clone(FAR["linear"]).set_params(feature_range=r) for r in (None, ends))
    assert without.fit(X, Y, sensitive_features=GROUPS).score(X, Y) < 0.6
    assert within.fit(X, Y, sensitive_features=GROUPS).score(X, Y) > 0.9


def test_what_is_cut_to_a_constant_is_said():
    X = np.column_stack((PLACE, 1e304 * (1.0 + PLACE)))
    with pytest.warns(PrivacyWarning, match=r"columns \[1\] of X have entries beyond 1e\+301"):
        clone(FAR["linear"]).set_params(solver=STEPS).fit(X, Y, sensitive_features=GROUPS)


def test_a_ranking_without_a_range_is_within_the_unit_interval():
    """No scales are released for it: whatever lies a million units away is cut as before."""
    X = DATA.data.copy()
    X[0] = 1e308
    cut = np.where(X > 1e6 + 1.0, 1e6 + 1.0, X)
    clf = fc.AUCFairClassifier(epsilon=1.0, random_state=0)
    np.testing.assert_array_equal(*(fitted(clone(clf), rows).coef_ for rows in (X, cut)))


SECRET = "diagnosis: rare"
TEXT = pd.DataFrame({"age": PLACE[FEW], "notes": np.where(np.arange(400) == 7, SECRET, "1")})
CODED = make_column_transformer((OneHotEncoder(), ["notes"]), remainder="passthrough")
PUBLIC = TEXT.assign(notes=np.where(np.arange(400) % 2, "1", "2"))
OF_WORDS = FrozenEstimator(make_pipeline(CODED, LogisticRegression()).fit(PUBLIC, Y[FEW]))
REFUSED = {
    "a table": (TEXT, "linear", r"'notes' \(str\)"),
    "a column alone": (PLACE[FEW], "linear", r"got 1D array instead: X has shape \(400,\)"),
    "a list of numbers": (PLACE[FEW].tolist(), "linear", r"X has shape \(400,\)"),
    "an array": (TEXT.to_numpy(), "linear", r"1 \(str\)"),
    "a list": (TEXT.to_numpy().tolist(), (3,), r"1 \(str\)"),
    "complex numbers": (TEXT[["age"]].to_numpy() * 1j, "linear", "complex"),
    "a sparse matrix": (sparse.csr_array(TEXT[["age"]].to_numpy() * 1j), "linear", "complex"),
    "a frozen model": (TEXT, OF_WORDS, r"refuses rows of X \(ValueError\)"),
    "categories": (TEXT.astype({"notes": "category"}), OF_WORDS, r"refuses rows of X"),
    "an integer beyond all floats": (
        np.column_stack((TEXT["age"].to_numpy(dtype=object), [10**400, *[1] * 399])),
        "linear",
        r"1 \(int\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_name_the_column_and_quote_no_entry(case):
    X, model, words = REFUSED[case]
    clf = fc.RateConstrainedClassifier(epsilon=1.0, model=model, solver=STEPS)
    with pytest.raises(ValueError, match=words) as caught:
        clf.fit(X, Y[FEW], sensitive_features=GROUPS[FEW])
    for error in errors_of(caught.value):
        assert SECRET not in str(error)
        assert str(PLACE[0]) not in str(error)


@pytest.mark.parametrize("name", ["y", "sensitive_features", "control_features"])
def test_entries_that_are_no_values_are_refused_by_name(name):
    entries = pd.Series([{SECRET: 1}, *GROUPS[1:400]])
    columns = {"y": Y[FEW], "sensitive_features": GROUPS[FEW], name: entries}
    with pytest.raises(ValueError, match=f"^{name} (stratum )?must hold") as caught:
        clone(ONE).fit(DATA.data[FEW], **columns)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_warnings_of_inputs_quote_no_label_of_an_index():
    """It may be the name of a person."""
    names = [SECRET, *map(str, range(399))]
    X, groups = pd.DataFrame(DATA.data[FEW], names), pd.Series(GROUPS[FEW], [*names[1:], "other"])
    warned = words_of(lambda: clone(ONE).fit(X, Y[FEW], sensitive_features=groups), InputWarning)
    assert "the label at position 0" in " ".join(warned)
    assert SECRET not in " ".join(warned)


CROSSED = pd.DataFrame({"sex": GROUPS[FEW], "old": np.arange(400) % 2}).astype(object)
MANY = np.array([f"g{i % 30}" for i in range(400)], dtype=object)
HIDDEN = {  # what one row without a group, or one more of them, must not decide
    "a number in lists": [
        {"sex": [None, *CROSSED["sex"][1:]], "old": [old, *CROSSED["old"][1:]]}
        for old in (1, 2.5, np.nan)
    ],
    "nanoseconds": [
        CROSSED.assign(old=np.array([old, *1000 * CROSSED["old"][1:]], dtype="M8[ns]"))
        for old in (0, 1)
    ],
    "a type": [CROSSED.assign(old=[old, *CROSSED["old"][1:]]) for old in (1, "old")],
    "a text": [CROSSED.assign(old=[old, *CROSSED["old"][1:].map(str)]) for old in ("1", "nan")],
    "a category": [pd.Categorical([one, *["a"] * 399], categories=["a"]) for one in ("a", None)],
    "many groups": [pd.Categorical(np.where(np.arange(400) < n, None, MANY)) for n in (250, 251)],
}
for table in [*HIDDEN["a type"], *HIDDEN["a text"], *HIDDEN["nanoseconds"]]:
    table.loc[0, "sex"] = None


@pytest.mark.parametrize("name", slow_where(["rates", "rates, groups", "ranking"], "ranking"))
@pytest.mark.parametrize("case", HIDDEN)
def test_a_row_without_a_group_decides_nothing_that_is_said(case, name, monkeypatch):
    """Neither of groups and their types nor in words, where all releases are equal."""
    noise = np.random.default_rng(0).normal
    monkeypatch.setattr(mechanisms, "_added_on_grid", lambda x, *_: 0.0 * x + 60.0 + noise())
    outcomes = []
    for groups in HIDDEN[case]:
        noise = np.random.default_rng(0).normal
        clf = clone(PRIVATE[name])
        warned = words_of(partial(fitted, clf, DATA.data[FEW], Y[FEW], groups), Warning)
        outcomes.append((warned, clf.groups_.tolist(), list(map(type, clf.groups_.tolist()[0]))))
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_strata_of_a_row_without_a_group_decide_no_warning():
    """As groups do: times with nanoseconds are converted where nothing is said of them."""
    groups = np.where(np.arange(400) > 0, GROUPS[FEW], None)
    said = []
    for first in (0, 1):
        times = np.array([first, *1000 * (np.arange(1, 400) % 2)], dtype="M8[ns]")
        for strata in (pd.Series(times), times[:, None]):
            fit = partial(clone(ONE).fit, DATA.data[FEW], Y[FEW], sensitive_features=groups)
            said.append(words_of(partial(fit, control_features=strata), Warning))
    assert all(words == said[0] for words in said)


@pytest.mark.parametrize("scale", [1.0, 1e11])
def test_no_row_decides_whether_a_frozen_model_is_refused(scale):
    """At right angles to its coefficients rounding differs alone and among others."""
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(2, 400, 40))
    model = LogisticRegression().fit(public, public[:, 0] > 0)
    w, v = model.coef_[0], scale * rng.normal(size=40)
    X[0] = v - w * (v @ w) / (w @ w)
    clf = fc.RateConstrainedClassifier(epsilon=1.0, model=FrozenEstimator(model), solver=STEPS)
    for rows in (X, X.astype(np.float32), pd.DataFrame(X)):
        assert clf.fit(rows, X[:, 0] > 0, sensitive_features=GROUPS[FEW]).privacy_.epsilon <= 1


class NetworkAsClassifier(ClassifierMixin, BaseEstimator):
    """A network as a classifier, which leaves it as it is: in training mode, say."""

    def __init__(self, module):
        self.module = module
        self.classes_ = np.arange(2)

    def fit(self, X, y):
        raise AssertionError

    def predict_proba(self, X):
        return self.module(torch.as_tensor(X)).softmax(1).detach().numpy()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.BatchNorm1d(2), r"refuses a made-up row by itself \(ValueError\)"),
        (nn.Softmax(0), "predicts a made-up row differently among others"),
    ],
)
def test_a_frozen_network_treats_each_row_by_itself(module, words):
    frozen = FrozenEstimator(NetworkAsClassifier(module.double()))
    clf = fc.RateConstrainedClassifier(epsilon=1.0, model=frozen, solver=STEPS)
    with pytest.raises(ValueError, match=f"must treat each row by itself .*{words}"):
        clf.fit(DATA.data[FEW, :2], Y[FEW], sensitive_features=GROUPS[FEW])
    frozen.estimator.module.eval()
    if isinstance(module, nn.BatchNorm1d):
        clf.fit(DATA.data[FEW, :2], Y[FEW], sensitive_features=GROUPS[FEW])
        assert clf.privacy_.epsilon <= 1.0


class Remembers(nn.Linear):
    def forward(self, X):
        self.rows = X
        return super().forward(X)


def test_a_frozen_network_that_remembers_rows_holds_none():
    frozen = FrozenEstimator(NetworkAsClassifier(Remembers(2, 2).double()))
    clf = fc.RateConstrainedClassifier(epsilon=1.0, model=frozen, solver=STEPS)
    clf.fit(DATA.data[FEW, :2], Y[FEW], sensitive_features=GROUPS[FEW]).predict(DATA.data[FEW, :2])
    assert DATA.data[0, :2].tobytes() not in pickle.dumps(clf)
    frozen.predict_proba(DATA.data[FEW, :2])
    assert DATA.data[0, :2].tobytes() in pickle.dumps(frozen)


TABLE = pd.DataFrame({"age": PLACE[FEW], "sex": GROUPS[FEW] == "a", "old": PLACE[FEW] > 0.5})
NAMED = {
    "a column": {"sensitive_features": TABLE["sex"]},
    "a table": {"sensitive_features": TABLE[["old", "sex"]]},
    "a dict": {"sensitive_features": {"sex": TABLE["sex"].tolist()}},
    "fields": {"sensitive_features": TABLE[["sex"]].to_records(index=False)},
    "strata": {"sensitive_features": GROUPS[FEW], "control_features": TABLE[["sex"]]},
    "a column as strata": {"sensitive_features": GROUPS[FEW], "control_features": TABLE["sex"]},
}


@pytest.mark.parametrize("case", NAMED)
def test_secret_groups_are_no_columns_of_the_features(case):
    """Names are public. A public column of the same name is renamed, which says that it is one."""
    capitals = TABLE.rename(columns={"sex": " Sex"})
    in_levels = TABLE.set_axis(pd.MultiIndex.from_product([["register"], TABLE]), axis=1)
    for features, name in ((TABLE, "sex"), (capitals, " Sex"), (in_levels, "register', 'sex")):
        with pytest.raises(ValueError, match=rf"its columns \[.*'{name}'.*\] have their names"):
            SECRET_GROUPS.fit(features, Y[FEW], **NAMED[case])
    renamed = TABLE.rename(columns={"sex": "sex, as published", "old": "in the register"})
    clone(SECRET_GROUPS).fit(renamed, Y[FEW], **NAMED[case])
    numbered = TABLE.set_axis([0, 1, 2], axis=1)
    for groups in (numbered[1], numbered[[1]]):  # 0 and 1 of a table without names are positions
        with pytest.raises(ValueError, match=r"its columns \[1\] have their names"):
            clone(SECRET_GROUPS).fit(numbered, Y[FEW], sensitive_features=groups)
    grid = PrivateGridSearch(make_pipeline(SECRET_GROUPS), {})
    with pytest.raises(ValueError, match="have their names"):
        grid.fit(TABLE, Y[FEW], sensitive_features=TABLE["sex"])


@pytest.mark.parametrize(
    ("clf", "parameter"),
    [
        (fc.RateConstrainedClassifier(protect="record_replacement"), "protect"),
        (fc.DPFermiClassifier(protect="record"), "protect"),
        (fc.RateConstrainedClassifier(delta=1e-7), "delta"),
        (fc.AUCFairClassifier(delta=1e-7), "delta"),
    ],
)
def test_a_budget_that_promises_less_than_a_parameter_is_refused(clf, parameter):
    unit = "sensitive_features" if isinstance(clf, fc.DPFermiClassifier) else "record"
    clf.set_params(epsilon=Budget(1.0, 1e-5, unit))
    with pytest.raises(ValueError, match=rf"epsilon is a weaker promise than \w+\.{parameter}="):
        clf.planned_privacy(1000)
    clf.set_params(epsilon=Budget(1.0, 1e-8, "record_replacement"))
    assert clf.planned_privacy(1000).delta == 1e-8


def test_a_sum_without_noise_is_not_released():
    rng = mechanisms.noise_generator(None)
    total = mechanisms.torch.ones(3)
    assert not mechanisms.with_gaussian_noise(0.0 * total, 0.0, rng).any()
    with pytest.raises(RuntimeError, match="without noise"):
        mechanisms.with_gaussian_noise(total, 0.0, rng)
    for steps in (DPFERMI(n_steps=2, batch_size=100), NoisyTables(n_steps=2, batch_size=100)):
        clf = fc.DPFermiClassifier(solver=steps, random_state=0)
        penalties = (0.0, 5e-324, 1e-300, 1e-12)  # of which the last is as good as none
        free, *others = (fitted(clone(clf).set_params(penalty=p)) for p in penalties)
        assert free.privacy_.epsilon <= 1.0
        for other in others:
            np.testing.assert_array_equal(other.coef_, free.coef_)


@pytest.mark.slow
def test_batches_that_hardly_any_row_is_in_are_named():
    """A row is in one with probability 1e-6, less than a delta that covers all that may happen."""
    clf = fc.RateConstrainedClassifier(epsilon=1.0, solver=DPSGDA(sampling_rate=1e-7, n_steps=10))
    with pytest.warns(PrivacyWarning, match="almost without noise"):
        fitted(clf)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*almost without noise", PrivacyWarning)
        fitted(clone(clf).set_params(solver=STEPS))


EXTREME = {
    "tiny": (1e-4, {}),
    "tiny, groups": (1e-4, {"protect": "sensitive_features"}),
    "huge": (5000.0, {}),
    "huge, replacement": (5000.0, {"protect": "record_replacement"}),
    "beyond all noise": (1e300, {}),
    "beyond all noise, groups": (1e300, {"protect": "sensitive_features"}),
    "huge, Laplace": (5000.0, {"solver": DPSGDA(histogram_noise="laplace")}),
    "seldom": (1.0, {"solver": DPSGDA(sampling_rate=1e-7, n_steps=100)}),
}


@pytest.mark.parametrize("case", slow_where(EXTREME, "seldom"))
def test_extreme_budgets_are_planned(case):
    epsilon, params = EXTREME[case]
    with warnings.catch_warnings(action="error"):
        plan = fc.RateConstrainedClassifier(epsilon=epsilon, **params).planned_privacy(30_000)
    assert 0.1 * min(epsilon, 5000.0) <= plan.epsilon <= epsilon


@pytest.mark.parametrize("unit", ["record", "sensitive_features"])
@pytest.mark.parametrize("epsilon", [1e-4, 5000.0, 1e300])
def test_extreme_budgets_of_searches_are_planned(epsilon, unit):
    """As much as fits may spend, or nearly: with batches that is 600 in all."""
    clf = fc.RateConstrainedClassifier(protect=unit)
    search = PrivateGridSearch(clf, {}, epsilon=epsilon)
    plan, models = search._planned([{"slack": slack} for slack in (0.1, 0.2)], 30_000, unit)
    assert len(models) == 2
    assert 0.9 * min(epsilon, 500.0) <= plan.epsilon <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "rate", "law", "most"),
    [
        (5e3, 1e-7, "gaussian", 40),
        (1.0, 1e-7, "gaussian", 20),
        *((size, rate, "laplace", 6) for size, rate in ((0.011, 1e-7), (1.1, 1e-7), (1.1, 2e-7))),
    ],
)
def test_extreme_searches_are_planned_with_few_distributions(epsilon, rate, law, most, monkeypatch):
    """Of 100,000 steps: each distribution takes up to half a second."""
    made, kind = [], f"from_{law}_mechanism"
    make = getattr(privacy_loss_distribution, kind)

    def counted(*args, **options):
        made.append(options)
        return make(*args, **options)

    monkeypatch.setattr(privacy_loss_distribution, kind, counted)
    steps = DPSGDA(n_steps=100_000, sampling_rate=rate, histogram_noise=law)
    clf = fc.RateConstrainedClassifier(solver=steps)
    if law == "laplace":
        plan = clf.set_params(epsilon=epsilon).planned_privacy(10_000)
        assert 0.99 * epsilon <= plan.epsilon
    else:
        search, grid = PrivateGridSearch(clf, {}, epsilon=epsilon), [{"slack": 0.1}, {"slack": 0.2}]
        plan, _ = search._planned(grid, 1500, "record")
        made = [options for options in made if options["sampling_prob"] < 1]
    assert 0 < len(made) < most
    assert plan.epsilon <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-4, 5000.0])
def test_a_search_whose_batches_hardly_any_row_is_in_is_refused(epsilon):
    """Delta covers all that the batches of one candidate release, and not of several."""
    grid = {"slack": [0.1, 0.2], "solver": [DPSGDA(sampling_rate=1e-7, n_steps=20)]}
    search = PrivateGridSearch(fc.RateConstrainedClassifier(feature_range=(-4, 4)), grid)
    with pytest.raises(ValueError, match="below the probability that a row is in any batch"):
        fitted(search.set_params(epsilon=epsilon))


SEED = 987654321
SEEDED = clone(PRIVATE["rates"]).set_params(random_state=SEED)
UNSPENT = clone(SEEDED).set_params(epsilon=None)
BY_COLUMN = np.column_stack((DATA.data, DATA.sensitive_features)), DATA.target


def fails(*_):
    raise KeyboardInterrupt


HOLDERS = {
    "a fit": lambda: fitted(clone(SEEDED)),
    "a certified one": lambda: fitted(CertifiedClassifier(SEEDED, candidates={"slack": [0.2]})),
    "budgets": lambda: fitted(CertifiedClassifier(UNSPENT, candidates={"epsilon": [1.0, 2.0]})),
    "columns": lambda: SensitiveColumnsClassifier(make_pipeline(SEEDED), -1).fit(*BY_COLUMN),
    "a failed fit": lambda: interrupted(clone(SEEDED)),
    "a failed search": lambda: interrupted(
        PrivateGridSearch(SEEDED, {"callbacks": [fails]}, random_state=SEED)
    ),
}


def interrupted(clf):
    if "callbacks" in clf.get_params():
        clf.set_params(callbacks=fails)
    with pytest.raises(KeyboardInterrupt):
        fitted(clf)
    clf = clf.set_params(callbacks=None) if "callbacks" in clf.get_params() else clf
    return clf.set_params(param_grid={}) if hasattr(clf, "param_grid") else clf


@pytest.mark.parametrize("case", HOLDERS)
def test_whatever_holds_a_private_fit_pickles_and_shows_no_seed(case):
    clf = HOLDERS[case]()
    assert SEED.to_bytes(4, "little") not in pickle.dumps(clf)
    assert str(SEED) not in f"{clf!r} {clf._repr_html_()} {clf._repr_mimebundle_()}"
    clf.keeps_seed = True
    assert SEED.to_bytes(4, "little") in pickle.dumps(clf)


def test_a_progress_bar_shows_no_times():
    """They tell the sizes of batches, as the times that the history hides."""
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        fitted(clone(PRIVATE["rates"]).set_params(verbose=1))
    bars = shown.getvalue().strip().split("\r")
    assert len(bars) >= len(fitted(clone(PRIVATE["rates"])).history_["time"])
    assert "excess" in bars[-1]
    assert not re.search(r"\d\d:\d\d|it/s|s/it", shown.getvalue())


@pytest.mark.parametrize("name", slow_where(PRIVATE, "penalty, groups", "rates of a network"))
def test_a_fit_spends_what_is_planned_and_tells_no_times(name):
    """A step takes as long as its batch is large."""
    clf = clone(PRIVATE[name])  # a copy of a fitted one would have no seed
    planned = clf.planned_privacy(len(DATA.target))
    history = fitted(clf).history_
    assert clf.privacy_ == planned
    assert np.isnan(history["time"]).all()
    assert len(history["violation"]) == len(history["time"]) > 0


def test_no_progress_bar_says_that_a_fit_took_long(monkeypatch, capsys):
    monkeypatch.setattr("tqdm.std.time", itertools.count(0.0, 1.0).__next__)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fitted(clone(PRIVATE["rates"]))
    assert "Classifier" not in capsys.readouterr().err


SMALL = {"X": DATA.data[:600], "y": DATA.target[:600]}
ONE = fc.RateConstrainedClassifier(epsilon=1.0, feature_range=(-4, 4), solver=STEPS)
TRAINERS = {
    "CalibratedClassifierCV": lambda clf: CalibratedClassifierCV(clf, cv=2).fit(**SMALL),
    "TunedThresholdClassifierCV": lambda clf: TunedThresholdClassifierCV(clf, cv=2).fit(**SMALL),
    "VotingClassifier": lambda clf: VotingClassifier([("one", clf)]).fit(**SMALL),
    "GridSearchCV": lambda clf: GridSearchCV(make_pipeline(clf), {}, cv=2).fit(**SMALL),
    "sklearn.model_selection": lambda clf: cross_val_score(clf, **SMALL, cv=2),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_what_trains_private_fits_several_times_is_named(name):
    warned = " ".join(words_of(lambda: TRAINERS[name](ONE), PrivacyWarning))
    assert f"{name} trains this private estimator: each fit spends a whole budget" in warned


@pytest.mark.parametrize("clf", [ONE, make_pipeline(ONE)], ids=["alone", "in a pipeline"])
def test_a_fit_alone_and_in_a_pipeline_is_one(clf):
    warned = words_of(lambda: clf.fit(**SMALL), PrivacyWarning)
    assert not any("trains this" in text for text in warned)


@pytest.mark.parametrize("clf", [ONE, SECRET_GROUPS], ids=["records", "groups"])
def test_a_fit_in_a_pipeline_sees_steps_that_learn_what_it_protects(clf):
    """Groups in no unit of privacy; rows where groups alone are secret."""
    rows = {**SMALL, "sensitive_features": DATA.sensitive_features[:600]}
    with config_context(enable_metadata_routing=True):
        means = Means().set_fit_request(sensitive_features=True)
        for step in (means, make_pipeline(means)):
            with pytest.raises(ValueError, match="request sensitive_features") as caught:
                make_pipeline(step, clone(clf)).fit(**rows)
            assert not hasattr(caught.value, "privacy")
        pipeline = make_pipeline(StandardScaler(), clone(clf))
        warned = " ".join(words_of(lambda: pipeline.fit(**rows), PrivacyWarning))
        assert ("The pipeline fits StandardScaler on the protected rows" in warned) == (clf is ONE)
        public = FrozenEstimator(StandardScaler().fit(DATA.data[600:]))
        warned = words_of(lambda: make_pipeline(public, clone(clf)).fit(**rows), PrivacyWarning)
        assert not any("The pipeline fits" in text for text in warned)


def test_bagging_weighs_rows_and_is_refused():
    with pytest.raises(ValueError, match="sample_weight must be None with epsilon"):
        BaggingClassifier(ONE, n_estimators=2).fit(**SMALL)


COMPARED, FIVE = "that are compared, by the", {"epsilon": 5.0, "random_state": 0}
SEVERAL = ["demographic_parity", EqualizedOdds(temperature=2.0)]
ONLY = {  # of a slack of 0 and labels that nothing tells apart
    "records": (fc.RateConstrainedClassifier(**FIVE), COMPARED),
    "groups": (clone(SECRET_GROUPS).set_params(random_state=0), "for all rows: the noise"),
    "penalty": (fc.DPFermiClassifier(protect="record", **FIVE), COMPARED),
    "a list": (fc.RateConstrainedClassifier(SEVERAL, **FIVE), COMPARED),
    "partial, one threshold": (fc.PartialParityClassifier("demographic_parity", **FIVE), COMPARED),
    "partial, in bins": (fc.PartialParityClassifier(**FIVE), COMPARED),
    "ranking": (fc.AUCFairClassifier(feature_range=(-4, 4), **FIVE), "by the released moments"),
}


@pytest.mark.parametrize("name", slow_where(ONLY, *list(ONLY)[2:-1]))
def test_a_model_that_predicts_one_label_says_so_by_what_is_released(name):
    clf, words = ONLY[name]
    rare = np.where(np.random.default_rng(0).random(2000) < 0.03, "yes", "no")
    warned = " ".join(words_of(lambda: fitted(clf, y=rare), ConvergenceWarning))
    assert "predicts no for all rows" in warned
    assert words in warned
    assert np.mean(clf.predict(DATA.data) == "no") > 0.95
    both = words_of(lambda: fitted(clone(clf)), ConvergenceWarning)
    assert not any("for all rows" in text for text in both)


@pytest.mark.parametrize(
    ("clf", "assumed"),
    [
        (ONE, "feature_range (where it is given) is public, and all rows are finite"),
        (SECRET_GROUPS, "the features do not hold the groups"),
    ],
)
def test_the_decisive_assumptions_are_with_the_promise(clf, assumed):
    clf = fitted(clone(clf))
    assert assumed in clf.privacy_.to_dict()["assumptions"]
    assert assumed in str(clf.privacy_)
    assert assumed in " ".join(str(model_card(clf)).split())


COUNTED = ["rates", "rates, groups", "penalty, records", "ranking", "partial parity"]


@pytest.mark.parametrize("name", slow_where(COUNTED, "partial parity"))
def test_counts_in_warnings_are_said_to_be_noisy(name):
    groups = np.where(np.arange(2000) < 8, "few", DATA.sensitive_features)
    clf = clone(PRIVATE[name])
    warned = words_of(lambda: fitted(clf, groups=groups), UserWarning)
    counted = [text for text in warned if " rows)" in text or "%" in text] + clf.left_out_
    assert all("by the released counts, which are noisy" in text for text in counted)
    assert counted


SLOW = ("partial parity", "penalty, groups", "rates of a network")
TWICE = ["teardown", "teardown"]
FAILING = {"rates": ["on_fit_task_end"], "ranking": ["teardown"], "penalty, records": TWICE}


class InjectedError(Exception):
    pass


def fail():
    raise InjectedError


def releases_of(clf, monkeypatch, at=None):
    """Fit, and fail right after so many releases; the number of releases that were made."""
    made = []

    def counted(add_noise, total, deviation, rng):
        made.append(add_noise(total, deviation, rng))
        return fail() if len(made) == at else made[-1]

    with monkeypatch.context() as patch:
        answered_by(patch, counted)
        fitted(clone(clf))
    return len(made)


@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_an_error_after_any_release_carries_what_was_spent(name, monkeypatch):
    clf = PRIVATE[name]
    n_releases = releases_of(clf, monkeypatch)
    assert n_releases >= 3
    for k in (1, n_releases // 2, n_releases):
        with pytest.raises(InjectedError) as caught:
            releases_of(clf, monkeypatch, at=k)
        assert 0 < caught.value.privacy.epsilon <= 1.0
        assert any("Another fit on the same rows adds its own" in n for n in caught.value.__notes__)


def failing(hook):
    """A callback of scikit-learn's that fails in a hook, when the fit has ended."""
    hooks = ("setup", "teardown", "on_fit_task_begin", "on_fit_task_end")
    calls = dict.fromkeys(hooks, lambda estimator, context: None)
    calls[hook] = lambda estimator, context: fail() if context.task_name == "fit" else None
    return SimpleNamespace(**calls)


@pytest.mark.parametrize("name", FAILING)
def test_a_callback_that_fails_after_all_releases_carries_what_was_spent(name):
    """Also where several fail, of which scikit-learn makes a group."""
    pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
    clf = clone(PRIVATE[name]).set_callbacks(*map(failing, FAILING[name]))
    with pytest.raises((InjectedError, ExceptionGroup)) as caught:
        fitted(clf)
    assert 0.5 < caught.value.privacy.epsilon <= 1.0
    assert not hasattr(clf, "classes_")


@pytest.mark.parametrize("name", slow_where(PRIVATE, *SLOW))
def test_a_warning_about_released_numbers_as_an_error_carries_it_too(name):
    """With -W error a warning ends a fit; that a group is small is known from released counts."""
    few = DATA.data[:30], DATA.target[:30], DATA.sensitive_features[:30]
    as_errors = warnings.catch_warnings(action="error", category=SmallGroupWarning)
    with as_errors, pytest.raises(SmallGroupWarning) as caught:
        fitted(clone(PRIVATE[name]), *few)
    assert 0 < caught.value.privacy.epsilon <= 1.0

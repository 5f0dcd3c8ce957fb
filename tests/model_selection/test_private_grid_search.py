"""One search, one epsilon in all: what is spent and chosen; rows are read before they are split."""

import itertools
import math
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import fairconstrained as fc
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import MissingSensitiveFeaturesWarning, PrivacyWarning
from fairconstrained.model_selection import PrivateGridSearch, private_search
from fairconstrained.model_selection.splits import holdout_split
from fairconstrained.privacy import Budget, mechanisms, privacy_spent
from fairconstrained.solvers import DPSGDA
from tests.helpers.private_fits import PRIVATE, Means, errors_of

DATA = make_biased_classification(3000, 6, bias=0.6, random_state=0)
STEPS = DPSGDA(n_steps=4)
RATES = fc.RateConstrainedClassifier(solver=STEPS, feature_range=(-4, 4))
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


def searched(estimator, grid, **params):
    search = PrivateGridSearch(estimator, grid, **params)
    return search.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)


def test_no_entry_of_a_row_decides_a_warning():
    """Of a row that trains, or is held out: sums of such entries overflow."""
    one, other = DATA.data.copy(), DATA.data.copy()
    for X, part in zip((one, other), holdout_split(3000, 0.25, 0), strict=True):
        X[part[0]] = [1e308, 1e308, 1e308, -1e308, -1e308, -1e308]
    said = []
    for rows in (DATA.data, one, other):
        search = PrivateGridSearch(RATES, {"slack": [1.0]}, random_state=0)
        with warnings.catch_warnings(record=True, action="always") as caught:
            search.fit(rows, DATA.target, sensitive_features=DATA.sensitive_features)
        said.append([w.category for w in caught])
    assert said[0] == said[1] == said[2]


def test_a_plan_needs_epsilon_and_valid_parameters():
    with pytest.raises(ValueError, match=r"epsilon must be a number or a Budget"):
        fc.RateConstrainedClassifier().planned_privacy(1000)
    with pytest.raises(ValueError, match=r"slack must be a number >= 0"):
        fc.RateConstrainedClassifier(epsilon=1.0, slack=-1).planned_privacy(1000)
    for clf, n in itertools.product(PRIVATE.values(), (0, -1, 2.5, math.nan, "10", None)):
        with pytest.raises(ValueError, match=r"n_samples must be an integer >= 1; got"):
            clf.planned_privacy(n)


@pytest.mark.slow
@quiet
@pytest.mark.parametrize(
    ("clf", "grid", "unit"),
    [
        (RATES, {"slack": [0.02, 0.1], "solver__clip": [0.5, 1.0]}, "record"),
        (fc.AUCFairClassifier(epsilon=Budget(9.0, 0.5, "record_replacement")),
         [{"slack": [0.02]}, {"alpha": [1e-3]}], "record_replacement"),
    ],
    ids=["rates", "ranking"],
)  # fmt: skip
def test_all_fits_together_keep_the_total(clf, grid, unit):
    search = searched(clf, grid, epsilon=1.5, delta=1e-6, random_state=0)
    phases = [p for model in search.estimators_ for p in model.privacy_.phases]
    assert 0.97 * 1.5 <= privacy_spent(phases, delta=1e-6, unit=unit) <= 1.5
    total = search.privacy_
    assert (total.epsilon, total.delta, total.unit) == (1.5, 1e-6, unit)
    assert search.privacy_.phases == tuple(phases)
    assert "report noisy max" in str(search.privacy_)
    # The square root of the number of candidates, and not the number itself.
    own = search.estimators_[0].privacy_.epsilon
    assert own > 1.2 * 1.5 / len(search.candidates_)


@quiet
def test_where_groups_alone_are_secret_the_choice_is_no_release():
    """It reads predictions and labels, which are public, without noise."""
    clf = fc.RateConstrainedClassifier(protect="sensitive_features", max_iter=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*the noise of the choice", PrivacyWarning)
        search = searched(clf, {"slack": [0.3]}, random_state=0)
    assert search.privacy_.mechanisms == search.best_estimator_.privacy_.mechanisms


@quiet
def test_a_candidate_that_is_stopped_has_no_estimate_by_which_it_is_chosen():
    """The other one predicts one label for nearly all, and is known to keep its constraint."""
    flat = {"slack": [1.0], "feature_range": [(-1e6, 1e6)]}
    grid = [{"max_iter": [1], "slack": [0.0]}, flat]
    search = searched(RATES, grid, epsilon=20.0, random_state=1)
    stopped, constant = (model.score(DATA.data, DATA.target) for model in search.estimators_)
    assert stopped > constant + 0.05
    assert search.best_index_ == 1


@quiet
def test_candidates_see_the_training_rows_and_the_choice_the_others():
    search = searched(RATES, {"slack": [0.05, 0.2]}, holdout_size=0.3, random_state=0)
    train, held_out = holdout_split(3000, 0.3, 0)
    assert len(held_out) == 900
    assert sorted([*train, *held_out]) == list(range(3000))
    assert search.privacy_.phases[0] == search.estimators_[0].planned_privacy(2100).phases[0]
    assert search.best_params_ == search.candidates_[search.best_index_]
    assert search.best_estimator_ is search.estimators_[search.best_index_]
    labels = search.best_estimator_.predict(DATA.data)
    np.testing.assert_array_equal(search.predict(DATA.data), labels)
    assert search.predict_proba(DATA.data).shape == (3000, 2)
    assert search.decision_function(DATA.data).shape == (3000,)
    assert search.classes_.tolist() == [0, 1]


@quiet
@pytest.mark.parametrize("when", ["in the third fit", "after all fits"])
def test_an_error_tells_what_all_fits_so_far_have_spent(when, monkeypatch):
    """All that ended, and its own where a fit is interrupted."""

    def interrupt(*_):
        raise KeyboardInterrupt

    grid = [{"slack": [0.05, 0.1]}]
    if when == "in the third fit":
        grid += [{"callbacks": [interrupt]}]
    else:
        monkeypatch.setattr(PrivateGridSearch, "_choose", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        searched(RATES, grid, epsilon=1.5, delta=1e-6)
    assert 0.97 * 1.5 <= caught.value.privacy.epsilon <= 1.5
    assert any("2 candidates had been trained before" in note for note in caught.value.__notes__)


@quiet
def test_pipelines_and_what_they_learn_of_protected_rows():
    grid = {"rateconstrainedclassifier__slack": [0.05, 0.2]}
    public = FrozenEstimator(StandardScaler().fit(np.eye(6)))
    for step in (FunctionTransformer(lambda X: X / 2), public):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "The pipeline fits")
            search = searched(make_pipeline(step, RATES), grid)
        assert search.predict(DATA.data).shape == (3000,)
    with pytest.warns(PrivacyWarning, match="The pipeline fits StandardScaler"):
        searched(make_pipeline(StandardScaler(), RATES), grid)


@quiet
def test_seeds_are_named_and_are_neither_pickled_nor_shown():
    """Neither that of the choice nor that of the fits: whoever has them can subtract the noise."""
    clf = fc.RateConstrainedClassifier(solver=STEPS, feature_range=(-4, 4), random_state=987654321)
    seeded = PrivateGridSearch(make_pipeline(clf), {}, random_state=123456789)
    fits, choice = "fits of this search are seeded", "random_state seeds the noise of the choice"
    with pytest.warns(PrivacyWarning, match=fits), pytest.warns(PrivacyWarning, match=choice):
        seeded.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)
    seeds = [seed.to_bytes(4, "little") for seed in (987654321, 123456789)]
    assert not any(seed in pickle.dumps(seeded) for seed in seeds)
    seen = f"{seeded!r} {seeded._repr_html_()} {seeded._repr_mimebundle_()}"
    assert "987654321" not in seen
    assert "123456789" not in seen
    read = pickle.loads(pickle.dumps(seeded))
    np.testing.assert_array_equal(read.predict(DATA.data), seeded.predict(DATA.data))
    seeded.keeps_seed = True
    assert all(seed in pickle.dumps(seeded) for seed in seeds)


SEEDED = {"clf": [clone(RATES).set_params(random_state=3)]}
SEEDED_STEP = {"estimator": Pipeline([("clf", RATES)]), "param_grid": SEEDED}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon must be a finite number > 0; got 0.0"),
        ({"epsilon": math.inf}, ValueError, "epsilon must be a finite number > 0; got inf"),
        ({"epsilon": Budget(1.0, 1e-5, "record")}, ValueError, "epsilon must be .* > 0; got B"),
        ({"param_grid": []}, ValueError, r"param_grid must have a candidate; got \[\]"),
        ({"delta": 2.0}, ValueError, "delta must be at least"),
        ({"holdout_size": 1.0}, ValueError, "holdout_size must be a number between 0 and 1"),
        ({"param_grid": {"epsilon": [1.0]}}, ValueError, r"must not vary the budget.*'epsilon'"),
        ({"param_grid": {"random_state": [None, 3]}}, ValueError, "must not hold a random_state"),
        (SEEDED_STEP, ValueError, "must not hold a random_state"),
        ({"estimator": LogisticRegression()}, TypeError, "must be a private estimator"),
    ],
)
def test_what_is_not_valid_is_refused_by_name(changed, error, message):
    search = PrivateGridSearch(RATES, {"slack": [0.1]}).set_params(**changed)
    with pytest.raises(error, match=message):
        search.fit(DATA.data, DATA.target, sensitive_features=DATA.sensitive_features)


def test_a_search_without_rows_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"^X must have rows to split"):
        PrivateGridSearch(RATES, {"slack": [0.1]}).fit(DATA.data[:0], DATA.target[:0])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_what_compares_private_fits_by_exact_numbers_is_named(epsilon):
    """Certificates and curves tell exact numbers of rows that a private fit would protect."""
    data = make_biased_classification(600, 6, random_state=0)
    rows = {"X": data.data, "y": data.target, "sensitive_features": data.sensitive_features}
    clf = fc.RateConstrainedClassifier(epsilon=epsilon, slack=0.2, solver=epsilon and STEPS)
    given = {"param_name": "slack", "param_range": [0.2], "cv": 2}
    with warnings.catch_warnings(record=True, action="always") as caught:
        fc.model_selection.CertifiedClassifier(clf, candidates={"slack": [0.2]}).fit(**rows)
        fc.model_selection.tradeoff_curve(clf, **rows, **given)
    said = [str(w.message) for w in caught if "no epsilon covers its result" in str(w.message)]
    expected = [] if epsilon is None else ["CertifiedClassifier", "tradeoff_curve"]
    assert [message.split()[0] for message in said] == expected


RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + RNG.normal(size=N) > 0, "yes", "no").astype(object)
GROUPS = RNG.choice(["a", "b"], N).astype(object)
FIRST = np.arange(N) < N // 4
FROZEN = FrozenEstimator(LogisticRegression().fit(X, Y))
SEARCHED = {
    "record": RATES,
    "record_replacement": clone(RATES).set_params(protect="record_replacement"),
    "sensitive_features": fc.RateConstrainedClassifier(protect="sensitive_features"),
    "frozen": fc.RateConstrainedClassifier(model=FROZEN, solver=STEPS),
    "ranking": fc.AUCFairClassifier(epsilon=1.0, feature_range=(-4, 4)),
    "pipeline": make_pipeline(FunctionTransformer(), RATES),
}


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


@quiet
@pytest.mark.parametrize(("dtype", "plain"), [("Int64", int), ("boolean", bool)])
def test_labels_of_types_of_pandas_are_plain_numbers_and_booleans(dtype, plain):
    """As in every fit, and no floats."""
    labels = pd.Series(Y == "yes").astype(dtype)
    assert search(RATES, labels).classes_.dtype == plain


@quiet
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
        with warnings.catch_warnings(record=True, action="always") as caught:
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
    return "".join(map(str, errors_of(caught.value)))


@quiet
@pytest.mark.parametrize("name", SEARCHED)
def test_an_invalid_row_is_refused_before_any_release(name, monkeypatch):
    """Wherever it is: the row may be held out."""
    split = np.flatnonzero(~FIRST), np.flatnonzero(FIRST)
    monkeypatch.setattr(private_search, "holdout_split", lambda *_: split)
    fails_before_any_release(monkeypatch, clf=SEARCHED[name], rows=changed(X, 0, np.nan))


@quiet
@pytest.mark.parametrize("name", ["record", "sensitive_features"])
def test_a_step_that_requests_the_groups_is_refused(name, monkeypatch):
    with config_context(enable_metadata_routing=True):
        step = Means().set_fit_request(sensitive_features=True)
    for one in (step, make_pipeline(step)):
        clf = make_pipeline(one, SEARCHED[name])
        said = fails_before_any_release(monkeypatch, clf=clf)
        assert "request sensitive_features" in said


@quiet
def test_what_steps_say_of_protected_rows_is_not_quoted(monkeypatch):
    step = FunctionTransformer(lambda rows: np.asarray(rows).astype(float))
    clf = make_pipeline(step, RATES)
    rows = changed(X.astype(object), (0, 0), "diagnosis: none")
    said = fails_before_any_release(monkeypatch, clf=clf, rows=rows)
    assert "ValueError" in said
    assert "diagnosis" not in said


@quiet
def test_steps_do_not_warn_of_single_entries():
    coded = pd.DataFrame({"city": np.where(FIRST, "a", "b"), "age": X[:, 0]})
    encoder = OneHotEncoder(handle_unknown="warn", sparse_output=False)
    public = make_column_transformer((encoder, ["city"]), remainder="passthrough").fit(coded)
    clf = make_pipeline(FrozenEstimator(public), RATES)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Found unknown categories")
        search(clf, rows=coded.assign(city=changed(coded["city"].to_numpy(), 0, "c")))


@quiet
def test_a_penalty_is_not_chosen_by_right_predictions(monkeypatch):
    """The smallest would always win, also where the grid gives the step that has it."""
    step, steps = Pipeline([("fit", RATES)]), [RATES, fc.DPFermiClassifier(protect="record")]
    grids = (fc.DPFermiClassifier(), {"penalty": [0.0, 4.0]}), (step, {"fit": steps})
    for clf, grid in grids:
        said = fails_before_any_release(monkeypatch, clf=clf, **grid)
        assert "DPFermiClassifier has a penalty" in said


HONEST = fc.AUCFairClassifier._count_right


def count(scores, y):
    """What a ranking by these scores counts; labels are 0 and 1."""
    model = SimpleNamespace(classes_=[0, 1], decision_function=lambda X: scores)
    return HONEST(model, None, y)


@quiet
def test_rankings_are_compared_by_their_order(monkeypatch):
    """By ordered pairs, of which a row is in fewer than there are rows: no row adds more than 1."""
    seen, found = [], {}

    def first(values, scale, rng):
        seen.extend(values)
        return 0

    def noted(model, X, y):
        found["auc"] = roc_auc_score(y == "yes", model.decision_function(X))
        found["pairs"] = np.sum(y == "yes") * np.sum(y == "no") / len(y)
        most = HONEST(model, X, y)
        scores = model.decision_function(X)
        fewer = [count(np.delete(scores, i), np.delete(y, i) == "yes") for i in range(len(y))]
        fewer = np.array(fewer) * (len(y) - 1) / len(y)  # the number of rows is public
        assert ((most - fewer >= 0) & (most - fewer <= 1)).all()
        return most

    monkeypatch.setattr(mechanisms, "noisy_argmax", first)
    monkeypatch.setattr(fc.AUCFairClassifier, "_count_right", staticmethod(noted))
    search(SEARCHED["ranking"])
    assert seen == [pytest.approx(found["auc"] * found["pairs"])]


@quiet
@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_no_row_decides_whether_a_ranking_can_be_compared(score):
    """Terms of huge entries of both signs add up to nan."""
    scores, y = RNG.normal(size=50), RNG.integers(2, size=50)
    assert abs(count(np.append(scores[:-1], score), y) - count(scores, y)) <= 1

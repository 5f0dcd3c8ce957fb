"""RateConstrainedClassifier: what it promises on training data; what must not matter does not."""

import itertools
import sys

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.metrics import log_loss

from fairconstrained import AUCFairClassifier, DPFermiClassifier, RateConstrainedClassifier
from fairconstrained.constraints import (
    CONSTRAINTS,
    AUCParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    ExpectedCost,
    RateConstraint,
    RejectionRate,
    Space,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import ConstraintNotSatisfiedWarning
from fairconstrained.models import Linear
from fairconstrained.solvers import Iterate
from tests.helpers.fits import (
    FORGIVEN,
    fitted,
    logistic_regression,
    measured,
    penalty,
    same_model,
    table,
)
from tests.helpers.marks import slow_where


@pytest.mark.parametrize(
    ("name", "n_classes", "n_groups"),
    [
        *((name, 2, 4) for name in CONSTRAINTS),
        ("demographic_parity", 2, 2),
        ("equalized_odds", 3, 4),
        pytest.param("rejection_rate", 3, 4, marks=pytest.mark.slow),
    ],
)
def test_the_violation_is_the_metric_and_ends_within_slack(name, n_classes, n_groups):
    data = table(n_classes, n_groups)
    weight = np.random.default_rng(1).uniform(0.5, 1.5, size=len(data[1]))
    free = fitted(name, data, weight, slack=np.inf)
    # Rejection rates of three classes add up to two: none is below two thirds in all of them.
    fraction = 0.95 if name == "rejection_rate" else 0.8
    fair = fitted(name, data, weight, slack=fraction * free.violation_)
    for clf in (free, fair):
        gap = measured(clf, name, data, sample_weight=weight)
        assert clf.violation_ == pytest.approx(gap, abs=1e-9)
        assert clf.violations_ == {name: clf.violation_}
        assert clf.feasible_ is True
    assert fair.violation_ <= fair.slack + FORGIVEN
    assert fair.multipliers_.max() > 0 == free.multipliers_.max()
    assert len(fair.constraints_) == len(fair.multipliers_)


def test_all_of_a_list_hold_each_within_its_own_slack():
    data = table(2, 2)
    notions = [DemographicParity(slack=0.15), EqualOpportunity(), "false_positive_rate"]
    clf = fitted(notions, data, slack=0.13)
    slacks = {"demographic_parity": 0.15, "equal_opportunity": 0.13, "false_positive_rate": 0.13}
    assert list(clf.violations_) == list(slacks)
    for name, slack in slacks.items():
        assert clf.violations_[name] == pytest.approx(measured(clf, name, data), abs=1e-12)
        assert clf.violations_[name] <= slack + FORGIVEN
    assert fitted("demographic_parity", data, slack=0.13).violations_.keys() < slacks.keys()
    worst = max(slacks, key=lambda name: clf.violations_[name] - slacks[name])
    assert clf.violation_ == clf.violations_[worst]


def test_references_bound_their_metric():
    X, _, group = data = table(2, 4)
    clf = fitted(EqualizedOdds(reference="overall"), data, slack=0.1)
    gap = measured(clf, "equalized_odds", data, method="to_overall")
    rest = fitted(DemographicParity(reference="rest"), data, slack=0.1)
    accepted = rest.predict(X)
    gaps = [accepted[group == g].mean() - accepted[group != g].mean() for g in range(4)]
    for one, expected in ((clf, gap), (rest, np.abs(gaps).max())):
        assert one.violation_ == pytest.approx(expected, abs=1e-12)
        assert expected <= 0.1 + FORGIVEN


def test_a_rate_constraint_of_the_user():
    """P(positive | last group) >= P(positive | everybody else) - 0.02: one-sided."""
    X, _, group = data = table(2, 4)
    part = {"others": {"group": [0, 1, 2]}, "last": {"group": 3}}
    unions = {"unions": [["others"], ["last"]], "weights": [[[0, 1], [0, -1]]]}
    one_sided = RateConstraint(part=part, **unions, slack=0.02)

    def shortfall(clf):
        accepted = clf.predict(X)
        return accepted[group != 3].mean() - accepted[group == 3].mean()

    assert shortfall(fitted(slack=np.inf, data=data)) > 0.1
    clf = fitted(one_sided, data)
    assert clf.violation_ == pytest.approx(shortfall(clf), abs=1e-12)
    assert shortfall(clf) <= 0.02 + FORGIVEN


@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("n_classes", "fit_intercept"), [(2, True), (3, True), (3, False)])
def test_infinite_slack_is_logistic_regression(n_classes, fit_intercept, wrap):
    """On columns of any scale; sparse ones are scaled without being centred."""
    X, y, group = table(n_classes, 2)
    X = np.where(np.abs(X) < 0.8, 0.0, X) * 10.0 ** np.arange(-3, 3)
    data = wrap(X), y, group
    weight = np.random.default_rng(0).uniform(0, 2, size=len(y))
    alpha = 1e-3
    params = {"slack": np.inf, "alpha": alpha, "model": Linear(fit_intercept=fit_intercept)}
    clf = fitted("equalized_odds", data, weight, **params)
    given = {"fit_intercept": fit_intercept, "weight": weight}
    coef, intercept = logistic_regression(X, y, weight.sum() * alpha, **given)
    np.testing.assert_allclose(clf.coef_, coef, rtol=1e-4)
    scores = X @ coef.T + intercept
    expected = expit(scores[:, 0]) if n_classes == 2 else softmax(scores, axis=1)
    found = clf.predict_proba(wrap(X))
    np.testing.assert_allclose(found[:, 1] if n_classes == 2 else found, expected, atol=1e-5)
    if not fit_intercept:
        assert not clf.intercept_.any()


def objective(clf, data):
    X, y, _ = data
    return log_loss(y, clf.predict_proba(X)) + clf.alpha * penalty(clf, X)


@pytest.mark.parametrize("name", ["equalized_odds", "loss_parity"])
def test_less_slack_means_less_violation_and_a_larger_objective(name):
    data = table()
    free = fitted(name, data, slack=np.inf)
    fits = [fitted(name, data, slack=share * free.violation_) for share in (1.1, 0.75, 0.5, 0.25)]
    violations = [clf.violation_ for clf in fits]
    objectives = [objective(clf, data) for clf in fits]
    assert violations[0] == pytest.approx(free.violation_)  # the slack does not bind
    assert (np.diff(violations) < 0).all()
    assert (np.diff(objectives) > 0).all()
    for clf, value in zip(fits, objectives, strict=True):
        assert clf.history_["objective"][-1] == pytest.approx(value, rel=1e-9)


def test_multipliers_are_complementary_and_give_the_sensitivity_to_slack():
    """KKT, and the envelope theorem d f / d slack = -sum(multipliers)."""
    data = table(2, 4)
    more, less = (fitted("loss_parity", data, slack=slack) for slack in (0.14, 0.12))
    for clf in (more, less):
        assert (clf.multipliers_ >= 0).all()
        binding = clf.multipliers_ > 1e-8
        assert 0 < binding.sum() < len(binding)
        probability = clf.predict_proba(data[0])[np.arange(400), data[1]]
        mean_loss = [-np.log(probability[data[2] == g]).mean() for g in range(4)]
        pairs = dict(zip(clf.constraints_, clf.multipliers_, strict=True))
        for g, h in itertools.permutations(range(4), 2):
            if pairs[f"loss_parity: group {g} against group {h}"] > 1e-8:
                assert mean_loss[g] - mean_loss[h] == pytest.approx(clf.slack, abs=2e-3)
    slope = (objective(less, data) - objective(more, data)) / (less.violation_ - more.violation_)
    between = sorted([-less.multipliers_.sum(), -more.multipliers_.sum()])
    assert between[0] <= slope <= between[1]  # the optimal value is convex in the slack here


def test_warm_start_saves_iterations():
    cold = fitted(slack=0.15)
    X, y, group = table()
    warm = clone(cold).set_params(warm_start=True).fit(X, y, sensitive_features=group)
    same_model(warm, cold, rtol=0)
    first = warm.n_iter_
    warm.fit(X, y, sensitive_features=group)
    assert warm.n_iter_ < first
    assert warm.violation_ <= 0.15 + FORGIVEN
    warm.set_params(slack=0.145).fit(X, y, sensitive_features=group)
    assert warm.n_iter_ < fitted(slack=0.145).n_iter_
    assert warm.violation_ <= 0.145 + FORGIVEN


def test_callbacks_see_every_iterate_of_which_history_has_an_entry():
    seen, criteria = [], ["demographic_parity", "false_negative_rate"]
    clf = fitted(criteria, slack=0.15, callbacks=[seen.append, lambda iterate: False])
    assert len(seen) == clf.n_iter_ > 2
    assert all(isinstance(iterate, Iterate) for iterate in seen)
    assert [float(iterate.soft[0]) for iterate in seen] == clf.history_["objective"].tolist()
    same_model(clf, fitted(criteria, slack=0.15), rtol=0)
    keys = {"objective", "error", "violation", "soft_violation", "residual", "multiplier", "time"}
    assert set(clf.history_) == keys
    assert {len(values) for values in clf.history_.values()} == {clf.n_iter_}
    assert (np.diff(clf.history_["time"]) >= 0).all()
    assert clf.converged_ is True
    assert clf.residual_ == clf.history_["residual"][-1] <= clf.tol
    assert clf.violation_ == clf.history_["violation"][-1]
    X, y, _ = table()
    assert clf.history_["error"][-1] == pytest.approx(1 - clf.score(X, y))
    assert clf.history_["multiplier"][-1] == clf.multipliers_.max()
    assert clf.privacy_ is None


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_progress_bar_is_shown_when_asked_for(verbose, capsys):
    clf = fitted(slack=0.15, verbose=verbose)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("RateConstrainedClassifier" in captured.err) == bool(verbose)
    assert (f"{clf.n_iter_}it" in captured.err) == bool(verbose)


def test_fits_that_take_two_seconds_show_a_bar_on_terminals(monkeypatch, capsys):
    calls = itertools.count()

    def stops(iterate):
        if next(calls) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("tqdm.std.time", itertools.count(0.0, 1.0).__next__)
    fitted(slack=0.15)
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fitted(slack=0.15)
    assert "RateConstrainedClassifier" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        fitted(slack=0.15, callbacks=stops)
    assert capsys.readouterr().err.endswith(" \r")  # the bar is gone
    monkeypatch.setattr("tqdm.std.time", itertools.repeat(0.0).__next__)
    fitted(slack=0.15)
    assert "RateConstrainedClassifier" not in capsys.readouterr().err


def test_where_the_model_without_constraints_keeps_the_slack_it_is_the_result():
    *data, _ = make_biased_classification(3000, random_state=0).values()
    free = fitted(data=data, slack=np.inf)
    gap = measured(free, "demographic_parity", data)
    assert 0.1 < gap < 1.0
    kept = fitted(data=data, slack=gap + 1e-9)
    np.testing.assert_allclose(kept.coef_, free.coef_, rtol=1e-7, atol=1e-9)
    assert kept.converged_
    assert kept.n_iter_ <= 2
    assert not kept.multipliers_.any()
    assert fitted(data=data, slack=gap - 0.05).multipliers_.any()


def test_caps_of_groups_follow_their_labels():
    space = Space([0, 1, 2], [("f", 1), ("m", 0)])
    caps = {("m", 0): 0.2, ("f", 1): 0.3}
    assert RejectionRate(caps, per_group=True).bind(space).slack.tolist() == [0.3, 0.2] * 3


@pytest.mark.parametrize("name", ["demographic_parity", "false_negative_rate"])
def test_integer_weights_are_repetitions_in_any_order(name):
    X, y, group = table(2, 4, n=300)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, size=300)
    index = rng.permutation(np.repeat(np.arange(300), weight))
    slack = 0.12
    weighted = fitted(name, (X, y, group), weight, slack=slack)
    repeated = fitted(name, (X[index], y[index], group[index]), slack=slack)
    same_model(weighted, repeated)
    assert weighted.violation_ == pytest.approx(repeated.violation_, abs=1e-12)
    assert weighted.multipliers_.max() > 0


def test_names_of_labels_and_groups_do_not_matter():
    X, y, group = table(3, 2)
    labels, names = np.array(["bad", "fair", "good"]), np.array(["f", "m"])
    numbers = fitted(data=(X, y, group), slack=0.2)
    words = fitted(data=(X, labels[y], names[group].tolist()), slack=0.2)
    assert (words.coef_ == numbers.coef_).all()
    assert words.classes_.tolist() == labels.tolist()
    assert words.groups_.tolist() == names.tolist()
    assert (words.predict(X) == labels[numbers.predict(X)]).all()
    assert words.score(X, labels[y]) == numbers.score(X, y)
    assert any("group f" in text for text in words.constraints_)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_and_dense_give_the_same_model(n_classes):
    X, y, group = table(n_classes, 2)
    X = np.where(np.abs(X) < 1.2, 0.0, X)
    dense = fitted(data=(X, y, group), slack=0.2)
    thin = fitted(data=(sparse.csr_array(X), y, group), slack=0.2)
    same_model(dense, thin)
    for container in (sparse.csr_array, sparse.csc_matrix):
        assert (thin.predict(container(X)) == dense.predict(X)).all()


def test_constant_and_duplicate_columns_change_nothing():
    X, y, group = table()
    wide = np.column_stack((X, np.full(400, 7.0), np.zeros(400), X[:, 0], 1e3 * X[:, 1]))
    plain = fitted(data=(X, y, group), slack=0.15, alpha=0.0)
    clf = fitted(data=(wide, y, group), slack=0.15, alpha=0.0)
    assert np.isfinite(clf.coef_).all()
    np.testing.assert_allclose(clf.predict_proba(wide), plain.predict_proba(X), atol=1e-4)
    penalised = fitted(data=(wide, y, group), slack=0.15, alpha=1e-3)
    assert penalised.coef_[0, [6, 7]] == pytest.approx(0, abs=1e-8)
    assert penalised.coef_[0, 8] == pytest.approx(penalised.coef_[0, 0], rel=1e-3)


@pytest.mark.slow
def test_fewer_rows_than_columns():
    """Every labelling is linear: fits are feasible, beat constants, and mostly by far."""
    scores, gaps = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        group = np.arange(60) % 2
        X = rng.normal(size=(60, 200)) + group[:, None]
        y = (X[:, 0] + rng.normal(size=60) > 0.5).astype(int)
        free = fitted(data=(X, y, group), slack=np.inf)
        clf = fitted(data=(X, y, group), slack=0.1)
        assert free.score(X, y) == 1.0
        assert clf.violation_ <= 0.1 + FORGIVEN
        assert clf.score(X, y) > max(y.mean(), 1 - y.mean())
        scores.append(clf.score(X, y))
        gaps.append(free.violation_)
    assert np.median(scores) > 0.8
    assert np.median(gaps) > 0.1 + FORGIVEN


def test_single_precision_gives_the_model_of_the_same_numbers():
    """The arithmetic is in double precision whatever the table."""
    X, y, group = table()
    single = X.astype(np.float32)
    same_model(*(fitted(data=(Z, y, group)) for Z in (single, single.astype(float))), rtol=1e-8)


DATA = make_biased_classification(2000, random_state=0)
ESTIMATORS = {
    "odds": RateConstrainedClassifier("equalized_odds"),
    "network": RateConstrainedClassifier(model=(4,), random_state=0, max_iter=5, slack=0.9),
    "auc from moments": AUCFairClassifier(AUCParity("inter_group", surrogate="binormal")),
    "penalty": DPFermiClassifier(epsilon=None),
}
SOME_SLOW = slow_where(ESTIMATORS, "network", "penalty")
UNITS = 1e-6, 1e3, np.where(np.arange(DATA.data.shape[1]) == 0, 1e-3, 1.0)


def fit(clf, X=DATA.data, weight=None):
    clf.fit(X, DATA.target, sensitive_features=DATA.sensitive_features, sample_weight=weight)
    return clf.predict(X), clf.decision_function(X), clf.violation_


@pytest.mark.parametrize("name", SOME_SLOW)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_positive_factors_of_columns_and_of_all_weights_change_no_prediction(name):
    clf = ESTIMATORS[name]
    labels, scores, violation = fit(clf)
    for units, factor in [*((units, 1.0) for units in UNITS), (1.0, 1e-99), (1.0, 1e99)]:
        other = fit(clf, DATA.data * units, weight=np.full(len(labels), factor))
        np.testing.assert_array_equal(other[0], labels)
        np.testing.assert_allclose(other[1], scores, atol=1e-6)
        assert other[2] == pytest.approx(violation, abs=1e-9)


@pytest.mark.parametrize("codes", [(-3.0, 3.0), (0.0, -1e-5)])
def test_a_column_of_two_values_is_penalised_by_its_range(codes):
    """A rare category has a small standard deviation, but is penalised as a frequent one."""
    rng, wrap = np.random.default_rng(0), sparse.csr_array if 0.0 in codes else np.asarray
    rare = rng.random(2000) < 0.01
    target = np.where(rare, rng.random(2000) < 0.9, DATA.target).astype(int)

    def scores(column, X=None):
        X = np.column_stack((DATA.data, np.where(rare, *codes[::-1]))) if X is None else X
        clf = RateConstrainedClassifier(slack=np.inf, alpha=0.01)
        clf.fit(wrap(X), target, sensitive_features=DATA.sensitive_features)
        return clf.coef_[0, -1], clf.decision_function(wrap(X))

    coef, found = scores(codes)
    Z = (DATA.data - DATA.data.mean(axis=0)) / DATA.data.std(axis=0)
    other, expected = scores((0.0, 1.0), np.column_stack((Z, rare)))
    assert coef * (codes[1] - codes[0]) == pytest.approx(other, rel=1e-3)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (ExpectedCost(max=0.01), "a larger max, more iterations"),
        ([ExpectedCost(max=0.01), "demographic_parity"], "a larger max or a larger slack, more"),
        ([DemographicParity(ratio=0.99), ExpectedCost(0.01)], "a smaller ratio or a larger max, m"),
    ],
)
def test_a_violation_names_the_parameters_that_bound_it(constraint, words):
    with pytest.warns(ConstraintNotSatisfiedWarning, match=f"Try {words}"):
        fitted(constraint, table(2, 2))

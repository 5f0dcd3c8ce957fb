"""RateConstrainedClassifier: what it promises on training data, and how it behaves as an estimator.

Warnings are errors here: a fit that says it is not feasible, or not converged, fails its test.
"""

import numpy as np
import pandas as pd
import pytest
from fits import FORGIVEN, METRIC_OF, fitted, measured, table
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import (
    CONSTRAINTS,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalseNegativeRate,
    FalsePositiveRate,
    RateConstraint,
)
from fairconstrained.datasets import make_biased_classification
from fairconstrained.solvers import SGDA, Iterate


def same_model(one, other, rtol=1e-5):
    for attribute in ("coef_", "intercept_"):
        np.testing.assert_allclose(
            getattr(one, attribute), getattr(other, attribute), rtol=rtol, atol=rtol
        )


# --- the constraint holds ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_classes", "n_groups"),
    [
        (2, 2),
        (2, 4),
        pytest.param(3, 2, marks=pytest.mark.slow),  # all names together
        pytest.param(3, 4, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_the_violation_is_the_metric_and_ends_within_slack(name, n_classes, n_groups):
    data = table(n_classes, n_groups)
    weight = np.random.default_rng(1).uniform(0.5, 1.5, size=len(data[1]))
    free = fitted(name, data, weight, slack=np.inf)
    fair = fitted(name, data, weight, slack=0.8 * free.violation_)
    for clf in (free, fair):
        assert clf.violation_ == pytest.approx(
            measured(clf, name, data, sample_weight=weight), abs=1e-9
        )
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


def test_a_notion_named_twice_has_two_entries():
    twice = [FalseNegativeRate(max=0.3), FalseNegativeRate(max=0.25, per_group=True)]
    clf = fitted(twice)
    everybody, by_group = clf.violations_.values()
    X, y, group = table()
    assert everybody == pytest.approx(metrics.false_negative_rate(y, clf.predict(X)))
    assert by_group == pytest.approx(
        metrics.false_negative_rate(y, clf.predict(X), sensitive_features=group)
    )


@pytest.mark.parametrize("notion", [FalseNegativeRate, FalsePositiveRate])
def test_caps_per_group_hold_in_every_group(notion):
    X, y, group = data = table(2, 4)
    free = fitted(notion(max=np.inf, per_group=True), data)
    fair = fitted(notion(max=0.85 * free.violation_, per_group=True), data)
    worst = METRIC_OF[notion.name](y, fair.predict(X), sensitive_features=group)
    assert fair.violation_ == pytest.approx(worst)
    assert worst <= 0.85 * free.violation_ + FORGIVEN
    assert METRIC_OF[notion.name](y, fair.predict(X)) < worst  # a cap on everybody is weaker


@pytest.mark.parametrize("notion", [DemographicParity, EqualizedOdds])
def test_reference_overall_bounds_the_metric_to_overall(notion):
    data = table(2, 4)
    clf = fitted(notion(reference="overall"), data, slack=0.1)
    gap = measured(clf, notion.name, data, method="to_overall")
    assert clf.violation_ == pytest.approx(gap, abs=1e-12)
    assert gap <= 0.1 + FORGIVEN


def test_reference_rest_bounds_each_group_against_the_others():
    X, _, group = data = table(2, 4)
    clf = fitted(DemographicParity(reference="rest"), data, slack=0.1)
    accepted = clf.predict(X)
    gaps = [accepted[group == g].mean() - accepted[group != g].mean() for g in range(4)]
    assert clf.violation_ == pytest.approx(np.abs(gaps).max(), abs=1e-12)
    assert clf.violation_ <= 0.1 + FORGIVEN


def test_a_rate_constraint_of_the_user():
    """P(positive | last group) >= P(positive | everybody else) - 0.02: one-sided."""
    X, _, group = data = table(2, 4)
    one_sided = RateConstraint(
        part=lambda y, group: (group == 3).long(),
        unions=[[1, 0], [0, 1]],
        weights=[[[0, 1], [0, -1]]],
        slack=0.02,
    )

    def shortfall(clf):
        accepted = clf.predict(X)
        return accepted[group != 3].mean() - accepted[group == 3].mean()

    assert shortfall(fitted(slack=np.inf, data=data)) > 0.1
    clf = fitted(one_sided, data)
    assert clf.violation_ == pytest.approx(shortfall(clf), abs=1e-12)
    assert shortfall(clf) <= 0.02 + FORGIVEN


def test_predictions_are_deterministic_and_need_no_group():
    X, _, _ = table()
    clf = fitted(slack=0.1)
    assert (clf.predict(X) == clf.predict(X)).all()
    assert (clf.predict(X[7:8]) == clf.predict(X)[7:8]).all()


# --- the optimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_infinite_slack_is_logistic_regression(n_classes, fit_intercept):
    X, y, _ = data = table(n_classes, 2)
    weight = np.random.default_rng(0).uniform(0, 2, size=len(y))
    alpha = 1e-3
    clf = fitted(
        "equalized_odds",
        data,
        weight,
        slack=np.inf,
        alpha=alpha,
        **{"fit_intercept": fit_intercept},
    )
    reference = LogisticRegression(
        C=1 / (weight.sum() * alpha), fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000
    ).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(clf.coef_, reference.coef_, rtol=1e-4)
    np.testing.assert_allclose(clf.predict_proba(X), reference.predict_proba(X), atol=1e-5)
    if not fit_intercept:
        assert not clf.intercept_.any()


def objective(clf, data):
    X, y, _ = data
    return log_loss(y, clf.predict_proba(X)) + clf.alpha / 2 * (clf.coef_**2).sum()


@pytest.mark.parametrize("name", ["demographic_parity", "equalized_odds", "loss_parity"])
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
    """KKT, and the envelope theorem d f / d slack = -sum(multipliers).

    Loss parity, because there the soft values that are optimised are those that are measured.
    """
    data = table(2, 4)
    more, less = (fitted("loss_parity", data, slack=slack) for slack in (0.14, 0.12))
    for clf in (more, less):
        assert (clf.multipliers_ >= 0).all()
        binding = clf.multipliers_ > 1e-8
        assert 0 < binding.sum() < len(binding)
        probability = clf.predict_proba(data[0])[np.arange(400), data[1]]
        mean_loss = [-np.log(probability[data[2] == g]).mean() for g in range(4)]
        pairs = dict(zip(clf.constraints_, clf.multipliers_, strict=True))
        for g in range(4):
            for h in range(4):
                if g != h and pairs[f"loss_parity: group {g} against group {h}"] > 1e-8:
                    assert mean_loss[g] - mean_loss[h] == pytest.approx(clf.slack, abs=2e-3)
    slope = (objective(less, data) - objective(more, data)) / (less.violation_ - more.violation_)
    between = sorted([-less.multipliers_.sum(), -more.multipliers_.sum()])
    assert between[0] <= slope <= between[1]  # the optimal value is convex in the slack here


def test_multipliers_of_rates_order_as_the_cost_of_slack():
    tight, loose, idle = (fitted(slack=slack).multipliers_ for slack in (0.05, 0.15, 0.5))
    assert tight.sum() > loose.sum() > 0 == idle.sum()
    assert tight.min() == 0  # of the two directions of the only pair one cannot bind


# --- data in -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demographic_parity", "false_negative_rate"])
def test_integer_weights_are_repetitions(name):
    X, y, group = table(n=300)
    weight = np.random.default_rng(0).integers(0, 4, size=300)
    index = np.repeat(np.arange(300), weight)
    slack = 0.15
    weighted = fitted(name, (X, y, group), weight, slack=slack)
    repeated = fitted(name, (X[index], y[index], group[index]), slack=slack)
    same_model(weighted, repeated)
    assert weighted.violation_ == pytest.approx(repeated.violation_, abs=1e-12)
    assert weighted.multipliers_.max() > 0


def test_rows_of_zero_weight_are_as_if_absent():
    X, y, group = table(3, 4)
    weight = ((y != 2) & (group != 1)).astype(float)
    kept = weight > 0
    zeros = fitted(data=(X, y, group), sample_weight=weight, slack=0.15)
    absent = fitted(data=(X[kept], y[kept], group[kept]), slack=0.15)
    assert (zeros.coef_ == absent.coef_).all()
    assert zeros.classes_.tolist() == [0, 1]
    assert zeros.groups_.tolist() == [0, 2, 3]


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(0).permutation(400)
    data = table(2, 4)
    same_model(fitted(data=data, slack=0.15), fitted(data=[a[order] for a in data], slack=0.15))


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


def test_several_sensitive_columns_are_crossed():
    X, y, group = table(2, 4)
    columns = pd.DataFrame({"sex": np.array(["f", "m"])[group % 2], "age": group // 2})
    crossed = fitted(data=(X, y, columns), slack=0.15)
    order = np.array([0, 2, 1, 3])  # (f, 0), (f, 1), (m, 0), (m, 1)
    assert list(crossed.groups_) == [("f", 0), ("f", 1), ("m", 0), ("m", 1)]
    same_model(crossed, fitted(data=(X, y, order[group]), slack=0.15), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_and_dense_give_the_same_model(n_classes):
    X, y, group = table(n_classes, 2)
    X = np.where(np.abs(X) < 1.2, 0.0, X)
    dense = fitted(data=(X, y, group), slack=0.2)
    thin = fitted(data=(sparse.csr_array(X), y, group), slack=0.2)
    same_model(dense, thin)
    for container in (sparse.csr_array, sparse.csc_matrix):
        assert (thin.predict(container(X)) == dense.predict(X)).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_units_of_the_columns_do_not_matter(seed):
    """Without penalty the problem does not depend on them, nor does the path to its solution."""
    X, y, group = table()
    units = 10.0 ** np.random.default_rng(seed).uniform(-3, 3, size=X.shape[1])
    as_given = fitted(data=(X, y, group), slack=0.15, alpha=0.0)
    scaled = fitted(data=(X * units, y, group), slack=0.15, alpha=0.0)
    assert (scaled.predict(X * units) == as_given.predict(X)).all()
    np.testing.assert_allclose(scaled.coef_ * units, as_given.coef_, rtol=1e-4)
    assert scaled.converged_


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


def test_labels_of_many_small_cells_are_repaired_not_given_up():
    """Nine cells of some 60 rows: moved targets miss by single rows; constant labels would not."""
    data = make_biased_classification(600, n_groups=3, n_classes=3, random_state=0)
    case = (data.data, data.target, data.sensitive_features)
    clf = fitted("equalized_odds", data=case, slack=0.05)
    constant = np.bincount(data.target).max() / 600
    assert clf.feasible_
    assert clf.score(*case[:2]) > constant + 0.1


def test_fewer_rows_than_columns():
    rng = np.random.default_rng(0)
    group = np.arange(60) % 2
    X = rng.normal(size=(60, 200)) + group[:, None]
    y = (X[:, 0] + rng.normal(size=60) > 0.5).astype(int)
    free = fitted(data=(X, y, group), slack=np.inf)
    clf = fitted(data=(X, y, group), slack=0.1)
    assert clf.violation_ <= 0.1 + FORGIVEN < free.violation_
    assert clf.score(X, y) > 0.6


# --- fitting again, watching, stopping -----------------------------------------------------------


def test_warm_start_saves_iterations():
    cold = fitted(slack=0.15)
    X, y, group = table()
    warm = clone(cold).set_params(warm_start=True).fit(X, y, sensitive_features=group)
    same_model(warm, cold, rtol=0)
    first = warm.n_iter_
    warm.fit(X, y, sensitive_features=group)
    assert warm.n_iter_ <= first // 2
    assert warm.violation_ <= 0.15 + FORGIVEN
    warm.set_params(slack=0.145).fit(X, y, sensitive_features=group)
    assert warm.n_iter_ < fitted(slack=0.145).n_iter_
    assert warm.violation_ <= 0.145 + FORGIVEN


def test_a_cold_fit_forgets_the_last_one():
    X, y, group = table()
    clf = fitted(slack=0.05)
    assert (clf.set_params(slack=0.2).fit(X, y, sensitive_features=group).coef_).tolist() == (
        fitted(slack=0.2).coef_.tolist()
    )
    clf.set_params(model=(3,), solver=SGDA(n_steps=30), slack=np.inf, random_state=0)
    clf.fit(X, y, sensitive_features=group)
    assert not hasattr(clf, "coef_")


def test_callbacks_see_every_iterate():
    seen = []
    clf = fitted(slack=0.15, callbacks=[seen.append, lambda iterate: False])
    assert len(seen) == clf.n_iter_ > 2
    assert all(isinstance(iterate, Iterate) for iterate in seen)
    assert [float(iterate.soft[0]) for iterate in seen] == clf.history_["objective"].tolist()
    same_model(clf, fitted(slack=0.15), rtol=0)


def test_a_callback_can_stop():
    seen = []
    clf = fitted(slack=0.3, callbacks=lambda iterate: seen.append(iterate) or len(seen) == 2)
    assert clf.n_iter_ == len(seen) == 2
    assert clf.converged_ is False
    assert "callback" in clf.status_
    X, y, _ = table()
    assert clf.score(X, y) > 0.6


def test_history_has_one_entry_per_iteration():
    clf = fitted(["demographic_parity", "false_negative_rate"], slack=0.15)
    keys = {"objective", "error", "violation", "soft_violation", "residual", "multipliers", "time"}
    assert set(clf.history_) == keys
    assert {len(values) for values in clf.history_.values()} == {clf.n_iter_}
    assert (np.diff(clf.history_["time"]) >= 0).all()
    assert clf.converged_ is True
    assert clf.residual_ == clf.history_["residual"][-1] <= clf.tol
    assert clf.violation_ == clf.history_["violation"][-1]
    X, y, _ = table()
    assert clf.history_["error"][-1] == pytest.approx(1 - clf.score(X, y))
    assert (clf.history_["multipliers"][-1] == clf.multipliers_).all()
    assert clf.privacy_ is None


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_progress_bar_is_shown_when_asked_for(verbose, capsys):
    clf = fitted(slack=0.15, verbose=verbose)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("RateConstrainedClassifier" in captured.err) == bool(verbose)
    assert (f"{clf.n_iter_}it" in captured.err) == bool(verbose)


def test_weights_are_repetitions_for_losses_too():
    """Soft and hard values are one function, summed by two routes: rounding must not decide."""
    data = make_biased_classification(600, random_state=0)
    weight = np.random.default_rng(0).integers(0, 4, size=600)
    clf, repeated = (
        RateConstrainedClassifier("loss_parity", slack=0.01, tol=1e-8) for _ in range(2)
    )
    clf.fit(
        data.data,
        data.target,
        sensitive_features=data.sensitive_features,
        sample_weight=weight.astype(float),
    )
    rows = np.repeat(np.arange(600), weight)
    repeated.fit(
        data.data[rows], data.target[rows], sensitive_features=data.sensitive_features[rows]
    )
    np.testing.assert_allclose(clf.coef_, repeated.coef_, atol=1e-6)
    assert clf.violation_ <= 0.01 + 1e-6

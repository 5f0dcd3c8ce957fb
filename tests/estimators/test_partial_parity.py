"""PartialParityClassifier: the metric of its own scores ends within slack; input; private fits."""

import functools
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairconstrained import PartialParityClassifier, metrics
from fairconstrained.constraints import PARTIAL, PARTIAL_PRIVATE, Space
from fairconstrained.datasets import make_biased_classification
from fairconstrained.exceptions import (
    ConstraintNotSatisfiedWarning,
    MissingSensitiveFeaturesWarning,
    SmallGroupWarning,
)
from tests.helpers.metrics import PARTIAL_METRICS

FORGIVEN = 1e-3


@functools.cache
def table(n_groups=2, n=400, bias=0.3):
    data = make_biased_classification(n, 6, n_groups, 2, bias=bias, class_sep=1.5, random_state=1)
    group = np.array(list("abcd"))[data.sensitive_features]
    for array in (data.data, data.target, group):
        array.flags.writeable = False
    return data.data, data.target, group


def fitted(constraint="statistical_parity", data=None, **params):
    X, y, group = table() if data is None else data
    # Among the positives all groups' scores are above the threshold in the upper half.
    interval = (0.5, 1.0) if constraint == "equal_opportunity" else (0.1, 0.5)
    params = {"interval": interval, "slack": 0.1, "n_grid": 4, **params}
    of_notion = {name: params.pop(name) for name in ("n_grid", "threshold") if name in params}
    notion = PARTIAL[constraint]()
    takes = notion.get_params()
    notion.set_params(**{name: value for name, value in of_notion.items() if name in takes})
    return PartialParityClassifier(notion, **params).fit(X, y, sensitive_features=group)


def gap(clf, data=None, **options):
    X, y, group = table() if data is None else data
    given = {"sensitive_features": group} if clf.group_features else {}
    scores = clf.decision_function(X, **given)
    options = {"interval": clf.interval_, "sensitive_features": group, **options}
    name = clf.constraint.name.removeprefix("partial_")
    if name in ("demographic_parity", "equal_opportunity", "equalized_odds"):
        options["threshold"] = clf.threshold_
    return PARTIAL_METRICS[name](y, scores, **options)


def unconstrained(**params):
    return fitted(slack=10.0, **params)


@pytest.mark.parametrize(
    ("constraint", "n_groups"),
    [(name, 3 if name in ("demographic_parity", "equalized_odds") else 2) for name in PARTIAL],
)
def test_the_metric_on_the_training_rows_ends_within_slack(constraint, n_groups):
    data = table(n_groups)
    slack = 0.1
    clf = fitted(constraint, data, slack=slack)
    free = fitted(constraint, data, slack=10.0)
    assert clf.violation_ == pytest.approx(gap(clf, data), abs=1e-9)
    assert clf.violations_ == {f"partial_{constraint}": clf.violation_}
    assert clf.feasible_
    assert clf.violation_ <= slack + FORGIVEN
    assert gap(free, data) > slack + 0.05
    assert clf.score(*data[:2]) > 0.6
    # Fairness costs log loss (labels it may even help).
    assert clf.history_["objective"][-1] > free.history_["objective"][-1]


@pytest.mark.slow
def test_every_form_of_interval():
    for interval in ([(0.0, 0.2), (0.5, 0.7)], {"a": (0.0, 0.3), "b": (0.1, 0.5)}):
        clf = fitted(interval=interval, n_grid=6)
        assert gap(clf) <= 0.1 + FORGIVEN
        assert gap(unconstrained(interval=interval)) > 0.12


def test_sparse_is_dense():
    X, y, group = table()
    X = np.where(np.abs(X) < 0.8, 0.0, X)
    params = {"constraint": "demographic_parity", "group_features": True}
    dense = fitted(data=(X, y, group), **params)
    csr = fitted(data=(sparse.csr_array(X), y, group), **params)
    assert csr.coef_ == pytest.approx(dense.coef_, abs=1e-3)
    given = {"sensitive_features": group}
    scores = dense.decision_function(X, **given)
    assert csr.decision_function(sparse.csr_array(X), **given) == pytest.approx(scores, abs=5e-3)


@pytest.mark.parametrize("threshold", [-0.7, 1.1])
def test_predictions_scores_and_probabilities_agree_at_the_threshold(threshold):
    X, y, _ = table()
    clf = fitted("demographic_parity", threshold=threshold)
    assert clf.threshold_ == threshold
    scores, proba = clf.decision_function(X), clf.predict_proba(X)
    positive = clf.predict(X) == clf.classes_[1]
    assert (positive == (scores > threshold)).all()
    assert (positive == (proba[:, 1] > 1.0 / (1.0 + np.exp(-threshold)))).all()
    assert proba[:, 1] == pytest.approx(1.0 / (1.0 + np.exp(-scores)))
    assert 0.05 < positive.mean() < 0.95
    assert clf.violation_ <= 0.1 + FORGIVEN
    assert clf.history_["error"][-1] == pytest.approx(np.mean(positive != y))


def test_the_automatic_interval_is_the_least_fair_that_holds_the_rate():
    """Appendix B, by the metric of the unconstrained model's scores."""
    X, y, group = data = table(bias=0.05)
    clf = fitted(data=data, interval="auto", slack=0.5)
    free = unconstrained(data=data, interval=(0.0, 1.0))
    scores = free.decision_function(X)
    rate = np.mean(scores > 0)
    starts = [s for s in np.arange(0, 16) / 20 if s <= rate <= s + 0.25 + 1e-9]
    measure = partial(metrics.partial_statistical_parity, y, scores, sensitive_features=group)
    gaps = {s: measure(interval=(s, s + 0.25)) for s in starts}
    assert len(starts) >= 4
    assert max(gaps.values()) > min(gaps.values()) + 0.01
    start, end = clf.interval_  # one of several with the same gap
    assert end - start == pytest.approx(0.25)
    assert gaps[min(gaps, key=lambda s: abs(s - start))] == pytest.approx(max(gaps.values()))
    assert gap(clf, data) <= 0.5 + FORGIVEN
    assert clf.interval == "auto"


@pytest.mark.slow
def test_group_features_are_columns_of_the_groups():
    """The paper's model (1, x, s, s x): the fit is that on such columns given by hand."""
    X, y, group = table()
    s = (group == "b").astype(float)[:, None]
    by_hand = np.hstack((X, s, s * X))
    one = fitted(group_features=True)
    other = fitted(data=(by_hand, y, group))
    assert one.n_features_in_ == X.shape[1]
    assert one.coef_.shape == (1, 2 * X.shape[1] + 1)
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-9)
    scores = one.decision_function(X, sensitive_features=group)
    assert scores == pytest.approx(other.decision_function(by_hand))
    assert gap(one) <= 0.1 + FORGIVEN


@pytest.mark.slow
def test_group_features_and_predictions_need_known_groups():
    X, y, _ = data = table(3)
    clf = fitted("demographic_parity", data, group_features=True)
    for method in (clf.predict, clf.predict_proba, clf.decision_function):
        with pytest.raises(ValueError, match=r"needed for predictions.*group_features=True"):
            method(X)
        with pytest.raises(ValueError, match=r"not seen in training: \['z'\]"):
            method(X[:2], sensitive_features=["a", "z"])
        with pytest.raises(ValueError, match="1 row"):
            method(X[:2], sensitive_features=["a"])
    with pytest.raises(ValueError, match="needed for predictions"):
        clf.score(X, y)
    needed = pytest.raises(ValueError, match="the group of every row")
    with pytest.warns(MissingSensitiveFeaturesWarning), needed:
        clf.fit(X, y)


def test_routing_reaches_fit_score_and_predict():
    X, y, group = table()
    clf = PartialParityClassifier("demographic_parity", slack=0.1, group_features=True)
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), clf).fit(X, y, sensitive_features=group)
        predicted = pipe.predict(X, sensitive_features=group)
        assert np.mean(predicted == y) == pipe.score(X, y, sensitive_features=group) > 0.6
        scores = cross_val_score(clf, X, y, cv=2, params={"sensitive_features": group})
        assert (scores > 0.6).all()
        search = GridSearchCV(clf, {"slack": [0.1, 0.5]}, cv=2)
        search.fit(X, y, sensitive_features=group)
        assert search.score(X, y, sensitive_features=group) > 0.6


@pytest.mark.slow
def test_networks_keep_the_slack_by_default_and_are_not_constant():
    """On small batches multipliers of many thresholds would follow the noise to constant scores."""
    data = table(n=1500)
    clf = fitted(data=data, model=(8,), slack=0.15, random_state=0)
    assert clf.violation_ <= 0.15 + FORGIVEN
    assert gap(clf, data) == pytest.approx(clf.violation_, abs=1e-9)
    assert np.ptp(clf.decision_function(data[0])) > 1
    assert clf.score(*data[:2]) > 0.65


def test_few_rows_in_the_interval_are_named_and_counted():
    """Fewer than the grid: a warning; none at all: the group is left out, and said so."""
    X, y, group = table()
    few = np.where(np.arange(len(y)) < 30, "few", group)
    with pytest.warns(SmallGroupWarning, match=r"n_grid.*group few \(30 rows, 6 of them in the"):
        fitted(data=(X, y, few), interval=(0.1, 0.3), slack=1.0, n_grid=10)
    fitted(data=(X, y, few), interval=(0.1, 0.3), slack=1.0, n_grid=5)  # warnings are errors
    with pytest.warns(SmallGroupWarning, match=r"leaves out group few \(30 rows, 0.6 of them"):
        clf = fitted(data=(X, y, few), interval=(0.1, 0.12), slack=1.0, n_grid=2)
    assert not any("few" in words for words in clf.constraints_)


@pytest.mark.parametrize("constraint", PARTIAL)
def test_nothing_left_to_compare_is_said_whoever_chooses_the_interval(constraint):
    """A group without a whole row in the interval is left out, also of an automatic one."""
    X, y = (column[:60] for column in table()[:2])
    rare = np.where(np.arange(len(y)) < 2, "rare", "others")
    for interval in ((0.5, 0.75), "auto"):
        with pytest.warns(SmallGroupWarning, match="nothing left to compare"):
            clf = fitted(constraint, data=(X, y, rare), interval=interval)
        assert np.isnan(clf.violation_)
        assert not clf.feasible_
        assert clf.left_out_


@pytest.mark.parametrize("interval", [(0.0, 0.3), "auto"])
def test_the_interval_of_the_criterion_takes_the_place_of_the_estimators(interval):
    X, y, group = table()
    notion = PARTIAL["demographic_parity"]((0.2, 0.6))
    clf = PartialParityClassifier(notion, interval=interval, slack=0.1)
    clf.fit(X, y, sensitive_features=group)
    assert clf.interval_ == (0.2, 0.6)
    assert clf.violation_ == pytest.approx(gap(clf), abs=1e-9)


def test_whole_weights_are_copies_of_rows():
    X, y, group = (column[:200] for column in table())
    weight = np.arange(200) % 3
    weighted, copied = (PartialParityClassifier(slack=0.3) for _ in range(2))
    weighted.fit(X, y, sensitive_features=group, sample_weight=weight)
    copied.fit(*(np.repeat(column, weight, axis=0) for column in (X, y)),
               sensitive_features=np.repeat(group, weight))  # fmt: skip
    assert weighted.coef_ == pytest.approx(copied.coef_, abs=1e-6)
    assert np.ptp(weighted.coef_) > 0.1


@pytest.mark.filterwarnings("ignore:.*stopped after 6 iterations")
def test_advice_on_equal_scores_names_no_slack_that_allows_every_gap():
    """The distributions of two groups that scores tell apart have a gap of one."""
    group = np.arange(40) % 2
    X, y = group[:, None] + np.linspace(0, 0.1, 40)[:, None], np.arange(40) % 10 < 3 + 4 * group
    clf = PartialParityClassifier(PARTIAL["statistical_parity"](n_grid=2), max_iter=5)
    with pytest.warns(ConvergenceWarning, match=r"equal scores.*with no constraint the error is"):
        clf.fit(X, y, sensitive_features=group)


BETWEEN = (0.1, 0.5)


def records(n=4000):
    data = make_biased_classification(n, 6, 2, 2, bias=0.6, class_sep=1.5, random_state=0)
    low, high = data.data.min(axis=0) - 0.1, data.data.max(axis=0) + 0.1
    return data.data, data.target, data.sensitive_features, (low, high)


def private(constraint, **params):
    X, y, group, public = records()
    params = {"interval": BETWEEN, "slack": 0.1, "random_state": 0, **params}
    clf = PartialParityClassifier(constraint, feature_range=public, **params)
    with warnings.catch_warnings(action="ignore", category=ConstraintNotSatisfiedWarning):
        return clf.fit(X, y, sensitive_features=group)


def rows(n=500, seed=0):
    rng = np.random.default_rng(seed)
    scores = torch.as_tensor(rng.normal(size=(n, 1)))
    y, group = (torch.as_tensor(rng.integers(2, size=n)) for _ in range(2))
    return scores + 0.7 * group[:, None], y, group, torch.ones(n, dtype=torch.float64)


def test_distributions_in_bins_are_the_gaps_at_the_edges():
    """Against G from sorted scores at the same thresholds, without leak."""
    notion = PARTIAL_PRIVATE["statistical_parity"](BETWEEN, n_grid=7, reach=2.0)
    constraint = notion.bind(Space([0, 1], ["a", "b"]), 0.05)
    scores, y, group, weight = rows()
    placed = constraint.partition.place(y, group, weight)
    values = constraint.hard_values(scores, placed, torch.zeros(0)) + 0.05
    expected = []
    for edge in np.linspace(-2.0, 2.0, 7):
        above = (scores[:, 0] > edge).numpy()
        rates = [above[group.numpy() == g].mean() for g in (0, 1)]
        shares = [(min(r, 0.5) - min(r, 0.1)) / 0.4 for r in rates]
        expected.append(shares[0] - shares[1])
    assert values.numpy() == pytest.approx(np.concatenate((expected, np.negative(expected))))
    given = {"sensitive_features": group.numpy(), "interval": BETWEEN}
    exact = metrics.partial_statistical_parity(None, scores[:, 0].numpy(), **given)
    assert 0.5 * exact < values.max() <= exact + 1e-12
    assert "threshold 3 of 7" in constraint.describe(2)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["statistical_parity", "equal_opportunity"])
def test_private_training_moves_the_true_gap_to_its_slack(constraint):
    """With a generous budget; the released estimate is near the true gap."""
    X, y, group, _ = records()
    interval = (0.3, 0.9) if constraint == "equal_opportunity" else BETWEEN
    params, measure = {"epsilon": 20.0, "interval": interval}, PARTIAL_METRICS[constraint]
    free, clf = (private(constraint, slack=slack, **params) for slack in (2.0, 0.1))
    options = {"sensitive_features": group, "interval": interval}
    before, after = (measure(y, c.decision_function(X), **options) for c in (free, clf))
    assert before > 0.2
    assert after < max(0.6 * before, 0.2)
    assert clf.violation_ == pytest.approx(after, abs=0.15)
    assert clf.privacy_.epsilon <= 20.0
    assert np.isnan(clf.history_["objective"]).all()
    assert clf.interval_ == interval

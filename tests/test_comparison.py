"""Who is compared is decided once: fits, metrics, certificates, audits and monitors agree."""

import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.comparison import ALONE, EMPTY, FEW, REASONS, compared
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import demographic_parity_scorer
from fairconstrained.model_selection import CertifiedClassifier, select_feasible

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("rows", "least", "sets", "reasons"),
    [
        ([1000, 900, 19], "auto", 0, ["", "", "19 rows, fewer than 20"]),
        ([1000, 40, 10], "auto", 0, ["", "", ""]),  # a quarter of 40
        ([1000, 40, 9], "auto", 0, ["", "", "9 rows, fewer than 10"]),
        ([5, 4, 0], "auto", 0, ["", "", "0 rows"]),
        ([5, 4, 3], 5, 0, [f"5 rows, {ALONE}", "4 rows, fewer than 5", "3 rows, fewer than 5"]),
        ([900, 800, 700], "auto", [0, 0, 1], ["", "", f"700 rows, {ALONE}"]),
        ([900, 1, 0], 1, None, ["", "", "0 rows"]),  # caps: nobody is alone
    ],
)
def test_the_rule(rows, least, sets, reasons):
    found = compared(np.array(rows)[:, None], 0.05, least, sets=sets)
    expected = [f"{g} ({words})" for g, words in enumerate(reasons) if words]
    assert found.left_out(lambda g, _: str(g)) == expected
    assert found.kept[:, 0].tolist() == [not words for words in reasons]
    assert list(REASONS) == [EMPTY, FEW, ALONE]


def test_small_numbers_are_not_told_where_they_may_identify_people():
    found = compared(np.array([[50], [40], [3], [0]]), 0.05, "auto", floor=10)
    assert [found.reason((g, 0), 10) for g in (2, 3)] == ["fewer than 10 rows", "0 rows"]


@pytest.mark.parametrize("metric", ["demographic_parity", "equalized_odds"])
def test_strata_and_attributes_with_one_group_are_left_out_of_metrics_by_name(metric):
    rng = np.random.default_rng(0)
    y, predicted, job = rng.integers(2, size=(3, 400))
    group = np.where(job == 1, rng.integers(2, size=400), 0)
    difference = getattr(metrics, f"{metric}_difference")
    alone = difference(y[job == 1], predicted[job == 1], sensitive_features=group[job == 1])
    with pytest.warns(SmallGroupWarning, match=rf"group 0 in stratum 0 \(\d+ rows, {ALONE}\)"):
        within = difference(y, predicted, sensitive_features=group, control_features=job)
    assert within == alone
    people = {"sex": group, "home": np.zeros(400)}
    with pytest.warns(SmallGroupWarning, match=rf"group 0 by home \(400 rows, {ALONE}\)"):
        side = difference(y, predicted, sensitive_features=people, attributes="parallel")
    assert side == difference(y, predicted, sensitive_features=group)
    with pytest.warns(SmallGroupWarning, match="nothing is left, and the metric is nan"):
        nobody = difference(y, predicted, sensitive_features=job, control_features=job)
    assert np.isnan(nobody)


def test_a_metric_compares_a_single_row():
    """In the first stratum it alone is accepted; in the second one everybody is."""
    group, job = [0, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]
    predicted, given = [0, 0, 1, 1, 1, 1], {"sensitive_features": group, "control_features": job}
    assert metrics.demographic_parity_difference(predicted, predicted, **given) == 1.0


def test_searches_do_not_choose_where_nothing_is_compared():
    rng = np.random.default_rng(0)
    X, y, one = rng.normal(size=(200, 1)), np.arange(200) % 2, np.full(200, "f")
    clf = RateConstrainedClassifier(max_iter=1)
    scoring = {"accuracy": "accuracy", "dp": demographic_parity_scorer}
    options = {"scoring": scoring, "refit": select_feasible(), "cv": 2}
    search = GridSearchCV(clf, {"slack": [0.1, 0.2]}, **options)
    nothing = pytest.raises(ValueError, match="nothing is left to compare")
    with config_context(enable_metadata_routing=True), nothing:
        search.fit(X, y, sensitive_features=one)
    with warnings.catch_warnings(record=True, action="always") as caught:
        certified = CertifiedClassifier(clf, slack=1.0).fit(X, y, sensitive_features=one)
    assert not certified.certified_
    assert any("nothing is left to compare (group f" in str(w.message) for w in caught)

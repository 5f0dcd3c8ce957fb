"""Who is compared is decided once: fits, metrics, certificates, audits and monitors agree."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.model_selection import GridSearchCV

import fairconstrained
from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.comparison import ALONE, EMPTY, FEW, REASONS, compared
from fairconstrained.exceptions import SmallGroupWarning
from fairconstrained.metrics import (
    certify,
    confidence_interval,
    demographic_parity_scorer,
    group_report,
)
from fairconstrained.model_selection import CertifiedClassifier, select_feasible
from fairconstrained.monitoring import FairnessMonitor

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = st.one_of(st.just(0), st.integers(1, 4), st.integers(5, 60))


@st.composite
def batches(draw):
    """Labels, predictions and groups, some of them unknown, in any order; cells may be empty."""
    cells = draw(st.lists(st.tuples(SIZES, SIZES), min_size=2, max_size=4))
    unknown, seed = draw(st.integers(0, 80)), draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    rows = [(y, "abcd"[g]) for g, cell in enumerate(cells) for y in (0, 1) for _ in range(cell[y])]
    rows += [(i % 2, None) for i in range(unknown)]
    y, group = map(np.array, zip(*rows, strict=True)) if rows else (np.zeros(0), np.zeros(0))
    assume(len({name for name in group if name is not None}) > 1)
    assume(len(set(y.tolist())) == 2)
    order = rng.permutation(len(y))
    return y[order], rng.integers(2, size=len(y)), group[order].astype(object)


def cells_of(texts):
    """The groups and labels that texts name, such as "group c, label 1 (0 rows)"."""
    found = set()
    for text in texts:
        name = re.search(r"(?:group |group: )?\b([abcd])\b", text.split(" (")[0]).group(1)
        label = re.search(r"label \'?(not )?.*?([01])", text.split(" (")[0])
        known = (0, 1) if label is None else (int(label[2]) if not label[1] else 0,)
        found |= {(name, y) for y in known}
    return found


def fitted(y, group, constraint, min_group_size):
    X = np.random.default_rng(0).normal(size=(len(y), 1))
    clf = RateConstrainedClassifier(
        constraint, slack=0.1, max_iter=1, min_group_size=min_group_size
    )
    return clf.fit(X, y, sensitive_features=group)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "labels"), [("equal_opportunity", {1}), ("equalized_odds", {0, 1})]
)
@settings(max_examples=20, deadline=None)
@given(rows=batches(), least=st.sampled_from(["auto", 1, 7]))
def test_fits_certificates_monitors_and_metrics_agree(rows, constraint, labels, least):
    y, predicted, group = rows
    given = {"sensitive_features": group, "min_group_size": least}
    clf = fitted(y, group, constraint, least)
    found = certify(y_true=y, y_pred=predicted, constraint=constraint, slack=0.1, **given)
    left_out = cells_of(clf.left_out_)
    assert left_out == cells_of(found.left_out)
    assert {cell[1] for cell in left_out} <= labels
    every = {(g, v) for g in set(group) - {None} for v in labels}
    is_left = [v for v in labels if {g for g, of in every - left_out if of == v}]
    assert np.isnan(found.estimate) == np.isnan(clf.violation_) == (not is_left)
    assert not (np.isnan(clf.violation_) and clf.feasible_)
    if least == "auto":
        monitor = FairnessMonitor(constraint, 0.1)
        monitor.update(predicted, sensitive_features=group, y_true=y)
        assert cells_of(monitor.left_out_) == left_out
        assert monitor.estimate_ == pytest.approx(found.estimate, nan_ok=True)
    if least != 1:
        return
    metric = getattr(metrics, f"{constraint}_difference")
    value = metric(y, predicted, sensitive_features=group)
    empty = {(g, v) for g, v in every if not ((group == g) & (y == v)).any()}
    assert empty <= left_out
    assert value == pytest.approx(np.nan if empty else found.estimate, nan_ok=True)
    low, _ = confidence_interval(metric, y, predicted, sensitive_features=group)
    assert np.isnan(low) == bool(empty)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(rows=batches())
def test_audits_agree_with_fits_and_say_so_in_the_answer(rows):
    y, predicted, group = rows
    clf = fitted(y, group, "equal_opportunity", "auto")
    asked = {"constraint": "equal_opportunity", "slack": 0.1, "min_cell": 1}
    audit = fairconstrained.report(y, predicted, sensitive_features=group, **asked)
    _, _, told = audit.answer.partition(" Not compared: ")
    named = {cell for cell in cells_of(told.split("; ") if told else []) if cell[1] == 1}
    assert named == cells_of(clf.left_out_)
    gaps = [gap for gap in audit.differences if gap["criterion"] == "equal_opportunity"]
    assert bool(gaps) == (not np.isnan(clf.violation_))
    for gap, entry in zip(gaps, audit.certificates, strict=True):
        assert gap["value"] == pytest.approx(entry["estimate"])
        others = set(group) - {None} - {name for name, _ in named}
        table = group_report(y, predicted, sensitive_features=group, pos_label=1)
        rates = table.loc[sorted(others), "true_positive_rate"]
        assert gap["value"] == pytest.approx(rates.max() - rates.min())


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
    assert found.left_out(lambda g, _: str(g), 10) == ["2 (fewer than 10 rows)", "3 (0 rows)"]


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


def test_searches_do_not_choose_where_nothing_is_compared():
    rng = np.random.default_rng(0)
    X, y, one = rng.normal(size=(200, 1)), np.arange(200) % 2, np.full(200, "f")
    clf = RateConstrainedClassifier(max_iter=1)
    scoring = {"accuracy": "accuracy", "dp": demographic_parity_scorer}
    search = GridSearchCV(
        clf, {"slack": [0.1, 0.2]}, scoring=scoring, refit=select_feasible(), cv=2
    )
    nothing = pytest.raises(ValueError, match="nothing is left to compare")
    with config_context(enable_metadata_routing=True), nothing:
        search.fit(X, y, sensitive_features=one)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        certified = CertifiedClassifier(clf, slack=1.0).fit(X, y, sensitive_features=one)
    assert not certified.certified_
    assert any("nothing is left to compare (group f" in str(w.message) for w in caught)

"""Fits, metrics, certificates, reports and monitors compare the same cells of any rows.

The rule is written here a second time, from the guide: a cell needs 1 / slack rows, or a quarter of
what the second largest cell of its attribute has; of the cells that have them, those of a stratum
are compared if there are two. Rows of unknown group are in no cell. In fits and metrics the others
have the weights by which they stand for all rows of their label.
"""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fairconstrained
from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import DemographicParity, EqualizedOdds, EqualOpportunity
from fairconstrained.metrics import certify, confidence_interval, group_report
from fairconstrained.monitoring import FairnessMonitor

CRITERIA = {
    DemographicParity: (metrics.demographic_parity_difference, [[0, 1]]),
    EqualOpportunity: (metrics.equal_opportunity_difference, [[1]]),
    EqualizedOdds: (metrics.equalized_odds_difference, [[0], [1]]),
}
# The rates that each compares, in reports of groups.
RATES = {
    DemographicParity: ["selection_rate"],
    EqualOpportunity: ["true_positive_rate"],
    EqualizedOdds: ["false_positive_rate", "true_positive_rate"],
}
LABELS = ("y_true", "y_pred")
# The same columns in other orders, types and tables.
RETYPED = [
    lambda people: people[["race", "sex"]],
    lambda people: pl.from_pandas(people),
    lambda people: people.assign(sex=people.sex.astype(float)),
    lambda people: people.assign(sex=people.sex.map({0: False, 1: True})).to_dict("list"),
    lambda people: people.astype("category"),
]


def expected(events, y, decision, columns, stratum, slack, standing=False):
    """The largest gap of the cells that are compared; nan if there is none."""
    gaps = []
    for labels in events:
        for column in columns:
            table = pd.DataFrame({"s": stratum, "g": column, "d": decision, "y": y})
            known = table["g"].notna().groupby(y).transform("mean")
            table["w"] = 1 / known if standing else 1.0
            table["d"] *= table["w"]
            rows = table[np.isin(y, labels)].groupby(["s", "g"], dropna=True)
            cells = rows[["d", "w"]].sum().assign(size=rows.size()).reset_index()
            sizes = np.sort(cells["size"])
            least = np.clip(sizes[-2] / 4, 1, 1 / slack) if len(sizes) > 1 else 1
            cells["rate"] = cells["d"] / cells["w"]
            rates = cells[cells["size"] >= least].groupby("s")["rate"]
            gaps += (rates.max() - rates.min())[rates.size() > 1].tolist()
    return round(max(gaps, default=np.nan), 14)  # a gap of the slack may be rounded


def drawn(seed, n, n_small, without_label, lacking=(0.0, 0.0)):
    """Decisions about people, of whom a few are of race c, perhaps all with one label."""
    rng = np.random.default_rng(seed)
    race = np.where(np.arange(n) < n_small, "c", rng.choice(["a", "b"], n)).astype(object)
    people = pd.DataFrame({"sex": rng.integers(0, 2, n), "race": race})
    X, y = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
    if without_label:
        y[:n_small] = 0
    hidden = rng.random((n, 2)) < np.outer(1 + y, lacking)
    return rng, X, y, people.mask(hidden, None)


ROWS = {
    "seed": st.integers(0, 2**32 - 1),
    "n": st.integers(40, 160),
    "n_small": st.integers(0, 9),
    "without_label": st.booleans(),
    "slack": st.sampled_from([0.02, 0.1, 0.3]),
    "criterion": st.sampled_from(list(CRITERIA)),
}


@pytest.mark.slow
@example(  # race a in stratum y has the same rows as sex 0 there
    **{"seed": 40, "n": 40, "n_small": 0, "without_label": False, "slack": 0.02},
    **{"criterion": DemographicParity, "side_by_side": True, "in_strata": True},
    **{"retype": RETYPED[0], "lacking": (0.0, 0.0)},
)
@settings(max_examples=15, deadline=None)
@given(
    **ROWS,
    side_by_side=st.booleans(),
    in_strata=st.booleans(),
    retype=st.sampled_from(RETYPED),
    lacking=st.sampled_from([(0.0, 0.0), (0.1, 0.3), (0.0, 0.45)]),
)
def test_fits_certificates_and_reports_compare_the_same_cells(
    seed, n, n_small, without_label, slack, criterion, side_by_side, in_strata, retype, lacking
):
    """Intervals and reports of groups, too, by each column and crossed."""
    rng, X, y, people = drawn(seed, n, n_small, without_label, lacking)
    strata = rng.choice(["x", "y"], n, p=[0.8, 0.2]) if in_strata else None
    more = {"control_features": strata}
    notion = criterion(slack=slack, attributes="parallel" if side_by_side else "crossed")
    columns = [people.sex, people.race]
    crossed = [(people.sex.astype(str) + people.race).where(people.notna().all(axis=1))]
    with warnings.catch_warnings(action="ignore"):
        clf = RateConstrainedClassifier(notion, max_iter=1)
        clf.fit(X, y, sensitive_features=retype(people), **more)
        decision = rng.permutation(clf.predict(X)) if seed % 2 else clf.predict(X)
        rows = {"y_true": y, "y_pred": decision, "sensitive_features": retype(people), **more}
        certificate = certify(**rows, constraint=notion, slack=slack)
        facts = fairconstrained.report(**rows, constraint=notion, slack=slack, min_cell=1)
        metric, events = CRITERIA[criterion]
        measured = metric(**rows, attributes=notion.attributes)
        del rows["control_features"]
        ends = confidence_interval(metric, *map(rows.pop, LABELS), **rows, random_state=0)
        table = group_report(y, decision, **rows)
        alone = {name: metric(y, decision, sensitive_features=people[name]) for name in people}
        together = metric(y, decision, sensitive_features=people)
    assert np.isnan(ends).tolist() == [np.isnan(together)] * 2
    assert np.isnan(together) or 0 <= ends[0] <= ends[1] <= 1
    for name, gap_of_column in alone.items():
        groups = table[table.index.str.startswith(f"{name}: ")]
        assert groups["samples"].sum() == people[name].notna().sum()
        gaps = groups[RATES[criterion]].agg(lambda rates: rates.max(skipna=False) - rates.min())
        assert gaps.max(skipna=False) == pytest.approx(gap_of_column, abs=1e-9, nan_ok=True)
    stratum = np.zeros(n) if strata is None else strata
    gap = expected(events, y, decision, columns if side_by_side else crossed, stratum, slack)
    assert certificate.estimate == pytest.approx(gap, abs=1e-9, nan_ok=True)
    reported = [expected(events, y, decision, columns, stratum, slack), gap]
    estimates = [one["estimate"] for one in facts.to_dict()["certificates"]]
    assert np.nanmax([*estimates, -1]) == pytest.approx(np.nanmax([*reported, -1]), abs=1e-9)
    compared = (columns if side_by_side else crossed, stratum, slack)
    trained = expected(events, y, clf.predict(X), *compared, standing=True)
    assert clf.violation_ == pytest.approx(trained, abs=1e-9, nan_ok=True)
    assert clf.feasible_ == (trained <= slack + 1e-12)
    standing = expected(events, y, decision, *compared, standing=True)
    if not certificate.left_out:
        assert measured == pytest.approx(standing, abs=1e-9)
    cells = [c for c in facts.certificates if side_by_side or " & " in c["attribute"]]
    shown = [rate for one in cells for rate in one["rates"]]
    assert len(shown) == len(certificate.rates)
    assert sorted(rate["rows"] for rate in shown) == sorted(r["rows"] for r in certificate.rates)
    reasons = [sorted(n.split(" (")[-1] for n in u) for u in (clf.left_out_, certificate.left_out)]
    if retype is RETYPED[-1]:  # a certificate names combinations of categories that nobody has
        reasons = [[why for why in each if why != "0 rows)"] for each in reasons]
    assert reasons[0] == reasons[1]
    is_missing = criterion is DemographicParity and any(part.isna().any() for part in compared[0])
    assert (certificate.standing is not None) == is_missing
    if is_missing:
        assert certificate.standing == pytest.approx(standing, abs=1e-9, nan_ok=True)
    assert certificate.kept == (not np.isnan(gap) and max(certificate.upper, standing) <= slack)
    assert ("UNDECIDED" in str(certificate)) == (gap <= slack < standing)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    **ROWS,
    lacking=st.sampled_from([(0.0, 0.0), (0.0, 0.1), (0.1, 0.3)]),
    cuts=st.lists(st.integers(0, 160), max_size=4),
    retypes=st.lists(st.sampled_from([*RETYPED, lambda people: people]), min_size=6, max_size=6),
    columns=st.sampled_from([["sex", "race"], ["sex"], ["race"]]),
)
def test_monitors_of_any_batches_compare_what_the_certificate_of_all_rows_does(
    seed, n, n_small, without_label, slack, criterion, lacking, cuts, retypes, columns
):
    """Empty batches, batches of nobody known, and parts that are merged, too."""
    rng, _, y, people = drawn(seed, n, n_small, without_label, lacking)
    decision, notion = rng.integers(0, 2, n), criterion(slack=slack)
    whole, parts = FairnessMonitor(notion), []
    ends = [0, *sorted(min(cut, n) for cut in cuts), n]
    for place, (start, end) in enumerate(pairwise(ends)):
        batch = people[start:end].reset_index(drop=True)
        batch = batch if place == 0 else retypes[place](batch)
        batch = batch if len(columns) > 1 else {columns[0]: batch[columns[0]]}
        rows = {"sensitive_features": batch, "y_true": y[start:end]}
        whole.update(decision[start:end], **rows)
        parts.append(FairnessMonitor(notion).update(decision[start:end], **rows))
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    rows = {"y_true": y, "y_pred": decision, "sensitive_features": people[columns]}
    with warnings.catch_warnings(action="ignore"):
        certificate = certify(**rows, constraint=notion, slack=slack)
    group = people[columns].astype(str).sum(axis=1).where(people[columns].notna().all(axis=1))
    gap = expected(CRITERIA[criterion][1], y, decision, [group], np.zeros(n), slack)
    for monitor in (whole, merged):
        assert monitor.estimate_ == pytest.approx(gap, abs=1e-9, nan_ok=True)
        assert monitor.n_unknown_ == group.isna().sum()
        assert monitor.n_rows_ == n - monitor.n_unknown_
        assert len(monitor.left_out_) == len(certificate.left_out)
    assert certificate.estimate == pytest.approx(gap, abs=1e-9, nan_ok=True)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(**ROWS, lacking=st.sampled_from([(0.0, 0.0), (0.1, 0.3)]), n_batches=st.integers(1, 4))
def test_a_monitor_in_each_stratum_compares_what_the_certificate_there_does(
    seed, n, n_small, without_label, slack, criterion, lacking, n_batches
):
    """Where nobody is left out, the certificate within strata has the largest of their gaps."""
    rng, _, y, people = drawn(seed, n, n_small, without_label, lacking)
    decision, notion = rng.integers(0, 2, n), criterion(slack=slack)
    stratum, batch = rng.choice(["x", "y"], n, p=[0.8, 0.2]), rng.integers(n_batches, size=n)
    gaps, left_out = [], []
    with warnings.catch_warnings(action="ignore"):
        for name in np.unique(stratum):
            monitor = FairnessMonitor(notion)
            for part in range(n_batches):
                here = (stratum == name) & (batch == part)
                rows = {"sensitive_features": people[here], "y_true": y[here]}
                monitor.update(decision[here], **rows)
            rows = {"y_true": y, "y_pred": decision, "sensitive_features": people}
            inside = {key: column[stratum == name] for key, column in rows.items()}
            if people[stratum == name].notna().all(axis=1).any():
                certificate = certify(**inside, constraint=notion, slack=slack)
                assert monitor.estimate_ == pytest.approx(certificate.estimate, nan_ok=True)
                assert len(monitor.left_out_) == len(certificate.left_out)
            gaps.append(monitor.estimate_)
            left_out += monitor.left_out_
        whole = certify(**rows, control_features=stratum, constraint=notion, slack=slack)
    if not left_out and not whole.left_out:
        assert whole.estimate == pytest.approx(np.nanmax(gaps), abs=1e-9)

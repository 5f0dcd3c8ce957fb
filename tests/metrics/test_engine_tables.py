"""Metrics, reports, certificates and monitors of a table of Dask: those of its columns."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import fairconstrained
from fairconstrained import metrics
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.tables import features, frame

dd = pytest.importorskip("dask.dataframe", reason="dask is in no extra but clients and cluster")


@pytest.fixture(scope="module")
def rows():
    found = frame(400).assign(
        granted=lambda rows: np.where(rows.x0 + rows.x1 > 0, "yes", "no"),
        score=lambda rows: rows.x0 + rows.x1,
        age=lambda rows: np.where(rows.x2 > 0, "old", "young"),
    )
    return found.assign(age=found.age.where((found.x3 < 1) & (found.index >= 3)))


@pytest.fixture(scope="module")
def table(rows):
    pieces = [dd.from_pandas(rows[own], npartitions=1) for own in (slice(3), slice(3, None))]
    return dd.concat([pieces[0], pieces[1][pieces[1].x0 > 1e9], pieces[1]])


def test_a_report_of_groups(table, rows):
    names = {"y_true": "label", "y_pred": "granted", "sensitive_features": ["sex", "age"]}
    names |= {"y_score": "score", "sample_weight": "weight"}
    columns = {key: table[name] for key, name in names.items()}
    in_memory = {key: rows[name] for key, name in names.items()}
    by_name, as_columns, whole = (
        metrics.group_report(**given, pos_label="yes")
        for given in (names | {"X": table}, columns | {"X": table}, in_memory)
    )
    pd.testing.assert_frame_equal(by_name, whole)
    pd.testing.assert_frame_equal(as_columns, whole)


def test_a_monitor_takes_a_table_without_rows(table, rows):
    monitor = FairnessMonitor(pos_label="yes")
    monitor.update(rows.granted, sensitive_features=rows.sex)
    n_rows = monitor.n_rows_
    monitor.update("granted", sensitive_features="sex", X=table[table.x0 > 1e9])
    assert monitor.n_rows_ == n_rows


def test_an_interval(table, rows):
    metric = metrics.demographic_parity_difference
    asked = partial(metrics.confidence_interval, metric, random_state=0)
    found = asked("label", "granted", sensitive_features="sex", X=table)
    assert found == asked(rows.label, rows.granted, sensitive_features=rows.sex)


@pytest.mark.parametrize("constraint", ["equal_opportunity", "group_auc"])
def test_a_certificate_of_decisions_and_of_a_model(constraint, table, rows):
    """The model predicts in the partitions, from the columns that it was fitted to."""
    told = {"constraint": constraint, "slack": 0.5, "pos_label": "yes"}
    decisions = "y_pred" if constraint == "equal_opportunity" else "y_score"
    column = "granted" if decisions == "y_pred" else "score"
    given = {"y_true": rows.label, decisions: rows[column], "sensitive_features": rows.sex}
    named = {"y_true": "label", decisions: column, "sensitive_features": "sex"}
    assert metrics.certify(**named, **told, X=table).upper == metrics.certify(**given, **told).upper
    model = LogisticRegression(solver="liblinear").fit(features(rows), rows.label)
    whole = metrics.certify(model, features(rows), rows.label, sensitive_features=rows.sex, **told)
    assert metrics.certify(model, table, "label", sensitive_features="sex", **told) == whole


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
def test_categories_declare_groups_and_their_order_the_favourable_label(rows):
    """As in memory, where partitions have them all or their own, whether or not rows have them."""
    order = pd.CategoricalDtype(["yes", "no"], ordered=True)
    sex = rows.sex.astype("category").cat.add_categories("x")
    columns = rows.assign(label=rows.label.astype(order), sex=sex)[["label", "granted", "sex"]]
    told = {"constraint": "equal_opportunity", "slack": 0.5}
    given = {"y_true": columns.label, "y_pred": columns.granted, "sensitive_features": sex}
    whole = metrics.certify(**given, **told)
    assert "group x with label 'no' (0 rows)" in whole.left_out
    table = dd.from_pandas(columns, npartitions=3)
    named = {"y_true": "label", "y_pred": "granted", "sensitive_features": "sex", "X": table}
    assert metrics.certify(**named, **told) == whole


def test_an_audit_of_decisions_and_of_a_model(table, rows):
    model = LogisticRegression(solver="liblinear").fit(features(rows), rows.label)
    told = {"pos_label": "yes", "slack": 0.1}
    given = {"before": rows.granted, "sensitive_features": rows[["sex", "age"]], **told}
    whole = fairconstrained.report(rows.label, model, X=features(rows), **given).to_dict()
    given = {"before": "granted", "sensitive_features": ["sex", "age"], **told}
    found = fairconstrained.report("label", model, X=table, **given).to_dict()
    for facts in (found, whole):
        del facts["provenance"], facts["outcomes"]  # which name columns
    # Probabilities of a piece may differ in the last bit, and so their means.
    pd.testing.assert_frame_equal(*(pd.DataFrame(x.pop("calibration")) for x in (found, whole)))
    assert found == whole


def test_a_monitor_sees_the_rows_in_their_order(table, rows):
    model = LogisticRegression(solver="liblinear").fit(features(rows), rows.label)
    of_table, of_rows = (FairnessMonitor("equalized_odds", pos_label="yes") for _ in range(2))
    of_table.update("granted", sensitive_features="sex", y_true="label", X=table)
    of_rows.update(rows.granted, sensitive_features=rows.sex, y_true=rows.label)
    expected = of_rows(model, features(rows), rows.label, sensitive_features=rows.sex)
    assert of_table(model, table, "label", sensitive_features="sex") == expected
    assert of_table.history_ == of_rows.history_
    assert of_table.rates_ == of_rows.rates_


def test_a_function_of_x_predicts_too(table, rows):
    told = {"sensitive_features": "sex", "X": table[["x0", "sex"]], "threshold": 0.0}
    found = fairconstrained.report(y_pred=lambda X: X["x0"], **told)
    whole = fairconstrained.report(y_pred=rows.x0 > 0, sensitive_features=rows.sex)
    assert found.groups == whole.groups


def test_other_columns_are_refused(table, rows):
    for column in ("grant", rows.granted, table.head(9, compute=False).granted, 3):
        with pytest.raises(ValueError, match=r"y_pred must be the name of a column of X"):
            metrics.group_report("label", column, sensitive_features="sex", X=table)
    with pytest.raises(ValueError, match="0 sample"):
        metrics.group_report("label", "granted", sensitive_features="sex", X=table[table.x0 > 1e9])

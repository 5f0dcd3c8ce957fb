"""Whoever sees data more than once finds columns by name, and refuses other names and kinds."""

import datetime
import functools
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

import fairconstrained as fc
from fairconstrained.blocks import Blocks
from fairconstrained.constraints import DemographicParity
from fairconstrained.exceptions import InputWarning
from fairconstrained.inputs.groups import read_groups
from fairconstrained.metrics import Weights, certify, demographic_parity_ratio
from fairconstrained.model_selection import tradeoff_curve
from fairconstrained.models import SingleFit
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.tables import in_partitions

RNG = np.random.default_rng(0)
N = 400
WOMAN, OLD = RNG.integers(0, 2, (2, N))
PEOPLE = pd.DataFrame({"woman": WOMAN, "old": OLD})
X = np.column_stack((RNG.normal(size=(N, 2)), WOMAN))
Y = (X[:, 0] + 0.7 * WOMAN + RNG.normal(size=N) > 0.3).astype(int)
# The same rows in other tables and types.
ALIKE = {
    "reordered": lambda rows: rows[["old", "woman"]],
    "polars": lambda rows: pl.from_pandas(rows)[["old", "woman"]],
    "dict": lambda rows: {"old": rows["old"].tolist(), "woman": rows["woman"].to_numpy()},
    "booleans": lambda rows: rows.astype(bool),
    "floats": lambda rows: rows.astype(float)[["old", "woman"]],
    "Int64": lambda rows: rows.astype("Int64"),
    "objects": lambda rows: rows.astype(object),
    "arrow": lambda rows: pytest.importorskip("pyarrow").Table.from_pandas(rows[["old", "woman"]]),
}
DIFFERENT = {
    "missing: 'old'": lambda rows: rows[["woman"]],
    "further: 'region'": lambda rows: rows.assign(region=1),
    "missing: 'old'; further: 'age'": lambda rows: rows.rename(columns={"old": "age"}),
    "missing: 'woman', 'old'; further: 0, 1": lambda rows: rows.to_numpy(),
    "several columns of the name 'old'": lambda rows: pd.concat([rows, rows["old"]], axis=1),
    "another kind than before: '0' after 0": lambda rows: rows.astype(str),
}


def watch(first, later):
    monitor = FairnessMonitor().update(Y[:200], sensitive_features=first)
    monitor.update(Y[200:], sensitive_features=later)
    return monitor.rates_, monitor.interval_


def merged(first, later):
    monitor = FairnessMonitor().update(Y[:200], sensitive_features=first)
    other = FairnessMonitor().update(Y[200:], sensitive_features=later)
    return monitor.merge(other).rates_, monitor.interval_


def stream(first, later):
    clf = fc.AUCFairClassifier(slack=0.3)
    clf.partial_fit(X[:200], Y[:200], classes=[0, 1], sensitive_features=first)
    clf.partial_fit(X[200:], Y[200:], sensitive_features=later)
    return clf.groups_.tolist(), clf.coef_.tolist()


@functools.cache
def by_group():
    with warnings.catch_warnings(action="ignore"):
        clf = fc.PartialParityClassifier(slack=0.5, group_features=True, max_iter=2)
        return clf.fit(X[:200], Y[:200], sensitive_features=PEOPLE[:200])


def predicted(_, later):
    return by_group().predict(X[200:], sensitive_features=later).tolist()


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@pytest.mark.parametrize("seen", [watch, merged, stream, predicted])
def test_columns_are_found_by_name_in_later_batches_and_in_predictions_by_group(seen):
    first, later = PEOPLE[:200], PEOPLE[200:].reset_index(drop=True)
    expected = seen(first, later)
    for alike in ALIKE.values():
        assert seen(first, alike(later)) == expected
    for message, different in DIFFERENT.items():
        with pytest.raises(ValueError, match=message):
            seen(first, different(later))


def test_a_warm_start_finds_columns_by_name_and_refuses_others():
    clf = fc.RateConstrainedClassifier(slack=0.1, warm_start=True)
    clf.fit(X, Y, sensitive_features=PEOPLE)
    groups = clf.groups_.tolist()
    assert clf.fit(X, Y, sensitive_features=ALIKE["reordered"](PEOPLE)).groups_.tolist() == groups
    with pytest.raises(ValueError, match="missing: 'old'"):
        clf.fit(X, Y, sensitive_features=PEOPLE["woman"])
    assert clf.groups_.tolist() == groups
    blocks = Blocks(lambda: iter([X[:200], X[200:]]))
    clf = fc.RateConstrainedClassifier(slack=0.1, warm_start=True)
    clf.fit(blocks, Y, sensitive_features=PEOPLE)
    with pytest.raises(ValueError, match="values of another kind than before: '0' after 0"):
        clf.fit(blocks, Y, sensitive_features=PEOPLE.astype({"old": str}))


def test_a_warm_start_with_lazy_tables_refuses_values_of_another_kind():
    table = PEOPLE.assign(y=Y, **{f"x{i}": X[:, i] for i in range(3)})
    columns = {"sensitive_features": ["woman", "old"]}
    clf = fc.RateConstrainedClassifier(slack=0.1).fit(in_partitions(table), "y", **columns)
    clf.set_params(warm_start=True)
    with pytest.raises(ValueError, match="values of another kind than before: '0' after 0"):
        clf.fit(in_partitions(table.astype({"old": str})), "y", **columns)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@pytest.mark.parametrize(("first", "later"), ["Ff", ("01234", "1234"), ("Jos\u00e9", "Jose\u0301")])
@pytest.mark.parametrize("seen", [watch, merged, stream])
def test_another_spelling_of_an_earlier_group_is_said(seen, first, later):
    """Nor is it silently another group for the certificate of a model."""
    people = PEOPLE.assign(woman=np.where(WOMAN, first, "m"))
    again = PEOPLE.assign(woman=np.where(WOMAN, later, "m"))
    a, b = sorted((first, later))
    note = f"{a!r}, {b!r} in sensitive_features, before and now, are"
    with pytest.warns(InputWarning, match=note):
        seen(people[:200], again[200:].reset_index(drop=True))
    with warnings.catch_warnings(action="error", category=InputWarning):
        seen(people[:200], people[200:].reset_index(drop=True))
    clf = fc.RateConstrainedClassifier(slack=0.9).fit(X, Y, sensitive_features=people["woman"])
    claim = {"constraint": "demographic_parity", "slack": 0.9}
    with pytest.warns(InputWarning, match=note):
        certify(clf, X, Y, sensitive_features=again["woman"], **claim)
    for both in (again, pd.concat([people[:200], again[200:]])):
        clf.set_params(warm_start=False).fit(X, Y, sensitive_features=people["woman"])
        with pytest.warns(InputWarning) as notes:
            clf.set_params(warm_start=True).fit(X, Y, sensitive_features=both["woman"])
        assert len([note for note in notes if "different groups" in str(note.message)]) == 1


def test_one_column_without_a_name_is_any_column():
    monitor = FairnessMonitor().update(Y, sensitive_features=WOMAN)
    monitor.update(Y, sensitive_features=PEOPLE["woman"]).update(Y, sensitive_features=WOMAN)
    with pytest.raises(ValueError, match="missing: 'woman'; further: 'old'"):
        monitor.update(Y, sensitive_features=PEOPLE["old"])
    with pytest.raises(ValueError, match="further: 'old'"):
        monitor.update(Y, sensitive_features=PEOPLE)


def test_decisions_of_another_kind_are_refused_and_change_nothing():
    monitor = FairnessMonitor(pos_label="1").update(Y.astype(str), sensitive_features=WOMAN)
    before = monitor.rates_
    with pytest.raises(ValueError, match=r"y_pred holds values of another kind than before: . af"):
        monitor.update(Y, sensitive_features=WOMAN)
    assert monitor.rates_ == before
    clf = fc.AUCFairClassifier(slack=0.5).partial_fit(X, Y, sensitive_features=WOMAN)
    with pytest.raises(ValueError, match="y holds values of another kind than before"):
        clf.partial_fit(X, Y.astype(str), sensitive_features=WOMAN)


@pytest.mark.parametrize("nobody", [[], {"old": []}, PEOPLE[:0], PEOPLE[["old", "woman"]][:0]])
def test_a_batch_without_rows_says_nothing_about_the_columns_of_others(nobody):
    """Wherever it comes, and also in a monitor that is merged."""
    alone = FairnessMonitor().update(Y, sensitive_features=PEOPLE)
    before = FairnessMonitor().update([], sensitive_features=nobody)
    merged = FairnessMonitor().merge(alone).merge(before)
    before.update(Y, sensitive_features=PEOPLE).update([], sensitive_features=nobody)
    assert before.rates_ == alone.rates_ == merged.rates_
    assert before.n_rows_ == merged.n_rows_ == N


@pytest.mark.parametrize("unknown", [[None] * 3, [np.nan] * 3, pd.Series([pd.NA] * 3)])
def test_a_batch_of_nobody_counts_once(unknown):
    monitor = FairnessMonitor().update([], sensitive_features=[])
    monitor.update([1, 0, 1], sensitive_features=unknown)
    assert (monitor.n_rows_, monitor.n_unknown_) == (0, 3)
    monitor.update([1], sensitive_features=["a"])
    assert monitor.merge(FairnessMonitor()).n_rows_ == 1
    clf = fc.AUCFairClassifier(slack=0.5)
    with warnings.catch_warnings(action="ignore"):
        clf.partial_fit(X[:3], [0, 1, 0], sensitive_features=unknown)
        clf.partial_fit(X, Y, sensitive_features=WOMAN)
    assert clf.groups_.tolist() == [0, 1]
    after = clf.coef_
    assert clf.partial_fit(X[:0], Y[:0], sensitive_features=WOMAN[:0]).coef_ is after
    rows = {"y_true": [1, 0, 1], "sensitive_features": unknown, "slack": 0.1}
    for claim in (
        {"y_pred": [1, 0, 1], "constraint": "demographic_parity"},
        {"y_score": [0.1, 0.2, 0.3], "constraint": "group_auc"},
    ):
        with pytest.raises(ValueError, match="sensitive_features is missing in every row"):
            certify(**claim, **rows)
    with pytest.raises(ValueError, match="y_pred has no decisions"):
        fc.report(None, [], sensitive_features=[])


@pytest.mark.parametrize("write", [str, lambda label: f"{label}.0"])
def test_decisions_that_are_numbers_in_texts_have_a_favourable_one(write):
    """Everywhere alike; a batch of zeros alone, too."""
    decisions = np.array(list(map(write, Y.tolist())))
    expected = FairnessMonitor().update(Y, sensitive_features=WOMAN)
    zeros = Y == 0
    watched = FairnessMonitor().update(decisions[zeros], sensitive_features=WOMAN[zeros])
    watched.update(decisions[~zeros, None], sensitive_features=WOMAN[~zeros])
    assert watched.estimate_ == pytest.approx(expected.estimate_)
    ratio = demographic_parity_ratio(decisions, decisions, sensitive_features=WOMAN)
    assert ratio == demographic_parity_ratio(Y, Y, sensitive_features=WOMAN)


def test_numbers_and_booleans_of_equal_value_are_one_group():
    groups, seen = read_groups(np.array([1, 0]))
    for values in ([True, False], [1.0, 0.0], pd.Series([1, 0], dtype="Int64"), [1, False]):
        found, seen = read_groups(values, before=seen)
        assert found.codes.tolist() == groups.codes.tolist()
    assert len(seen.groups) == 2


def test_weights_of_a_population_are_in_the_order_of_the_rows():
    sex = pd.Series(WOMAN)
    weights = Weights(pd.Series(np.ones(N)).sample(frac=1.0, random_state=0), most=1.0)
    given = {"constraint": "demographic_parity", "slack": 0.5, "sensitive_features": sex}
    with pytest.raises(ValueError, match=r"Weights.values has the samples of .* in another order"):
        certify(y_pred=Y, population=weights, **given)


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (["north", "south"] * (N // 2), "text in the column 'c'.*OneHotEncoder"),
        (pd.date_range("2020", periods=N), "dates in the column 'c'.*as numbers"),
        (pd.to_timedelta(np.arange(N), "D"), "lengths of time in the column .*as numbers"),
        (pd.period_range("2020", periods=N, freq="D"), "periods in the column 'c'.*as numbers"),
        ([datetime.time(hour % 24) for hour in range(N)], "times of day in the column 'c'"),
        (["north", None] * (N // 2), "text in the column 'c'.*OneHotEncoder"),
        (pd.Series(["north", 2.5] * (N // 2), dtype=object), "text in the column 'c'"),
    ],
)
def test_columns_of_x_that_are_no_numbers_are_named(column, named):
    frame = pd.DataFrame({"a": X[:, 0], "c": column})
    pandas_only = isinstance(frame.c.dtype, pd.PeriodDtype) or 2.5 in frame.c.to_list()
    for table in (frame, frame if pandas_only else pl.from_pandas(frame)):
        with pytest.raises(ValueError, match=named):
            fc.RateConstrainedClassifier().fit(table, Y, sensitive_features=WOMAN)
    for model in (LogisticRegression(), SingleFit(LogisticRegression())):
        with pytest.raises(ValueError, match=named):
            fc.RateConstrainedClassifier(model=model).fit(frame, Y, sensitive_features=WOMAN)
    clf = fc.RateConstrainedClassifier(slack=0.5)
    clf.fit(frame.assign(c=X[:, 1]), Y, sensitive_features=WOMAN)
    with pytest.raises(ValueError, match=named):
        clf.predict(frame)
    with pytest.raises(ValueError, match="in the column 1"):
        clf.fit(frame.to_numpy(), Y, sensitive_features=WOMAN)


def test_a_dict_of_columns_is_not_split_and_the_error_says_what_is():
    clf, people = fc.RateConstrainedClassifier(slack=0.5), {"old": OLD, "woman": WOMAN}
    refused = pytest.raises(ValueError, match="not split a dict or a LazyFrame: give a DataFrame")
    with config_context(enable_metadata_routing=True), refused:
        cross_validate(clf, X, Y, params={"sensitive_features": people}, error_score="raise")


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_model_whose_gap_compares_nobody_is_of_no_use_in_a_curve():
    curve = tradeoff_curve(
        *(LogisticRegression(), X, Y),
        **{"sensitive_features": np.full(N, "everybody"), "cv": 2},
        **{"param_name": "C", "param_range": [0.1, 1.0]},
    )
    assert curve["mean_test_dp"].isna().all()
    assert not curve["useful"].any()


def test_one_group_of_all_is_an_array_as_groups_are():
    for groups in (None, [None] * N):
        clf = fc.RateConstrainedClassifier().fit(X, Y, sensitive_features=groups)
        assert isinstance(clf.groups_, np.ndarray)
        assert clf.groups_.tolist() == ["all"]


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.SmallGroupWarning")
@pytest.mark.parametrize("attributes", ["crossed", "parallel"])
def test_a_certificate_finds_the_columns_of_the_model_by_name(attributes):
    """A group that the model knows and the sample lacks is named, whatever the order."""
    people = PEOPLE.assign(old=np.where(np.arange(N) < 40, 2, OLD))
    clf = fc.RateConstrainedClassifier(slack=0.9).fit(X, Y, sensitive_features=people)
    claim = {"constraint": DemographicParity(slack=0.9, attributes=attributes)}
    later = people[40:].reset_index(drop=True)
    expected = certify(clf, X[40:], Y[40:], sensitive_features=later, **claim)
    assert any("2 (0 rows)" in group for group in expected.left_out)
    for alike in ALIKE.values():
        if alike in (ALIKE["booleans"], ALIKE["floats"]):
            continue  # of which 2 is none, or 2.0
        found = certify(clf, X[40:], Y[40:], sensitive_features=alike(later), **claim)
        assert found.left_out == expected.left_out
        assert (found.estimate, found.upper) == (expected.estimate, expected.upper)
    with pytest.raises(ValueError, match="sensitive_features 'woman' holds values of another kind"):
        certify(clf, X[40:], Y[40:], sensitive_features=later.astype(str), **claim)
    other = np.where(later.old == 1, "old", "young")  # no attribute of the model's
    assert certify(clf, X[40:], Y[40:], sensitive_features=other, **claim).left_out == []

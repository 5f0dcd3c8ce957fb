"""Values of one kind are the same everywhere; those of several kinds are named or refused."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import fairconstrained
from fairconstrained import AUCFairClassifier, LossParityClassifier, RateConstrainedClassifier
from fairconstrained.constraints import DemographicParity
from fairconstrained.exceptions import InputWarning, SmallGroupWarning
from fairconstrained.inputs.groups import encode_groups
from fairconstrained.metrics import (
    certify,
    demographic_parity_difference,
    equal_opportunity_difference,
    group_report,
    partial_equal_opportunity,
)
from fairconstrained.model_selection import CertifiedClassifier, tradeoff_curve
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.fits import table
from tests.helpers.tables import in_partitions

X, Y, GROUP = table()
DECISION = np.random.default_rng(0).permutation(Y)
NAMES = ["refused", "granted"]
WORDS, DECIDED = np.array(NAMES)[Y], np.array(NAMES)[DECISION]
UP = pd.CategoricalDtype(NAMES, ordered=True)
DOWN = pd.CategoricalDtype(NAMES[::-1], ordered=True)
DAYS = [datetime.date(2020 + int(g), 1, 1) for g in GROUP]


def opportunities(y_true, y_pred):
    rows = {"y_true": y_true, "y_pred": y_pred, "sensitive_features": GROUP}
    claim = {"constraint": "equal_opportunity", "slack": 0.5}
    monitor = FairnessMonitor("equal_opportunity")
    return [
        lambda: equal_opportunity_difference(**rows),
        lambda: certify(**rows, **claim).estimate,
        lambda: fairconstrained.report(**rows, **claim).to_dict()["certificates"][0]["estimate"],
        lambda: monitor.update(**rows).estimate_,
    ]


def arrow(values, **options):
    return pytest.importorskip("pyarrow").array(values, **options)


@pytest.mark.parametrize(
    "columns",
    [
        (lambda: pd.Series(WORDS, dtype=UP), lambda: DECIDED),
        (lambda: WORDS, lambda: pd.Series(DECIDED, dtype=UP)),
        (lambda: pl.Series(WORDS, dtype=pl.Enum(NAMES)), lambda: DECIDED.tolist()),
        (lambda: pd.Series(WORDS, dtype=UP), lambda: pl.Series(DECIDED, dtype=pl.Enum(NAMES))),
        (lambda: arrow(pd.Categorical(WORDS, dtype=UP)), lambda: arrow(DECIDED.tolist())),
    ],
)
def test_the_order_of_one_column_is_that_of_the_other(columns):
    expected = equal_opportunity_difference(Y, DECISION, sensitive_features=GROUP)
    for gap in opportunities(*(column() for column in columns)):
        assert gap() == pytest.approx(expected, abs=1e-12)


def test_orders_that_disagree_are_refused():
    for gap in opportunities(pd.Series(WORDS, dtype=UP), pd.Series(DECIDED, dtype=DOWN)):
        with pytest.raises(ValueError, match=r"pos_label must say .* orders of .* disagree"):
            gap()


def test_an_order_in_a_later_batch_must_be_the_same():
    monitor = FairnessMonitor().update(pd.Series(DECIDED, dtype=UP), sensitive_features=GROUP)
    monitor.update(DECIDED, sensitive_features=GROUP)
    with pytest.raises(ValueError, match="favourable label must be the same as before, 'granted'"):
        monitor.update(pd.Series(DECIDED, dtype=DOWN), sensitive_features=GROUP)
    other = FairnessMonitor().update(pd.Series(DECIDED, dtype=DOWN), sensitive_features=GROUP)
    with pytest.raises(ValueError, match="favourable label must be the same as before, 'granted'"):
        monitor.merge(other)


@pytest.mark.parametrize("values", [[1, "1"], [True, "True"], ["a", 2.0]])
@pytest.mark.parametrize("container", [list, lambda values: pd.Series(values, dtype=object)])
def test_labels_of_two_types_are_refused_alike(values, container):
    labels = container(values * 200)
    claim = {"constraint": "demographic_parity", "slack": 0.5}
    for reads in (
        lambda: RateConstrainedClassifier().fit(X, labels, sensitive_features=GROUP),
        lambda: demographic_parity_difference(labels, labels, sensitive_features=GROUP),
        lambda: certify(y_pred=labels, sensitive_features=GROUP, **claim),
        lambda: FairnessMonitor().update(labels, sensitive_features=GROUP),
    ):
        with pytest.raises(ValueError, match=r"of one type, .*; got numbers and text"):
            reads()


@pytest.mark.parametrize(
    "values",
    [(b"no", b"yes"), ({}, {"a": 1}), (0j, 1j), (pd.Period("2020"), pd.Period("2021"))],
)
def test_labels_of_other_types_are_refused_in_a_sentence(values):
    labels, groups = [values[y] for y in Y], {"sensitive_features": GROUP}
    readers = [
        lambda: RateConstrainedClassifier().fit(X, labels, **groups),
        lambda: AUCFairClassifier().partial_fit(X, labels, **groups),
        *opportunities(labels, labels),
    ]
    refused = r"must hold (labels: numbers|values that can)|Complex data not supported"
    for reader in readers:
        with pytest.raises(ValueError, match=refused):
            reader()


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(Y, dtype="Int64"),
        pd.Series(Y, dtype="boolean"),
        pd.Series(Y, dtype="Float64"),
        pd.Series([*(Y == 1), None]).dropna(),
        pd.Series(Y, dtype=object),
        pd.Series(Y == 1, dtype=object),
        [Decimal(int(y)) for y in Y],
        pd.Series(Y, dtype="category"),
        pl.Series(Y).cast(pl.Int8),
        pl.Series(Y == 1),
        pl.DataFrame({"y": Y}),
        Y.tolist(),
        Y[:, None].astype(np.int8),
        (Y == 1).tolist(),
        lambda: arrow(Y),
        lambda: pytest.importorskip("pyarrow").chunked_array([Y[:9].tolist(), Y[9:].tolist()]),
        lambda: in_partitions(pd.Series(Y), 3),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_of_any_table_are_their_plain_kind(labels):
    labels = labels() if callable(labels) else labels
    clf = RateConstrainedClassifier(slack=0.2)
    whole = clone(clf).fit(X, Y, sensitive_features=GROUP)
    np.testing.assert_array_equal(clf.fit(X, labels, sensitive_features=GROUP).coef_, whole.coef_)
    assert clf.classes_.dtype.kind in "bif"
    assert clf.classes_.tolist() == [0, 1]
    assert clf.score(X, labels) == whole.score(X, Y)
    metric, *others = opportunities(labels, DECISION)
    assert metric() == equal_opportunity_difference(Y, DECISION, sensitive_features=GROUP)
    assert all(gap() == pytest.approx(metric(), abs=1e-12) for gap in others)
    ranked = {"y_score": X[:, 0], "sensitive_features": GROUP, "interval": (0.0, 0.5)}
    assert partial_equal_opportunity(labels, **ranked) == partial_equal_opportunity(Y, **ranked)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy has it from 2 on")
def test_texts_of_numpy_2_are_words():
    y, decision = (np.array(["no", "yes"])[codes].astype("T") for codes in (Y, DECISION))
    clf = RateConstrainedClassifier(slack=0.2).fit(X, y, sensitive_features=GROUP)
    assert clf.classes_.tolist() == ["no", "yes"]
    rows = {"sensitive_features": GROUP, "pos_label": "yes"}
    gap = equal_opportunity_difference(Y, DECISION, sensitive_features=GROUP)
    assert equal_opportunity_difference(y, decision, **rows) == gap


@pytest.mark.parametrize(
    "days",
    [
        DAYS,
        np.array(DAYS),
        np.array(DAYS, dtype="M8[D]"),
        np.array(DAYS, dtype="M8[ns]"),
        pd.Series(pd.to_datetime(pd.Series(DAYS))),
        pl.Series(DAYS),
        [datetime.datetime.combine(day, datetime.time()) for day in DAYS],
        lambda: arrow(DAYS),
    ],
)
def test_days_are_the_same_groups_in_every_library(days):
    days = days() if callable(days) else days
    monitor = FairnessMonitor().update(DECISION, sensitive_features=DAYS)
    monitor.update(DECISION, sensitive_features=days)
    assert [rate["rows"] for rate in monitor.rates_] == (2 * np.bincount(GROUP)).tolist()
    with pytest.raises(ValueError, match="holds values of another kind than before"):
        monitor.update(DECISION, sensitive_features=list(map(str, DAYS)))


@pytest.mark.parametrize("kind", [np.array, pd.Series, lambda t: list(map(pd.Timestamp, t))])
def test_times_in_one_microsecond_are_one_group_and_a_warning_says_so(kind):
    times = np.array([1, 2, 3000], dtype="M8[ns]")
    with pytest.warns(InputWarning, match="sensitive_features has times with nanoseconds"):
        assert encode_groups(kind(times)).codes.tolist() == [0, 0, 1]


def test_of_declared_times_the_warning_does_not_tell_which_occur():
    times = pd.Categorical.from_codes([1], pd.DatetimeIndex(np.array([1, 3000], dtype="M8[ns]")))
    with pytest.warns(InputWarning, match="sensitive_features has times with nanoseconds"):
        encode_groups(times)


@pytest.mark.parametrize("name", ["X", "y"])
def test_a_table_that_is_lazy_is_refused_and_groups_are_collected(name):
    inputs = {"X": X, "y": Y, "sensitive_features": pl.LazyFrame({"group": GROUP})}
    clf = RateConstrainedClassifier(slack=0.5).fit(**inputs)
    assert clf.groups_.tolist() == [0, 1]
    with pytest.raises(ValueError, match=rf"^{name} must be in memory: give {name}.collect\(\)"):
        clf.fit(**{**inputs, name: pl.LazyFrame(inputs[name])})


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["True", "1"], "'1', 'True' in sensitive_features are different groups"),
        (["Jos\u00e9", "Jose\u0301"], "are different groups"),
        (["m", "m\u00a0"], "are different groups"),
        (["01234", "1234"], "'01234', '1234' in sensitive_features are different"),
        (pl.Series("sex", ["F", "f"]), "'F', 'f' in sensitive_features 'sex' are different"),
        ({"sex": ["F", " F"]}, "' F', 'F' in sensitive_features 'sex' are different groups"),
        (["m", "?"], r"has the text '\?', which counts as a group of its own"),
        (["m", "NA"], "has the text 'NA'"),
        (np.array(["m", np.nan], dtype="U"), "has the text 'nan'"),
    ],
)
def test_values_that_look_alike_or_stand_for_missing_ones_are_named(values, note):
    with pytest.warns(InputWarning, match=note):
        assert len(encode_groups(values).labels) == 2


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (np.where(Y == 1, "paid", "nan"), "y has the text 'nan', which counts as a label of its"),
        (np.where(Y == 1, "Paid", "paid"), "'Paid', 'paid' in y are different labels"),
    ],
)
def test_labels_that_nobody_may_have_meant_are_said_by_fits_too(labels, note):
    with pytest.warns(InputWarning, match=note):
        RateConstrainedClassifier(slack=0.5).fit(X, labels, sensitive_features=GROUP)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_groups_that_nobody_may_have_meant_are_said_by_fits_of_rows_that_count(weight):
    groups, weights = np.append(GROUP[1:], "nan"), np.append(np.ones(len(Y) - 1), weight)
    columns = {"sex": groups, "age": np.append(GROUP[:-1], "?")}
    with warnings.catch_warnings(record=True, action="always") as caught:
        clf = RateConstrainedClassifier(slack=0.5)
        clf.fit(X, Y, sensitive_features=columns, sample_weight=weights)
    names = [str(w.message).partition(" has the text")[0] for w in caught if "text" in str(w)]
    assert names == ["sensitive_features 'sex'", "sensitive_features 'age'"] * int(weight)


def test_columns_with_the_same_values_are_named_by_fits_side_by_side():
    rare = np.where(np.arange(len(Y)) < 3, "yes", np.where(Y == DECISION, "no", "not said"))
    people = pd.DataFrame({"disabled": rare, "married": np.where(GROUP == 1, "yes", "no")})
    clf = RateConstrainedClassifier(DemographicParity(slack=0.2, attributes="parallel"))
    with pytest.warns(SmallGroupWarning, match="leaves out group disabled=yes "):
        clf.fit(X, Y, sensitive_features=people)
    named = {name for words in clf.constraints_ for name in words.split("group ")[1:]}
    first = {name.split()[0] for name in named}
    assert first == {"disabled=no", "not", "married=yes", "married=no"}


def test_numbers_that_floats_cannot_tell_apart_are_not_alike():
    with warnings.catch_warnings(action="error"):
        assert len(encode_groups([2**53, 2**53 + 1]).labels) == 2


def test_texts_and_bytes_are_two_groups():
    assert encode_groups(["a", b"a"]).codes.tolist() in ([0, 1], [1, 0])


@pytest.mark.parametrize(
    "people",
    [
        lambda sex, old: {"sex": arrow(sex), "old": pl.Series(old)},
        lambda sex, old: np.rec.fromarrays([sex, old], names="sex,old"),
        lambda sex, old: {"old": old, "sex": in_partitions(pd.Series(sex))},
    ],
)
def test_columns_of_other_tables_are_found_by_name(people):
    sex, old = np.where(GROUP == 1, "f", "m"), np.arange(len(Y)) % 2
    monitor = FairnessMonitor()
    monitor.update(DECISION, sensitive_features=pd.DataFrame({"sex": sex, "old": old}))
    monitor.update(DECISION, sensitive_features=people(sex, old))
    assert set(monitor.groups_) == {("f", 0), ("f", 1), ("m", 0), ("m", 1)}
    rows = {"y_pred": DECISION, "sensitive_features": people(sex, old)}
    certificate = certify(**rows, constraint="demographic_parity", slack=0.9)
    assert certificate.estimate == pytest.approx(monitor.estimate_)


def partitions(first, second):
    half = len(Y) // 2
    group = pd.Series([*first, *second] * (half // 2), dtype=object)
    rows = pd.DataFrame(X).rename(columns=str).assign(label=Y)
    rows["sex"] = group.to_numpy().reshape(-1, 2, len(first)).swapaxes(0, 1).reshape(-1)
    dask = pytest.importorskip("dask", reason="dask is in no extra but clients")
    with dask.config.set({"dataframe.convert-string": False}):
        return in_partitions(rows)


@pytest.mark.filterwarnings("ignore::fairconstrained.exceptions.ConstraintNotSatisfiedWarning")
def test_partitions_are_one_column():
    """What each partition holds by itself says nothing wrong; what they hold together is said."""
    clf = LossParityClassifier(slack=0.5)
    with pytest.warns(InputWarning, match="'F', 'f' in sensitive_features 'sex' are different"):
        clf.fit(partitions(["F", "m"], ["f", "m"]), "label", sensitive_features="sex")
    assert clf.groups_.tolist() == ["F", "f", "m"]
    with pytest.raises(ValueError, match="different kinds in parts of the rows: numbers, text"):
        clf.fit(partitions([1, 2], ["1", "2"]), "label", sensitive_features="sex")
    assert clf.groups_.tolist() == ["F", "f", "m"]


@pytest.mark.parametrize("kind", [int, float, object, np.float32, "Int64", "missing"])
def test_whole_numbers_have_one_name(kind):
    """A missing value makes floats of a column of integers, and nothing of their groups."""
    whole = np.repeat([0, 1, 2], len(Y) // 3)[: len(Y) // 3 * 3]
    groups = pd.Series(whole).astype("Int64" if kind == "missing" else kind)
    if kind == "missing":
        groups = groups.mask(groups.index < 3).astype(float)
    n = len(whole)
    rows = {"y_true": Y[:n], "y_pred": DECISION[:n], "sensitive_features": groups}
    with warnings.catch_warnings(action="ignore"):
        certificate = certify(**rows, constraint="demographic_parity", slack=0.5)
        audit = [row["group"] for row in fairconstrained.report(**rows).to_dict()["groups"]]
        table = group_report(rows["y_true"], rows["y_pred"], sensitive_features=groups)
        monitor = FairnessMonitor().update(rows["y_pred"], sensitive_features=groups)
    names = ["0", "1", "2"]
    assert [name for name in audit if name in names] == names
    assert list(certificate.groups) == table.index[:3].tolist() == names
    assert [row["group"] for row in monitor.rates_] == names


@pytest.mark.parametrize("kind", ["categories", pl.Series, "Int64"])
def test_large_integers_stay_apart_beside_missing_ones(kind):
    """Floats, which a missing value would make of them, cannot tell them apart."""
    values = [2**60, 2**60 + 1, None]
    column = kind(values) if kind is pl.Series else pd.Series(values, dtype="Int64")
    column = pd.Categorical(column) if kind == "categories" else column
    assert encode_groups(column).labels.tolist() == values[:2]
    assert encode_groups(column).codes.tolist() == [0, 1, -1]


def test_an_array_of_pandas_with_missing_values_is_no_masked_one():
    groups = pd.array([0, 1, None], dtype="Int64")
    monitor = FairnessMonitor().update([0, 1, 1], sensitive_features=groups)
    assert (monitor.n_rows_, monitor.n_unknown_) == (2, 1)


def test_declared_days_are_the_days_of_the_rows():
    days = pd.Categorical(DAYS, [*sorted(set(DAYS)), datetime.date(2030, 1, 1)])
    rows = {"y_pred": DECISION, "sensitive_features": days}
    with pytest.warns(SmallGroupWarning, match="leaves out group 2030-01-01 "):
        certificate = certify(**rows, constraint="demographic_parity", slack=0.9)
    assert certificate.left_out == ["group 2030-01-01 (0 rows)"]
    clf = RateConstrainedClassifier(epsilon=10.0, max_iter=1, random_state=0)
    with warnings.catch_warnings(action="ignore"):
        assert len(clf.fit(X, Y, sensitive_features=days).groups_) == 3
    rows = {"y_true": days, "y_pred": days, "sensitive_features": np.arange(len(Y)) % 2}
    with warnings.catch_warnings(action="ignore"):  # of the label without rows
        assert certify(**rows, constraint="demographic_parity", slack=0.9).estimate < 0.2


TEXTS = np.where(GROUP == 1, "f", "m")


@pytest.mark.parametrize(
    "columns",
    [
        lambda: (Y, pd.Series(TEXTS, dtype="string").array),
        lambda: (Y, pd.Index(TEXTS)),
        lambda: (Y, pl.LazyFrame({"sex": TEXTS})),
        lambda: (in_partitions(pd.Series(Y)), in_partitions(pd.Series(TEXTS))),
    ],
)
def test_columns_that_scikit_learn_cannot_split_are_split(columns):
    y, groups = columns()
    clf = RateConstrainedClassifier(slack=0.5, max_iter=2)
    clf = CertifiedClassifier(clf, candidates={"slack": [0.5]}, random_state=0)
    whole = str(clone(clf).fit(X, Y, sensitive_features=TEXTS).certificate_)
    assert str(clf.fit(X, y, sensitive_features=groups).certificate_) == whole
    vary = {"param_name": "slack", "param_range": [0.5], "cv": 2}
    curves = [
        tradeoff_curve(clf.estimator, X, a, sensitive_features=b, **vary)["mean_test_dp"]
        for a, b in ((y, groups), (Y, TEXTS))
    ]
    assert curves[0].tolist() == curves[1].tolist()


def test_an_index_of_two_levels_and_one_of_one_level_are_matched_by_position():
    levels = pd.MultiIndex.from_arrays([np.arange(len(Y)) // 10, np.arange(len(Y)) % 10])
    expected = demographic_parity_difference(Y, DECISION, sensitive_features=GROUP)
    decided, groups = pd.Series(DECISION, index=levels), pd.Series(GROUP)
    assert demographic_parity_difference(Y, decided, sensitive_features=groups) == expected
    flat = pd.Series(GROUP, index=levels.to_flat_index())
    with pytest.raises(ValueError, match="has the samples of y_pred in another order"):
        demographic_parity_difference(Y, decided, sensitive_features=flat[::-1])


@pytest.mark.parametrize(
    "columns",
    [
        DAYS,
        np.array(DAYS, dtype="M8[D]"),
        pd.Series(pd.to_datetime(DAYS)),
        pd.Series(pd.to_datetime(DAYS)).astype("category").cat.as_ordered(),
        pd.Series(map(str, DAYS)),
    ],
    ids=["list", "array", "Series", "ordered", "texts"],
)
def test_days_are_named_without_a_time(columns):
    days = ["2020-01-01", "2021-01-01"]
    found = fairconstrained.report(y_pred=DECISION, sensitive_features=columns, reference=days[0])
    assert [fact["group"] for fact in found.groups[1:]] == days
    assert found.ratios[0]["reference"] == days[0]
    labels = {"y_pred": columns, "sensitive_features": GROUP}
    found = fairconstrained.report(**labels, pos_label=days[1])
    assert found.outcomes["decision"]["favourable"].endswith(days[1])
    report = group_report(DECISION, DECISION, sensitive_features=columns)
    assert list(report.index) == [*days, "overall"]


def test_ordered_categories_may_be_whole_floats():
    ordered = pd.Series(pd.Categorical(GROUP + 1.0, ordered=True))
    found = fairconstrained.report(y_pred=DECISION, sensitive_features=ordered, reference=2.0)
    assert [fact["group"] for fact in found.groups[1:]] == ["1", "2"]
    assert found.ratios[0]["reference"] == "2"

"""Every accepted container of sensitive features gives the same groups."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fairconstrained
from fairconstrained import metrics
from fairconstrained.exceptions import InputWarning
from fairconstrained.inputs.groups import encode_groups, group_name
from fairconstrained.monitoring import FairnessMonitor
from tests.helpers.tables import in_partitions

SEX = ["f", "m", "f", "m", "f"]
AGE = [1, 2, 1, 1, 2]


def arrow():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        np.array,
        lambda v: np.array(v, dtype=object),
        lambda v: np.array(v).reshape(-1, 1),
        lambda v: pd.Series(v, index=[9, 3, 5, 5, 1]),
        lambda v: pd.Series(v, dtype="category"),
        lambda v: pd.DataFrame({"sex": v}),
        lambda v: pd.DataFrame({"compute": v}),  # a method of other tables
        lambda v: pl.Series("sex", v),
        lambda v: pl.DataFrame({"sex": v}),
        lambda v: pl.LazyFrame({"sex": v}),
        lambda v: {"sex": v},
        lambda v: {"sex": pd.Series(v)},
        lambda v: arrow().array(v),
        lambda v: arrow().chunked_array([v[:2], v[2:]]),
        lambda v: arrow().table({"sex": v}),
        lambda v: in_partitions(pd.Series(v)),
        lambda v: in_partitions(pd.DataFrame({"sex": v})),
    ],
)
def test_one_column_in_any_container(container):
    groups = encode_groups(container(SEX), 5)
    assert groups.codes.tolist() == [0, 1, 0, 1, 0]
    assert groups.labels.tolist() == ["f", "m"]


@pytest.mark.parametrize(
    "two_columns",
    [
        pd.DataFrame({"sex": SEX, "age": AGE}),
        pl.DataFrame({"sex": SEX, "age": AGE}),
        {"sex": SEX, "age": AGE},
        list(zip(SEX, AGE, strict=True)),
        pl.LazyFrame({"sex": SEX, "age": AGE}),
        pd.MultiIndex.from_arrays([SEX, AGE]),
        pd.Series(list(zip(SEX, AGE, strict=True))),
    ],
)
def test_columns_are_crossed_into_combinations_that_occur(two_columns):
    groups = encode_groups(two_columns, 5)
    assert list(groups.labels) == [("f", 1), ("f", 2), ("m", 1), ("m", 2)]
    assert groups.codes.tolist() == [0, 3, 0, 2, 1]
    assert group_name(groups.labels[1]) == "f & 2"


def test_numbers_and_booleans_stay_what_they_are():
    assert encode_groups([3.5, 1.5]).labels.dtype == float
    assert encode_groups([True, False]).labels.dtype == bool


@pytest.mark.parametrize(
    "missing",
    [
        [1.0, np.nan],
        np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        [["x", 1], ["y", None]],
        ["a", None],
        np.array(["a", np.nan], dtype=object),
        pd.Series(["a", pd.NA]),
        pl.Series(["a", None]),
        pd.DataFrame({"a": ["x", "y"], "b": [1.0, np.nan]}),
        lambda: arrow().array(["a", None]),
    ],
)
def test_a_missing_value_means_that_the_group_is_not_known(missing):
    groups = encode_groups(missing() if callable(missing) else missing)
    assert groups.codes.tolist() == [0, -1]
    assert len(groups.labels) == 1


@pytest.mark.parametrize(
    "container", [list, lambda v: pd.Series(v, dtype=object), lambda v: {"sex": v, "age": AGE}]
)
def test_groups_of_different_types_with_one_name_are_refused(container):
    """They would be merged silently; other mixtures are told apart by their names."""
    with pytest.raises(ValueError, match="different types with the same name: 1 and '1'"):
        encode_groups(container([1, "1", 2, 1, 2]))
    groups = container([1, "1", 2, 1, 2])
    with pytest.raises(ValueError, match="different types with the same name: 1 and '1'"):
        fairconstrained.report(None, [0, 1, 0, 1, 1], sensitive_features=groups)
    assert encode_groups([1, "a", 1]).labels.tolist() == ["1", "a"]


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"single text 'sex'. Give the column itself, .* X\['sex'"):
        encode_groups("sex", 6)
    with pytest.raises(ValueError, match="has 5 rows, but X has 6"):
        encode_groups(SEX, 6)
    with pytest.raises(ValueError, match="one or two dimensions; got 3"):
        encode_groups(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match=r"got shapes \(2,\) of 'a', \(1,\) of 'b'"):
        encode_groups({"a": [1, 2], "b": [1]})
    for ragged in ([["a"], ["b", "c"]], pd.Series([("a",), ("b", "c")])):
        with pytest.raises(ValueError, match="ragged"):
            encode_groups(ragged)


@pytest.mark.parametrize("column", ["f", None, iter(SEX), [SEX, SEX], pd.DataFrame({"a": SEX})])
def test_a_dict_holds_columns(column):
    """Anything else is refused by its name, and no value of it becomes a group."""
    with pytest.raises(ValueError, match=r"control_features must hold columns .* \(.*\) of 'age'"):
        encode_groups({"sex": SEX, "age": column}, name="control_features")


def test_strata_are_named_as_strata():
    rows = {"y_true": [0, 1, 0, 1], "y_pred": [0, 1, 1, 0], "sensitive_features": [*"abab"]}
    twice = pd.DataFrame([[1, 2]] * 4, columns=["a", "a"])
    for strata, words in [(twice, "several columns"), ("abc", "single"), ([None] * 4, "missing")]:
        with pytest.raises(ValueError, match=f"^control_features .*{words}"):
            metrics.demographic_parity_difference(**rows, control_features=strata)
    claim = {"constraint": "demographic_parity", "slack": 0.1, "control_features": [None] * 4}
    with pytest.raises(ValueError, match="control_features is missing in every row"):
        metrics.certify(**rows, **claim)


@pytest.mark.parametrize("name", ["y_pred", "y_true", "before"])
def test_scores_are_no_outcomes(name):
    """Nor where one of them equals the favourable label, and would alone be counted."""
    rows = {**ROWS, name: [0.2, 1.0, 0.5, 0.0, 0.7, 0.1], "y_score": None, "sample_weight": None}
    with pytest.raises(ValueError, match=r"must hold class labels; got 0\.2"):
        fairconstrained.report(**rows, pos_label=1)


ROWS = {
    "y_true": [0, 1, 0, 1, 1, 0],
    "y_pred": [1, 1, 0, 0, 1, 0],
    "sensitive_features": [*SEX, "m"],
    "y_score": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "before": [0, 0, 1, 1, 0, 1],
    "sample_weight": [1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
    "control_features": ["x", "x", "x", "y", "y", "y"],
}
CLAIM = {"constraint": "demographic_parity", "slack": 0.5}
READERS = {  # each with the columns that it takes
    lambda **rows: metrics.demographic_parity_difference(**rows): [0, 1, 2, 5, 6],
    lambda y_true, y_pred, **rows: metrics.confidence_interval(
        metrics.demographic_parity_difference, y_true, y_pred, **rows
    ): [0, 1, 2, 5, 6],
    lambda **rows: metrics.partial_statistical_parity(**rows, interval=(0, 0.5)): [0, 2, 3, 5],
    lambda **rows: metrics.group_report(**rows): [0, 1, 2, 3, 5],
    lambda **rows: metrics.certify(**rows, **CLAIM): [0, 1, 2, 3, 6],
    lambda **rows: fairconstrained.report(**rows): [0, 1, 2, 3, 4, 5, 6],
    lambda **rows: FairnessMonitor().update(**rows): [0, 1, 2],
    lambda **rows: FairnessMonitor("false_negative_rate").update(**rows): [0, 1, 2],
}


@pytest.mark.parametrize(("reader", "columns"), READERS.items())
def test_all_that_is_handed_in_has_a_row_for_each_sample(reader, columns):
    """Also columns that the criterion does not need: a mistake there is one everywhere."""
    rows = {name: ROWS[name] for name in np.array(list(ROWS))[columns].tolist()}
    for name, values in rows.items():
        for other in (values[1:], np.array(values[:4]), pd.Series(values[2:])):
            with pytest.raises(ValueError, match=rf"\b{len(other)}( rows, but|\. Give one row)"):
                reader(**{**rows, name: other})


@pytest.mark.parametrize("name", ["y_true", "y_pred", "sensitive_features"])
def test_a_lazy_column_of_other_rows_is_named(name):
    rows = {key: pd.Series(ROWS[key]) for key in ("y_true", "y_pred", "sensitive_features")}
    rows[name] = in_partitions(rows[name][1:], 1)
    update = FairnessMonitor("equalized_odds").update
    for reader in (metrics.equalized_odds_difference, update, fairconstrained.report):
        with pytest.raises(ValueError, match=r"has [56] rows?, but"):
            reader(**rows)


@pytest.mark.parametrize("metric", [metrics.demographic_parity_difference, metrics.group_report])
def test_labels_at_other_positions_are_said_once(metric):
    y, predicted = pd.Series([0, 1] * 4), pd.Series([1, 0] * 4, index=range(4, 12))
    with pytest.warns(InputWarning, match="y_pred and y_true are matched by position") as told:
        metric(y, predicted, sensitive_features=[0, 0, 1, 1] * 2)
    assert len([one for one in told if one.category is InputWarning]) == 1

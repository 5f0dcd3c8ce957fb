"""The report by group: its numbers by definition, its intervals, every group in it."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_score, recall_score, roc_auc_score

from fairconstrained.exceptions import InputWarning
from fairconstrained.metrics import group_report
from fairconstrained.metrics.bounds import wilson

RNG = np.random.default_rng(0)
N = 600
GROUP = RNG.choice(["a", "b", "c"], size=N, p=[0.5, 0.45, 0.05])
TRUE = RNG.random(N) < 0.4
SCORE = RNG.normal(size=N) + TRUE
PRED = SCORE > 0.5
RATES = ["base_rate", "selection_rate", "true_positive_rate", "false_positive_rate", "error"]


def test_numbers_by_definition():
    report = group_report(TRUE, PRED, sensitive_features=GROUP, y_score=SCORE)
    assert list(report.index) == ["a", "b", "c", "overall"]
    for name in report.index:
        rows = np.ones(N, dtype=bool) if name == "overall" else name == GROUP
        true, predicted = TRUE[rows], PRED[rows]
        expected = {
            "samples": rows.sum(),
            "base_rate": true.mean(),
            "selection_rate": predicted.mean(),
            "true_positive_rate": recall_score(true, predicted),
            "false_positive_rate": predicted[~true].mean(),
            "error": (true != predicted).mean(),
            "precision": precision_score(true, predicted),
            "false_omission_rate": 1 - precision_score(true, predicted, pos_label=False),
            "auc": roc_auc_score(true, SCORE[rows]),
        }
        np.testing.assert_allclose(report.loc[name, list(expected)], list(expected.values()))
        hits, total = (true & predicted).sum(), true.sum()
        ends = report.loc[name, ["true_positive_rate_low", "true_positive_rate_high"]]
        np.testing.assert_allclose(ends, wilson(hits, total))


def test_every_rate_lies_in_its_interval_and_small_groups_have_long_ones():
    report = group_report(TRUE, PRED, sensitive_features=GROUP, y_score=SCORE)
    for rate in [*RATES, "precision", "false_omission_rate", "auc"]:
        assert (report[f"{rate}_low"] <= report[rate]).all()
        assert (report[rate] <= report[f"{rate}_high"]).all()
        length = report[f"{rate}_high"] - report[f"{rate}_low"]
        assert length["c"] > length["a"] > length["overall"]


def test_a_group_of_one_row_is_listed():
    group = np.where(np.arange(N) == 7, "Typo", GROUP)
    report = group_report(TRUE, PRED, sensitive_features=group)
    assert report.loc["Typo", "samples"] == 1
    length = report.loc["Typo", "selection_rate_high"] - report.loc["Typo", "selection_rate_low"]
    assert length > 0.7
    assert np.isnan(report.loc["Typo", ["true_positive_rate", "false_positive_rate"]]).any()


def test_columns_and_their_combinations():
    table = pd.DataFrame({"sex": np.where(np.arange(N) % 2, "f", "m"), "race": GROUP})
    report = group_report(TRUE, PRED, sensitive_features=table)
    assert list(report.index[:5]) == ["sex: f", "sex: m", "race: a", "race: b", "race: c"]
    assert {"f & a", "m & c", "overall"} <= set(report.index)
    both = report.loc[["f & a", "f & b", "f & c"], "samples"].sum()
    assert both == report.loc["sex: f", "samples"]


def test_a_group_called_overall_is_not_the_row_of_all():
    group = np.where(GROUP == "a", "overall", GROUP)
    report = group_report(TRUE, PRED, sensitive_features=group, reference="overall")
    plain = group_report(TRUE, PRED, sensitive_features=GROUP, reference="a")
    names = {"a": "overall", "overall": "overall: all rows"}
    assert set(report.index) == {"overall", "b", "c", "overall: all rows"}
    pd.testing.assert_frame_equal(report, plain.rename(names), check_like=True)


def test_weights_move_rates_and_only_their_inequality_costs_certainty():
    """A constant weight changes nothing; weight zero is as if the row were not there."""
    kept = RNG.random(N) < 0.8
    plain = group_report(TRUE, PRED, sensitive_features=GROUP)
    same = group_report(TRUE, PRED, sensitive_features=GROUP, sample_weight=np.full(N, 3.0))
    pd.testing.assert_frame_equal(plain, same)
    weighted = group_report(TRUE, PRED, sensitive_features=GROUP, sample_weight=kept * 1.0)
    fewer = group_report(TRUE[kept], PRED[kept], sensitive_features=GROUP[kept])
    np.testing.assert_allclose(weighted[RATES], fewer[RATES])
    np.testing.assert_allclose(weighted["error_high"], fewer["error_high"])


def test_more_than_two_labels_need_the_positive_one():
    y = RNG.integers(3, size=N)
    with pytest.raises(ValueError, match="pos_label"):
        group_report(y, y, sensitive_features=GROUP)
    report = group_report(y, y, sensitive_features=GROUP, pos_label=2)
    np.testing.assert_allclose(report.loc["overall", "base_rate"], (y == 2).mean())


def test_spellings_of_one_label_are_named_and_not_pooled():
    """They are two labels, and of three labels those who are granted are one."""
    words = np.where(PRED, "granted", "refused").astype(object)
    words[np.flatnonzero(PRED)[0]] = "Granted "
    with pytest.warns(InputWarning, match=r"'Granted ', 'granted' in the labels are different"):
        report = group_report(words, words, sensitive_features=GROUP, pos_label="granted")
    assert report.loc["overall", "selection_rate"] == (PRED.sum() - 1) / len(PRED)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, True, "high"])
def test_confidence_is_a_probability(confidence):
    with pytest.raises(ValueError, match="confidence"):
        group_report(TRUE, PRED, sensitive_features=GROUP, confidence=confidence)


def test_a_row_that_lacks_one_value_counts_by_the_others():
    """As in audits; where nobody has all values there are no groups crossed."""
    sex, place = np.where(np.arange(600) < 200, None, GROUP), np.arange(600) % 2
    place = np.where(np.arange(600) >= 400, None, place)
    table = group_report(TRUE, PRED, sensitive_features={"sex": sex, "place": place})
    assert table.filter(like="sex: ", axis=0)["samples"].sum() == 400
    assert table.filter(like="place: ", axis=0)["samples"].sum() == 400
    assert table.filter(like=" & ", axis=0)["samples"].sum() == 200
    alone = group_report(TRUE, PRED, sensitive_features=sex)
    assert table.filter(like="sex: ", axis=0).to_numpy().tolist() == alone[:-1].to_numpy().tolist()
    never = np.where(np.arange(600) < 200, place, None)
    table = group_report(TRUE, PRED, sensitive_features={"sex": sex, "place": never})
    assert len(table.filter(like="place: ", axis=0)) == 2
    assert len(table.filter(like=" & ", axis=0)) == 0

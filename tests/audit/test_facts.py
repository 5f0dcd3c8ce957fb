"""The facts of an audit: by definition, as fairlearn and Aequitas have them, and what adds up."""

import json
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fairlearn import metrics as fairlearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_score, roc_auc_score

import fairconstrained
from fairconstrained import RateConstrainedClassifier, metrics
from fairconstrained.constraints import DemographicParity, EqualizedOdds, ErrorRateParity
from fairconstrained.metrics import Weights, certify
from fairconstrained.metrics.bounds import DIFFERENCE, SHORTFALL

RNG = np.random.default_rng(0)
N = 3000
SEX = np.where(RNG.random(N) < 0.4, "woman", "man")
RACE = RNG.choice(["A", "B", "C"], N, p=[0.5, 0.3, 0.2])
PEOPLE = pd.DataFrame({"sex": SEX, "race": RACE})
TRUE = RNG.random(N) < np.where(SEX == "man", 0.6, 0.4)
SCORE = np.clip(0.5 * TRUE + 0.5 * RNG.random(N), 0, 1)
BAR = np.where(RACE == "C", 0.6, 0.5)
PRED = SCORE > BAR
BEFORE = SCORE > 0.55


def report(y_true=TRUE, y_pred=PRED, sensitive_features=SEX, **more):
    return fairconstrained.report(y_true, y_pred, sensitive_features=sensitive_features, **more)


def facts(found, **wanted):
    return [f for f in found if all(f[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def audit():
    return report(sensitive_features=PEOPLE, y_score=SCORE, before=BEFORE, slack=0.05)


@pytest.mark.parametrize("weight", [None, RNG.random(N)])
def test_differences_and_ratios_are_those_of_fairlearn(weight):
    given = {"sensitive_features": SEX, "sample_weight": weight}
    found = report(sample_weight=weight)
    for kind, of_kind in (("difference", found.differences), ("ratio", found.ratios)):
        for name in ("demographic_parity", "equalized_odds", "equal_opportunity"):
            expected = getattr(fairlearn, f"{name}_{kind}")(TRUE, PRED, **given)
            (fact,) = facts(of_kind, criterion=name)
            assert fact["value"] == pytest.approx(expected, abs=1e-12)
            assert fact["low"] <= fact["high"]


def test_rates_of_groups_are_those_of_the_report_and_disparities_rates_by_the_largest(audit):
    for attribute, values in PEOPLE.items():
        expected = metrics.group_report(TRUE, PRED, sensitive_features=values, y_score=SCORE)
        found = pd.DataFrame(facts(audit.groups, attribute=attribute)).set_index("group")
        columns = [name for name in expected if "low" not in name and "high" not in name]
        expected = expected.drop("overall")[columns].sort_index().astype(float)
        shown = found[columns].sort_index().astype(float)
        pd.testing.assert_frame_equal(shown, expected, check_names=False)
        ratio, *_ = facts(audit.ratios, attribute=attribute)
        disparity = found["selection_rate"] / found["selection_rate"].max()
        assert ratio["groups"] == pytest.approx(disparity.to_dict(), abs=1e-12)


def test_attributes_are_listed_by_themselves_and_together(audit):
    assert [f["attribute"] for f in audit.groups] == ["everybody"] + ["sex"] * 2 + ["race"] * 3
    assert {f["attribute"] for f in audit.intersections} == {"sex & race"}
    (both,) = facts(audit.intersections, group="woman & C")
    rows = (SEX == "woman") & (RACE == "C")
    assert both["samples"] == rows.sum()
    assert both["selection_rate"] == pytest.approx(PRED[rows].mean())
    asked = {f["attribute"] for f in audit.certificates}
    assert asked == {f["attribute"] for f in audit.differences} == {"sex", "race", "sex & race"}


def test_who_changed_adds_up_to_all_rows(audit):
    for attribute in ("everybody", "sex", "race", "sex & race"):
        found = facts(audit.changes, attribute=attribute)
        assert sum(f["samples"] for f in found) == N
        cells = ("lost", "gained", "kept", "never")
        assert sum(f[name] for f in found for name in cells) == N
        assert sum(f["lost"] for f in found) == (BEFORE & ~PRED).sum()
        assert sum(f["gained"] for f in found) == (~BEFORE & PRED).sum()
        change = sum(f["samples"] * f["error_change"] for f in found) / N
        assert change == pytest.approx((PRED != TRUE).mean() - (BEFORE != TRUE).mean())


def test_calibration_compares_scores_with_labels(audit):
    found = facts(audit.calibration, attribute="sex", group="woman")
    assert [f["bin"] for f in found] == [1, 2, 3, 4, 5]
    assert sum(f["samples"] for f in found) == (SEX == "woman").sum()
    fifth = np.quantile(SCORE, 0.8)
    rows = (SEX == "woman") & (fifth < SCORE)
    last = found[-1]
    assert last["mean_score"] == pytest.approx(SCORE[rows].mean())
    assert last["observed"] == pytest.approx(TRUE[rows].mean())
    assert last["observed_low"] <= last["observed"] <= last["observed_high"]
    (row,) = facts(audit.groups, attribute="sex", group="woman")
    woman = SEX == "woman"
    assert row["auc"] == pytest.approx(roc_auc_score(TRUE[woman], SCORE[woman]))


def test_labels_may_be_missing_and_groups_unknown():
    """Rates of decisions are of all rows, errors of those with a label, groups of those known."""
    label = np.where(RNG.random(N) < 0.3, None, TRUE)
    sex = pd.Series(SEX, name="sex").mask(RNG.random(N) < 0.1)
    found = report(label, sensitive_features=sex)
    (row,) = facts(found.groups, group="man")
    man, labelled = (sex == "man").to_numpy(), pd.notna(label)
    assert (row["samples"], row["labelled"]) == (man.sum(), (man & labelled).sum())
    assert row["selection_rate"] == pytest.approx(PRED[man].mean())
    both = man & labelled
    assert row["precision"] == pytest.approx(precision_score(TRUE[both], PRED[both]))
    assert found.left_out == [
        f"{(~labelled).sum():,} rows with no label: in no error rate.",
        f"{sex.isna().sum():,} rows with an unknown sex: in none of its groups.",
    ]
    no_labels = report(np.full(N, None))
    assert "error" not in no_labels.groups[0]
    assert no_labels.changes == no_labels.calibration == []


def test_a_gap_that_only_rows_of_unknown_group_can_hide_is_undecided():
    """Known rows keep the slack, and exceed it once they stand for all rows of their label."""
    missing = np.random.default_rng(1).random(N) < np.where(TRUE, 0.8, 0.2)
    sex = pd.Series(SEX, name="sex").mask(missing)
    (gap,) = facts(report(sensitive_features=sex).differences, criterion="demographic_parity")
    weighted = metrics.demographic_parity_difference(TRUE, PRED, sensitive_features=sex)
    assert gap["value"] < gap["standing"] == pytest.approx(weighted)
    between = report(sensitive_features=sex, slack=0.5 * (gap["value"] + weighted))
    assert between.answer.startswith("Undecided, since groups are missing")
    (certificate,) = between.certificates
    assert certificate["kept"] is False
    assert certificate["standing"] == gap["standing"]
    assert "undecided, since groups are missing, and fits and metrics have" in between.to_html()
    assert report(sensitive_features=sex, slack=weighted).answer.startswith(("Yes", "In this"))
    assert report(sensitive_features=sex, slack=0.9 * gap["value"]).answer.startswith(("No", "In"))


def test_small_groups_are_listed_and_not_compared():
    group = np.where(np.arange(N) < 7, "few", SEX)
    found = report(sensitive_features=group, slack=0.1, min_cell=1)
    (few,) = facts(found.groups, group="few")
    assert few["samples"] == 7
    assert few["selection_rate_high"] - few["selection_rate_low"] > 0.4
    assert list(found.ratios[0]["groups"]) == ["man", "woman"]
    assert found.left_out == ["group: few (7 rows, fewer than 10)"]
    alone = report(sensitive_features=np.full(N, "all"))
    assert alone.answer.startswith("Nothing can be compared")
    assert f"group: all ({N} rows, nothing to compare it with)" in alone.answer
    assert alone.certificates == []


@pytest.mark.parametrize("criterion", ["equal_opportunity", "equalized_odds"])
@pytest.mark.parametrize("label", [0, 1])
def test_who_has_no_row_of_a_label_is_named_and_the_others_are_compared(criterion, label):
    """The gap and its certificate are those of the others; the other label of it still counts."""
    label, given = np.where(RACE == "C", label, TRUE), {"constraint": criterion, "slack": 0.01}
    found = report(label, sensitive_features=RACE, **given)
    (gap,), (entry,) = facts(found.differences, criterion=criterion), found.certificates
    missing = [text for text in found.left_out if "C with label" in text and "(0 rows)" in text]
    is_asked = criterion == "equalized_odds" or label[RACE == "C"][0] == 0
    assert len(missing) == 1
    assert (missing[0] in found.answer) == is_asked
    assert entry["left_out"] == (missing if is_asked else [])
    assert gap["value"] == pytest.approx(entry["estimate"])
    assert gap["low"] <= gap["value"] <= gap["high"]
    others = RACE != "C"
    of_others = report(label[others], PRED[others], sensitive_features=RACE[others], **given)
    least = facts(of_others.differences, criterion=criterion)[0]["value"]
    assert gap["value"] >= least - 1e-12


@pytest.mark.parametrize(("slack", "kept"), [(0.3, True), (0.21, False)])
def test_the_rows_that_are_said_to_be_enough_are_enough(slack, kept):
    """With so many times the counts the exact bound is the slack, within the rounding of counts."""
    found = report(slack=slack)
    (entry,) = found.certificates
    assert entry["kept"] == kept
    assert (entry["rows_needed"] < N) == kept
    rates = sorted(entry["rates"], key=lambda rate: -rate["rate"])
    times = entry["rows_needed"] / N
    hits, rows = ([round(times * rate[name]) for rate in rates] for name in ("hits", "rows"))
    assert DIFFERENCE.bound(hits, rows, 0.05) == pytest.approx(slack, rel=0.02)


def words(text):
    return [word for word in text.split() if word != "%"]


@pytest.mark.parametrize(
    ("pred", "slack", "beginning", "verdict"),
    [
        (PRED, 0.01, "No (gap", "not kept"),
        (PRED[:200], 0.1, "In this sample, no (gap", "not kept"),
        (PRED, 0.4, "Yes, also for future cases (gap", "kept"),
        (PRED[:200], 0.2, "In this sample, yes (gap", "not proved"),
        (PRED, None, "By four fifths, no (smallest ratio", "not asked"),
        (np.zeros(N), 0.1, "Nobody gets the favourable decision", "not proved"),
        (np.ones(N), 0.1, "Everybody gets the favourable decision", "not proved"),
        (PRED[:12], 0.1, "Nothing can be compared", "not proved"),
    ],
)
def test_the_headline_answers_in_25_words(pred, slack, beginning, verdict):
    n = len(pred)
    found = report(TRUE[:n], pred, SEX[:n], slack=slack)
    assert found.headline.startswith(beginning)
    assert found.answer.startswith(found.headline)
    assert found.verdict == verdict
    assert len(words(found.headline)) <= 25
    assert found.headline in found.to_html()
    assert found.headline in found.to_markdown()


@pytest.mark.parametrize(
    ("question", "beginning", "verdict"),
    [
        ({"slack": 0.4}, "Partly undecided, otherwise yes: the gap", "not proved"),
        ({"slack": 0.01}, "No: the gap", "not kept"),
        ({"preset": "four_fifths"}, "Partly undecided, otherwise yes: the sm", "not proved"),
        ({}, "Undecided by four fifths: the smallest ratio", "not asked"),
    ],
)
def test_the_headline_says_yes_only_if_each_attribute_is_compared(question, beginning, verdict):
    """Everybody is of one race, whose rates have nothing to be compared with."""
    decisions = PRED if "slack" in question else BEFORE | (RNG.random(N) < 0.9)
    people = pd.DataFrame({"sex": SEX, "race": "A"})
    found = report(y_pred=decisions, sensitive_features=people, before=BEFORE, **question)
    assert found.headline.startswith(beginning)
    assert len(words(found.headline)) <= 25
    assert found.verdict == verdict
    assert found.answer.startswith(f"{found.headline} Nothing can be compared by race. ")


def test_a_yes_without_a_proof_says_how_large_the_gap_may_be():
    found = report(TRUE[:200], PRED[:200], SEX[:200], slack=0.2)
    (certificate,) = found.certificates
    bound = f"{100 * certificate['upper']:.1f} points"
    assert f"For future cases we cannot rule out a gap of up to {bound}." in found.answer


@pytest.mark.parametrize(
    ("criterion", "ratio"),
    [("equalized_odds", None), *(("demographic_parity", ratio) for ratio in (None, 0.5, 0.99))],
)
def test_the_headline_says_before_after_and_the_cost(criterion, ratio):
    constraint = criterion if ratio is None else DemographicParity(ratio=ratio)
    given = {"sensitive_features": PEOPLE, "before": BEFORE}
    found = report(**given, constraint=constraint, slack=0.3 if ratio is None else None)
    kind = "difference" if ratio is None else "ratio"
    worst = max if ratio is None else min
    metric = getattr(metrics, f"{criterion}_{kind}")
    attributes = PEOPLE[["sex"]], PEOPLE[["race"]], PEOPLE
    before, now = (
        worst(metric(TRUE, pred, sensitive_features=people) for people in attributes)
        for pred in (BEFORE, PRED)
    )
    assert f"from {100 * before:.1f} to {100 * now:.1f} " in found.headline
    change = (PRED != TRUE).mean() - (BEFORE != TRUE).mean()
    rose = f"errors {'rose' if change > 0 else 'fell'} by {100 * abs(change):.1f} points"
    assert rose in found.headline
    assert f"{(PRED != BEFORE).sum():,} of 3,000 people got another" in found.headline
    assert len(words(found.headline)) <= 25


def test_a_gap_in_another_rate_is_a_finding():
    """Rates of decisions are alike, and twice as many of one group are right."""
    wrong = np.where(SEX == "man", TRUE, RNG.random(N) < 0.4)
    found = report(wrong, RNG.random(N) < 0.5, slack=0.1)
    (precision,) = facts(found.differences, criterion="predictive_parity")
    words = f'"right if granted" differs by {100 * precision["value"]:.1f} points'
    assert any(words in text for text in found.findings)


def test_a_gap_names_the_groups_between_which_it_is_and_no_others():
    """A gap of one to zero has the size of one minus the ratio of another group's rate to zero."""
    group = np.repeat(["a", "b", "c"], [100, 100, 13])
    label = np.r_[np.resize([1, 0], 200), np.ones(13)]
    refused = np.where(group == "b", np.arange(213) % 4 == 0, group == "c")
    found = report(label, ~refused & (label == 1), group, slack=0.05, min_cell=1)
    assert facts(found.differences, criterion="equal_opportunity")[0]["value"] == 1.0
    words = '"wrongly refused" differs by 100.0 points by group, interval'
    assert any(words in text for text in found.findings)


@pytest.mark.parametrize(("n_before", "is_shown"), [(5, False), (18, False), (60, True)])
def test_rates_of_few_earlier_decisions_are_hidden_and_the_change_with_them(n_before, is_shown):
    sex = np.resize(["man", "woman"], N)
    before = np.where(np.arange(N) < n_before, BEFORE.astype(float), np.nan)
    found = report(sensitive_features=sex, before=before, slack=0.5)
    before, groups = BEFORE[:n_before], sex[:n_before]
    gap = metrics.demographic_parity_difference(before, before, sensitive_features=groups)
    (fact,) = facts(found.differences, criterion="demographic_parity")
    assert fact["before"] == pytest.approx(gap if is_shown else np.nan, nan_ok=True)
    assert (f"from {100 * gap:.1f} to " in found.headline) == is_shown


def test_the_answer_names_the_groups_of_its_gap_which_is_no_other_gap():
    found = report(sensitive_features=PEOPLE, constraint="equalized_odds")
    gap = max(fact["value"] for fact in facts(found.differences, criterion="equalized_odds"))
    words = re.search(r"by sex & race \(([^;]*); .*: (\S+) %, .*: (\S+) %\)", found.answer)
    assert words[1] in ("granted among favourable labels", "wrongly granted")
    assert float(words[3]) - float(words[2]) == pytest.approx(100 * gap, abs=0.11)
    assert not any("wrongly" in text for text in found.findings)


def test_small_cells_are_counted_and_hidden_everywhere():
    group = np.where(np.arange(N) < 7, "few", SEX)
    label = np.where((group == "woman") & (np.arange(N) > 20), None, TRUE)
    found = report(label, sensitive_features=group, y_score=SCORE, before=BEFORE, slack=0.2)
    everything = json.dumps(found.to_dict()) + found.to_html() + found.to_markdown()
    assert not any(few in everything for few in ('"few"', ">few<", "| few |"))
    assert "1 group with fewer than 10 rows" in everything
    (hidden,) = facts(found.to_dict()["groups"], group="(1 group with fewer than 10 rows)")
    assert (hidden["samples"], hidden["selection_rate"]) == (None, None)
    (woman,) = facts(found.to_dict()["groups"], group="woman")
    assert woman["selection_rate"] == pytest.approx(PRED[group == "woman"].mean())
    assert (woman["labelled"], woman["true_positive_rate"], woman["error"]) == (None, None, None)
    for fact in found.calibration + found.changes:
        assert fact["samples"] >= 10
    for entry in found.certificates:
        assert min(rate["rows"] for rate in entry["rates"]) >= 10
    assert '"few"' in json.dumps(report(sensitive_features=group, min_cell=1).to_dict())
    rare = np.where((SEX == "man") & (np.cumsum(TRUE & (SEX == "man")) > 3), False, TRUE)
    auc = {fact["group"]: fact["auc"] for fact in report(rare, y_score=SCORE).to_dict()["groups"]}
    assert auc["man"] is None  # three favourable labels
    assert auc["woman"] > 0.5


def test_groups_come_in_their_order_or_by_their_rates_and_unknown_ones_are_a_row():
    ages = np.array(["Greater than 45", "25 - 45", "Less than 25"])[np.arange(N) % 3]
    race = pd.Series(RACE, name="race").mask(np.arange(N) < 50)
    found = report(sensitive_features=pd.DataFrame({"age": ages, "race": race}))
    names = [fact["group"] for fact in facts(found.groups, attribute="age")]
    assert names == ["Less than 25", "25 - 45", "Greater than 45"]
    *by_rate, unknown = facts(found.groups, attribute="race")
    rates = [fact["selection_rate"] for fact in by_rate]
    assert rates == sorted(rates, reverse=True)
    assert (unknown["group"], unknown["samples"]) == ("(unknown)", 50)
    assert unknown["selection_rate"] == pytest.approx(PRED[:50].mean())
    levels = pd.Categorical(ages, ["25 - 45", "Greater than 45", "Less than 25"], ordered=True)
    ordered = report(sensitive_features=pd.Series(levels, name="age"))
    assert [fact["group"] for fact in ordered.groups[1:]] == list(levels.categories)


def test_codes_are_whole_numbers_though_some_are_missing():
    people = pd.DataFrame({"sex": np.where(SEX == "man", 1.0, 2.0), "race": np.arange(N) % 3 + 1.0})
    people.loc[:9, "sex"] = np.nan
    found = report(sensitive_features=people)
    assert {f["group"] for f in facts(found.groups, attribute="sex")} == {*("1", "2", "(unknown)")}
    assert "1 & 2" in {fact["group"] for fact in found.intersections}
    assert "1.0" not in found.to_markdown().split("## Ratios")[0].split("(interval)")[1]
    coded = report(y_pred=pd.Series(np.where(np.arange(N) < 9, np.nan, PRED), name="granted"))
    assert coded.outcomes["decision"]["favourable"] == "granted = 1"


@pytest.mark.parametrize(("rate", "who"), [(0.005, "Hardly anybody"), (0.995, "Almost everybody")])
def test_equal_rates_of_almost_nobody_and_everybody_are_said_first(rate, who):
    found = report(y_pred=np.arange(N) < rate * N)
    assert found.findings[0].startswith(f"{who} gets the favourable decision")


def test_outcomes_have_names_and_the_favourable_one_is_not_guessed():
    words = pd.Series(np.where(PRED, "granted", "refused"), name="decision")
    repaid = np.where(TRUE, "yes", "no")
    with pytest.raises(ValueError, match=r"of decision are granted, refused\. Name the fav"):
        report(words, words)
    with pytest.raises(ValueError, match="pos_label is 'good', but the values of decision are gr"):
        report(None, words, pos_label="good")
    with pytest.raises(ValueError, match=r"pos_label is Decimal\('1\.5'\), but the values of deci"):
        report(None, PRED.astype(int), pos_label=Decimal("1.5"))  # which is not 1
    for label in (TRUE, TRUE.astype(int)):  # is it good to have a 1?
        with pytest.raises(ValueError, match="pos_label is 'granted', but the values of label are"):
            report(label, words, pos_label="granted")
    earlier = np.where(BEFORE, "yes", "no")
    with pytest.raises(ValueError, match="is 'granted', but the values of earlier decision ar"):
        report(None, words, pos_label="granted", before=earlier)
    nobody = report(None, words, pos_label="granted", before=["refused"] * N)
    assert nobody.changes[0]["gained"] == PRED.sum()
    ordered = words.astype(pd.CategoricalDtype(["refused", "granted"], ordered=True))
    assert report(None, ordered).groups == report(None, words, pos_label="granted").groups
    with pytest.raises(ValueError, match=r"the values of label are no, yes\. Name the favourable"):
        report(repaid, words, pos_label="granted")
    found = report(repaid, words, pos_label=["granted", "yes"])
    same = report()
    assert found.groups == same.groups
    assert found.outcomes["label"]["favourable"] == "yes"
    assert same.outcomes["label"]["favourable"] == "label = True"
    assert "'granted'" in found.question


def test_of_three_labels_two_are_the_other_one_and_the_question_says_so():
    """Refused and postponed are two labels for a certificate, and the same for an audit."""
    options = {"constraint": "equalized_odds", "slack": 0.2, "sensitive_features": SEX}
    postponed = np.arange(N) % 30 == 0
    label = np.where(postponed, "postponed", np.where(TRUE, "granted", "refused"))
    decision = np.where(postponed & (SEX == "man"), "granted", label)
    audit = report(label, decision, pos_label="granted", **options)
    assert audit.answer.startswith("Yes")
    assert "among favourable and among other labels (equalized odds)" in audit.question
    assert not certify(y_true=label, y_pred=decision, **options).kept


def test_outcomes_of_a_series_without_a_name_are_named_by_their_part():
    """A series of polars without a name has the empty one."""
    for series in (pd.Series, pl.Series):
        outcomes = report(series(TRUE), series(PRED)).outcomes
        assert [one["column"] for one in outcomes.values()] == ["decision", "label"]


def test_scores_and_decisions_that_go_against_the_labels_are_findings():
    """Perhaps the favourable label is another one."""
    found = report(~TRUE, PRED, y_score=SCORE)
    assert found.findings[0].startswith("Scores are lower where the label is favourable (AUC 0.")
    assert "% have the favourable label, of all " in found.findings[1]
    assert not [line for line in report(y_score=SCORE).findings if "favourable label" in line]


def test_spellings_count_as_one_value_and_are_named():
    words = np.where(PRED, "granted", "refused").astype(object)
    words[np.flatnonzero(PRED)[:3]] = "Granted "
    sex = np.where(np.arange(N) % 50 == 0, "Man", SEX)
    found = report(None, words, sex, pos_label="granted")
    assert found.groups[0]["selection_rate"] == pytest.approx(PRED.mean())
    assert found.findings == [
        "'Granted ', 'granted' in decision count as one value.",
        "'Man', 'man' in group are different groups.",
    ]
    written = found.outcomes["decision"]["values"]
    values = {v["value"]: (v["rows"], v["favourable"]) for v in written}
    assert values["Granted "] == (3, True)
    assert values["refused"] == ((~PRED).sum(), False)


def test_a_model_is_asked_for_decisions_and_scores():
    X = np.column_stack((SCORE, RNG.random(N)))
    labels = np.where(TRUE, "granted", "refused")  # the favourable class comes first
    model = LogisticRegression().fit(X, labels)
    found = report(labels, model, X=X, pos_label="granted", before=lambda X: labels)
    score = model.predict_proba(X)[:, 0]
    assert found.groups[0]["auc"] == pytest.approx(roc_auc_score(TRUE, score))
    assert found.groups[0]["selection_rate"] == (model.predict(X) == "granted").mean()
    assert found.changes[0]["lost"] == ((model.predict(X) != "granted") & TRUE).sum()


def test_scores_of_a_function_or_module_become_decisions_by_the_threshold():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 1)
    X = np.column_stack((SCORE, RNG.random(N))).astype("f4")
    with torch.no_grad():
        logits = module(torch.as_tensor(X)).numpy()[:, 0]
    found = report(y_pred=module, X=X, threshold=float(np.median(logits)))
    assert found.groups[0]["selection_rate"] == pytest.approx(0.5, abs=1e-3)
    assert found.groups[0]["auc"] == pytest.approx(roc_auc_score(TRUE, logits))
    with pytest.raises(ValueError, match="threshold must be given for a model whose output is sc"):
        report(y_pred=module, X=X)
    with pytest.raises(ValueError, match="X must hold the rows for Linear"):
        report(y_pred=module)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_pred": None}, "y_pred must hold decisions, or be a model; got None"),
        ({"sensitive_features": None}, "sensitive_features must hold one group per row"),
        ({"y_true": None, "constraint": "equalized_odds"}, "y_true must hold labels for constr"),
        ({"constraint": DemographicParity(reference="overall")}, "reference='pairwise'"),
        ({"constraint": ErrorRateParity(ratio=0.8)}, r"constraint must be one of .* to have a rat"),
        ({"sample_weight": Weights(np.full(N, 2.0), most=1)}, "must be at most 1; got 2.0"),
        ({"constraint": "fairness"}, "constraint must be one of .*; got 'fairness'"),
        ({"confidence": 1}, "confidence"),
        ({"preset": "fairness"}, "preset must be one of four_fifths, nyc_144; got 'fairness'"),
        ({"preset": "nyc_144", "slack": 0.1}, "is a question: give no constraint and no slack"),
        ({"reference": "child"}, "reference 'child' is not a group of group: "),
        ({"reference": ["man", "A"]}, "reference must have a group for each of"),
        ({"slack": -1}, "slack must be a number >= 0"),
        ({"y_pred": np.full(N, None)}, "y_pred has no decisions"),
        ({"sensitive_features": pd.DataFrame({"sex": [None] * N})}, "sex is missing in every row"),
        ({"sample_weight": -np.ones(N)}, "sample_weight must not be negative"),
        ({"constraint": ["demographic_parity"]}, "constraint must be one of"),
        *(
            ({"min_cell": rows}, f"min_cell must be an integer >= 1; got {rows!r}")
            for rows in (0, -1, 2.5, True, "ten", float("nan"))
        ),
    ],
)
def test_wrong_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        report(**changes)


def test_weighted_rows_have_a_certificate_if_there_is_a_bound():
    weight = RNG.random(N)
    found = report(sample_weight=weight, slack=0.4)
    assert found.certificates == []
    assert "weights without a bound" in found.left_out[-1]
    bounded = report(sample_weight=Weights(weight, most=1), slack=0.4)
    assert bounded.groups == found.groups
    (entry,) = bounded.certificates
    assert entry["population"] == {"weights": {"most": 1.0}}
    assert entry["rows"] == N > entry["n_samples"]
    assert bounded.answer.startswith("Yes, also for future cases")


@pytest.mark.parametrize(("ratio", "kept"), [(0.55, True), (0.63, False)])
def test_a_ratio_is_asked_answered_and_certified(ratio, kept):
    found = report(constraint=DemographicParity(ratio=ratio))
    assert f"with ratios of at least {100 * ratio:.1f} %?" in found.question
    (fact,) = facts(found.ratios, criterion="demographic_parity")
    assert f"(smallest ratio {100 * fact['value']:.1f} %)" in found.headline
    assert found.answer.startswith("Yes" if kept else "In this sample, yes")
    (entry,) = found.certificates
    assert entry["kept"] == kept
    assert entry["estimate"] == pytest.approx(1 - fact["value"])
    high, low = sorted(entry["rates"], key=lambda rate: -rate["rate"])
    times = entry["rows_needed"] / N
    hits, rows = ([round(times * rate[n]) for rate in (high, low)] for n in ("hits", "rows"))
    assert SHORTFALL.bound(hits, rows, 0.05) == pytest.approx(1 - ratio, rel=0.02)
    missed = report(constraint=DemographicParity(ratio=0.9))
    outside = "Outside the limit (a ratio of at least 90.0 %): by group ("
    assert missed.findings[0].startswith(outside)
    assert f"at least {100 * (1 - entry['upper']):.1f} % for future cases" in found.to_html()


def test_rates_of_zero_have_no_ratio_and_are_named_in_the_answer():
    """Nobody is wrongly granted anything: the ratio of the true positive rates decides."""
    granted = TRUE & (RNG.random(N) < np.where(SEX == "man", 0.9, 0.8))
    found = report(y_pred=granted, constraint=EqualizedOdds(ratio=0.5))
    rate = {sex: granted[TRUE & (sex == SEX)].mean() for sex in ("man", "woman")}
    assert f"smallest ratio {100 * rate['woman'] / rate['man']:.1f} %" in found.answer
    zero = "sex: predicted 'favourable' with label 'not favourable' (rates of zero have"
    assert f"Not compared: {zero} no ratio)." in found.answer.replace("group:", "sex:")
    rows = {"y_true": TRUE, "y_pred": granted, "sensitive_features": SEX}
    certificate = certify(**rows, constraint=EqualizedOdds(ratio=0.5))
    assert certificate.estimate == pytest.approx(1 - rate["woman"] / rate["man"])


@pytest.mark.parametrize("control", [{}, {"control_features": TRUE}])
def test_the_answer_names_the_groups_that_the_sample_lacks(control):
    races = pd.CategoricalDtype(["A", "B", "C", "D"])
    people = PEOPLE.assign(race=pd.Series(RACE).astype(races))
    found = report(sensitive_features=people, **control)
    assert re.search(r"Not compared: .*\brace.*: D \(0 rows\)", found.answer)
    assert not re.search(r"\bA \(0 rows\)", found.answer)


def test_the_answer_names_the_groups_and_labels_of_the_model_that_the_sample_lacks():
    """By all of the attributes that the model knows, or by one of them."""
    label = np.where(~TRUE & (RACE == "C"), "maybe", np.where(TRUE, "yes", "no"))
    X, rows = SCORE[:, None], RACE != "C"
    model = RateConstrainedClassifier(slack=0.3).fit(X, label, sensitive_features=PEOPLE)
    more = {"X": X[rows], "pos_label": "yes", "constraint": "equal_opportunity"}
    for people, names in (
        (PEOPLE, ["race: C", "sex & race: man & C", "sex & race: woman & C"]),
        (PEOPLE.race, ["race: C"]),
        (PEOPLE.sex, []),
    ):
        found = report(label[rows], model, people[rows], **more)
        names = [f"{name} (0 rows)" for name in ["label 'maybe'", *names]]
        assert found.answer.endswith(f" Not compared: {'; '.join(names)}.")
        assert found.left_out == names


def test_four_fifths_are_a_question_by_name():
    found = report(sensitive_features=PEOPLE, preset="four_fifths")
    parity = DemographicParity(ratio=0.8, attributes="parallel")
    asked = report(sensitive_features=PEOPLE, constraint=parity)
    assert (found.headline, found.verdict) == (asked.headline, asked.verdict)
    assert found.to_dict()["differences"] == asked.to_dict()["differences"]
    assert "29 CFR 1607.4(D)" in found.to_markdown()
    assert any("not about combinations" in text for text in found.limits)


def test_gaps_are_against_the_group_that_is_named():
    """Differences and ratios of all rates, as group_report has them."""
    found = report(sensitive_features=PEOPLE, reference=["woman", "C"])
    (fact,) = [f for f in facts(found.ratios, attribute="sex") if "groups" in f]
    table = metrics.group_report(TRUE, PRED, sensitive_features=SEX, reference="woman")
    assert fact["reference"] == "woman"
    expected = table["selection_rate_ratio"][["man", "woman"]].to_dict()
    assert fact["groups"] == pytest.approx(expected)
    for rate, gaps in fact["errors"].items():
        assert gaps == pytest.approx(table[f"{rate}_difference"][["man", "woman"]].to_dict())
    (both,) = [f for f in facts(found.ratios, attribute="sex & race") if "groups" in f]
    assert both["reference"] == "woman & C"
    assert "Other rates by sex, in points more than woman" in found.to_html()


def test_groups_are_compared_within_strata():
    """Each stratum has its differences and its certificate, as if there were no others."""
    job = pd.Series(np.where(RACE == "C", "site", "office"), name="job")
    found = report(control_features=job, slack=0.3)
    asked = ["group where job is office", "group where job is site"]
    assert "the groups within each job have" in found.question
    assert [f["attribute"] for f in facts(found.differences, criterion="equalized_odds")] == asked
    given = {"y_true": TRUE, "y_pred": PRED, "sensitive_features": SEX, "control_features": job}
    worst = certify(**given, constraint="demographic_parity", slack=0.3)
    assert max(entry["upper"] for entry in found.certificates) == worst.upper
    (site,) = facts(found.intersections, attribute=asked[1], group="man")
    assert site["samples"] == ((RACE == "C") & (SEX == "man")).sum()
    assert any("who gets into which" in text for text in found.limits)
    few = report(control_features=np.where(SEX == "man", job, "home"))
    assert any("home: woman" in t and "nothing to compare it with" in t for t in few.left_out)


def test_attributes_in_parallel_are_not_compared_together():
    found = report(sensitive_features=PEOPLE, constraint=DemographicParity(attributes="parallel"))
    assert {f["attribute"] for f in found.differences} == {"sex", "race"}
    assert {f["attribute"] for f in found.intersections} == {"sex & race"}
    assert "by sex, race have" in found.question


def test_the_dict_is_plain_and_has_the_names_of_its_schema(audit):
    found = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
    assert found["schema_version"] == "2"
    names = {"groups", "intersections", "ratios", "changes", "certificates", "provenance"}
    assert names <= set(found)
    assert found["provenance"]["rows"] == N
    assert found["provenance"]["version"] == fairconstrained.__version__


def test_combinations_that_do_not_occur_are_not_listed_and_unlabelled_groups_are_null():
    """The first attribute is known where the second is not; woman has no label."""
    first = pd.Series(SEX).mask(np.arange(N) < 1500)
    second = pd.Series(RACE).mask(np.arange(N) >= 1500)
    found = report(sensitive_features=pd.DataFrame({"sex": first, "race": second}))
    assert found.intersections == []
    label = np.where(SEX == "woman", None, TRUE)
    found = report(label, control_features=SEX, sensitive_features=RACE)
    woman, *_ = facts(found.to_dict()["intersections"], attribute="group where stratum is woman")
    # So few labels are a small cell, whose number is hidden.
    assert (woman["labelled"], woman["error"]) == (None, None)
    assert woman["selection_rate"] is not None
    assert found.to_html()


def test_rates_that_are_not_defined_are_no_warning_and_null():
    with warnings.catch_warnings(action="error"):
        found = report(TRUE & (SEX == "man"), y_score=SCORE)
    (woman,) = facts(found.to_dict()["groups"], group="woman")
    assert woman["true_positive_rate"] is None
    assert "too few" in found.to_html()


def test_a_parameter_with_another_name_is_suggested():
    with pytest.raises(TypeError, match=r"report\(\) has no parameter 'scores'; .* 'y_score'\?"):
        fairconstrained.report(TRUE, PRED, sensitive_features=SEX, scores=PRED)


def test_a_ratio_of_rates_that_are_all_zero_is_not_known():
    options = {"constraint": DemographicParity(ratio=0.8), "sensitive_features": SEX}
    nobody = fairconstrained.report(y_pred=np.zeros(N, dtype=int), **options)
    assert nobody.verdict == "not proved"
    assert "no ratio on these rows, where all rates are zero" in nobody.to_markdown()


def test_a_cell_that_several_criteria_leave_out_is_named_once():
    people = np.where(np.arange(N) < 20, "x", SEX)
    left_out = report(TRUE | (people == "x"), sensitive_features=people).left_out
    of_labels = [text for text in left_out if "label" in text]
    assert of_labels == ["group: x with label 'not favourable' (0 rows)"]


def test_rows_of_weight_zero_are_counted_and_said_to_be_in_no_rate():
    """Calibration and errors are those of the other rows."""
    weight = np.where(np.arange(N) < 20, 0.0, 1.0)
    given = {"before": BEFORE, "y_score": SCORE, "sample_weight": weight}
    audit = report(sensitive_features=np.where(weight, SEX, "x"), **given)
    assert "20 rows with a weight of zero: in no rate and no comparison." in audit.left_out
    assert facts(audit.groups, group="x")[0]["samples"] == 20
    others = (column[20:] for column in (TRUE, PRED, SEX))
    rows = report(*others, before=BEFORE[20:], y_score=SCORE[20:])
    calibrations = (pd.DataFrame(one.calibration) for one in (audit, rows))
    pd.testing.assert_frame_equal(*calibrations)
    for name in ("error_before", "error_now"):
        assert audit.changes[0][name] == pytest.approx(rows.changes[0][name])


def test_a_group_may_have_the_name_of_the_rows_without_one():
    people = np.where(np.arange(N) < 30, "(unknown)", SEX).astype(object)
    people[30:50] = None
    rows = {row["group"]: row["samples"] for row in report(sensitive_features=people).groups}
    assert (rows["(unknown)"], rows["(unknown): no group"]) == (30, 20)


def test_groups_and_strata_that_are_too_small_are_named_within_strata():
    """A group of three and a stratum of four, and strata of one row each, which leave nothing."""
    rows = {"y_true": None, "y_pred": np.arange(400) % 3 == 0, "slack": 0.1}
    people = np.where(np.arange(400) < 3, "c", np.where(np.arange(400) % 2, "a", "b"))
    strata = np.where(np.arange(400) > 395, "z", np.where(np.arange(400) % 5 < 2, "x", "y"))
    audit = report(sensitive_features=people, control_features=strata, **rows)
    few = "1 group with fewer than 10 rows, neither shown nor compared"
    wheres = [f"group where stratum is {name}: {few}" for name in "xy"]
    for words in (*wheres, f"stratum: {few.replace('group', 'value')}"):
        assert words in audit.answer
        assert words in audit.left_out
    alone = report(sensitive_features=people, control_features=np.arange(400), **rows)
    assert alone.verdict == "not proved"
    assert "Nothing can be compared" in alone.answer
    assert "stratum: 400 values with fewer than 10 rows" in alone.answer


@pytest.mark.parametrize("parameter", ["sensitive_features", "control_features"])
@pytest.mark.parametrize(
    "declared",
    [
        lambda values: pd.Series(pd.Categorical(values, [*"xyw"]), name="part"),
        lambda values: pl.DataFrame({"part": pl.Series(values, dtype=pl.Enum([*"xyw"]))}),
        lambda values: {"part": pd.Categorical(values, [*"xyw"])},
    ],
)
def test_declared_values_that_no_row_has_are_named(declared, parameter):
    values = np.where(np.arange(N) % 5 < 2, "x", "y")
    audit = report(**{"sensitive_features": SEX, parameter: declared(values)}, slack=0.1)
    assert "part: w (0 rows)" in audit.left_out
    assert "part: w (0 rows)" in audit.answer


@pytest.mark.parametrize("column", [pd.Categorical, pd.Series])
def test_a_declared_label_that_no_row_has_is_named(column):
    repaid = column(pd.Categorical(["yes"] * N, ["no", "yes"]))
    audit = report(repaid, pos_label=[True, "yes"], constraint="equalized_odds")
    assert "label 'no' (0 rows)" in audit.left_out


@pytest.mark.parametrize("parameter", ["sensitive_features", "control_features"])
def test_columns_are_never_merged_and_never_none(parameter):
    people = {0: [*"aabb"], "column 0": [*"abab"]}
    rows = {"y_true": None, "y_pred": [0, 1, 0, 1], "sensitive_features": [*"abab"]}
    with pytest.raises(ValueError, match=f"{parameter} has several columns of the name 'column 0'"):
        report(**{**rows, parameter: people})
    with pytest.raises(ValueError, match=f"{parameter} has no columns"):
        report(**{**rows, parameter: pd.DataFrame(index=range(4))})

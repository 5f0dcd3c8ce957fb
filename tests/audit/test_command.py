"""The command: from a file to a page, and a sentence for each way in which a file can be wrong."""

import hashlib
import io
import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

from fairconstrained import audit, metrics
from fairconstrained.audit.arguments import CRITERIA
from fairconstrained.audit.measures import COMPARED

N = 400
ASKED = ["--decision", "decision", "--sensitive", "sex", "--positive", "granted"]


def table(n=N):
    rng = np.random.default_rng(0)
    score = rng.random(n)
    return pd.DataFrame(
        {
            "sex": np.where(rng.random(n) < 0.5, "woman", "man"),
            "age": rng.choice(["young", "old"], n),
            "score": score.round(3),
            "decision": np.where(score > 0.5, "granted", "refused"),
            "repaid": np.where(rng.random(n) < score, "yes", "no"),
            "old": np.where(score > 0.6, "granted", "refused"),
        }
    )


def towns(n):
    return table().assign(town=[f"Town {i % n}" for i in range(N)])


@pytest.fixture
def run(tmp_path, capsys):
    def command(content, *argv):
        path = tmp_path / "decisions.csv"
        text = content.to_csv(index=False).encode() if hasattr(content, "to_csv") else content
        path.write_bytes(text)
        audit.main(["--csv", str(path), *argv, "--output", str(tmp_path / "new")])
        facts = json.loads((tmp_path / "new" / "audit.json").read_text())
        return capsys.readouterr().out, facts

    return command


def test_ratios_strata_and_bounded_weights_are_asked(run):
    frame = table(1000).assign(weight=1.0)
    more = ["--ratio", "0.5", "--control", "age", "--weights", "weight", "--most-weight", "1"]
    said, found = run(frame, *ASKED, *more)
    assert "by sex within each age" in said
    assert "with ratios of at least 50.0 %?" in said
    strata = [entry["attribute"] for entry in found["certificates"]]
    assert strata == ["sex where age is old", "sex where age is young"]


def test_a_page_and_its_facts_are_written(run, tmp_path):
    frame = table()
    more = ["--label", "repaid", "--score", "score", "--before", "old", "--slack", "0.2"]
    positive = ["--decision", "decision", "--sensitive", "sex", "age", "--positive"]
    out, facts = run(frame, *positive, "granted", "yes", *more)
    page = (tmp_path / "new" / "audit.html").read_text()
    assert out.splitlines()[:2] == [facts["question"], facts["answer"]]
    assert "Who changed" in page
    (gap, *_) = facts["differences"]
    y, sex = frame["decision"] == "granted", frame["sex"]
    expected = metrics.demographic_parity_difference(y, y, sensitive_features=sex)
    assert gap["value"] == pytest.approx(expected, abs=1e-12)
    origin = facts["provenance"]
    written = (tmp_path / "decisions.csv").read_bytes()
    assert origin["sha256"] == hashlib.sha256(written).hexdigest() in page
    assert (origin["file"], origin["rows"]) == ("decisions.csv", N)
    assert origin["command"].startswith("python -m fairconstrained.audit --csv ")
    favourable = {name: found["favourable"] for name, found in facts["outcomes"].items()}
    assert favourable == {"decision": "granted", "label": "yes", "before": "granted"}


def test_rows_without_decision_or_group_and_blanks_are_named(run):
    frame = table()
    frame.loc[:4, "decision"] = None
    frame.loc[5:7, "sex"] = None
    frame.loc[8:9, "decision"] += " "
    _, facts = run(frame, *ASKED)
    assert facts["left_out"] == [
        "decision: blanks around words are removed.",
        "5 rows with no decision: in no figure.",
        "3 rows with an unknown sex: in none of its groups.",
    ]
    assert facts["provenance"]["rows"] == N - 5


@pytest.mark.parametrize(
    ("slack", "fail_on", "code"),
    [
        ("0.1", "not-kept", 1),
        ("0.1", "not-proved", 1),
        ("0.22", "not-kept", 0),
        ("0.22", "not-proved", 3),
        ("0.5", "not-proved", 0),
    ],
)
def test_exit_codes_of_pipelines(run, slack, fail_on, code):
    """The gap is 0.2."""
    place = np.arange(N)
    frame = table().assign(sex=np.where(place % 2, "woman", "man"))
    frame["decision"] = np.where(place < np.where(place % 2, 160, 240), "granted", "refused")
    argv = [*ASKED, "--slack", slack, "--fail-on", fail_on]
    with pytest.raises(SystemExit, match=str(code)) if code else nullcontext():
        run(frame, *argv)


def test_a_bias_audit_of_new_york_needs_no_decisions(run, tmp_path):
    """Impact ratios of the rates of scores above the median, by sex, age and both."""
    frame = table(1000)
    named = ["--sensitive", "sex", "age", "--score", "score", "--preset", "nyc_144"]
    out, facts = run(frame, *named, "--reference", "man", "old")
    assert "The favourable decision is 'score above the median = True'." in out
    assert out.splitlines()[1].startswith("This law sets no threshold (smallest ratio ")
    above = frame["score"] > frame["score"].median()
    ratios = {fact["attribute"]: fact for fact in facts["ratios"] if "groups" in fact}
    assert set(ratios) == {"sex", "age", "sex & age"}
    rates = above.groupby(frame["sex"]).mean()
    assert ratios["sex"]["groups"] == pytest.approx((rates / rates["man"]).to_dict())
    assert ratios["sex & age"]["reference"] == "man & old"
    page = (tmp_path / "new" / "audit.html").read_text()
    assert "Administrative Code of New York City" in page
    assert "The law sets no threshold" in page


def test_decisions_that_are_all_equal_have_a_favourable_one(run):
    out, _ = run(table().assign(decision=0), "--decision", "decision", "--sensitive", "sex")
    assert "The favourable decision is 'decision = 1'." in out
    alone = "Nobody gets the favourable decision: equal rates mean nothing here."
    assert out.splitlines()[1] == alone  # no groups at 0.0 %, no bound
    frame = table().assign(decision=1, repaid=1)
    out, _ = run(frame, "--decision", "decision", "--sensitive", "sex", "--label", "repaid")
    assert out.splitlines()[1].startswith("Everybody gets the favourable decision")


def excel(frame):
    pytest.importorskip("openpyxl")
    file = io.BytesIO()
    frame.to_excel(file, index=False)
    return file.getvalue()


@pytest.mark.parametrize("write", [lambda frame: frame, excel])
def test_texts_that_count_as_missing_and_leading_zeros_are_named(run, write):
    frame = table()
    frame.loc[:3, "sex"] = "NA"
    frame["zip"] = np.where(np.arange(N) % 2, "01234", "1234")
    argv = ["--decision", "decision", "--sensitive", "sex", "zip", "--positive", "granted"]
    out, facts = run(write(frame), *argv)
    assert "'NA' in sex: these count as missing." in out.splitlines()
    assert facts["left_out"][:2] == [
        "'NA' in sex: these count as missing.",
        "zip: read as texts, since '01234' begins with a zero.",
    ]
    assert {f["group"] for f in facts["groups"] if f["attribute"] == "zip"} >= {"01234", "1234"}
    assert "'01234', '1234' in zip are different groups." in facts["findings"]


def parquet(**types):
    pytest.importorskip("pyarrow")
    return lambda frame: frame.astype(types).to_parquet(index=False)


@pytest.mark.parametrize(
    "write", [lambda frame: frame, excel, parquet(), parquet(sex="category", decision="category")]
)
def test_blanks_around_words_are_removed_from_files_of_every_kind_and_said(run, write):
    frame, place = table(), np.arange(N)
    groups, decisions = frame["sex"], frame["decision"] == "granted"
    frame["sex"] = np.choose(place % 3, [groups, groups + " ", "\t" + groups])
    frame["decision"] = np.where(decisions, " TRUE", np.choose(place % 2, ["NO", "NO "]))
    out, facts = run(write(frame), *ASKED[:-1], "true")
    shown = {f["group"]: f["selection_rate"] for f in facts["groups"] if f["attribute"] == "sex"}
    assert shown == pytest.approx(decisions.groupby(groups).mean().to_dict())
    notes = [line for line in out.splitlines() if line.endswith("blanks around words are removed.")]
    assert "sex" in notes[0]
    assert "decision" in notes[-1]


def test_empty_texts_of_parquet_count_as_missing_and_a_note_says_so(run):
    frame = table()
    frame["sex"] = np.where(np.arange(N) % 3, frame["sex"], "")
    out, facts = run(parquet()(frame), *ASKED)
    assert "'' in sex: these count as missing." in out.splitlines()
    assert {f["group"] for f in facts["groups"][1:]} == {"woman", "man", "(unknown)"}


@pytest.mark.parametrize("write", [lambda frame: frame, excel])
def test_words_with_blanks_are_missing_values_and_booleans_as_those_without(run, write):
    frame = table()
    frame["sex"] = np.choose(np.arange(N) % 3, ["NA ", frame["sex"], frame["sex"] + " "])
    frame["decision"] = np.where(frame["decision"] == "granted", "True ", "False")
    _, facts = run(write(frame), *ASKED[:-2])  # True is known to be favourable
    assert {f["group"] for f in facts["groups"][1:]} == {"woman", "man", "(unknown)"}
    assert "'NA' in sex: these count as missing." in facts["left_out"]


def test_the_favourable_boolean_is_named_as_it_is_written(run):
    granted = table()["decision"] == "granted"
    rates = []
    for words in (["FALSE", "TRUE"], ["0", "True"]):
        frame = table().assign(decision=np.where(granted, *words[::-1]))
        _, facts = run(frame, *ASKED[:-1], "TRUE")
        rates.append(facts["groups"][0]["selection_rate"])
    assert rates == [granted.mean()] * 2


@pytest.mark.parametrize("missing", [False, True])
def test_large_integers_stay_apart(run, missing):
    frame = table()
    codes = np.array(["9007199254740992", "9007199254740993", "7"], dtype=object)
    frame["sex"] = codes[np.arange(N) % 3]
    frame.loc[0, "sex"] = None if missing else "7"
    _, facts = run(frame, *ASKED)
    shown = {fact["group"] for fact in facts["groups"][1:]} - {"(unknown)"}
    assert shown == {*codes}
    assert not any("one value" in note for note in facts["left_out"])


def test_names_that_the_terminal_has_no_letters_for_are_printed_by_codes(tmp_path, monkeypatch):
    printed = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr("sys.stdout", printed)
    path = tmp_path / "decisions.csv"
    table().replace({"sex": {"man": "→"}}).to_csv(path, index=False)
    audit.main(["--csv", str(path), *ASKED, "--output", str(tmp_path / "new")])
    printed.flush()
    assert b"(\\u2192: " in printed.buffer.getvalue()
    assert "→" in (tmp_path / "new" / "audit.html").read_text("utf-8")


def test_a_column_may_have_a_name_like_those_of_attributes_in_strata(run):
    frame = table(1000).rename(columns={"sex": "born where", "age": "lives where it is"})
    more = ["--control", "lives where it is", "--slack", "0.9"]
    said, _ = run(frame, *ASKED[:3], "born where", *ASKED[4:], *more)
    assert "Yes, also for future cases" in said


def test_texts_that_are_one_number_are_named(run):
    frame = table().assign(region=np.where(np.arange(N) % 3, "1.0", np.arange(N) % 2 + 1))
    frame.loc[frame.index % 3 == 0, "region"] = np.where(np.arange(134) % 2, "1", "2")
    out, _ = run(frame, *ASKED[:3], "region", *ASKED[4:])
    assert "'1', '1.0' in region: spellings of a number count as one value." in out.splitlines()


@pytest.mark.parametrize("write", [lambda frame: frame, excel])
def test_a_header_that_has_a_column_twice_is_refused(run, capsys, write):
    frame = table()
    twice = frame[["sex", "decision", "score"]].set_axis(["sex", "decision", "sex"], axis=1)
    with pytest.raises(SystemExit, match="2"):
        run(write(twice), *ASKED)
    assert "has several columns of the name 'sex'." in capsys.readouterr().err
    for other in ("age", "age "):  # not asked for
        run(write(frame.set_axis([*frame.columns[:-1], other], axis=1)), *ASKED)


def test_a_header_that_has_a_column_with_and_without_blanks_is_refused(run, capsys):
    frame = table()
    for other in ("age ", "sex "):
        refused = other == "sex "
        with pytest.raises(SystemExit, match="2") if refused else nullcontext():
            run(parquet()(frame.rename(columns={"old": other})), *ASKED)
    assert "has several columns of the name 'sex'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "argv", "message"),
    [
        (b"", ASKED, "decisions.csv is empty."),
        (b"sex,decision\n", ASKED, "has 0 rows. Comparing two groups"),
        (table(1), ASKED, "has 1 row. Comparing"),
        (table(6), ASKED, "has 6 rows. Comparing two groups takes at least 20"),
        (b"sex\nwoman\n", ASKED, "has one column, 'sex': nothing separates others"),
        (b"a,b\n1,0,\n2,1,\n", ASKED, "has rows with more columns than its header: a, b"),
        (b'a,b\n"1,2\n3,4\n', ASKED, "cannot be read with --sep ',' --decimal '.' --encoding utf"),
        (b"PK\x03\x04", ASKED, "cannot be read as an Excel file. Unpack the archive"),
        (table().to_json(orient="records").encode(), ASKED, "is JSON, HTML or XML and no table"),
        (table().to_html().encode(), ASKED, "is JSON, HTML or XML and no table"),
        (table(), [*ASKED, "--sep", "::"], "--sep must be one character, or tab; got '::'"),
        (b"\x1f\x8bno", ASKED, "gzip file that cannot be unpacked"),
        (b"\xd0\xcf\x11\xe0", ASKED, "Excel file of the old kind"),
        (b"PAR1", ASKED, "Parquet file that cannot be read"),
        (table(), [*ASKED, "--sep", ";"], "nothing separates others. Name the character between "),
        (table(), [*ASKED, "--encoding", "utf-16"], "Try it without --encoding utf-16"),
        (table(), [*ASKED, "--encoding", "no"], "--encoding must be one that Python knows"),
        (table(), [*ASKED[:3], "Sex", *ASKED[4:]], "no column 'Sex'; it has sex, "),
        (table(), [*ASKED, "--label", "repay"], "no column 'repay'; it has repaid, "),
        (table(), ASKED[:4], "the values of decision are granted, refused. Name the favourable"),
        (table(), [*ASKED[:5], "yes"], "--positive is 'yes', but the values of decision are"),
        (table(), [*ASKED, "--label", "repaid"], "the values of repaid are no, yes. Name the"),
        (table(), [*ASKED[:3], "score", *ASKED[4:]], "pandas.cut(table['score'], 5)"),
        (
            table().assign(born=pd.date_range("1960-01-01", periods=N, freq="30D")),
            [*ASKED[:3], "born", *ASKED[4:]],
            "Turn dates into ranges: table['born group'] = pandas.to_datetime(table['born'])",
        ),
        (towns(40), [*ASKED[:3], "town", *ASKED[4:]], "such as regions for towns"),
        (towns(N), [*ASKED[:3], "town", *ASKED[4:]], "Names and identifiers are no groups"),
        (table(), [*ASKED, "--score", "old"], "old must hold numbers; got"),
        (table().assign(score=None), [*ASKED, "--score", "score"], "score has 400 missing values"),
        (table().assign(decision=None), ASKED, "the values of decision are missing"),
        (table().assign(w=-1), [*ASKED, "--weights", "w"], "sample_weight must not be negative"),
    ],
)
def test_a_file_that_cannot_be_used_ends_in_a_sentence(run, capsys, content, argv, message):
    with pytest.raises(SystemExit, match="2"):
        run(content, *argv)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: --csv, --sensitive"),
        (["--csv", "no.csv", *ASKED], "there is no file no.csv"),
        (["--csv", 300 * "x", *ASKED, "--output", 300 * "x"], "there is no file xxx"),
        (["--csv", __file__, *ASKED, "--slack", "2"], "--slack must be between 0 and 1"),
        (["--csv", __file__, *ASKED, "--ratio", "0"], "--ratio must be between 0 and 1"),
        (["--csv", __file__, *ASKED, "--confidence", "1"], "--confidence must be between 0 and 1"),
        (["--csv", __file__, *ASKED, "--criterion", "equalized_odds"], "needs --label COLUMN"),
        (["--csv", __file__, *ASKED, "--output", __file__], "--output must be a folder"),
        (["--csv", __file__, *ASKED, "--output", f"{__file__}/a/b"], "--output must be a folder"),
        (["--csv", __file__, *ASKED, "--fail-on", "not-kept"], "--fail-on needs a question"),
        (["--csv", __file__, "--sensitive", "sex"], "--decision is required"),
        (["--csv", __file__, *ASKED, "--preset", "nyc_144", "--slack", "0.1"], "is a question"),
        (["--csv", __file__, *ASKED, "--reference", "man", "old"], "--reference needs a group for"),
        (["--csv", __file__, *ASKED, "--min-cell", "0"], "--min-cell must be at least 1"),
        (["--csv", __file__, *ASKED[:3], "decision"], "'decision' is the decision; it cannot be"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(capsys, argv, message):
    with pytest.raises(SystemExit, match="2"):
        audit.main(argv)
    assert message in capsys.readouterr().err


def test_the_criteria_that_are_written_out_are_those_that_are_compared():
    assert sorted(CRITERIA) == sorted(COMPARED)

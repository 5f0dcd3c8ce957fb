"""A user's file: what becomes of its columns, and a sentence for each way it can be wrong."""

import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from fairconstrained import quickstart
from fairconstrained.audit.files import Unusable
from fairconstrained.datasets import list_datasets, make_loan_applications
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.arguments import DATASETS, read
from fairconstrained.quickstart.steps import from_file, held_out, proxies


def loans(n=400):
    return make_loan_applications(n, random_state=0).frame


@pytest.fixture
def written(tmp_path):
    def write(frame, label="decision", sensitive=("sex",), positive="granted", drop=()):
        path = tmp_path / "loans.csv"
        frame.to_csv(path, index=False)
        argv = ["--csv", str(path), "--label", label, "--sensitive", *sensitive]
        argv += ["--positive", positive] if positive else []
        return read([*argv, *(["--drop", *drop] if drop else [])], None)

    return write


def test_words_numbers_and_holes(written):
    """Spellings of the favourable label are one value, and named."""
    frame = loans()
    frame.loc[1::2, "decision"] = frame["decision"].str.title() + " "
    table = from_file(written(frame, sensitive=["sex", "sex"], drop=["age_group"]))
    features = frame.drop(columns=["sex", "age_group", "decision"])
    pd.testing.assert_frame_equal(table.X, features, check_dtype=False)
    assert table.words == ["occupation", "housing"]
    assert table.X["housing"].isna().sum() == frame["housing"].isna().sum() > 0
    np.testing.assert_array_equal(table.y, loans()["decision"] == "granted")
    assert table.groups.tolist() == frame["sex"].tolist()
    assert table.outcomes[1] == "Granted, granted"
    assert table.notes == [
        "decision: blanks around words are removed.",
        "'Granted', 'granted' in decision count as one value.",
    ]


def test_several_sensitive_columns_are_crossed_and_rows_with_holes_are_in_no_group(written):
    frame = loans().assign(age=lambda table: pd.factorize(table["age_group"])[0])
    frame.loc[::40, "age_group"] = None
    table = from_file(written(frame, sensitive=["sex", "age_group"]))
    assert list(table.groups) == ["sex", "age_group"]
    assert table.groups["age_group"].isna().sum() == 10
    note = "10 rows with no sex or age_group: used to train the model, in no group."
    assert table.notes == [note]
    train, test = held_out(table, read([], None))
    assert 0 < test.groups["age_group"].isna().sum() < 10
    (proxy,) = proxies(train, test)
    assert proxy.startswith("age tells age_group of 100.0 % of the held-out rows")


def test_a_group_that_is_too_small_for_the_limit_is_named_before_any_fit(written):
    """Fits leave it out, and scores of the search count it: of four rows they may say anything."""
    frame = loans()
    frame.loc[:3, "sex"] = "other"
    train, _ = held_out(from_file(written(frame)), read([], None))
    assert "fewer than 20): too few rows for a violation of at most 0.05" in train.notes[-1]
    frame.loc[:3, "decision"] = "granted"
    options = read(["--constraint", "equal_opportunity"], None)
    train, _ = held_out(from_file(written(frame)), options)
    assert train.notes[-1].startswith("granted in group other (3 rows, fewer than 12): too few")


def test_the_favourable_outcome_of_a_data_set_is_the_better_one(monkeypatch):
    """In credit_card 1 is a default."""
    frame = loans()[["income", "occupation"]].rename(columns={"occupation": "SEX"})
    names, groups = ["paid", "default"], frame["SEX"]
    target = np.arange(400) % 2
    bunch = Bunch(data=frame, target=target, target_names=names, sensitive_features=groups)
    monkeypatch.setattr(steps, "load_dataset", lambda name: bunch)
    table = steps.dataset("credit_card")
    assert table.outcomes == ("default", "paid")
    np.testing.assert_array_equal(table.y, 1 - bunch.target)


def test_rows_without_label_and_columns_without_use_are_left_out_and_named(written):
    frame = loans().assign(country="Utopia", applicant=[f"A{i}" for i in range(400)])
    frame["row"] = np.random.default_rng(0).permutation(400)
    frame.loc[5:9, "decision"] = None
    table = from_file(written(frame))
    assert len(table.X) == len(table.y) == len(table.groups) == 395
    assert not {"country", "applicant", "row"} & set(table.X)
    frame["decision"] = (frame["decision"] == "granted").where(frame["decision"].notna()) * 1.0
    codes = from_file(written(frame, positive=None))
    assert codes.outcomes == ("decision = 0", "decision = 1")
    np.testing.assert_array_equal(codes.y, table.y)
    left_out = ["5 rows without decision", "country", "row", "applicant"]
    assert [note.split(":")[0] for note in table.notes] == left_out


def test_a_column_that_tells_the_group_is_named(written):
    """Two words for men and one for women; a number that is larger for women, and one hole."""
    frame = loans()
    woman = frame["sex"] == "woman"
    frame["title"] = np.where(woman, "Ms", np.where(frame.index % 9 == 0, "Dr", "Mr"))
    frame["code"] = 10.0 * woman + np.arange(400) % 7
    frame.loc[3, "code"] = np.nan
    found = proxies(*held_out(from_file(written(frame)), read([], None)))
    assert [line.split(" tells ")[0] for line in found] == ["title", "code"]
    assert found[0] == (
        "title tells sex of 100.0 % of the held-out rows, so the model knows it. --drop title "
        "leaves it out."
    )
    assert proxies(*held_out(from_file(written(loans())), read([], None))) == []


def test_one_row_of_a_group_does_not_stop_the_split(written):
    frame = loans()
    frame.loc[0, "sex"] = "Typo"
    train, test = held_out(from_file(written(frame)), read([], None))
    assert len(test.y) == 100
    assert sorted([*train.X.index, *test.X.index]) == list(range(400))


def test_labels_are_named_and_what_they_are_joined_from(written):
    frame = loans()
    table = from_file(written(frame, label="months", positive="36.0"))
    assert table.outcomes == ("months = 12, 24", "months = 36")
    np.testing.assert_array_equal(table.y, frame["months"] == 36)


def test_amounts_percentages_and_dates_become_numbers_and_the_notes_say_so(written):
    frame = loans()
    born = pd.to_datetime("1980-01-01") + pd.to_timedelta(np.arange(400) * 20, "D")
    frame["price"] = [f"€ {1_050.2 + i:,.2f}" for i in range(400)]
    frame["quota"] = [f"{i % 80}%" for i in range(400)]
    frame["born"] = born.strftime("%d.%m.%Y")
    frame["applied"] = born.strftime("%Y-%m-%d")
    table = from_file(written(frame))
    np.testing.assert_allclose(table.X["price"], 1_050.2 + np.arange(400))
    np.testing.assert_allclose(table.X["quota"], np.arange(400) % 80)
    np.testing.assert_allclose(table.X["born"], (399 - np.arange(400)) * 20 / 365.25, atol=0.01)
    months = (born - pd.Timestamp(1970, 1, 1)).days / 365.25 * 12
    np.testing.assert_allclose(table.X["applied"], months, atol=0.1)
    assert table.notes == [
        "price: '€ 1,050.20' is read as the number 1050.2.",
        "quota: '0%' is read as the number 0.",
        "born: dates, such as 1980-01-01, become the age in years on 2001-11-06.",
        "applied: dates, such as 1980-01-01, become months since January 1970.",
    ]


def test_dates_with_time_zones_and_infinite_numbers_are_read(written):
    frame = loans()
    times = pd.Timestamp("2020-01-01 12:00+02:00") + pd.to_timedelta(np.arange(400), "D")
    frame["applied"] = times.astype(str)
    frame["ratio"] = np.where(np.arange(400) % 9, np.arange(400) % 7 + 0.5, np.inf)
    frame.loc[9, "ratio"] = -1e300  # infinite in single precision
    table = from_file(written(frame))
    assert np.isfinite(table.X["ratio"].dropna().astype(np.float32)).all()
    assert proxies(*held_out(table, read([], None))) == []
    assert np.ptp(table.X["applied"]) == pytest.approx(399 / 365.25 * 12, abs=0.1)
    assert table.X["ratio"].isna().sum() == 45
    assert "ratio: infinite numbers count as missing." in table.notes


def test_a_feature_that_equals_the_label_is_called_a_leak(written):
    frame = loans()
    frame["outcome"] = np.where(frame["decision"] == "granted", "paid out", "closed")
    (line,) = proxies(*held_out(from_file(written(frame)), read([], None)))
    assert line.startswith("outcome tells the label of 100.0 % of the held-out rows.")
    assert line.endswith("it leaks the answer: --drop outcome leaves it out.")


def test_too_few_rows_of_a_group_for_the_folds_are_refused(written):
    frame = loans()
    frame.loc[(frame["sex"] == "man") & (frame.index > 10), "decision"] = "refused"
    odds = read(["--constraint", "equal_opportunity", "--cv", "6"], None)
    with pytest.raises(Unusable, match="for 6 folds: granted in group man: "):
        held_out(from_file(written(frame)), odds)


def test_groups_keep_the_values_of_the_file(tmp_path):
    """Numbers of which some are missing are codes; a day and its name are not merged."""
    pytest.importorskip("openpyxl")
    path = tmp_path / "loans.xlsx"
    codes = np.array([1, 2, None, 2], dtype=object)[np.arange(400) % 4]
    loans().assign(code=codes).to_excel(path, index=False)
    argv = ["--csv", str(path), "--label", "decision", "--positive", "granted"]
    options = read([*argv, "--sensitive", "code"], None)
    table = from_file(options)
    assert table.groups.fillna("unknown").tolist() == ["1", "2", "unknown", "2"] * 100
    assert table.notes[-1].startswith("100 rows with no code")
    for a, b, note in (("F", "f", "'F', 'f' in code are different"), ("F", "-", "text '-'")):
        loans().assign(code=[a, b] * 200).to_excel(path, index=False)
        table = from_file(options)
        assert set(table.groups) == {a, b}
        assert note in table.notes[-1]
    day = pd.Timestamp("2020-01-01")
    loans().assign(code=[day, str(day)] * 200).to_excel(path, index=False)
    with pytest.raises(Unusable, match="code has groups of different types with the same name: "):
        from_file(options)


def changed(**columns):
    return loans().assign(**columns)


WRONG = [
    (loans(), {"drop": ["name"]}, "no column 'name'"),
    (loans(), {"positive": None}, "are granted, refused. Name the favourable one by --pos"),
    (changed(decision="granted"), {}, "the labels in decision are granted. Learning needs two"),
    (changed(decision=None), {}, "has 0 rows with a label"),
    (loans(60), {}, "has 60 rows with a label; .* takes at least 200"),
    (changed(sex="woman"), {}, "have the same sex: there are no groups to compare"),
    (changed(sex=["woman", None] * 200), {}, "rows of .* whose group is known have the same sex:"),
    (loans()[["sex", "decision"]], {}, "no features beside the label and the sensitive columns"),
]


@pytest.mark.parametrize(("frame", "changes", "message"), WRONG)
def test_a_table_that_cannot_be_used_ends_in_a_sentence(written, frame, changes, message):
    with pytest.raises(Unusable, match=message):
        from_file(written(frame, **changes))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fairlearn's, about pandas
def test_from_a_file_to_a_model(written, tmp_path, capsys):
    """Unknown words and holes where training had none are no obstacle to the saved model."""
    frame = loans(1_200)
    frame.loc[::30, "sex"] = None
    path = written(frame).csv
    short = ["--cv", "2", "--slack", "0.05", "--max-violation", "0.4"]
    own = ["--label", "decision", "--positive", "granted", "--sensitive", "sex", "age_group"]
    quickstart.main(["--csv", str(path), *own, *short, "--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert "900 training rows, 300 held-out rows, 8 features" in out
    assert "woman & under 30" in out
    groups = pd.read_csv(tmp_path / "groups.csv", index_col=0)
    assert not [name for name in groups.index if "missing" in name or "None" in name]
    assert groups.loc["sex: man", "samples"] + groups.loc["sex: woman", "samples"] < 300
    new = frame.drop(columns=["sex", "age_group", "decision"]).head(3)
    new.loc[0, ["occupation", "income"]] = ["astronaut", np.nan]
    assert set(joblib.load(tmp_path / "model.joblib").predict(new)) <= {0, 1}


CSV = ["--csv", __file__, "--label", "y"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dataset", "nothing"], "'adult'"),
        (["--label", "decision"], "go with --csv"),
        (["--sheet", "2"], "options of files go with --csv"),
        (CSV, "--csv needs --label COLUMN and --sensit"),
        ([*CSV, "--dataset", "adult"], "not allowed with"),
        ([*CSV, "--sensitive", "sex", "y"], "'y' is the label; it cannot be sensitive"),
        (["--csv", "no.csv", "--label", "y", "--sensitive", "sex"], "there is no file no.csv"),
        (["--cv", "1"], "--cv must be at least 2"),
        (["--slack", "-0.1"], "--slack, --max-violation and --reductions must be between 0 and 1"),
        (["--max-violation", "nan"], "must be between 0 and 1"),
        (["--reductions", "x"], "--reductions: invalid float value: 'x'"),
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--output", __file__], "--output must be a folder"),
        (["--output", f"{__file__}/a/b"], "--output must be a folder"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(capsys, argv, message):
    with pytest.raises(SystemExit, match="2"):
        quickstart.main(argv)
    assert message in capsys.readouterr().err


IMPORTS = """
import sys
from fairconstrained.{command} import main
try:
    main(sys.argv[1:])
finally:
    print({{"jinja2", "numpy", "pandas", "sklearn", "torch"}} & set(sys.modules))
"""


@pytest.mark.slow
def test_help_and_errors_wait_for_no_import():
    for command, argument, code in (("audit", "--help", 0), ("quickstart", "--slack=-1", 2)):
        ran = [sys.executable, "-c", IMPORTS.format(command=command), argument]
        done = subprocess.run(ran, capture_output=True, text=True, check=False)
        assert done.stdout.endswith("set()\n")
        assert done.returncode == code


def test_the_data_sets_that_are_written_out_are_those_that_load():
    assert sorted(DATASETS) == list_datasets()

"""A user's CSV file: what becomes of its columns, and a sentence for each way it can be wrong."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from fairconstrained import quickstart
from fairconstrained.audit.tables import Unusable
from fairconstrained.datasets import make_loan_applications
from fairconstrained.quickstart import steps
from fairconstrained.quickstart.arguments import read
from fairconstrained.quickstart.steps import MISSING, from_csv, held_out, proxies


def loans(n=400):
    return make_loan_applications(n, random_state=0).frame


@pytest.fixture
def written(tmp_path):
    """Write a table; give the arguments of ``from_csv`` for it."""

    def write(frame, label="decision", sensitive=("sex",), positive="granted", drop=()):
        path = tmp_path / "loans.csv"
        frame.to_csv(path, index=False)
        return path, label, sensitive, positive, drop

    return write


def test_words_numbers_and_holes(written):
    frame = loans()
    table = from_csv(*written(frame, drop=["age_group"]))
    features = frame.drop(columns=["sex", "age_group", "decision"])
    pd.testing.assert_frame_equal(table.X, features, check_dtype=False)
    assert table.words == ["occupation", "housing"]
    assert table.X["housing"].isna().sum() == frame["housing"].isna().sum() > 0
    np.testing.assert_array_equal(table.y, frame["decision"] == "granted")
    assert table.groups.tolist() == frame["sex"].tolist()
    assert (table.outcomes, table.notes) == (("refused", "granted"), [])


def test_several_sensitive_columns_are_crossed_and_their_holes_are_a_group(written):
    frame = loans()
    frame.loc[:9, "age_group"] = None
    table = from_csv(*written(frame, sensitive=["sex", "age_group"]))
    assert list(table.groups) == ["sex", "age_group"]
    assert (table.groups["age_group"] == MISSING).sum() == 10


def test_spellings_of_the_favourable_label_are_one_value_and_named(written):
    frame = loans()
    granted = frame["decision"] == "granted"
    frame.loc[granted & (frame.index % 2 == 0), "decision"] = "Granted"
    table = from_csv(*written(frame))
    np.testing.assert_array_equal(table.y, granted)
    assert table.outcomes == ("refused", "Granted, granted")
    assert table.notes == ["'Granted', 'granted' in decision count as one value."]


def test_the_favourable_outcome_of_a_data_set_is_the_better_one(monkeypatch):
    """In credit_card 1 is a default."""
    frame = loans()[["income", "occupation"]].rename(columns={"occupation": "SEX"})
    bunch = Bunch(
        data=frame,
        target=np.arange(400) % 2,
        target_names=["paid", "default"],
        sensitive_features=frame["SEX"],
    )
    monkeypatch.setattr(steps, "load_dataset", lambda name: bunch)
    table = steps.dataset("credit_card")
    assert table.outcomes == ("default", "paid")
    np.testing.assert_array_equal(table.y, 1 - bunch.target)


@pytest.mark.parametrize("labels", [[0, 1], [False, True], [0.0, 1.0]])
def test_1_and_true_are_favourable(written, labels):
    frame = loans()
    granted = frame["decision"] == "granted"
    frame["decision"] = np.where(granted, labels[1], labels[0])
    np.testing.assert_array_equal(from_csv(*written(frame, positive=None)).y, granted)


def test_rows_without_label_and_columns_without_use_are_left_out_and_named(written):
    frame = loans().assign(country="Utopia", applicant=[f"A{i}" for i in range(400)])
    frame.loc[5:9, "decision"] = None
    table = from_csv(*written(frame))
    assert len(table.X) == len(table.y) == len(table.groups) == 395
    assert not {"country", "applicant"} & set(table.X)
    assert [note.split(":")[0] for note in table.notes] == [
        "5 rows without decision are left out.",
        "country",
        "applicant",
    ]


def test_a_column_that_tells_the_group_is_named(written):
    """Two words for men and one for women; a number that is larger for women, and one hole."""
    frame = loans()
    woman = frame["sex"] == "woman"
    frame["title"] = np.where(woman, "Ms", np.where(frame.index % 9 == 0, "Dr", "Mr"))
    frame["code"] = 10.0 * woman + np.arange(400) % 7
    frame.loc[3, "code"] = np.nan
    found = proxies(*held_out(from_csv(*written(frame)), read([], None)))
    assert [line.split(" tells ")[0] for line in found] == ["title", "code"]
    assert found[0] == (
        "title tells sex of 100.0 % of the held-out rows, so the model knows it. --drop title "
        "leaves it out."
    )
    assert proxies(*held_out(from_csv(*written(loans())), read([], None))) == []


def test_one_row_of_a_group_does_not_stop_the_split(written):
    frame = loans()
    frame.loc[0, "sex"] = "Typo"
    train, test = held_out(from_csv(*written(frame)), read([], None))
    assert len(test.y) == 100
    assert sorted([*train.X.index, *test.X.index]) == list(range(400))


def test_labels_are_named_and_what_they_are_joined_from(written):
    frame = loans()
    table = from_csv(*written(frame, label="months", positive="36.0"))
    assert table.outcomes == ("months = 12, 24", "months = 36")
    np.testing.assert_array_equal(table.y, frame["months"] == 36)


def test_blanks_around_words_are_no_part_of_them_and_columns_may_be_named_twice(written):
    frame = loans()
    frame.loc[::2, "decision"] += " "
    table = from_csv(*written(frame.rename(columns={"sex": " sex"}), sensitive=["sex", "sex"]))
    np.testing.assert_array_equal(table.y, loans()["decision"] == "granted")
    assert table.groups.tolist() == frame["sex"].tolist()
    assert table.notes == ["decision: blanks around words are removed."]


def test_too_few_rows_to_split_are_counted(written):
    with pytest.raises(Unusable, match="for 3 folds: refused in group man: 0, granted in"):
        held_out(from_csv(*written(loans(5))), read([], None))
    odds = read(["--constraint", "equal_opportunity", "--cv", "6"], None)
    with pytest.raises(Unusable, match="for 6 folds: granted in group woman: 5"):
        held_out(from_csv(*written(loans(60))), odds)


def changed(**columns):
    return loans().assign(**columns)


WRONG = [
    (loans(), {"label": "granted"}, "no column 'granted'; it has amount, income, months"),
    (loans(), {"sensitive": ["race"]}, "no column 'race'"),
    (loans(), {"drop": ["name"]}, "no column 'name'"),
    (loans(), {"label": "Decision"}, "no column 'Decision'; it has decision, "),
    (changed(rate="1,5"), {}, "rate holds numbers with commas, such as '1,5'. Write it in"),
    (loans(), {"positive": None}, "the values of decision are granted, refused. Name the"),
    (loans(), {"positive": "yes"}, "'yes', but the values of decision are granted, refused"),
    (
        loans(),
        {"label": "months", "positive": None},
        "of months are 12, 24, 36. Name the favourable one by --pos",
    ),
    (changed(decision="granted"), {}, "the labels in decision are granted. Learning needs two"),
    (changed(decision=None), {}, "the labels in decision are missing. Learning needs"),
    (loans(), {"sensitive": ["income"]}, r"income has \d+ values, too many for groups"),
    (changed(sex="woman"), {}, "have the same sex: there are no groups to compare"),
    (loans()[["sex", "decision"]], {}, "no features beside the label and the sensitive columns"),
    (loans().iloc[:0], {}, "the labels in decision are missing. Learning needs"),
]


@pytest.mark.parametrize(("frame", "changes", "message"), WRONG)
def test_a_table_that_cannot_be_used_ends_in_a_sentence(written, frame, changes, message):
    with pytest.raises(Unusable, match=message):
        from_csv(*written(frame, **changes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty."),
        ("prénom,y\n".encode("latin-1"), "cannot be read: 'utf-8' codec can't decode byte"),
        (b'a,b\n"1,2\n3,4\n', "cannot be read"),
        (b"a;y\n1,5;0\n", "commas between columns, or .* rows: 'a;y'. Write it in UTF-8"),
        (b"a,y\n1,0,\n2,1,\n", "header has fewer than the rows: 'a,y'. Write"),
    ],
)
def test_a_file_that_is_no_table_ends_in_a_sentence(tmp_path, content, message):
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    with pytest.raises(Unusable, match=message):
        from_csv(path, "y", ["group"], None, [])


@pytest.mark.slow
def test_from_a_file_to_a_model(written, tmp_path, capsys):
    """Unknown words and holes where training had none are no obstacle to the saved model."""
    frame = loans(1_200)
    path, *_ = written(frame)
    short = ["--cv", "2", "--slack", "0.05", "--max-violation", "0.4", "--reductions"]
    own = ["--label", "decision", "--positive", "granted", "--sensitive", "sex", "age_group"]
    quickstart.main(["--csv", str(path), *own, *short, "--output", str(tmp_path)])
    out = capsys.readouterr().out
    assert "900 training rows, 300 held-out rows, 8 features" in out
    assert "woman & under 30" in out
    new = frame.drop(columns=["sex", "age_group", "decision"]).head(3)
    new.loc[0, ["occupation", "income"]] = ["astronaut", np.nan]
    assert set(joblib.load(tmp_path / "model.joblib").predict(new)) <= {0, 1}

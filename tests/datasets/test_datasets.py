"""A data set loads only if it is the right one, and the real data are as documented."""

import gzip
import io
import os
import socket
import threading
import zipfile
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fairconstrained.datasets import list_datasets, load_dataset, loading, sources
from fairconstrained.datasets.catalogue import DATASETS, Dataset, File, decode
from fairconstrained.datasets.loading import content_hash

TINY = "age,sex,job,part,label\n30,0,a,train,no\n40,1,b,train,yes\n50,1,?,test,yes\n,0,c,test,no\n"


def as_file(text, url="", convert=sources.plain_csv):
    packed = gzip.compress(text.encode())
    return File("tiny/tiny.csv.gz", sha256(packed).hexdigest(), content_hash(text), url, convert)


@pytest.fixture
def tiny(monkeypatch):
    """Register a data set whose table is `TINY`, to be found at `url`."""

    def register(url="", convert=sources.plain_csv):
        words = {"title": "Tiny", "source": "nowhere", "licence": "none", "caution": "Made up."}
        labels = {"target": "label", "target_names": ("no", "yes")}
        labels["positive"] = lambda label: label == "yes"
        groups = {"sensitive": "sex", "groups": {"sex": decode("sex", "female", "male")}}
        others = {"left_out": {"the split": "part"}, "codes": "sex"}
        files = (as_file(TINY, url, convert),)
        dataset = Dataset(files=files, **words, **labels, **groups, **others)
        monkeypatch.setitem(DATASETS, "tiny", dataset)
        return dataset.files[0]

    return register


@pytest.fixture
def local(tiny, tmp_path, monkeypatch):
    """`TINY` in a folder named by the environment; downloading fails."""
    file = tiny("http://localhost:1/")
    (tmp_path / "tiny").mkdir()
    (tmp_path / file.path).write_bytes(gzip.compress(TINY.encode()))
    monkeypatch.setenv(loading.ENVIRONMENT_VARIABLE, str(tmp_path))
    return tmp_path / file.path


def test_parts_of_the_bunch(local):
    bunch = load_dataset("tiny")
    assert bunch.feature_names == list(bunch.data) == ["age", "sex", "job"]
    assert list(bunch.frame) == ["age", "sex", "job", "part", "label"]
    assert bunch.target.tolist() == [0, 1, 1, 0]
    assert bunch.target.dtype == np.int64
    assert bunch.target_names == ["no", "yes"]
    assert bunch.sensitive_features.tolist() == ["female", "male", "male", "female"]
    assert bunch.sensitive_features.name == "sex"
    for fact in ("Made up.", "part: the split", DATASETS["tiny"].files[0].sha256):
        assert fact in bunch.DESCR


def test_choice_of_sensitive_features_and_of_columns(local):
    bunch = load_dataset("tiny", sensitive=["job", "sex"], drop="sex")
    assert bunch.sensitive_features.to_numpy().tolist()[2] == ["?", "male"]
    assert bunch.feature_names == ["age", "job"]
    bunch = load_dataset("tiny", drop=["age"], preprocess="one_hot")
    X, names = bunch.data, bunch.feature_names
    assert names == ["sex=0", "sex=1", "job=?", "job=a", "job=b", "job=c"]
    assert X.toarray().sum(axis=1).tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"name": "adlut"}, "name is 'adlut', but should be one of .*'adult'"),
        ({"preprocess": "scale"}, "preprocess is 'scale', but should be None or 'one_hot'"),
        ({"sensitive": "race"}, "sensitive is 'race', but should be one or more of .*'sex'"),
        ({"sensitive": "label"}, "sensitive is 'label'"),
        ({"sensitive": []}, "sensitive is .., but should be one or more"),
        ({"sensitive": "age"}, "'age' is missing in 1 row"),
        ({"drop": ["label"]}, "drop names 'label', but the features are"),
        ({"preprocess": "one_hot"}, "missing or infinite values in .'age'."),
    ],
)
def test_bad_choices_are_named(local, parameters, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(**{"name": "tiny", **parameters})


def test_the_last_resort_is_the_data_home_of_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.delenv(loading.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    assert loading.data_folder() == tmp_path / "fairconstrained"
    assert loading.data_folder("~") == Path.home()


HEADER, TINY_ROWS = TINY.split("\n", 1)


@pytest.mark.parametrize("text", [TINY.replace("40", "41"), TINY_ROWS + HEADER])
def test_a_wrong_file_is_refused_with_both_checksums(local, text):
    """With another number, or a header that is not the first line."""
    wrong = gzip.compress(text.encode())
    local.write_bytes(wrong)
    with pytest.raises(OSError, match=f"{local} is damaged") as refusal:
        load_dataset("tiny")
    assert sha256(wrong).hexdigest() in str(refusal.value)
    assert DATASETS["tiny"].files[0].sha256 in str(refusal.value)


def test_the_same_rows_packed_differently_are_accepted(local):
    header, *rows = TINY.splitlines()
    local.write_bytes(gzip.compress("\n".join([header, *reversed(rows)]).encode(), 1))
    assert load_dataset("tiny").target.tolist() == [0, 1, 1, 0]


class Answers(BaseHTTPRequestHandler):
    """`answers[path]` is a status, a body and the length that the header promises."""

    answers: dict[str, tuple[int, bytes, int]]

    def do_GET(self):
        status, body, length = self.answers[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Stay silent."""


@pytest.fixture
def serve(monkeypatch):
    """Serve one answer on the loopback interface and return its address."""
    monkeypatch.setenv("no_proxy", "*")
    servers = []

    def start(body, status=200, length=None):
        handler = type("Handler", (Answers,), {})
        handler.answers = {"/": (status, body, len(body) if length is None else length)}
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def nothing_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_download_is_checked_stored_and_found_again(tiny, serve, tmp_path):
    shuffled = "".join(np.array(TINY.splitlines(keepends=True))[[0, 3, 1, 4, 2]])
    file = tiny(serve(shuffled.encode()))
    first = load_dataset("tiny", data_home=tmp_path).frame
    stored = tmp_path / file.path
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [stored]
    assert gzip.decompress(stored.read_bytes()).decode() == shuffled
    tiny("http://localhost:1/")
    pd.testing.assert_frame_equal(load_dataset("tiny", data_home=tmp_path).frame, first)


@pytest.mark.parametrize(
    ("body", "convert", "reason"),
    [
        (TINY.replace("40", "41").encode(), sources.plain_csv, "SHA-256 of its 5 sorted lines"),
        (TINY[:40].encode(), sources.plain_csv, "SHA-256 of its 3 sorted lines"),
        (b"", sources.plain_csv, "SHA-256 of its 0 sorted lines"),
        (b"<!DOCTYPE html><p>Error", sources.plain_csv, "begins with b'<!DOCTYPE html><p>Error"),
        (b"<!DOCTYPE html><p>Error", sources.adult, "converting it failed: BadZipFile"),
        (b"\xff\xfe\x00", sources.compas, "converting it failed: UnicodeDecodeError"),
    ],
)
def test_a_page_that_is_not_the_data_is_refused(tiny, serve, tmp_path, body, convert, reason):
    file = tiny(serve(body), convert)
    with pytest.raises(OSError, match="is not the data set, and nothing was stored") as refusal:
        load_dataset("tiny", data_home=tmp_path)
    assert reason in str(refusal.value)
    assert file.sha256 in str(refusal.value)
    assert nothing_in(tmp_path)


def refused_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (lambda serve: serve(TINY.encode(), status=404), "HTTPError 404"),
        (lambda serve: serve(b"<html>busy", status=503), "HTTPError 503"),
        (lambda serve: serve(TINY[:20].encode(), length=len(TINY)), "IncompleteRead"),
        (lambda serve: f"http://127.0.0.1:{refused_port()}/", "refused"),
    ],
)
def test_without_the_source_it_is_said_what_to_put_there(tiny, serve, tmp_path, start, reason):
    file = tiny(start(serve))
    with pytest.raises(FileNotFoundError, match=reason) as missing:
        load_dataset("tiny", data_home=tmp_path)
    for fact in (str(tmp_path / file.path), file.sha256, file.url, "FAIRCONSTRAINED_DATA"):
        assert fact in str(missing.value)
    assert nothing_in(tmp_path)


def test_downloading_can_be_forbidden(tiny, serve, tmp_path):
    tiny(serve(TINY.encode()))
    with pytest.raises(FileNotFoundError, match="downloading was not allowed"):
        load_dataset("tiny", data_home=tmp_path, download_if_missing=False)


def test_a_folder_that_cannot_be_written_is_named(tiny, serve, tmp_path):
    (tmp_path / "tiny").write_text("a file where a folder should be")
    tiny(serve(TINY.encode()))
    with pytest.raises(OSError, match=r"tiny.csv.gz cannot be written .* by data_home"):
        load_dataset("tiny", data_home=tmp_path)


def zipped(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in members.items():
            target.writestr(name, content)
    return packed.getvalue()


ADULT = "39, State-gov, 7, Bachelors, 13, Single, ?, Own, White, Male, 2, 0, 40, Hong, <=50K"
ACS = (
    "RT,PWGTP,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP\n"
    "P,10,17,1,16,5,0040,040,00,30,2,9,00050001\n"  # kept; income above the threshold
    "P,10,40,1,16,1,0040,040,00,30,1,6,50000\n"  # kept; not above
    "P,10,16,1,16,5,0040,040,00,30,2,9,60000\n"  # too young
    "P,10,40,1,16,5,0040,040,00,,2,9,60000\n"  # does not work
    "P,10,40,1,16,5,0040,040,00,30,2,9,100\n"  # earns next to nothing
    "P,10,12,,16,5,,040,00,,2,9,\n"  # a child
)


@pytest.mark.parametrize(
    ("convert", "source", "lines"),
    [
        (
            sources.adult,
            zipped({"adult.data": f"{ADULT}\n\n", "adult.test": f"|1x3 Cross\n{ADULT}.\n\n"}),
            [
                "age,workclass,fnlwgt,education,education-num,marital-status,occupation,"
                "relationship,race,sex,capital-gain,capital-loss,hours-per-week,native-country,"
                "income,split",
                "39,State-gov,7,Bachelors,13,Single,?,Own,White,Male,2,0,40,Hong,<=50K,train",
                "39,State-gov,7,Bachelors,13,Single,?,Own,White,Male,2,0,40,Hong,<=50K,test",
            ],
        ),
        (sources.a9a, b"-1 3:1 11:1 \n+1 5:1 123:0\n", ["-1 3:1 11:1", "+1 5:1"]),
        (
            sources.bank,
            zipped(
                {
                    "bank.zip": b"",
                    "bank-additional.zip": zipped(
                        {
                            "__MACOSX/._bank-additional-full.csv": "",
                            "bank-additional/bank-additional-full.csv": '"age";"job"\r\n'
                            '56;"admin."\r\n',
                        }
                    ),
                }
            ),
            ["age,job", "56,admin."],
        ),
        (
            sources.compas,
            b"id,name,first,last,sex,dob,c_case_number,what,r_case_number,vr_case_number\n"
            b'1,x y,x,y,Male,1947-04-18,13A,"Poss 3,4",14B,15C\n',
            ["id,sex,what", '1,Male,"Poss 3,4"'],
        ),
        (
            sources.acs_income_ok,
            zipped({"psam_p40.csv": ACS, "ACS2018_PUMS_README.pdf": b""}),
            [
                "AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP",
                "17.0,1.0,16.0,2.0,40.0,40.0,0.0,30.0,2.0,5.0,True",
                "40.0,1.0,16.0,1.0,40.0,40.0,0.0,30.0,1.0,3.0,False",
            ],
        ),
    ],
)
def test_sources_become_plain_tables(convert, source, lines):
    assert convert(source).splitlines() == lines


FACTS = {
    "adult": (48_842, 11_687, {"Male": 32_650, "Female": 16_192}, 107),
    "a9a": (48_842, 11_687, {"Male": 32_650, "Female": 16_192}, 123),
    "bank": (41_188, 4_640, {"25 to 60": 39_210, "other": 1_978}, 62),
    "compas": (7_214, 3_251, {"Caucasian": 2_454, "non-Caucasian": 4_760}, 18),
    "compas_scores": (11_757 - 719, 3_703, {"Caucasian": 3_818, "non-Caucasian": 7_220}, 19),
    "law_school": (20_798, 18_505, {"White": 17_491, "Non-White": 3_307}, 12),
    "credit_card": (30_000, 6_636, {"male": 11_888, "female": 18_112}, 91),
    "parkinsons": (5_875, 2_934, {"male": 4_008, "female": 1_867}, 20),
    "acs_income_ok": (
        17_917,
        5_059,
        {"White": 13_350, "Black": 965, "Asian": 318, "Native": 1_598, "other": 1_686},
        677,
    ),
    "heart": (253_680, 23_893, {"female": 141_974, "male": 111_706}, 21),
}


@pytest.fixture
def real():
    folder = os.environ.get(loading.ENVIRONMENT_VARIABLE)
    if not folder:
        pytest.skip(f"{loading.ENVIRONMENT_VARIABLE} is not set")
    if not Path(folder).is_dir():
        pytest.skip(f"{loading.ENVIRONMENT_VARIABLE} is {folder}, which is no folder")
    return Path(folder)


def test_every_data_set_is_tested_below():
    assert list_datasets() == sorted(FACTS)


@pytest.mark.data
@pytest.mark.parametrize("name", FACTS)
def test_counts_of_the_real_data(real, name):
    """Loading compares the packed file with its checksum; downloads are compared by their rows."""
    n_rows, n_positive, groups, n_columns = FACTS[name]
    bunch = load_dataset(name, download_if_missing=False, preprocess="one_hot")
    assert bunch.data.shape == (n_rows, n_columns) == (len(bunch.frame), len(bunch.feature_names))
    assert bunch.target.shape == (n_rows,)
    assert np.bincount(bunch.target).tolist() == [n_rows - n_positive, n_positive]
    assert bunch.sensitive_features.value_counts().to_dict() == groups
    entries = bunch.data.data if sparse.issparse(bunch.data) else bunch.data
    assert np.isfinite(entries).all()
    assert DATASETS[name].target not in bunch.feature_names
    for file in DATASETS[name].files:
        text = gzip.decompress((real / file.path).read_bytes()).decode()
        assert content_hash(text) == file.content


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sensitive", "counts"),
    [
        ("adult", "race", {"White": 41_762}),
        ("a9a", "race", {"White": 41_762}),
        ("bank", "marital", {"married": 24_928, "single": 11_568, "divorced": 4_612}),
        ("compas", "race", {"African-American": 3_696, "Hispanic": 637, "Native American": 18}),
        ("compas", "sex", {"Male": 5_819, "Female": 1_395}),
        ("law_school", "male", {"male": 11_675, "female": 9_123}),
        ("acs_income_ok", "white", {"White": 13_350, "non-White": 4_567}),
        ("acs_income_ok", "SEX", {"male": 9_482, "female": 8_435}),
        ("heart", "Age", {"80+": 17_363}),
    ],
)
def test_other_sensitive_features_of_the_real_data(real, name, sensitive, counts):
    found = load_dataset(name, sensitive=sensitive, download_if_missing=False)
    found = found.sensitive_features.value_counts().to_dict()
    assert {group: found[group] for group in counts} == counts


@pytest.mark.data
def test_a9a_has_the_rows_and_groups_of_adult(real):
    adult, a9a = (load_dataset(name, download_if_missing=False) for name in ("adult", "a9a"))
    np.testing.assert_array_equal(a9a.target, adult.target)
    assert (a9a.frame["split"] == adult.frame["split"]).all()
    assert len(a9a.feature_names) == len(set(a9a.feature_names)) == 123
    for name in a9a.feature_names[66:73]:
        column, value = name.split("=")
        assert (a9a.frame[name] == (adult.frame[column] == value)).all(), name


@pytest.mark.data
def test_compas_features_are_known_at_the_screening(real):
    for name in ("compas", "compas_scores"):
        assert load_dataset(name, download_if_missing=False).feature_names == [
            *("sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count"),
            *("juv_other_count", "priors_count", "c_charge_degree"),
        ]
    frame = load_dataset("compas", download_if_missing=False).frame
    assert (frame["priors_count"] == frame["priors_count.1"]).all()

"""A data set loads only if it is the right one, from a folder or from its source (a stand-in)."""

import gzip
import hashlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairconstrained.datasets import load_dataset, loading, sources
from fairconstrained.datasets.catalogue import DATASETS, Dataset, File, decode
from fairconstrained.datasets.loading import content_hash

TINY = "age,sex,job,part,label\n30,0,a,train,no\n40,1,b,train,yes\n50,1,?,test,yes\n,0,c,test,no\n"


def as_file(text, url="", convert=sources.plain_csv):
    packed = gzip.compress(text.encode())
    return File(
        "tiny/tiny.csv.gz", hashlib.sha256(packed).hexdigest(), content_hash(text), url, convert
    )


@pytest.fixture
def tiny(monkeypatch):
    """Register a data set whose table is `TINY`, to be found at `url`."""

    def register(url="", convert=sources.plain_csv):
        dataset = Dataset(
            title="Tiny",
            source="nowhere",
            licence="none",
            caution="Made up.",
            files=(as_file(TINY, url, convert),),
            target="label",
            positive=lambda label: label == "yes",
            target_names=("no", "yes"),
            sensitive="sex",
            groups={"sex": decode("sex", "female", "male")},
            left_out={"the split": "part"},
            codes="sex",
        )
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
    X, names = (load_dataset("tiny", drop=["age"], preprocess="one_hot")[k] for k in
                ("data", "feature_names"))  # fmt: skip
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


@pytest.mark.parametrize(
    "text", [TINY.replace("40", "41"), TINY.split("\n", 1)[1] + TINY.split("\n")[0]]
)
def test_a_wrong_file_is_refused_with_both_checksums(local, text):
    """With another number, or a header that is not the first line."""
    wrong = gzip.compress(text.encode())
    local.write_bytes(wrong)
    with pytest.raises(OSError, match=f"{local} is damaged") as refusal:
        load_dataset("tiny")
    assert hashlib.sha256(wrong).hexdigest() in str(refusal.value)
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
def test_without_the_source_the_message_says_what_to_put_where(
    tiny, serve, tmp_path, start, reason
):
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

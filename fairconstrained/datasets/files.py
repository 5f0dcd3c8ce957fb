"""Files of the benchmark data sets, read from a folder or downloaded, and always checked.

A packed file (gzip) is identified by its SHA-256. A downloaded file cannot have that checksum,
because its source has another format and compression gives other bytes. It is converted to the text
of the packed file and identified by the SHA-256 of its header and sorted rows. It is accepted only
if it has the same rows, in any order.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from uuid import uuid4

from sklearn.datasets import get_data_home

from fairconstrained._version import __version__

ENVIRONMENT_VARIABLE = "FAIRCONSTRAINED_DATA"
TIMEOUT = 60.0  # seconds to wait for an answer of the server


@dataclass(frozen=True)
class File:
    """One file of a data set."""

    path: str  # below the data folder
    sha256: str  # checksum of the packed file as distributed with the benchmarks
    content: str  # `content_hash` of its text
    url: str  # address of the public source
    convert: Callable[[bytes], str]  # from the bytes at `url` to the text of this file


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return `data_home`, else the folder in the environment, else one in scikit-learn's home."""
    chosen = data_home or os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(get_data_home()) / "fairconstrained"


def content_hash(text: str) -> str:
    """Return the SHA-256 of the header and the sorted other lines, without trailing blanks."""
    first, *others = (line.rstrip() for line in text.rstrip().split("\n"))
    return hashlib.sha256("\n".join([first, *sorted(others)]).encode()).hexdigest()


def read_text(file: File, folder: Path, download_if_missing: bool) -> str:
    """Read `file` from `folder`, or from its public source if it is missing.

    Raises
    ------
    FileNotFoundError
        If the file is not in `folder` and was not or could not be downloaded.
    OSError
        If the file, or the answer of the source, is not the data set.
    """
    path = folder / file.path
    if path.exists():
        packed = path.read_bytes()
        found = hashlib.sha256(packed).hexdigest()
        try:
            text = gzip.decompress(packed).decode()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            text = ""
        if found != file.sha256 and content_hash(text) != file.content:
            raise OSError(
                f"{path} is damaged or not the expected file: its SHA-256 is {found}, but should "
                f"be {file.sha256} (or its rows those of the data set). Delete it to have it "
                "downloaded from its public source, or replace it."
            )
        return text
    place = (
        f"To use the data without the network, put the packed file at {path} (SHA-256 "
        f"{file.sha256}), or give the folder that holds {file.path} by data_home or the "
        f"environment variable {ENVIRONMENT_VARIABLE}."
    )
    if not download_if_missing:
        raise FileNotFoundError(f"{path} does not exist, and downloading was not allowed. {place}")
    # Some hosts refuse the default user agent of urllib.
    agent = {"User-Agent": f"fairconstrained/{__version__}"}
    try:
        request = urllib.request.Request(file.url, headers=agent)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            source: bytes = response.read()
    except (OSError, HTTPException) as error:  # no network, an error status, a broken connection
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise FileNotFoundError(
            f"{path} does not exist, and downloading {file.url} failed ({error!r}). {place}"
        ) from error
    text = _convert(source, file, place)
    _store(path, text)
    return text


def _convert(source: bytes, file: File, place: str) -> str:
    failure: Exception | None = None
    try:
        text = file.convert(source)
        found, n_lines = content_hash(text), text.count("\n")
        if found == file.content:
            return text
        reason = f"the SHA-256 of its {n_lines} sorted lines is {found}, not {file.content}"
    except Exception as error:  # any failure of a converter means that these are not the data
        reason, failure = f"converting it failed: {error!r}", error
    raise OSError(
        f"What {file.url} sent is not the data set, and nothing was stored: {reason}. It begins "
        f"with {source[:60]!r}. {place}"
    ) from failure


def _store(path: Path, text: str) -> None:
    """Write atomically, so that no other process sees half a file."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error}). Give a folder that can be, by data_home or the "
            f"environment variable {ENVIRONMENT_VARIABLE}."
        ) from error
    finally:
        with suppress(OSError):  # after success it no longer exists
            temporary.unlink()

"""Files of the benchmark data sets: found in a folder or downloaded, and checked either way.

A packed file (gzip) is identified by its SHA-256. A downloaded one cannot have that checksum: its
source is in another format, and compressing it again gives other bytes. It is converted to the
text the packed file holds and identified by the SHA-256 of its header and sorted rows, so that it
is accepted only if it is the same table, row for row, whatever the order of the rows.
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

__all__ = ["ENVIRONMENT_VARIABLE", "File", "content_hash", "data_folder", "read_text"]

ENVIRONMENT_VARIABLE = "FAIRCONSTRAINED_DATA"
TIMEOUT = 60.0  # seconds without an answer from the server


@dataclass(frozen=True)
class File:
    """One file of a data set.

    Attributes
    ----------
    path : str
        Where it lies below the data folder.
    sha256 : str
        Checksum of the packed file as distributed with the benchmarks.
    content : str
        `content_hash` of its text.
    url : str
        Where the public source of the data is downloaded from.
    convert : callable
        From the bytes at `url` to the text of this file.
    """

    path: str
    sha256: str
    content: str
    url: str
    convert: Callable[[bytes], str]


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """`data_home`, else the environment's folder, else a folder in scikit-learn's data home."""
    chosen = data_home or os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(get_data_home()) / "fairconstrained"


def content_hash(text: str) -> str:
    """SHA-256 of the first line (a header) and the sorted others, without blanks at their ends."""
    first, *others = (line.rstrip() for line in text.rstrip().split("\n"))
    return hashlib.sha256("\n".join([first, *sorted(others)]).encode()).hexdigest()


def read_text(file: File, folder: Path, download_if_missing: bool) -> str:
    """Text of `file`, from `folder` or (when it is not there) from its public source.

    Raises
    ------
    FileNotFoundError
        If the file is not in `folder` and was not or could not be downloaded.
    OSError
        If the file, or what the source sent, is not the data set.
    """
    path = folder / file.path
    if path.exists():
        return _read_checked(path, file)
    if not download_if_missing:
        raise FileNotFoundError(_missing(path, file, "downloading was not allowed"))
    text = _download(path, file)
    _store(path, text)
    return text


def _read_checked(path: Path, file: File) -> str:
    packed = path.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    try:
        text = gzip.decompress(packed).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        text = ""
    if found != file.sha256 and content_hash(text) != file.content:
        raise OSError(
            f"{path} is damaged or not the expected file: its SHA-256 is {found}, but should be "
            f"{file.sha256} (or its rows those of the data set). Delete it to have it downloaded "
            "from its public source, or replace it."
        )
    return text


def _download(path: Path, file: File) -> str:
    try:
        source = _fetch(file.url)
    except (OSError, HTTPException) as error:  # no network, an error status, a broken connection
        reason = f"downloading {file.url} failed ({error!r})"
        raise FileNotFoundError(_missing(path, file, reason)) from error
    return _convert(source, path, file)


def _fetch(url: str) -> bytes:
    # Some hosts refuse the default name that urllib gives itself.
    request = urllib.request.Request(url, headers={"User-Agent": f"fairconstrained/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            source: bytes = response.read()
    except HTTPError as error:
        error.close()  # it holds the connection
        raise
    return source


def _convert(source: bytes, path: Path, file: File) -> str:
    try:
        text = file.convert(source)
    except Exception as error:  # whatever a converter stumbles over, these are not the data
        raise OSError(_refusal(source, path, file, f"converting it failed: {error!r}")) from error
    found = content_hash(text)
    if found != file.content:
        n_lines = text.count("\n")
        reason = f"the SHA-256 of its {n_lines} sorted lines is {found}, not {file.content}"
        raise OSError(_refusal(source, path, file, reason))
    return text


def _store(path: Path, text: str) -> None:
    """Write all or nothing: a reader or a second process never sees half a file."""
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
        with suppress(OSError):  # gone after success, or never made
            temporary.unlink()


def _refusal(source: bytes, path: Path, file: File, reason: str) -> str:
    return (
        f"What {file.url} sent is not the data set, and nothing was stored: {reason}. It begins "
        f"with {source[:60]!r}. {_place(path, file)}"
    )


def _missing(path: Path, file: File, reason: str) -> str:
    return f"{path} does not exist, and {reason}. {_place(path, file)}"


def _place(path: Path, file: File) -> str:
    return (
        f"To use the data without the network, put the packed file at {path} (SHA-256 "
        f"{file.sha256}), or give the folder that holds {file.path} by data_home or the "
        f"environment variable {ENVIRONMENT_VARIABLE}."
    )

"""Load a benchmark data set from a folder or its source, always checked, as features and labels."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.request
import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from uuid import uuid4

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch

from fairconstrained._version import __version__
from fairconstrained.arrays import in_rows
from fairconstrained.datasets.catalogue import DATASETS, Dataset, File

ENVIRONMENT_VARIABLE = "FAIRCONSTRAINED_DATA"
# Seconds to wait for an answer of the server.
TIMEOUT = 60.0


def list_datasets() -> list[str]:
    """Return the names that `load_dataset` accepts.

    Examples
    --------
    >>> from fairconstrained.datasets import list_datasets
    >>> list_datasets()[:3]
    ['a9a', 'acs_income_ok', 'adult']
    """
    return sorted(DATASETS)


def load_dataset(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    sensitive: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    preprocess: str | None = None,
    download_if_missing: bool = True,
) -> Bunch:
    """Load a real data set of the fairness literature.

    The files are read from a local folder. A missing file is downloaded from its public source,
    converted and stored there. Every call checks the file, or at least the set of its rows.

    =================  =======  =====================================  ============================
    name               rows     label 1 (rate)                         default sensitive feature
    =================  =======  =====================================  ============================
    ``adult``          48,842   income above 50,000 dollars (23.9 %)   ``sex``
    ``a9a``            48,842   the same, binary features              ``sex``
    ``bank``           41,188   subscribes a term deposit (11.3 %)     ``age_25_60``, or ``marital``
    ``compas``         7,214    arrested within two years (45.1 %)     ``caucasian``, or ``race``
    ``compas_scores``  11,038   arrested again (33.5 %)                ``caucasian``, or ``race``
    ``law_school``     20,798   passes the bar exam (89.0 %)           ``race``, or ``male``
    ``credit_card``    30,000   defaults next month (22.1 %)           ``SEX``, or ``EDUCATION``
    ``parkinsons``     5,875    total UPDRS above median (50.0 %)      ``sex``
    ``acs_income_ok``  17,917   income above 50,000 dollars (28.2 %)   ``RAC1P`` (5), or ``white``
    ``heart``          253,680  heart disease or attack (9.4 %)        ``Sex``, or ``Age``
    =================  =======  =====================================  ============================

    Parameters
    ----------
    name : str
        One of `list_datasets`.
    data_home : path-like, default=None
        Folder with the files, at the paths in the description. By default it is the folder in the
        environment variable ``FAIRCONSTRAINED_DATA`` or, if that is not set, ``fairconstrained`` in
        the data home of scikit-learn.
    sensitive : str or list of str, default=None
        Sensitive features to return: columns of the table, or groups derived from them
        (``age_25_60``, ``caucasian``, ``white``; ``sex`` and ``race`` of a9a). ``None`` takes the
        first one in the table above. Sensitive columns stay features unless `drop` names them.
    drop : str or list of str, default=()
        Columns to leave out of the features, such as the sensitive one. ``"sex"`` also leaves out
        the indicators ``sex=...`` of a9a.
    preprocess : {None, "one_hot"}, default=None
        ``None`` returns the features as a DataFrame, ``"one_hot"`` as a matrix (Adult: 107
        columns): numeric columns, standardised unless they contain only zeros and ones, then an
        indicator for each value of the others; sparse if fewer than half of its entries are
        nonzero. Scales and categories are read from all samples, which a private fit must not do.
    download_if_missing : bool, default=True
        If False, a missing file is an error.

    Returns
    -------
    Bunch
        ``data`` : DataFrame, csr_matrix or ndarray of shape (n_samples, n_features).
        ``feature_names`` : list of str.
        ``target`` : int64 ndarray of shape (n_samples,), 0 or 1.
        ``target_names`` : list of str, the meanings of 0 and 1.
        ``sensitive_features`` : Series of strings, or DataFrame if `sensitive` is a list.
        ``frame`` : DataFrame, the whole table, including columns that are no features.
        ``DESCR`` : str, with source, licence, cautions, columns left out and why, and checksums.

    Raises
    ------
    ValueError
        If a parameter is not one of the values above.
    OSError
        If a file is damaged, or a source sent something else. A FileNotFoundError if a file is
        missing and was not downloaded; the message says where to put it.

    Notes
    -----
    These data describe people, and most labels record past decisions or unequal chances. They serve
    to compare methods. ``DESCR`` lists the known problems of each data set.

    Examples
    --------
    >>> from fairconstrained.datasets import load_dataset
    >>> adult = load_dataset("adult", preprocess="one_hot")  # doctest: +SKIP
    >>> adult.data.shape, adult.target_names[1]  # doctest: +SKIP
    ((48842, 107), '>50K')
    >>> acs = load_dataset("acs_income_ok", sensitive="white", drop="RAC1P")  # doctest: +SKIP
    """
    if name not in DATASETS:
        raise ValueError(f"name is {name!r}, but should be one of {list_datasets()}.")
    if preprocess not in (None, "one_hot"):
        raise ValueError(f"preprocess is {preprocess!r}, but should be None or 'one_hot'.")
    dataset = DATASETS[name]
    folder = data_folder(data_home)
    frame = dataset.parse([read_text(f, folder, download_if_missing) for f in dataset.files])
    groups = _sensitive_features(
        dataset, frame, dataset.sensitive if sensitive is None else sensitive
    )
    no_features = {dataset.target, *" ".join(dataset.left_out.values()).split()}
    # The table keeps columns that are no features, such as scores of others, for studies of them.
    data: Any = frame[[column for column in frame if column not in no_features]]
    for column in [drop] if isinstance(drop, str) else drop:
        columns = [c for c in data if c == column or c.startswith(f"{column}=")]
        if not columns:
            raise ValueError(f"drop names {column!r}, but the features are {list(data)}.")
        data = data.drop(columns=columns)
    feature_names = list(data.columns)
    if preprocess == "one_hot":
        codes = [column for column in dataset.codes.split() if column in data]
        data, feature_names = one_hot(data, categorical=codes)
    return Bunch(
        data=data,
        target=dataset.positive(frame[dataset.target]).to_numpy().astype(np.int64),
        sensitive_features=groups,
        frame=frame,
        feature_names=feature_names,
        target_names=list(dataset.target_names),
        DESCR=_description(name, dataset),
    )


def _sensitive_features(
    dataset: Dataset, frame: pd.DataFrame, sensitive: str | Sequence[str]
) -> pd.Series | pd.DataFrame:
    names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    choices = [*dataset.groups, *(c for c in frame if c not in {dataset.target, *dataset.groups})]
    unknown = [name for name in names if name not in choices]
    if unknown or not names:
        raise ValueError(f"sensitive is {sensitive!r}, but should be one or more of {choices}.")
    columns = {n: dataset.groups[n](frame) if n in dataset.groups else frame[n] for n in names}
    for name, column in columns.items():
        # Texts of missing values would become a group of their own.
        if column.isna().any():
            raise ValueError(
                f"sensitive is {sensitive!r}, but {name!r} is missing in "
                f"{in_rows(column.isna().sum())}; take a column without missing values."
            )
    words = pd.DataFrame(columns).astype(str)
    return words[sensitive] if isinstance(sensitive, str) else words


def _description(name: str, dataset: Dataset) -> str:
    left_out = [f"- {columns}: {reason}" for reason, columns in dataset.left_out.items()]
    files = [f"- {file.path}, SHA-256 {file.sha256}, from {file.url}" for file in dataset.files]
    negative, positive = dataset.target_names
    lines = [
        f"{name}: {dataset.title}",
        "",
        f"Source: {dataset.source}.",
        f"Licence: {dataset.licence}.",
        f"Label: {dataset.target}; 0 is {negative!r}, 1 is {positive!r}.",
        f"Sensitive feature of the benchmarks: {dataset.sensitive}.",
        f"Cautions: {dataset.caution}",
        *(["Columns of frame that are not in data:", *left_out] if left_out else []),
        "Files:",
        *files,
    ]
    return "\n".join(lines)


def one_hot(frame: pd.DataFrame, *, categorical: Collection[str] = ()) -> tuple[Any, list[str]]:
    """Encode a table as a matrix, with names of its columns; `categorical` numbers are codes."""
    bad = frame.isna() | frame.isin([np.inf, -np.inf])
    incomplete = list(frame.columns[bad.any()])
    if incomplete:
        raise ValueError(
            f"the features have missing or infinite values in {incomplete}; leave these columns "
            "out (drop), or take the DataFrame (preprocess=None) and replace the values."
        )
    numbers = [name for name in frame.select_dtypes(["number", "bool"]) if name not in categorical]
    values = frame[numbers].to_numpy(dtype=np.float64)
    spread = np.ptp(values, axis=0)
    constant = spread == 0  # computed deviations of it are rounding errors
    # In units of the spread: squares of tiny numbers would all be 0.
    centred = (values - values.mean(axis=0)) / np.where(constant, 1.0, spread)
    scaled = centred / np.where(constant, 1.0, centred.std(axis=0))
    indicator = ((values == 0) | (values == 1)).all(axis=0)
    dense = np.where(indicator, values, np.where(constant, 0.0, scaled))
    blocks, names = [sparse.csr_matrix(dense)], [str(name) for name in numbers]
    for name in frame.columns.drop(numbers):
        codes, kinds = pd.factorize(frame[name], sort=True)
        entries = (np.ones(len(codes)), codes, np.arange(len(codes) + 1))
        blocks.append(sparse.csr_matrix(entries, shape=(len(codes), len(kinds))))
        # Codes such as 3.0 and 3 have the same name.
        words = (f"{v:g}" if isinstance(v, (int, float)) else str(v) for v in kinds)
        names += [f"{name}={word}" for word in words]
    X = sparse.hstack(blocks, format="csr", dtype=np.float64)
    return (X if 2 * X.nnz < np.prod(X.shape) else X.toarray()), names


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return `data_home`, else the folder in the environment, else one in scikit-learn's home."""
    chosen = data_home or os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path(get_data_home()) / "fairconstrained"


def content_hash(text: str) -> str:
    """Return the SHA-256 of the header and the sorted other lines, without trailing blanks."""
    # Sources change the order of rows and the ends of lines, and the data stay the same.
    first, *others = (line.rstrip() for line in text.rstrip().split("\n"))
    return hashlib.sha256("\n".join([first, *sorted(others)]).encode()).hexdigest()


def read_text(file: File, folder: Path, download_if_missing: bool) -> str:
    """Read `file` from `folder`, or from its public source if it is missing."""
    path = folder / file.path
    if path.exists():
        packed = path.read_bytes()
        digest = hashlib.sha256(packed).hexdigest()
        try:
            text = gzip.decompress(packed).decode()
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            text = ""
        # A file that was packed by another program has other bytes and the same rows.
        if digest != file.sha256 and content_hash(text) != file.content:
            raise OSError(
                f"{path} is damaged or not the expected file: its SHA-256 is {digest}, but should "
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
        digest, n_lines = content_hash(text), text.count("\n")
        if digest == file.content:
            return text
        reason = f"the SHA-256 of its {n_lines} sorted lines is {digest}, not {file.content}"
    except Exception as error:  # any failure of a converter means that these are not the data
        reason, failure = f"converting it failed: {error!r}", error
    raise OSError(
        f"The reply of {file.url} is not the data set, and nothing was stored: {reason}. It begins "
        f"with {source[:60]!r}. {place}"
    ) from failure


def _store(path: Path, text: str) -> None:
    """Write a packed file atomically, so that no other process sees half of it."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the time of packing, so that the same data have the same bytes.
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

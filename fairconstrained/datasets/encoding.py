"""Encoding of tables with numbers and categories as numeric matrices."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse


def one_hot(
    frame: pd.DataFrame, *, categorical: Collection[str] = ()
) -> tuple[sparse.csr_matrix | NDArray[np.float64], list[str]]:
    r"""Encode a table as the numeric matrix of a benchmark.

    A categorical column becomes one indicator :math:`1[x = v]` for every value `v` that occurs. A
    numeric column is standardised over the rows of the table, :math:`(x - \bar x) /
    \sqrt{\tfrac1n \sum_i (x_i - \bar x)^2}`. A constant column becomes zero, and a column of zeros
    and ones stays as it is.

    Parameters
    ----------
    frame : DataFrame of shape (n_samples, n_columns)
        It has no missing or infinite values. Columns that are not numeric are categorical.
    categorical : collection of str, default=()
        Numeric columns that hold codes of categories.

    Returns
    -------
    X : csr_matrix or ndarray of shape (n_samples, n_features), float64
        Numeric columns first, then the indicators. It is sparse if fewer than half of the entries
        are nonzero.
    feature_names : list of str
        Name of the column, or ``column=value`` for an indicator.

    Raises
    ------
    ValueError
        If there are no rows, if a value is missing or infinite, or if `categorical` names an
        unknown column.

    Notes
    -----
    Means, standard deviations and categories are read from the data. For a private fit they would
    have to be public knowledge. To keep test data apart, encode with a pipeline that is fitted on
    training samples.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairconstrained.datasets import one_hot
    >>> X, names = one_hot(pd.DataFrame({"job": ["b", "a", "b"], "age": [20, 30, 40]}))
    >>> names
    ['age', 'job=a', 'job=b']
    >>> X.round(2)
    array([[-1.22,  0.  ,  1.  ],
           [ 0.  ,  1.  ,  0.  ],
           [ 1.22,  0.  ,  1.  ]])
    """
    unknown = [name for name in categorical if name not in frame]
    if unknown:
        raise ValueError(f"categorical names columns that frame does not have: {unknown}.")
    if frame.empty:
        raise ValueError(f"frame has shape {frame.shape}; give at least one row and one column.")
    bad = frame.isna() | frame.isin([np.inf, -np.inf])
    incomplete = list(frame.columns[bad.any()])
    if incomplete:
        raise ValueError(
            f"frame has missing or infinite values in {incomplete}; drop these columns, or replace "
            "the values first."
        )
    numbers = [
        name
        for name in frame
        if pd.api.types.is_numeric_dtype(frame[name].dtype) and name not in categorical
    ]
    dense = _standardise(frame[numbers].to_numpy(dtype=np.float64))
    blocks, names = [sparse.csr_matrix(dense)], [str(name) for name in numbers]
    for name in frame.columns.drop(numbers):
        codes, values = pd.factorize(frame[name], sort=True)
        entries = (np.ones(len(codes)), codes, np.arange(len(codes) + 1))
        blocks.append(sparse.csr_matrix(entries, shape=(len(codes), len(values))))
        # Codes such as 3.0 and 3 have the same name.
        words = (f"{v:g}" if isinstance(v, (int, float)) else str(v) for v in values)
        names += [f"{name}={word}" for word in words]
    X = sparse.hstack(blocks, format="csr", dtype=np.float64)
    return (X if 2 * X.nnz < np.prod(X.shape) else X.toarray()), names


def _standardise(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = numbers - numbers.mean(axis=0)
    # The computed standard deviation of a constant column is rounding error: do not divide by it.
    spread = np.ptp(numbers, axis=0)
    constant = spread == 0
    # Squares of tiny numbers would underflow; scaling by powers of two is exact.
    centred = np.ldexp(centred, -np.frexp(spread)[1])
    scaled = np.where(constant, 0.0, centred / np.where(constant, 1.0, centred.std(axis=0)))
    indicator = ((numbers == 0) | (numbers == 1)).all(axis=0)
    return np.where(indicator, numbers, scaled)

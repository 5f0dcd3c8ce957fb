"""Public domains of labels and groups: what may occur, whether or not it does."""

from __future__ import annotations

import itertools

import numpy as np

__all__ = ["categories", "in_order", "recoded"]


def categories(values):
    """What pandas categoricals declare: their categories, several columns crossed; else None."""
    # In tables of other libraries columns are not names.
    names = getattr(values, "columns", None) if hasattr(values, "iloc") else None
    columns = [values] if names is None else [values[name] for name in names]
    declared = [getattr(getattr(column, "dtype", None), "categories", None) for column in columns]
    if any(own is None for own in declared):
        return None
    own = [list(column) for column in declared]
    return own[0] if names is None or len(own) == 1 else list(itertools.product(*own))


def in_order(domain):
    """The domain sorted, as an array; labels of crossed columns are tuples."""
    try:
        ordered = sorted(set(domain))
    except TypeError:  # of different types
        ordered = sorted(set(domain), key=str)
    array = np.empty(len(ordered), dtype=object)
    array[:] = ordered
    return array if any(isinstance(label, tuple) for label in ordered) else np.array(ordered)


def recoded(codes, labels, domain):
    """Codes in a public domain, and the domain in order.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Positions in `labels`, which occur and are in the domain.
    labels : ndarray
    domain : list
    """
    ordered = in_order(domain)
    place = {label: i for i, label in enumerate(ordered.tolist())}
    return np.array([place[label] for label in labels.tolist()], dtype=np.int64)[codes], ordered

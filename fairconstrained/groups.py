"""Sensitive features as the group of each row: known, missing, or known with a probability.

Estimators, metrics and splitters accept the same inputs because all of them call
:func:`encode_groups`.
"""

from __future__ import annotations

import copy
from itertools import product
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import type_of_target

from fairconstrained.arrays import as_numpy, check_samples

__all__ = ["EstimatedGroups", "GroupProbabilities", "RecordedGroups"]

_ROUNDING = 1e-6  # within which probabilities sum to one
_DECIMALS = 12  # of shares: a row of known group has one or more, not a little less
_SINGULAR = 1e6  # condition number
_GROUPS, _STRATA = "sensitive_features ", "control_features "  # before names of crossed columns
_MOST_CORNERS = 5_000  # of confusion matrices within bounds


class Groups(NamedTuple):
    """The group of each row: its position in the sorted labels, or -1 where it is not known.

    Or the shares (n, n_groups) of each row in the groups, which add up to one.
    """

    codes: NDArray[Any]
    labels: NDArray[Any]  # (n_groups,): values, or tuples of the values of several columns

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the group of each row, or its shares, are known, (n,)."""
        of_rows = self.codes if self.codes.ndim == 1 else np.zeros(len(self.codes))
        return np.asarray(of_rows >= 0)

    def likeliest(self) -> NDArray[np.int64]:
        """The index of the group of each row, or of that with the largest share, (n,)."""
        return self.codes if self.codes.ndim == 1 else self.codes.argmax(axis=1)

    def certain(self, user: str) -> Groups:
        """Return these groups, for a `user` that has no use of shares; raise ValueError if some."""
        if self.codes.ndim == 2:
            raise ValueError(
                f"{user} takes groups, of which some may be missing; got shares of the rows in "
                f"{self.labels.tolist()} (GroupProbabilities or RecordedGroups)."
            )
        return self

    def copies(self) -> tuple[Any, NDArray[np.int64], Any]:
        """Each row once for each of its groups: its place, the group, and the share in it."""
        if self.codes.ndim == 2:
            row, group = np.nonzero(self.codes)
            return row, group, self.codes[row, group]
        if self.known.all():
            return slice(None), self.codes, 1.0
        row = np.flatnonzero(self.known)
        return row, self.codes[row], 1.0


class UncertainGroups:
    """Base of sensitive features that are known with some uncertainty, sliced like arrays.

    A subclass calls ``__init__`` with an array that has a row per sample, the labels of the groups
    and, of pandas, the index.
    """

    def __init__(self, rows: NDArray[Any], labels: NDArray[Any], index: Any):
        self.rows = rows
        self.labels = labels
        self.index = index if hasattr(index, "equals") else None  # lists have a method `index`

    @property
    def ndim(self) -> int:
        """That of a column."""
        return 1

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a column: the number of samples."""
        return (len(self.rows),)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Self:
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn adds an ellipsis
        other = copy.copy(self)
        other.rows = self.rows[rows]
        if self.index is not None:
            other.index = self.index[rows]
        return other

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} samples, {self.labels.tolist()}>"

    def encoded(self) -> Groups:
        """The shares of each row in the groups: here its own row."""
        return Groups(self.rows, self.labels)


class GroupProbabilities(UncertainGroups):
    r"""Sensitive features known with a probability: rows belong to groups by fractions.

    With the probabilities :math:`p_{ig}` of row i the rate of an event in group g is

    .. math:: \frac{\sum_i p_{ig} 1[\text{event in row } i]}{\sum_i p_{ig}} ,

    and likewise for losses, AUCs and distributions (Chen et al. 2019, equation 7).

    Parameters
    ----------
    table : DataFrame or array-like of shape (n_samples, n_groups)
        A column for each group, named after it; the columns of an array are numbered. Rows sum to
        one, and are 0 and 1 where the group is known.

    Raises
    ------
    ValueError
        If an entry is not between 0 and 1, or a row does not sum to one.

    Notes
    -----
    Rates are estimated without bias if the event and the group are independent given what the
    probabilities were computed from. It is enough that the probabilities are calibrated for
    whatever the predictions are made of: that of all rows with these features (and, for rates
    within a label, with this label) a fraction :math:`p_{ig}` is in group g.
    :func:`fairconstrained.models.estimate_group_probabilities` aims at that. Hard guesses, the most
    likely group of each row, are biased even then.

    References
    ----------
    Chen, Kallus, Mao, Svacha and Udell, "Fairness under unawareness", FAT* 2019.

    Examples
    --------
    >>> import pandas as pd
    >>> from fairconstrained.groups import GroupProbabilities
    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> groups = GroupProbabilities(pd.DataFrame({"f": [1.0, 0.5, 0.0], "m": [0.0, 0.5, 1.0]}))
    >>> round(demographic_parity_difference([1, 0, 0], [1, 0, 0], sensitive_features=groups), 3)
    0.667
    """

    def __init__(self, table: Any):
        values = np.asarray(table, dtype=float)
        if values.ndim != 2 or not values.shape[1]:
            raise ValueError(
                f"GroupProbabilities takes a column for each group; got the shape {values.shape}."
            )
        wrong = ~((values >= 0) & (values <= 1)).all(axis=1)
        wrong |= np.abs(values.sum(axis=1) - 1.0) > _ROUNDING
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                "GroupProbabilities takes probabilities from 0 to 1, and rows that sum to one; got "
                f"{values[row].tolist()} in row {row}."
            )
        names = np.empty(values.shape[1], dtype=object)
        names[:] = list(getattr(table, "columns", range(values.shape[1])))
        labels, places = _unique(names)
        if len(labels) < len(names):
            raise ValueError(f"GroupProbabilities has columns of one name: {names.tolist()}.")
        ordered = values[:, np.argsort(places)]
        shares = ordered / ordered.sum(axis=1, keepdims=True)
        super().__init__(shares, labels, getattr(table, "index", None))


class EstimatedGroups(UncertainGroups):
    r"""Groups of which some are known, and probabilities of all that these correct.

    With the probabilities :math:`p_{ig}` of row i, whether its group is known, :math:`R_i`, and the
    fraction :math:`\pi(y)` of the rows of a label whose group is known, row i belongs to group g by

    .. math:: p_{ig} + \frac{R_i}{\pi(y_i)} \left( 1[g_i = g] - p_{ig} \right) ,

    which adds up to one over the groups, and may be negative.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups; missing where they are not known.
    table : DataFrame or array-like of shape (n_samples, n_groups), or GroupProbabilities
        Probabilities as :class:`GroupProbabilities` takes them, also for the rows of known group,
        and there not computed from the group of the row itself.
    y : array-like of shape (n_samples,), optional
        Labels, within which groups are missing at random; None: groups are missing at random.

    Attributes
    ----------
    probabilities : GroupProbabilities
        0 and 1 where the group is known, and those of the table elsewhere: less noise and no
        negative shares, but nothing corrects them.

    Raises
    ------
    ValueError
        If the table is none of probabilities, lacks a known group, or has another number of rows,
        or if no group is known (of some label).

    Notes
    -----
    Rates are estimated without bias if groups are missing at random within each label, however
    wrong the probabilities are: these decide only how much more certain the rates are than those of
    the known rows alone (augmented inverse probability weighting, prediction-powered inference).
    The products of a row's shares have the variance of all this, so that intervals include the
    uncertainty of membership. Where labels are not enough, rates are unbiased if the probabilities
    are right. As for :class:`RecordedGroups`, criteria of ranks within an interval refuse negative
    shares: give them `probabilities`.

    References
    ----------
    Robins, Rotnitzky and Zhao, "Estimation of regression coefficients when some regressors are not
    always observed", JASA 89 (1994). Angelopoulos, Bates, Fannjiang, Jordan and Zrnic,
    "Prediction-powered inference", Science 382 (2023).

    Examples
    --------
    >>> from fairconstrained.groups import EstimatedGroups
    >>> groups = EstimatedGroups([0, None], [[0.9, 0.1], [0.5, 0.5]])
    >>> groups.encoded().codes.round(2).tolist()  # one of two groups is known
    [[1.1, -0.1], [0.5, 0.5]]
    >>> groups.probabilities.encoded().codes.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """

    def __init__(self, sensitive_features: Any, table: Any, *, y: Any = None):
        given = table if isinstance(table, GroupProbabilities) else GroupProbabilities(table)
        check_samples(sensitive_features=sensitive_features, table=given, y=y)
        groups = encode_groups(sensitive_features, len(given)).certain("EstimatedGroups")
        place = {label: i for i, label in enumerate(given.labels.tolist())}
        if lacking := [label for label in groups.labels.tolist() if label not in place]:
            raise ValueError(
                f"EstimatedGroups needs a column for each group; {list(place)} lack {lacking}."
            )
        known = groups.known
        codes = recoded(groups.codes, [place[label] for label in groups.labels.tolist()])[known]
        shares, factor = given.rows.copy(), 1.0 / known_fraction(known, y)[known, None]
        shares[known] += factor * np.eye(len(place))[codes] - factor * shares[known]
        super().__init__(shares.round(_DECIMALS), given.labels, given.index)

    @property
    def probabilities(self) -> GroupProbabilities:
        """The probabilities, 0 and 1 where the group is known."""
        own = np.eye(len(self.labels))[self.rows.argmax(axis=1)]
        known = self.rows.max(axis=1, keepdims=True) >= 1.0
        other = GroupProbabilities(np.where(known, own, self.rows))
        other.labels, other.index = self.labels, self.index
        return other


def known_fraction(known: NDArray[np.bool_], y: Any = None) -> NDArray[np.float64]:
    """Of the rows with the label of each, or of all rows, the fraction whose group is known."""
    of_row = np.zeros(len(known)) if y is None else np.asarray(as_numpy(y)).reshape(-1)
    if len(of_row) != len(known):
        raise ValueError(f"y has {len(of_row)} rows, but sensitive_features has {len(known)}.")
    labels, code = np.unique(of_row, return_inverse=True)
    fraction = np.bincount(code, known) / np.bincount(code)
    if not fraction.all():
        given = "" if y is None else f" among the rows of label {labels[fraction.argmin()]}"
        raise ValueError(f"sensitive_features has no known group{given}.")
    return np.asarray(fraction[code])


def refuse_negative(shares: NDArray[Any], user: str) -> None:
    """Raise ValueError where a `user` needs distributions and rows have negative shares."""
    if shares.min(initial=0.0) < 0:
        raise ValueError(
            f"{user} takes groups or GroupProbabilities, such as EstimatedGroups.probabilities: "
            "negative shares in groups give no distribution."
        )


class GroupsOfAll(UncertainGroups):
    """Groups that were read from all rows, of which a part knows what occurs in the whole.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)

    Attributes
    ----------
    unknown : bool
        Whether the group of any row of the whole is missing.
    """

    def __init__(self, sensitive_features: Any):
        codes, labels = encode_groups(sensitive_features).certain("A private search")
        super().__init__(codes, labels, getattr(sensitive_features, "index", None))
        self.unknown = bool((codes < 0).any())


class RecordedGroups(UncertainGroups):
    r"""Sensitive features that were recorded with errors of known probabilities.

    Of n rows recorded as r there are :math:`N_r = \sum_t C_{tr} n_t` in expectation, with the
    numbers :math:`n_t` of rows whose true group is t, and :math:`C_{tr} = P(r \mid t)`. The same
    holds for the rows with an event. Rates of the *true* groups are therefore those of rows that
    belong to groups by the fractions

    .. math:: (C^{-1})_{rt} ,

    which add up to one, and may be negative.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups as recorded, without missing values.
    confusion : DataFrame or array-like of shape (n_groups, n_groups)
        C: a row for each true group and a column for each recorded one, which sum to one row by
        row, as in ``sklearn.metrics.confusion_matrix(true, recorded, normalize="true")``. Rows and
        columns of an array are in sorted order, those of a DataFrame are found by their names.

    Raises
    ------
    ValueError
        If C is no matrix of probabilities of these groups, or if it has no inverse, so that the
        true rates cannot be known from recorded groups.

    Notes
    -----
    This is right if errors of the record depend on the true group only: within a group they know
    neither label nor features. The estimates are less certain than those of as many rows of known
    groups, by a factor that grows as C becomes singular. Criteria of ranks within an interval need
    distributions, which negative fractions do not give: these refuse such groups. If C is known
    within bounds only: :class:`fairconstrained.constraints.RobustParity`.

    References
    ----------
    Wang, Guo, Narasimhan, Cotter, Gupta and Jordan, "Robust optimization for fairness with noisy
    protected groups", NeurIPS 2020.

    Examples
    --------
    >>> from fairconstrained.groups import RecordedGroups
    >>> groups = RecordedGroups(["f", "m", "m"], [[0.9, 0.1], [0.0, 1.0]])
    >>> groups.encoded().codes.round(2).tolist()  # each "f" stands for a ninth more, from the "m"
    [[1.11, -0.11], [0.0, 1.0], [0.0, 1.0]]

    The largest gap if each entry may be .05 off:

    >>> from fairconstrained.metrics import demographic_parity_difference
    >>> y_pred = [1, 0, 1]
    >>> round(max(demographic_parity_difference(y_pred, y_pred, sensitive_features=own)
    ...           for own in groups.corners(0.05)), 3)
    0.607
    """

    def __init__(self, sensitive_features: Any, confusion: Any):
        codes, labels = encode_groups(sensitive_features)
        if codes.ndim > 1 or (codes < 0).any():
            raise ValueError("RecordedGroups needs the recorded group of every sample.")
        self.confusion = checked_confusion(confusion, labels.tolist())
        if np.linalg.cond(self.confusion) > _SINGULAR:
            raise ValueError(
                "confusion must have an inverse: groups that are recorded alike cannot be told "
                f"apart; got {self.confusion.tolist()}."
            )
        super().__init__(codes, labels, getattr(sensitive_features, "index", None))

    def encoded(self) -> Groups:
        return Groups(np.linalg.inv(self.confusion)[self.rows], self.labels)

    def corners(self, bound: Any) -> list[Self]:
        """The same records with the corners of the matrices within a bound of the confusion matrix.

        The rate of each true group is largest and smallest at one of them. With two groups, so is
        the gap.

        Parameters
        ----------
        bound : float or array-like of shape (n_groups, n_groups)
            How far each entry may be from the truth.

        Returns
        -------
        list of RecordedGroups

        Raises
        ------
        ValueError
            If `bound` is not valid, or a matrix within it has no inverse.
        """
        found = []
        bounds = checked_bounds(bound, self.confusion)
        for matrix in matrices_within(self.confusion, bounds).values():
            found.append(copy.copy(self))
            found[-1].confusion = matrix
        return found


def checked_confusion(confusion: Any, names: list[Any]) -> NDArray[np.float64]:
    """Return the probabilities of records given the true groups, both in the order of `names`."""
    if hasattr(confusion, "reindex"):
        confusion = confusion.reindex(index=names, columns=names)
    matrix = np.asarray(confusion, dtype=float)
    is_right = matrix.shape == (len(names), len(names)) and bool(
        (matrix >= 0).all() and (np.abs(matrix.sum(axis=1) - 1.0) <= _ROUNDING).all()
    )
    if not is_right:
        raise ValueError(
            "confusion must have a row for each true group and a column for each recorded one, of "
            f"{names}, and rows of probabilities that sum to one; got {confusion!r}."
        )
    return matrix


def checked_bounds(bound: Any, confusion: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each entry may be from the truth."""
    bounds = np.asarray(bound, dtype=float)
    if bounds.shape not in ((), confusion.shape) or not (bounds >= 0).all():
        raise ValueError(
            "bound must be a number >= 0, or one for each entry of a matrix of shape "
            f"{confusion.shape}; got {bound!r}."
        )
    return np.broadcast_to(bounds, confusion.shape)


def matrices_within(
    confusion: NDArray[np.float64], bounds: NDArray[np.float64]
) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """Return the corners of the matrices within bounds of this one, by the corner of each row.

    Raises ValueError if some matrix within the bounds has no inverse: the determinant is linear in
    each row, so that those of all lie between those of corners.
    """
    ends = zip(confusion - bounds, confusion + bounds, strict=True)
    rows = [corners_within(*of_row) for of_row in ends]
    if prod(map(len, rows)) > _MOST_CORNERS:
        raise ValueError(
            f"bound must leave at most {_MOST_CORNERS:,} corners, and of {len(confusion)} groups "
            "there are more: join small groups, or bound fewer entries."
        )
    found = {
        index: np.array([own[i] for own, i in zip(rows, index, strict=True)])
        for index in product(*(range(len(own)) for own in rows))
    }
    determinants = np.linalg.det(list(found.values()))
    if not (determinants.min() > _ROUNDING or determinants.max() < -_ROUNDING):
        raise ValueError(
            "every matrix within the bound must have an inverse: where groups may be recorded "
            f"alike, their rates may be anything; got confusion {confusion.tolist()} and bound "
            f"{bounds.tolist()}."
        )
    return found


def corners_within(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[Any]:
    """Corners of the fractions within bounds that add up to one: all but one are at an end.

    >>> corners = corners_within(np.array([0.8, 0.0]), np.array([1.0, 0.1]))
    >>> [corner.round(2).tolist() for corner in corners]
    [[1.0, 0.0], [0.9, 0.1]]
    """
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    ends, found = [list(dict.fromkeys(pair)) for pair in zip(low, high, strict=True)], {}
    for free in range(len(low)):
        for corner in map(np.array, product(*ends[:free], [0.0], *ends[free + 1 :])):
            corner[free] = 1.0 - sum(corner)
            if low[free] - _ROUNDING <= corner[free] <= high[free] + _ROUNDING:
                found[tuple(corner.round(9).tolist())] = corner.clip(0.0, 1.0)
    return list(found.values())


def encode_groups(sensitive_features: Any, n_samples: int | None = None) -> Groups:
    """Cross the columns of `sensitive_features` into one group per combination that occurs.

    These are a list, an array, a Series or DataFrame (pandas, polars or dask), an array or table of
    pyarrow, a dict of columns, or groups that are uncertain. A group is not known if a value is
    missing: None, NaN or pandas.NA.

    >>> encode_groups([["f", 1], ["m", None], ["f", 1]])
    Groups(codes=array([ 0, -1,  0]), labels=array([('f', 1)], dtype=object))
    """
    columns: list[Any] = [sensitive_features]
    if not isinstance(sensitive_features, UncertainGroups):
        columns = list(map(_to_numpy, columns_of(sensitive_features).values()))
    if not columns:
        raise ValueError("sensitive_features has no columns; give at least one.")
    if len(set(map(np.shape, columns))) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(f"sensitive_features has columns of different shapes: {shapes}.")
    n_rows = len(columns[0])
    if n_samples is not None and n_rows != n_samples:
        raise ValueError(
            f"sensitive_features has {n_rows} rows, but X and y have {n_samples}. Give one row "
            "per sample, in the order of X (resampling steps of a pipeline break this order)."
        )
    if isinstance(sensitive_features, UncertainGroups):
        return sensitive_features.encoded()
    levels, codes = zip(*map(_unique, columns), strict=True)
    if len(columns) == 1:
        return Groups(codes[0], levels[0])
    crossed, rows = codes[0], [levels[0]]
    for level, code in zip(levels[1:], codes[1:], strict=True):
        known = (crossed >= 0) & (code >= 0)
        pairs, crossed = _unique(np.where(known, crossed * len(level) + code, np.nan))
        first, second = np.divmod(pairs.astype(np.int64), len(level))
        rows = [*(values[first] for values in rows), level[second]]
    labels = np.empty(len(rows[0]), dtype=object)
    labels[:] = list(zip(*(map(_plain, values) for values in rows), strict=True))
    return Groups(crossed, labels)


def categories(values: Any, name: str) -> list[Any] | None:
    """Return the categories of pandas categoricals, in order, crossed; None for anything else."""
    columns = [values]
    if isinstance(values, dict):
        columns = list(values.values())
    elif hasattr(values, "iloc") and hasattr(values, "columns"):  # elsewhere they are no names
        columns = [values[name] for name in values.columns]
    dtypes = [getattr(column, "dtype", None) for column in columns]
    declared: list[Any] = [getattr(dtype, "categories", None) for dtype in dtypes]
    missing = [own is None for own in declared]
    if all(missing):
        return None
    if any(missing):
        raise ValueError(
            f"all columns of {name} must be categoricals, or none: with epsilon they declare its "
            f"values whether or not they occur; column {missing.index(True)} is none."
        )
    try:  # rows would be read otherwise where only some of them occur, which would tell which
        own = [sorted(column) for column in declared]
    except TypeError as error:
        raise ValueError(
            f"the categories of {name} must be of one type, such as texts, because those that "
            f"occur are read as numbers or texts; got {[list(column) for column in declared]}."
        ) from error
    if name == "y" and type_of_target(np.asarray(declared[0])) == "continuous":
        raise ValueError(f"the categories of y must be classes; got the numbers {own[0]}.")
    return own[0] if len(own) == 1 else list(product(*own))


def recoded(codes: NDArray[Any], places: Any) -> NDArray[np.int64]:
    """Codes after each label has got another place; -1 stays."""
    moved: NDArray[np.int64] = np.append(places, -1).astype(np.int64)[codes]
    return moved


def within_strata(sensitive_features: Any, control_features: Any) -> tuple[dict[Any, Any], int]:
    """Columns of groups and of strata as one table, to be crossed; and the number of the latter."""
    tables = {_GROUPS: sensitive_features, _STRATA: control_features}
    columns = {
        f"{name}{key}": column
        for name, table in tables.items()
        for key, column in columns_of(table, name.strip()).items()
    }
    lengths = [len(column) for column in columns.values()]
    if lengths[-1] != lengths[0]:
        raise ValueError(
            f"control_features has {lengths[-1]} rows, but sensitive_features has {lengths[0]}."
        )
    return columns, sum(name.startswith(_STRATA) for name in columns)


def refuse_groups_in(X: Any, sensitive_features: Any) -> None:
    """Raise ValueError if X has a column of the name of sensitive (or control) features."""
    groups = computed(sensitive_features, "to_pydict")
    columns = groups if isinstance(groups, dict) else dict.fromkeys(getattr(groups, "columns", ()))
    named = [*columns, *(getattr(column, "name", None) for column in (groups, *columns.values()))]
    names = {str(name).removeprefix(_GROUPS).removeprefix(_STRATA) for name in named}
    shared = [name for name in getattr(X, "columns", ()) if isinstance(name, str) and name in names]
    if shared:
        raise ValueError(
            f"X must not hold the sensitive features where they alone are secret, and its columns "
            f"{shared} have their names: the model would be an exact function of them. Drop these "
            "columns from X. A public column that only has the same name must be renamed in X."
        )


def columns_of(table: Any, name: str = "sensitive_features") -> dict[Any, Any]:
    """The columns of a table, an array or a list, by their names or positions; errors say `name`.

    >>> columns_of([["f", 1], ["m", 0]])
    {0: array(['f', 'm'], dtype=object), 1: array([1, 0], dtype=object)}
    """
    if isinstance(table, (str, bytes)):
        raise ValueError(
            f"{name} must hold the group of each sample; got the single text "
            f"{table!r}. Give the column itself, such as X[{table!r}]."
        )
    if isinstance(table, UncertainGroups):
        raise ValueError(
            f"{name} must be columns of groups, of which some may be missing, where they are "
            f"crossed with strata, compared side by side or audited; got {table!r}."
        )
    # Columns of Arrow become Python's types.
    table = computed(computed(table), "to_pydict", "to_pylist")
    if isinstance(table, dict):
        return table
    if hasattr(table, "columns"):  # a DataFrame, whose columns keep their dtypes
        return dict(zip(table.columns, map(table.__getitem__, table.columns), strict=True))
    array = _to_numpy(table)
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name} must have one or two dimensions; got {array.ndim}. Give one "
            "value, or one row of values, per sample."
        )
    return {0: table} if array.ndim == 1 else dict(enumerate(array.T))


def named_columns(table: Any) -> dict[str, Any]:
    """The same by names, which columns without one get from their positions."""
    return {
        name if isinstance(name, str) else f"column {name}": column
        for name, column in columns_of(table).items()
    }


def group_name(label: Any) -> str:
    """Name of a group in messages and plots; the values of a combination are joined by ' & '."""
    return " & ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def computed(values: Any, *methods: str) -> Any:
    """Compute columns that are yet to be computed, by the first method that exists."""
    for method in methods or ("compute", "collect"):  # of dask, polars
        if hasattr(type(values), method):  # a table may have a column of this name
            return getattr(values, method)()
    return values


def _to_numpy(values: Any) -> NDArray[Any]:
    array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    try:
        array = np.asarray(array)
        if array.dtype.kind in "US" and not hasattr(values, "dtype"):
            # numpy turns a nested list of mixed types into strings; this keeps the values.
            array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise ValueError(
            "sensitive_features is ragged: give one row per sample with the same number of "
            "values in each."
        ) from error
    return array


def _unique(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted values, and the position of each row's value; -1 where it is missing."""
    codes, levels = pd.factorize(column)  # by hashes: only the values are sorted, not the rows
    if levels.dtype.kind == "O" and all(isinstance(value, str) for value in levels):
        levels = levels.astype(str)
    try:
        levels, places = np.unique(levels, return_inverse=True)
    except TypeError:  # values of different types cannot be sorted
        first: dict[str, Any] = {}
        for value in levels:
            if (other := first.setdefault(str(value), value)) != value:
                raise ValueError(
                    "sensitive_features has groups of different types with the same name: "
                    f"{other!r} and {value!r}. Convert the column to one type."
                ) from None
        levels, places = np.unique(levels.astype(str), return_inverse=True)
    return levels, recoded(codes, places.reshape(-1))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

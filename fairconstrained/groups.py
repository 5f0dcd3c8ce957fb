"""Sensitive features that are uncertain: estimated, recorded with errors, or probabilities.

Estimators, metrics and splitters accept them wherever they accept columns of groups.
"""

from __future__ import annotations

import copy
from itertools import product
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fairconstrained.arrays import as_numpy, numbers_in
from fairconstrained.inputs.groups import Groups, UncertainGroups, encode_groups, recoded
from fairconstrained.inputs.samples import check_samples
from fairconstrained.inputs.values import levels_of

__all__ = ["EstimatedGroups", "GroupProbabilities", "RecordedGroups"]

# Within which probabilities sum to one: tables are often written in single precision, which has
# seven digits.
_ROUNDING = 1e-6
# Of confusion matrices within bounds; each adds constraints.
_MOST_CORNERS = 5_000


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
    probabilities were computed from. It is enough that they are calibrated given the features of
    the predictions: among all rows with these features (and, for rates within a label, this label),
    a fraction :math:`p_{ig}` is in group g. Probabilities of
    :func:`fairconstrained.models.estimate_group_probabilities` aim at this. Rates by the most
    likely group of each row are biased even then.

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
        try:
            values = np.asarray(table, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(f"GroupProbabilities takes a table of numbers: {error}.") from error
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
        labels, places = levels_of(names)
        if len(labels) < len(names):
            raise ValueError(f"GroupProbabilities has columns of one name: {names.tolist()}.")
        ordered = values[:, np.argsort(places)]
        shares = ordered / ordered.sum(axis=1, keepdims=True)
        super().__init__(shares, labels, getattr(table, "index", None))


class EstimatedGroups(UncertainGroups):
    r"""Groups known for some rows, which correct the group probabilities of all rows.

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
        0 and 1 where the group is known, as in the table elsewhere: less noisy and never negative,
        but not corrected.

    Raises
    ------
    ValueError
        If the table does not hold probabilities, lacks a known group, or has another number of
        rows, or if no group is known (of some label).

    Notes
    -----
    Rates are estimated without bias if groups are missing at random within each label, however
    wrong the probabilities are (augmented inverse probability weighting, prediction-powered
    inference); elsewhere, if they are right. Good ones make rates more certain, and intervals
    include the uncertainty of membership. Criteria of ranks within an interval refuse negative
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
        # A row of known group has a share of one or more, not a little less.
        super().__init__(shares.round(12), given.labels, given.index)

    @property
    def probabilities(self) -> GroupProbabilities:
        """The probabilities, 0 and 1 where the group is known."""
        own = np.eye(len(self.labels))[self.rows.argmax(axis=1)]
        known = self.rows.max(axis=1, keepdims=True) >= 1.0
        other = GroupProbabilities(np.where(known, own, self.rows))
        other.labels, other.index = self.labels, self.index
        return other


def known_fraction(known: NDArray[np.bool_], y: Any = None) -> NDArray[np.float64]:
    """Return the fraction of rows with a known group, among all or, given `y`, each row's label."""
    of_row = np.zeros(len(known)) if y is None else np.asarray(as_numpy(y)).reshape(-1)
    labels, code = np.unique(of_row, return_inverse=True)
    fraction = np.bincount(code, known) / np.bincount(code)
    if not fraction.all():
        given = "" if y is None else f" among the rows of label {labels[fraction.argmin()]}"
        raise ValueError(f"sensitive_features has no known group{given}.")
    return np.asarray(fraction[code])


def refuse_negative(shares: NDArray[Any], user: str) -> None:
    """Raise ValueError, naming the `user`, if rows have negative shares in groups."""
    if shares.min(initial=0.0) < 0:
        raise ValueError(
            f"{user} takes groups or GroupProbabilities, such as EstimatedGroups.probabilities: "
            "negative shares in groups give no distribution."
        )


class GroupsOfAll(UncertainGroups):
    """Groups encoded on all rows, so that subsets know all groups; `unknown` if any is missing."""

    def __init__(self, sensitive_features: Any):
        codes, labels = encode_groups(sensitive_features).certain("A private search")
        super().__init__(codes, labels, getattr(sensitive_features, "index", None))
        self.unknown = bool((codes < 0).any())


class RecordedGroups(UncertainGroups):
    r"""Sensitive features that were recorded with errors of known probabilities.

    Of n rows recorded as r there are :math:`N_r = \sum_t C_{tr} n_t` in expectation, with the
    numbers :math:`n_t` of rows whose true group is t, and :math:`C_{tr} = P(r \mid t)`. The same
    holds for the rows with an event. Rates of the *true* groups are therefore rates of rows that
    belong to groups by the fractions

    .. math:: (C^{-1})_{rt} ,

    which add up to one, and may be negative.

    Parameters
    ----------
    sensitive_features : array-like of shape (n_samples,) or (n_samples, n_columns)
        The groups as recorded, without missing values.
    confusion : DataFrame or array-like of shape (n_groups, n_groups)
        C: a row for each true group, which sums to one, and a column for each recorded group, as in
        ``sklearn.metrics.confusion_matrix(true, recorded, normalize="true")``. Rows and columns of
        an array are in sorted order; in a DataFrame they are found by their names.

    Raises
    ------
    ValueError
        If C is no matrix of probabilities of these groups, or if it has no inverse, so that the
        true rates cannot be known from recorded groups.

    Notes
    -----
    This is right if errors of the record depend on the true group only. The closer C is to a
    singular matrix, the less certain are the estimates. Criteria of ranks within an interval refuse
    such groups. :class:`fairconstrained.constraints.RobustParity` takes bounds of an uncertain C.

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
    """

    def __init__(self, sensitive_features: Any, confusion: Any):
        codes, labels = encode_groups(sensitive_features)
        if codes.ndim > 1 or (codes < 0).any():
            raise ValueError("RecordedGroups needs the recorded group of every sample.")
        self.confusion = checked_confusion(confusion, labels.tolist())
        # Errors of the confusion matrix are multiplied by its condition number.
        if np.linalg.cond(self.confusion) > 1e6:
            raise ValueError(
                "confusion must have an inverse: groups that are recorded alike cannot be told "
                f"apart; got {self.confusion.tolist()}."
            )
        super().__init__(codes, labels, getattr(sensitive_features, "index", None))

    def encoded(self) -> Groups:
        return Groups(np.linalg.inv(self.confusion)[self.rows], self.labels)

    def corners(self, bound: Any) -> list[Self]:
        """Return a copy for each corner of the set of matrices within a bound of `confusion`.

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
    """Return a valid confusion matrix, with rows and columns in the order of `names`."""
    if hasattr(confusion, "reindex"):
        confusion = confusion.reindex(index=names, columns=names)
    matrix = numbers_in(confusion)
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
    """Return the bound on the error of each entry; raise ValueError if it is not valid."""
    bounds = numbers_in(bound)
    if bounds.shape not in ((), confusion.shape) or not (bounds >= 0).all():
        raise ValueError(
            "bound must be a number >= 0, or one for each entry of a matrix of shape "
            f"{confusion.shape}; got {bound!r}."
        )
    return np.broadcast_to(bounds, confusion.shape)


def matrices_within(
    confusion: NDArray[np.float64], bounds: NDArray[np.float64]
) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """Return the corners of the set of matrices within bounds, keyed by the corner of each row."""
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
    # The determinant is linear in each row, so it is between its values at the corners.
    determinants = np.linalg.det(list(found.values()))
    if not (determinants.min() > _ROUNDING or determinants.max() < -_ROUNDING):
        raise ValueError(
            "every matrix within the bound must have an inverse: where groups may be recorded "
            f"alike, their rates may be anything; got confusion {confusion.tolist()} and bound "
            f"{bounds.tolist()}."
        )
    return found


def corners_within(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[Any]:
    """Return corners of the set of bounded fractions with sum one: all but one are at a bound.

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

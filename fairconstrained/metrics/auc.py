"""AUC-based gaps between groups: of scores, free of any threshold.

Each gap compares AUCs between sets of rows, given by label and group (AUC-fairness paper,
Definition 2 and Appendix A), and reports the worst pair of groups. One sort, ties exact. Of two
labels the larger is the positive one, as in scikit-learn's ``roc_auc_score``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairconstrained.arrays import Array, check_array
from fairconstrained.auc import COMPARISONS, auc_differences, ranks, win_table, wins
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.metrics.comparisons import warn_absent, warn_single_group
from fairconstrained.metrics.inputs import GroupedRows, check_weights, grouped_rows, two_labels
from fairconstrained.metrics.metric import examples, metric_of


def auc_between(
    y_score: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Probability that a row of one set scores higher than a row of another, ties by half.

    .. math:: P(z > z' \mid z \in G, z' \in G') + \tfrac12 P(z = z' \mid z \in G, z' \in G')

    Parameters
    ----------
    y_score : array-like of shape (n_samples,)
        Scores of any kind; only their order counts.
    first, second : array-like of bool of shape (n_samples,)
        The rows of G and of G'; they may overlap.
    sample_weight : array-like of shape (n_samples,), optional
        Non-negative weights of the rows.

    Returns
    -------
    float
        Between 0 and 1; nan where a set has no rows or no weight.

    Raises
    ------
    ValueError
        Lengths that differ, masks that are not boolean, missing values, negative weights.

    Warns
    -----
    SmallGroupWarning
        If a set has no rows.

    Examples
    --------
    >>> from fairconstrained.metrics import auc_between
    >>> auc_between([1.0, 2.0, 3.0, 2.0], [False, True, True, False], [True, False, False, True])
    0.875
    """
    scores = _scores(y_score)
    weight = check_weights(sample_weight, len(scores))
    masks = {"first": first, "second": second}
    sides = {name: np.where(_mask(name, m, len(scores)), weight, 0.0) for name, m in masks.items()}
    for name, side in sides.items():
        if not side.any():
            warn_caller(
                f"The {name} set has no rows (or rows of zero weight only): the AUC is nan.",
                SmallGroupWarning,
            )
            return float("nan")
    above, below = sides.values()
    return float(above @ wins(ranks(scores), below) / (above.sum() * below.sum()))


class Ranked(NamedTuple):
    """Scores in cells: the negatives of each group, then the positives."""

    scores: Array
    cells: GroupedRows  # the rows by cell
    groups: list[str]

    @classmethod
    def of(cls, scores: Array, positive: Array, rows: GroupedRows) -> Ranked:
        """Put rows into cells."""
        cell = np.where(positive, len(rows.names), 0) + rows.group
        return cls(scores, GroupedRows(cell, 2 * rows.names, rows.weight), rows.names)

    @property
    def weight(self) -> Array:
        """The weight of each cell, (n_cells,)."""
        return self.cells.sums(np.ones(1))

    def table(self) -> Array:
        """Return the weight of each cell that ranks above each other cell, as ``win_table``."""
        return win_table(self.scores, self.cells.group, self.cells.weight, 2 * len(self.groups))

    def within_groups(self) -> tuple[Array, Array]:
        """Weight of the pairs (positive, negative) of each group in order, and of all its pairs."""
        negative, positive = self.weight.reshape(2, -1)
        n_groups = len(self.groups)
        return np.diag(self.table()[n_groups:, :n_groups]), negative * positive

    def differences(self, sets: Array) -> Array:
        """Return differences of two AUCs between sets of cells, (n_differences, 4, n_cells)."""
        return auc_differences(self.table(), self.weight, sets)


def ranked_rows(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
) -> Ranked:
    """Check the arguments of the metrics of AUCs."""
    codes, _, positive = two_labels(y_true, "y_true", pos_label)
    scores = _scores(y_score, len(codes))
    rows = grouped_rows(
        len(codes), sensitive_features, sample_weight, y_true=y_true, y_score=y_score
    )
    return Ranked.of(scores, codes == positive, rows)


def _largest_difference(ranked: Ranked, notion: str) -> float:
    """Return the largest difference of AUCs that a notion compares."""
    comparisons = COMPARISONS[notion](len(ranked.groups))
    _warn_of_empty(comparisons, ranked.weight.reshape(2, -1), ranked.groups)
    differences = ranked.differences(comparisons.reshape(-1, 4, 2 * len(ranked.groups)))
    return float(np.abs(differences).max(initial=0.0))


def _warn_of_empty(comparisons: Array, cell_weight: Array, groups: list[str]) -> None:
    if len(groups) == 1:
        warn_single_group(groups[0])
    sets = np.unique(comparisons.reshape(-1, 2, len(groups)), axis=0)
    empty = [cells for cells in sets if not (cells * cell_weight).any()]
    if empty:
        warn_absent(_describe(cells, groups) for cells in empty)


def _describe(cells: Array, groups: list[str]) -> str:
    labels, members = np.any(cells, axis=1), np.any(cells, axis=0)
    whose = "no group" if members.all() else f"group {groups[int(members.argmax())]}"
    has = "has" if members.all() else "has no"
    kind = "rows" if labels.all() else f"{'positive' if cells[1].any() else 'negative'} rows"
    return f"{whose} {has} {kind}"


def _scores(y_score: ArrayLike, n_samples: int | None = None) -> Array:
    scores: Array = check_array(y_score, ensure_2d=False, dtype="numeric", input_name="y_score")
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim != 1 or (n_samples is not None and len(scores) != n_samples):
        expected = "(n_samples,)" if n_samples is None else f"({n_samples},)"
        raise ValueError(
            f"y_score must have shape {expected}, one score per row; got {scores.shape}. Of two "
            "columns of probabilities, give the positive class's."
        )
    return np.asarray(scores)


def _mask(name: str, mask: ArrayLike, n_samples: int) -> NDArray[np.bool_]:
    array: Array = np.asarray(mask)
    if array.dtype != bool or array.shape != (n_samples,):
        raise ValueError(
            f"{name} must be a boolean mask of shape ({n_samples},); "
            f"got dtype {array.dtype}, shape {array.shape}."
        )
    return array


@metric_of(ranked_rows)
def group_auc_gap(ranked: Ranked) -> float:
    r"""How well scores tell two groups apart, whatever the label.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g, h) - \tfrac12 |

    (Vogel, Bellet and Clemencon, "Learning Fair Scoring Functions", 2021.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import group_auc_gap
    >>> group_auc_gap([0, 1, 0, 1], [1, 3, 2, 4], sensitive_features=list("aabb"))
    0.25
    """
    return _largest_difference(ranked, "group_auc")


@metric_of(ranked_rows)
def inter_group_auc_gap(ranked: Ranked) -> float:
    r"""Difference of cross-AUCs: positives of one group against negatives of another.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g^+, h^-) - \mathrm{AUC}(h^+, g^-) |

    (Kallus and Zhou, "The Fairness of Risk Scores Beyond Classification", 2019.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import inter_group_auc_gap
    >>> inter_group_auc_gap([0, 1, 0, 1], [1, 2, 3, 4], sensitive_features=list("aabb"))
    1.0
    """
    return _largest_difference(ranked, "inter_group")


@metric_of(ranked_rows)
def intra_group_auc_gap(ranked: Ranked) -> float:
    r"""Difference of the AUCs within each group.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g^+, g^-) - \mathrm{AUC}(h^+, h^-) |

    (Beutel et al., "Fairness in Recommendation Ranking through Pairwise Comparisons",
    2019.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import intra_group_auc_gap
    >>> intra_group_auc_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    1.0
    """
    return _largest_difference(ranked, "intra_group")


@metric_of(ranked_rows)
def positive_equality_gap(ranked: Ranked) -> float:
    r"""Average equality gap of the positives: those of a group against all.

    .. math:: \max_g \; | \mathrm{AUC}(g^+, \text{all}^+) - \tfrac12 |

    (Borkan et al., "Nuanced Metrics for Measuring Unintended Bias", 2019, for one
    protected group; here the worst group.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no positives.

    Examples
    --------
    >>> from fairconstrained.metrics import positive_equality_gap
    >>> positive_equality_gap([0, 1, 0, 1], [1, 2, 3, 4], sensitive_features=list("aabb"))
    0.25
    """
    return _largest_difference(ranked, "positive_equality_gap")


@metric_of(ranked_rows)
def negative_equality_gap(ranked: Ranked) -> float:
    r"""Average equality gap of the negatives: those of a group against all.

    .. math:: \max_g \; | \mathrm{AUC}(g^-, \text{all}^-) - \tfrac12 |

    (Borkan et al., 2019, as :func:`positive_equality_gap`.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no negatives.

    Examples
    --------
    >>> from fairconstrained.metrics import negative_equality_gap
    >>> negative_equality_gap([0, 1, 0, 1], [1, 2, 1, 4], sensitive_features=list("aabb"))
    0.0
    """
    return _largest_difference(ranked, "negative_equality_gap")


@metric_of(ranked_rows)
def bpsn_bnsp_gap(ranked: Ranked) -> float:
    r"""Background-positive subgroup-negative AUC against its counterpart.

    .. math:: \max_g \; | \mathrm{AUC}(\text{all}^+, g^-) - \mathrm{AUC}(g^+, \text{all}^-) |

    (Borkan et al., 2019, for one protected group; here the worst group.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import bpsn_bnsp_gap
    >>> bpsn_bnsp_gap([0, 1, 0, 1], [1, 2, 3, 4], sensitive_features=list("aabb"))
    0.5
    """
    return _largest_difference(ranked, "bpsn_bnsp")


__test__ = examples(globals())

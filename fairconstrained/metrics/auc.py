"""Gaps between groups in AUCs of scores, which need no decision threshold.

Each gap compares AUCs between sets of rows, defined by label and group (AUC-fairness paper,
Definition 2 and Appendix A), and reports the worst pair of groups. Ties are exact. The larger of
two labels is the positive one, as in scikit-learn's ``roc_auc_score``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fairconstrained.arrays import Array
from fairconstrained.exact_auc import COMPARISONS, auc_differences, ranks, win_table, wins
from fairconstrained.exceptions import SmallGroupWarning, warn_caller
from fairconstrained.inputs.labels import two_labels
from fairconstrained.inputs.samples import check_weights
from fairconstrained.metrics.inputs import GroupedRows, check_scores, grouped_rows
from fairconstrained.metrics.metric import metric, warn_absent, warn_single_group
from fairconstrained.numerics import without_rounding


def auc_between(
    y_score: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Return the probability that a row of one set scores higher than a row of another.

    Ties count half.

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
        Different lengths, masks that are not boolean, missing values, negative weights.

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
    scores = check_scores(y_score)
    weight = check_weights(sample_weight, len(scores))
    sides = []
    for name, rows in (("first", first), ("second", second)):
        mask: Array = np.asarray(rows)
        if mask.dtype != bool or mask.shape != scores.shape:
            raise ValueError(
                f"{name} must be a boolean mask of shape {scores.shape}; "
                f"got dtype {mask.dtype}, shape {mask.shape}."
            )
        sides.append(np.where(mask, weight, 0.0))
        if not sides[-1].any():
            warn_caller(
                f"The {name} set has no rows (or rows of zero weight only): the AUC is nan.",
                SmallGroupWarning,
            )
            return float("nan")
    above, below = sides
    return float(above @ wins(ranks(scores), below) / (above.sum() * below.sum()))


class Ranked(NamedTuple):
    """Scores in cells: the negatives of each group, then the positives."""

    scores: Array
    cells: GroupedRows  # the rows by cell
    groups: list[str]

    @classmethod
    def of(cls, scores: Array, positive: Array, rows: GroupedRows) -> Ranked:
        """Assign rows to cells by label and group."""
        cell = np.where(positive, len(rows.names), 0) + rows.group
        return cls(scores, rows._replace(group=cell, labels=2 * rows.names), rows.names)

    @property
    def weight(self) -> Array:
        """Return the weight of each cell, (n_cells,)."""
        return self.cells.sums(np.ones(1))

    def table(self) -> Array:
        """Return the weight of the pairs in which one cell ranks above another: a ``win_table``."""
        return win_table(self.scores, self.cells.group, self.cells.weight, 2 * len(self.groups))

    def differences(self, sets: Array) -> Array:
        """Compute AUC differences, each of four `sets` of cells, (n_differences, 4, n_cells)."""
        return auc_differences(self.table(), self.weight, sets)


class AUCGap(NamedTuple):
    """Scores in cells, and the name of the AUC comparison that a metric makes."""

    ranked: Ranked
    notion: str

    @classmethod
    def read(
        cls, notion: str, y_true: Any, y_score: Any, groups: Any, weight: Any, pos_label: Any = None
    ) -> AUCGap:
        """Check a metric's arguments and put the scores into cells."""
        codes, classes = two_labels(y_true, "y_true", pos_label)
        if notion != "group_auc":  # which compares groups, whatever the label
            classes.require_top()
        scores, samples = check_scores(y_score), {"y_true": y_true, "y_score": y_score}
        rows = grouped_rows(codes, groups, weight, **samples)
        return cls(Ranked.of(scores[rows.row], codes[rows.row] == classes.targets[0], rows), notion)

    @property
    def sets(self) -> Array:
        """Return the sets of cells whose AUCs are compared, (n_differences, 4, n_cells)."""
        n_groups = len(self.ranked.groups)
        return COMPARISONS[self.notion](n_groups).reshape(-1, 4, 2 * n_groups)

    def __float__(self) -> float:
        groups, absent = self.ranked.groups, []
        if len(groups) == 1:
            warn_single_group(groups[0])
            return float("nan")
        for cells in np.unique(self.sets.reshape(-1, 2, len(groups)), axis=0):
            if (cells.ravel() * self.ranked.weight).any():
                continue
            labels, members = np.any(cells, axis=1), np.any(cells, axis=0)
            kind = "rows" if labels.all() else f"{'positive' if labels[1] else 'negative'} rows"
            one = f"group {groups[int(members.argmax())]} has no {kind}"
            absent.append(f"no group has {kind}" if members.all() else one)
        if absent:
            warn_absent(absent)
        return without_rounding(float(np.abs(self.ranked.differences(self.sets)).max(initial=0.0)))


@metric
def group_auc_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the largest distance from 1/2 of the AUC between two groups, regardless of label.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g, h) - \tfrac12 |

    (Vogel, Bellet and Clemencon, "Learning Fair Scoring Functions", 2021.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no weight.

    Examples
    --------
    >>> from fairconstrained.metrics import group_auc_gap
    >>> group_auc_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    0.5
    """
    return AUCGap.read("group_auc", y_true, y_score, sensitive_features, sample_weight, pos_label)


@metric
def inter_group_auc_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the largest difference between the cross-AUCs of two groups.

    Positives of one group are compared with negatives of another.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g^+, h^-) - \mathrm{AUC}(h^+, g^-) |

    (Kallus and Zhou, "The Fairness of Risk Scores Beyond Classification", 2019.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import inter_group_auc_gap
    >>> inter_group_auc_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    1.0
    """
    return AUCGap.read("inter_group", y_true, y_score, sensitive_features, sample_weight, pos_label)


@metric
def intra_group_auc_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the largest difference between the within-group AUCs of two groups.

    .. math:: \max_{g, h} \; | \mathrm{AUC}(g^+, g^-) - \mathrm{AUC}(h^+, h^-) |

    (Beutel et al., "Fairness in Recommendation Ranking through Pairwise Comparisons", 2019.)

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
    return AUCGap.read("intra_group", y_true, y_score, sensitive_features, sample_weight, pos_label)


@metric
def positive_equality_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the average equality gap of positives: how far their AUCs against all are from 1/2.

    .. math:: \max_g \; | \mathrm{AUC}(g^+, \text{all}^+) - \tfrac12 |

    (Of one group: Borkan et al., "Nuanced Metrics for Measuring Unintended Bias", 2019.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no positives.

    Examples
    --------
    >>> from fairconstrained.metrics import positive_equality_gap
    >>> positive_equality_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    0.25
    """
    return AUCGap.read(
        "positive_equality_gap", y_true, y_score, sensitive_features, sample_weight, pos_label
    )


@metric
def negative_equality_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the average equality gap of negatives: how far their AUCs against all are from 1/2.

    .. math:: \max_g \; | \mathrm{AUC}(g^-, \text{all}^-) - \tfrac12 |

    (Of one group: Borkan et al., "Nuanced Metrics for Measuring Unintended Bias", 2019.)

    Returns
    -------
    float
        Between 0 and 1/2; nan where a group has no negatives.

    Examples
    --------
    >>> from fairconstrained.metrics import negative_equality_gap
    >>> negative_equality_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    0.25
    """
    return AUCGap.read(
        "negative_equality_gap", y_true, y_score, sensitive_features, sample_weight, pos_label
    )


@metric
def bpsn_bnsp_gap(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    pos_label: Any = None,
    control_features: Any = None,
    attributes: str = "crossed",
) -> AUCGap:
    r"""Return the largest gap between background-positive subgroup-negative AUC and its reverse.

    .. math:: \max_g \; | \mathrm{AUC}(\text{all}^+, g^-) - \mathrm{AUC}(g^+, \text{all}^-) |

    (Of one group: Borkan et al., "Nuanced Metrics for Measuring Unintended Bias", 2019.)

    Returns
    -------
    float
        Between 0 and 1; nan where a group has no rows with some label.

    Examples
    --------
    >>> from fairconstrained.metrics import bpsn_bnsp_gap
    >>> bpsn_bnsp_gap([0, 1, 0, 1], [1, 2, 4, 3], sensitive_features=list("aabb"))
    0.5
    """
    return AUCGap.read("bpsn_bnsp", y_true, y_score, sensitive_features, sample_weight, pos_label)

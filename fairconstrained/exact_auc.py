r"""Exact AUCs between sets of rows, and the AUCs that each criterion compares.

For sets G and G' of rows with weights :math:`w` and scores :math:`z`,

.. math::

    \mathrm{AUC}(G, G') = \frac{1}{w(G)\, w(G')} \sum_{i \in G,\, j \in G'} w_i w_j
        \big( 1[z_i > z_j] + \tfrac12 1[z_i = z_j] \big) .

The sets of a criterion are unions of (label, group) cells. One sort of all scores yields a small
table of wins between cells, and this table gives all AUCs of the criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairconstrained.arrays import Floats, Ints


def ranks(scores: NDArray[Any]) -> Ints:
    """Return the position of each score among the distinct scores, in ascending order."""
    _, rank = np.unique(scores, return_inverse=True)
    return rank.reshape(-1).astype(np.int64)


def wins(rank: Ints, second_weight: Floats) -> Floats:
    """Return the weight of the second set below each row in rank, (n,); a tie counts one half."""
    at = np.bincount(rank, weights=second_weight)
    return np.asarray((np.cumsum(at) - 0.5 * at)[rank])


def win_table(scores: NDArray[Any], cell: Ints, weight: Floats, n_cells: int) -> Floats:
    """Return the weight of the pairs in which a row of cell a ranks above one of cell b, (a, b).

    The cost is one sort of n scores and n additions for each cell.
    """
    rank = ranks(scores)
    table = np.empty((n_cells, n_cells))
    for b in range(n_cells):
        won = weight * wins(rank, np.where(cell == b, weight, 0.0))
        table[:, b] = np.bincount(cell, weights=won, minlength=n_cells)
    return table


def auc_differences(table: Floats, cell_weight: Floats, comparisons: Floats) -> Floats:
    """Return AUC(G1, G1') - AUC(G2, G2') for each comparison, (m,); nan for sets without weight.

    `table` is the result of :func:`win_table`; comparisons (m, 4, n_cells) are zeros and ones for
    the cells of G1, G1', G2, G2'.
    """
    return differences_of_sets(table, cell_weight, *distinct_sets(comparisons))


def distinct_sets(comparisons: Floats) -> tuple[Floats, Ints]:
    """Return the distinct sets (n_sets, n_cells) of comparisons (m, 4, n_cells), and their indices.

    All pairs of G groups make about G^2 comparisons, but of about G sets.
    """
    rows = comparisons.reshape(4 * len(comparisons), comparisons.shape[-1]) > 0
    if not rows.size:
        return np.zeros((0, rows.shape[1])), np.zeros((len(comparisons), 4), dtype=np.int64)
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first].astype(float), index.reshape(-1, 4).astype(np.int64)


def differences_of_sets(table: Floats, cell_weight: Floats, sets: Floats, index: Ints) -> Floats:
    """Compute :func:`auc_differences` from the result of :func:`distinct_sets`."""
    weight = sets @ cell_weight
    with np.errstate(invalid="ignore", divide="ignore"):
        aucs = sets @ table @ sets.T / np.outer(weight, weight)
    first, first_, second, second_ = index.T
    return np.asarray(aucs[first, first_] - aucs[second, second_])


def auc_influences(scores: NDArray[Any], cell: Ints, weight: Floats, comparisons: Floats) -> Floats:
    r"""Return the influence of each row on :func:`auc_differences`, (m, n), which sums to zero.

    The delta method (DeLong, DeLong and Clarke-Pearson 1988): with a row of G, which has the
    fraction p of all rows, an AUC moves by :math:`(P(z' < z) - \mathrm{AUC}) / p`, as it does with
    one of G'. Rows are draws, and so are the sizes of the sets. Comparisons are (m, 4, n_cells);
    cells beyond the last are in no set.
    """
    fraction = weight / weight.sum()
    rank = ranks(scores)
    member = np.concatenate((comparisons, np.zeros((*comparisons.shape[:2], 1))), axis=2)
    cell = np.minimum(cell, member.shape[2] - 1)
    moved = np.zeros((len(member), len(scores)))
    for sets, row in zip(member, moved, strict=True):
        inside = sets[:, cell] * fraction  # (4, n)
        for sign, first, second in ((1.0, *inside[:2]), (-1.0, *inside[2:])):
            p, p_ = first.sum(), second.sum()
            above, below = wins(rank, second) / p_, 1.0 - wins(rank, first) / p
            auc = first @ above / p
            row += sign * (first / p * (above - auc) + second / p_ * (below - auc))
    return moved


def auc_standard_errors(
    scores: NDArray[Any], cell: Ints, weight: Floats, comparisons: Floats
) -> Floats:
    """Return standard errors of :func:`auc_differences`, (m,): norms of :func:`auc_influences`."""
    # One comparison after the other: for many rows and groups all influences would not fit.
    influences = (auc_influences(scores, cell, weight, sets[None]) for sets in comparisons)
    return np.asarray(list(map(np.linalg.norm, influences)))


# The sets G1, G1', G2, G2' of each criterion (AUC-fairness paper, Appendix A): whose rows and which
# labels. All rows against all rows have the AUC 1/2.
_PAIRWISE = ("group_auc", "inter_group", "intra_group")
_ALL = ("all", 0, 1)
_SETS: Mapping[str, Sequence[tuple[Any, ...]]] = {
    "group_auc": (("g", 0, 1), ("h", 0, 1), _ALL, _ALL),
    "inter_group": (("g", 1), ("h", 0), ("h", 1), ("g", 0)),
    "intra_group": (("g", 1), ("g", 0), ("h", 1), ("h", 0)),
    "positive_equality_gap": (("g", 1), ("all", 1), _ALL, _ALL),
    "negative_equality_gap": (("g", 0), ("all", 0), _ALL, _ALL),
    "bpsn_bnsp": (("all", 1), ("g", 0), ("g", 1), ("all", 0)),
}


def _comparisons(n_groups: int, pairwise: bool, sets: Sequence[tuple[Any, ...]]) -> Floats:
    """Return comparisons of pairs of groups, or of each with all, (m, 4, 2, n_groups): 0 or 1."""
    g, h = np.triu_indices(n_groups, 1) if pairwise else 2 * [np.arange(n_groups)]
    cells = np.zeros((len(g), 4, 2, n_groups))
    for place, (whose, *labels) in enumerate(sets):
        for label in labels:
            if whose == "all":
                cells[:, place, label] = 1.0
            else:
                cells[np.arange(len(g)), place, label, g if whose == "g" else h] = 1.0
    return cells


# The AUCs that each criterion compares, by the number of groups.
COMPARISONS: Mapping[str, Callable[[int], Floats]] = {
    name: partial(_comparisons, pairwise=name in _PAIRWISE, sets=sets)
    for name, sets in _SETS.items()
}

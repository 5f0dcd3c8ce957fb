r"""Parity of the true groups, where records err with probabilities that are known within bounds.

Let :math:`C_{tr} = P(\text{recorded } r \mid \text{true } t)`, and let :math:`h_r, N_r` be the rows
with an event and all rows that are recorded as r. By Cramer's rule the rate of the true group t is

.. math:: \rho_t(C) = \frac{\det C[t \leftarrow h]}{\det C[t \leftarrow N]} ,

where row t of C is replaced. It does not depend on row t, and is a ratio of two linear functions of
any other row. Over a product of polytopes, one for each row, it is therefore largest and smallest
at their corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairconstrained.arrays import Floats, Ints
from fairconstrained.constraints import notions
from fairconstrained.constraints.affine import Combinations
from fairconstrained.constraints.linear import LinearMoments
from fairconstrained.constraints.tables import Space
from fairconstrained.groups import checked_bounds, checked_confusion, matrices_within


@dataclass(eq=False, repr=False)
class RobustParity(notions.Notion):
    r"""Parity of the true groups, for all confusion matrices within bounds.

    The sensitive features are the groups as *recorded*. For every matrix C of the set

    .. math:: \{ C : |C_{tr} - \mathrm{confusion}_{tr}| \le \mathrm{bound}_{tr},
              \; C \ge 0, \; \textstyle\sum_r C_{tr} = 1 \}

    the rates of the true groups differ by at most the slack. ``violation_`` is the largest gap over
    the set, with two groups exactly. With more it is an upper bound: the largest rate of one group
    less the smallest of another, which may belong to different matrices.

    It is right if errors of the record depend on the true group only, and if the true matrix is in
    the set: the constraint says nothing about other errors. It holds in expectation over the errors
    of the records, and not for the errors that happen to be in the training rows.

    Parameters
    ----------
    parity : Parity
        Such as :class:`DemographicParity`, without `ratio`, compared pair by pair.
    confusion : DataFrame or array-like of shape (n_groups, n_groups)
        As in :class:`fairconstrained.groups.RecordedGroups`: a row for each true group, a column
        for each recorded one.
    bound : float or array-like of shape (n_groups, n_groups)
        How far each entry may be from the truth.

    Notes
    -----
    There is one constraint for each pair of groups and pair of corners: 8 for two groups, up to
    7,776 for three, and too many for four.

    References
    ----------
    Wang, Guo, Narasimhan, Cotter, Gupta and Jordan, "Robust optimization for fairness with noisy
    protected groups", NeurIPS 2020. There the set has the true groups of the rows given records and
    labels, and multipliers are updated by the worst one; here errors of the record depend on the
    group only, and the worst ones are corners that are known beforehand.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained import RateConstrainedClassifier
    >>> from fairconstrained.constraints import DemographicParity, RobustParity
    >>> from fairconstrained.datasets import make_biased_classification
    >>> data = make_biased_classification(4000, random_state=0)
    >>> wrong = np.random.default_rng(0).random(4000) < 0.1
    >>> recorded = np.where(wrong, 1 - data.sensitive_features, data.sensitive_features)
    >>> robust = RobustParity(DemographicParity(0.05), [[0.87, 0.13], [0.13, 0.87]], bound=0.05)
    >>> clf = RateConstrainedClassifier(robust)
    >>> clf.fit(data.data, data.target, sensitive_features=recorded).feasible_
    True
    """

    parity: notions.Parity
    confusion: Any
    bound: Any

    @property
    def name(self) -> str:  # type: ignore[override]
        """Return the name of the parity, marked as robust."""
        return f"robust_{self.parity.name}"

    @property
    def slack(self) -> Any:
        """Return the slack of the parity."""
        return self.parity.slack

    @property
    def needs_favourable(self) -> bool:
        return self.parity.needs_favourable

    def positive(self, classes: Sequence[Any]) -> list[int]:
        return self._checked_parity().positive(classes)

    def _checked_parity(self) -> notions.Parity:
        """Return the parity; raise ValueError unless it compares recorded groups pair by pair."""
        parity = self.parity
        plain = isinstance(parity, notions.Parity) and parity.ratio is None
        if not plain or (parity.reference, parity.attributes) != ("pairwise", "crossed"):
            raise ValueError(
                "RobustParity.parity must be a parity of crossed groups, pair by pair and without "
                f"ratio, such as DemographicParity(0.05); got {parity!r}."
            )
        return parity

    def bind(self, space: Space, slack: float | None = None) -> LinearMoments:
        """Return the constraint on these labels and recorded groups."""
        parity = self._checked_parity()
        gap = notions.checked_number(
            parity, "slack", slack if parity.slack is None else parity.slack
        )
        matrix = checked_confusion(self.confusion, list(space.groups))
        sets, group_of_set = fractions_of_groups(matrix, checked_bounds(self.bound, matrix))
        compared = group_of_set[:, None] != group_of_set
        n_classes = len(space.classes)
        statistic = parity.statistic(n_classes)
        events = parity.checked_events(space.classes, statistic.n_columns)
        n_values = len(events) * int(compared.sum())
        notions.refuse_too_many(
            self, n_values, len(matrix), "Join small groups, or bound fewer entries."
        )
        return notions.linear(
            *(parity._differences, space, events, [sp.csr_array(sets)] * n_classes),
            Combinations.of(sp.kron(sp.eye_array(len(events)), notions.differences(compared))),
            *(np.full(n_values, gap), statistic),
            *(self.name, f"robust_{parity.title(space.classes)}"),
        )


def fractions_of_groups(confusion: Floats, bounds: Floats) -> tuple[Floats, Ints]:
    """Compute the fractions of recorded groups in each true group, at each corner.

    Returns the fractions (n_sets, n_groups) and the true group of each set. The rate of a group
    does not depend on the group's row of the matrix, so the corners of this row count once.
    """
    corners = {}
    for index, matrix in matrices_within(confusion, bounds).items():
        for group, column in enumerate(np.linalg.inv(matrix).T):
            others = index[:group] + index[group + 1 :]
            corners[group, others] = column / (column @ confusion[group])
    return np.array(list(corners.values())), np.array([group for group, _ in corners])

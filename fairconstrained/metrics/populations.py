r"""Populations declared by fractions of groups and labels, or by weights of the rows.

A row that is kept with probability in proportion to the ratio of the two populations' densities is
a draw of the other population (von Neumann 1951). So from rows of one population a sample of the
declared one is drawn, and every exact bound for samples holds for it. The probability of error is
over the rows and these draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from fairconstrained.arrays import Array, Floats, Ints, check_number
from fairconstrained.groups import corners_within
from fairconstrained.inputs.groups import Groups, group_name
from fairconstrained.inputs.samples import check_weights
from fairconstrained.metrics.claims import Claim

Fraction: TypeAlias = float | tuple[float, float]
# Each interval has two ends, and each combination of ends is a sample: 256 of them.
MOST_INTERVALS = 8


@dataclass(frozen=True)
class Proportions:
    r"""A population with other fractions of groups, or of positive labels in each group.

    Within each group, and within each label of a group where `positives` is given, the population
    is the one of the rows: :math:`P(x \mid y, g)` stays, and :math:`P(g)` and :math:`P(y \mid g)`
    are declared.

    Parameters
    ----------
    groups : dict of group to float or pair of float, optional
        The fraction of each group, or its lower and upper bound.
    positives : dict of group to float or pair of float, optional
        The fraction of positive labels in each group, or its bounds.

    Raises
    ------
    ValueError
        If fractions are not between 0 and 1, or if those of the groups cannot add up to one.

    Notes
    -----
    Rates of a group given the label depend on neither, selection and error rates of a group on the
    labels only, and caps on all rows on both. Where nothing depends on what is declared, all rows
    are used. Else samples are drawn from them in the declared fractions: one that is much larger
    than that of the rows leaves few of them. Of intervals, every corner is certified: a criterion
    is largest at one of them, as a ratio of linear functions of the fractions.

    References
    ----------
    Giguere, Metevier, Brun, da Silva, Thomas and Niekum, "Fairness guarantees under demographic
    shift", ICLR 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.metrics import Proportions, certify
    >>> rng = np.random.default_rng(0)
    >>> sex, y_true = rng.choice(["f", "m"], size=8000), rng.integers(2, size=8000)
    >>> y_pred = np.where(rng.random(8000) < 0.8, y_true, 0)
    >>> fewer = Proportions(positives={"f": (0.2, 0.3), "m": 0.3})
    >>> certificate = certify(y_true=y_true, y_pred=y_pred, sensitive_features=sex, slack=0.2,
    ...                       constraint="demographic_parity", population=fewer)
    >>> certificate.kept, certificate.population["positives"]["f"]
    (True, [0.2, 0.3])
    """

    groups: Mapping[Any, Fraction] | None = None
    positives: Mapping[Any, Fraction] | None = None

    def __post_init__(self) -> None:
        """Check the fractions."""
        if self.groups is None and self.positives is None:
            raise ValueError("Proportions must declare groups or positives; got neither.")
        bounds = _bounds("groups", self.groups)
        _bounds("positives", self.positives)
        low, high = np.array([*bounds.values()]).reshape(-1, 2).sum(axis=0)
        if bounds and not low <= 1.0 + 1e-9 <= high + 2e-9:
            raise ValueError(
                f"Proportions.groups must be able to add up to 1; got {self.groups!r}."
            )

    @property
    def needs_labels(self) -> bool:
        """Whether rows are drawn by their true labels."""
        return self.positives is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the declared fractions, in plain numbers."""
        declared = {"groups": self.groups, "positives": self.positives}
        return {
            name: {group: list(ends) for group, ends in _bounds(name, fractions).items()}
            for name, fractions in declared.items()
            if fractions is not None
        }

    def samples(
        self, groups: Groups, positive: Array | None, claim: Claim, failure: float
    ) -> list[Ints]:
        """Draw rows at each corner of the declared fractions, if the claim depends on them.

        `positive` says whether the true label is the positive one. The rows fail to suffice for a
        sample with a probability of at most `failure`.
        """
        if claim.in_strata or claim.attributes == "parallel":
            raise ValueError(
                "population must hold Weights for parity within strata, or by several attributes: "
                f"Proportions say nothing about either; got {self!r}."
            )
        by_group = claim.depends_on_groups and self.groups
        by_label = claim.depends_on_labels and self.positives
        if claim.depends_on_groups and by_label and not by_group:
            raise ValueError(
                "Proportions must declare groups as well as positives for this criterion, which "
                "depends on the fractions of the groups."
            )
        # Rows that lack a declared group are refused, whether or not the criterion depends on it.
        names = [group_name(label) for label in groups.labels]
        group_bounds = _group_bounds(names, "groups", self.groups)[: None if by_group else 0]
        label_bounds = _group_bounds(names, "positives", self.positives)[: None if by_label else 0]
        if not by_group and not by_label:
            return []
        n_intervals = int(np.diff(np.concatenate((group_bounds, label_bounds))).astype(bool).sum())
        if n_intervals and not claim.at_corners:
            raise ValueError(
                "Proportions must declare numbers and no intervals for this criterion, which need "
                f"not be largest at an end of them; got {self!r}."
            )
        if n_intervals > MOST_INTERVALS:
            raise ValueError(
                f"Proportions must declare at most {MOST_INTERVALS} intervals, each of which "
                f"doubles the work; got {n_intervals}."
            )
        rng = _generator(groups.codes, positive)
        corners = [np.round(corner, 12).tolist() for corner in corners_within(*group_bounds.T)]
        return [
            _drawn(groups, positive, share, np.array(positives), failure, rng)
            for share in (sorted(corners) if by_group else [None])  # always in one order
            for positives in product(*(np.unique(ends).tolist() for ends in label_bounds))
        ]


@dataclass(frozen=True, eq=False)
class Weights:
    r"""A population whose density is the density of the rows times known weights, up to a factor.

    Parameters
    ----------
    values : array-like of shape (n_samples,)
        A weight of at least 0 for each row, as a function of the row: importance weights, or the
        inverse of the probability with which a survey takes it.
    most : float
        A bound on the weights that was known before these rows.

    Notes
    -----
    A row counts with probability weight / most: the fewer rows are left, the larger `most`.

    Examples
    --------
    >>> import numpy as np
    >>> from fairconstrained.metrics import Weights, certify
    >>> rng = np.random.default_rng(0)
    >>> old, group = rng.integers(2, size=9000), rng.integers(2, size=9000)
    >>> y_pred = (rng.random(9000) < np.where(old == 1, 0.3 + 0.2 * group, 0.5)).astype(int)
    >>> certificate = certify(y_pred=y_pred, sensitive_features=group, slack=0.25,
    ...                       constraint="demographic_parity",
    ...                       population=Weights(1.0 + 2.0 * old, most=3.0))
    >>> certificate.kept, round(certificate.estimate, 2)
    (True, 0.15)
    """

    values: ArrayLike
    most: float
    needs_labels = False

    def to_dict(self) -> dict[str, Any]:
        """Return the bound, in plain numbers."""
        return {"weights": {"most": float(self.most)}}

    def samples(
        self, groups: Groups, positive: Array | None, claim: Claim, failure: float
    ) -> list[Ints]:
        """Draw each row with probability weight / most, for any claim."""
        weights = self.of_rows(len(groups.codes))
        drawn = _generator(weights).random(len(weights)) < weights / float(self.most)
        return [np.flatnonzero(drawn)]

    def of_rows(self, n_rows: int) -> Floats:
        """Return the weights of `n_rows` rows; raise ValueError if they exceed the bound."""
        weights = check_weights(self.values, n_rows)
        check_number("Weights.most", self.most, "a number > 0", lambda most: most > 0)
        if weights.max() > self.most:
            raise ValueError(f"Weights.values must be at most {self.most}; got {weights.max()}.")
        return weights


Population: TypeAlias = Proportions | Weights


def _generator(*inputs: Array | None) -> np.random.Generator:
    """Return a generator seeded by the rows, so that equal rows have equal certificates.

    With one seed for all, the composition of samples would be off by the same chance everywhere.
    """
    columns = [np.asarray(column, dtype=float) for column in inputs if column is not None]
    return np.random.default_rng(crc32(np.concatenate(columns).tobytes()))


def _bounds(name: str, fractions: Mapping[Any, Fraction] | None) -> dict[str, tuple[float, float]]:
    """Return the lower and the upper bound of the fraction of each group."""
    bounds = {}
    for group, fraction in (fractions or {}).items():
        ends = np.asarray(fraction, dtype=float).reshape(-1)
        low, high = ends[0], ends[-1]
        if len(ends) > 2 or not 0.0 <= low <= high <= 1.0:
            raise ValueError(
                f"Proportions.{name} must hold fractions between 0 and 1, or pairs of a lower and "
                f"an upper one; got {fraction!r} for group {group_name(group)}."
            )
        bounds[group_name(group)] = float(low), float(high)
    return bounds


def _group_bounds(names: list[str], name: str, fractions: Any) -> Floats:
    """Return the bounds of the groups' fractions, (n_groups, 2), or (0, 2) if none are declared."""
    if fractions is None:
        return np.zeros((0, 2))
    bounds = _bounds(name, fractions)
    if set(bounds) != set(names):
        raise ValueError(
            f"Proportions.{name} must hold each of the groups {sorted(names)}; got "
            f"{sorted(bounds)}."
        )
    return np.array([bounds[group] for group in names])


def _drawn(
    groups: Groups,
    positive: Array | None,
    share: Sequence[float] | None,
    positives: Floats,
    failure: float,
    rng: Any,
) -> Ints:
    """Draw row positions with declared fractions of groups (None: any) and of positive labels."""
    n_groups, cell = len(groups.labels), groups.codes
    q = np.ones(n_groups) if share is None else np.array(share)
    if len(positives):
        assert positive is not None
        cell = 2 * groups.codes + positive
        q = np.stack((q * (1.0 - positives), q * positives), axis=1).ravel()
    members = [np.flatnonzero(cell == t) for t in range(len(q))]
    if share is not None:
        return _from_strata(members, q, failure, rng)
    pairs = range(0, len(q), 2)
    each = (_from_strata(members[t : t + 2], q[t : t + 2], failure / n_groups, rng) for t in pairs)
    return np.concatenate(list(each))


def _from_strata(members: list[Ints], q: Floats, failure: float, rng: Any) -> Ints:
    """Draw the largest sample with strata in fractions q that fails with chance <= `failure`."""
    sizes = np.array([len(rows) for rows in members])
    q = q / q.sum()
    low, high = 0, int(np.min(sizes[q > 0] / q[q > 0])) + 1
    while high - low > 1:
        middle = (low + high) // 2
        enough = binom.sf(sizes, middle, q).sum() <= failure
        low, high = (middle, high) if enough else (low, middle)
    if low == 0:
        raise ValueError(
            f"Proportions leave no sample: of {sizes.tolist()} rows, the declared fractions are "
            f"{np.round(q, 4).tolist()}."
        )
    counts = np.minimum(rng.multinomial(low, q), sizes)
    chosen = [rng.permutation(rows)[:n] for rows, n in zip(members, counts, strict=True)]
    return np.concatenate(chosen)

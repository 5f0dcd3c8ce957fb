r"""Public features and labels, secret groups: noisy sums over groups, and estimates from them.

With prior fractions :math:`\pi` and noisy sums of public vectors :math:`q_i`,
:math:`Y_g = \sum_i \omega_i q_i S_{ig} + \text{noise}`, the estimate of the groups is the ridge
regression

.. math::

    \hat S_{ig} = \pi_g + \gamma q_i' (\gamma G + \mathrm{diag}(v))^{-1}
        \Big( Y_g - \pi_g \sum_j \omega_j q_j \Big), \qquad G = \sum_j \omega_j q_j q_j' ,

with the variances v of the noise. Its sums are the released ones, shrunk in proportion to their
noise. It is the posterior mean if :math:`S = \pi + q'\beta` with :math:`\beta` normal of covariance
:math:`\gamma G^{-1}`. The strength :math:`\gamma` of the dependence of the groups on the vectors
maximises the likelihood of the releases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from fairconstrained.constraints.tables import sum_by
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.losses import hard_classes
from fairconstrained.models.features import Features
from fairconstrained.numerics import NEGLIGIBLE
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.erm import FairERM
from fairconstrained.problems.rows import Rows


def noisy_sums(
    name: str, rows: Tensor, data: Rows, shape: tuple[int, int], releases: Releases, rng: Generator
) -> tuple[Tensor, float]:
    """Release sums of public rows (n, m) over secret groups, (n_conditions, n_groups, m).

    The condition of a row is its `y` in `data`. The total over the groups is public, and not summed
    over groups: not even its rounding may depend on them. Also return the deviation of the noise.
    """
    n_conditions, n_groups = shape
    sums = sum_by(rows, data.y * n_groups + data.group, n_conditions * n_groups)
    mean = sum_by(rows, data.y, n_conditions)[:, None] / n_groups
    overall = data.workers.sum(mean)
    if n_groups == 1:
        return overall, 0.0
    # We account for antipodal contributions, a distance of 2; groups are sqrt(2) apart,
    # and of all rows, without sampling, nothing but the distance matters.
    largest, half = max(data.workers.gather(float(rows.norm(dim=1).max()))), 0.5**0.5
    sums = sums.reshape(n_conditions, n_groups, -1) - mean
    noisy = releases.noisy(name, sums, largest * half, rng)
    # The total is public: noise on it is undone.
    noisy = noisy - noisy.mean(dim=1, keepdim=True) + overall
    return noisy, releases.plan.noise(name) * largest * half


class SecretGroups:
    r"""A problem whose groups are known by noisy sums alone: features and labels are public.

    For public vectors :math:`q_i` a release gives, for each condition on the label and each group,

    .. math:: \sum_{i \in c} \omega_i q_i \otimes (e_{s_i} - \tfrac1k \mathbf 1) + \text{noise},

    to which the public sums are added. Another group for a row moves them by
    :math:`\sqrt 2\, \omega_i \lVert q_i \rVert`. Labels that the constraint treats alike are one
    condition; in condition 0 nothing is compared. The attribute `data` has the rows without their
    groups.

    The `public` problem has all rows in the first group; the groups of this worker's rows are the
    secret. Counts are the released weights of the parts of the constraint.
    """

    offers = frozenset({"noisy_moments"})

    def __init__(self, public: FairERM, group: Tensor, counts: Tensor, releases: Releases):
        self.public, self.model, self.data = public, public.model, public.data
        self.constraint, self.n_rows = public.constraint, public.n_rows
        self.n_constraints = public.n_constraints
        self.releases, self.plan = releases, releases.plan
        affine = self.constraint.affine(counts)
        if affine is None or self.constraint.n_aux:
            raise IncompatibleSolverError(
                "Where the groups are secret, a constraint must be linear in sums over groups, as "
                f"constraints on rates and mean losses are; got {self.constraint.name}."
            )
        self._affine = affine
        part_of_cell = self.constraint.partition.part_of_cell.to(group.device)
        alike, kind_of_label = torch.unique(part_of_cell, dim=0, return_inverse=True)
        compared = (alike >= 0).any(dim=1)
        condition = (compared.cumsum(0) * compared)[kind_of_label]  # of each label
        self._secret = replace(self.data, y=condition[self.data.y.long()], group=group)
        # The part of each condition and group, (n_conditions + 1, n_groups).
        part = torch.cat((torch.full_like(part_of_cell[:1], -1), alike[compared]))
        self._cells = torch.bincount(part[part >= 0], minlength=len(counts))  # in each part
        prior = pad(counts / self._cells, (0, 1))[part]
        prior[prior.sum(dim=1) == 0] = 1.0  # nothing is compared there
        self._prior = prior / prior.sum(dim=1, keepdim=True)
        self._released: list[tuple[Tensor, Tensor, Tensor]] = []  # queries, sums, variances

    def one_label(self, x: Tensor) -> tuple[int, str] | None:
        """Return the label that all rows are predicted to have at `x`, if there is one."""

        def labels(rows: Rows) -> set[int]:
            scores = (self.model.scores(x, piece.X) for piece in rows.pieces())
            return {label for some in scores for label in hard_classes(some).tolist()}

        predicted = set.union(*self.data.gather(labels))
        return (predicted.pop(), "all rows") if len(predicted) == 1 else None

    def start(self) -> Tensor:
        """Return the point at which a fit begins; it does not depend on the secret."""
        return self.model.init()

    def release(self, name: str, queries: Tensor, rng: Generator) -> None:
        """Release sums of the public queries (n, m) over conditions and groups, and keep them."""
        n_conditions, n_groups = self._prior.shape
        rows = queries * ((self._secret.y > 0) * self._secret.weight)[:, None]
        sums, deviation = noisy_sums(
            name, rows, self._secret, (n_conditions, n_groups), self.releases, rng
        )
        self._released.append((queries, sums, queries.new_full((queries.shape[1],), deviation**2)))

    def estimated(self) -> FairERM:
        """Return the problem of the groups as estimated from all releases so far.

        The fractions of the groups in each row, (n, n_groups), add up to 1.
        """
        condition, workers = self._secret.y, self.data.workers
        fractions, n_conditions = self._prior[condition], len(self._prior)
        if self._released:
            columns = zip(*self._released, strict=True)
            queries, sums, variances = map(partial(torch.cat, dim=-1), columns)
        for c in range(1, n_conditions if self._released else 1):
            rows = condition == c
            own, weight, prior = queries[rows], self.data.weight[rows], self._prior[c]
            excess = (sums[c] - prior[:, None] * workers.sum(weight @ own)).T
            gram = workers.sum(own.T @ (own * weight[:, None]))
            fractions[rows] = prior + own @ _ridge(gram, excess, variances)
        return replace(self.public, data=replace(self.data, group=fractions))

    def mean(self, values: Tensor) -> Tensor:
        """Return weighted means (m,) of public values (n, m), over the rows of all workers."""
        weight, workers = self.data.weight, self.data.workers
        return workers.sum(weight @ values) / workers.sum(weight.sum())

    def quantile(self, values: Tensor, level: float) -> float:
        """Return a quantile of a public value (n,) of all workers, or of evenly spaced rows."""
        some = values[self.data.spaced()]
        return float(torch.cat(self.data.workers.gather(some)).quantile(level))

    def deviations_of_estimates(self) -> Tensor:
        """Return standard deviations of the noise of the last release on values of its sums, (m,).

        That release was of the hard statistics. The noise on totals over groups, which is undone,
        is not subtracted: deviations are exact for differences between groups, bounds for caps.
        A solver that `max_iter` stops before that leaves them unknown: infinite.
        """
        planned = len(self.plan.releases)
        if not planned:  # of a single group nothing is secret
            return self._prior.new_zeros(self.n_constraints)
        if len(self._released) < planned - 1:  # the counts were released before
            return self._prior.new_full((self.n_constraints,), torch.inf)
        *_, variances = self._released[-1]
        slopes = self._affine.on_table(torch.eye(self.n_constraints).to(variances))
        table_variances = self._cells[:, None] * variances
        return torch.sqrt((slopes.square() * table_variances).sum(dim=(1, 2)))

    def predictions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return soft and hard statistics of the rows, such as probabilities, which are public."""
        scores = torch.cat([self.model.scores(x, rows.X) for rows in self.data.pieces()])
        statistic = self.constraint.statistic
        return statistic.soft(scores, self.data.y), statistic.hard(scores, self.data.y)


def _ridge(gram: Tensor, excess: Tensor, variances: Tensor) -> Tensor:
    """Return coefficients (m, n_groups) of the ridge regression of largest likelihood."""
    # In coordinates in which the noise has covariance 1 and the Gram matrix is diagonal.
    noise = (variances + NEGLIGIBLE * gram.diagonal().mean()).sqrt()
    values, vectors = torch.linalg.eigh(gram / noise[:, None] / noise)
    values = values.clamp_min(0.0)
    seen = vectors.T @ (excess / noise[:, None])
    strengths = torch.logspace(-6, 6, 73, dtype=gram.dtype, device=gram.device)
    total = 1.0 + strengths[:, None] * values
    # The excesses of the groups add up to zero: all but one of them are independent.
    likelihood = -(seen.shape[1] - 1) * total.log().sum(dim=1) - (1.0 / total) @ (seen**2).sum(1)
    strength = strengths[likelihood.argmax()]
    shrunk = strength / (1.0 + strength * values)
    coefficients: Tensor = (vectors @ (shrunk[:, None] * seen)) / noise[:, None]
    return coefficients


def principal_components(data: Rows, n_components: int) -> Tensor:
    """Return a constant and leading components of the columns, each of mean square 1.

    They depend on public features only: by a seeded random sketch and one power iteration where
    columns are many. Each of several workers gets the components of its own rows.
    """
    weight, workers = data.weight, data.workers
    centre = data.X.mean(weight)
    scale = data.X.variance(weight, centre).sqrt()
    scale = torch.where(scale > 1e-6 * centre.abs().clamp_min(1e-6), 1.0 / scale, 0.0 * scale)
    n_columns = data.X.shape[1]
    basis = torch.eye(n_columns).to(scale)

    def standardised(X: Features) -> Tensor:  # in the basis, without a dense copy of X
        scaled = scale[:, None] * basis
        own: Tensor = X.matmul(scaled) - centre @ scaled
        return own

    def there_and_back(batch: Rows) -> Tensor:
        found = standardised(batch.X) * batch.weight[:, None]
        back: Tensor = batch.X.t_matmul(found) - torch.outer(centre, found.sum(dim=0))
        return scale[:, None] * back

    if n_columns > n_components:
        seeded = torch.Generator().manual_seed(0)
        basis = torch.randn((n_columns, n_components + 8), generator=seeded).to(scale)
        for _ in range(2):
            basis = torch.linalg.qr(data.total(there_and_back)).Q
    rows = torch.cat([standardised(batch.X) for batch in data.pieces()])
    covariance = workers.sum(rows.T @ (rows * weight[:, None])) / workers.sum(weight.sum())
    values, vectors = torch.linalg.eigh(covariance)
    keep = (values > 1e-6 * values.max()).nonzero()[:, 0].flip(0)[:n_components]
    components = rows @ vectors[:, keep] / values[keep].sqrt()
    return torch.cat((components.new_ones((len(components), 1)), components), dim=1)

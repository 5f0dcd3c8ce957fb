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

import torch
from torch import Generator, Tensor

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.placement import sum_by
from fairconstrained.constraints.space import Space
from fairconstrained.distributed import Workers
from fairconstrained.models.base import Model
from fairconstrained.models.features import Features
from fairconstrained.privacy.mechanisms import Releases
from fairconstrained.problems.fermi import FermiERM
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.private.erm import with_zero_row
from fairconstrained.problems.rows import Rows

COUNTS = "group counts"

_STRENGTHS = -6, 6, 73  # exponents of ten, number of values tried
_EXACT = 1e-9  # added to the variances, because sums without noise may be redundant


def released_counts(data: Rows, space: Space, releases: Releases, rng: Generator) -> Tensor:
    """Noisy weight of the rows of each label and group, (n_classes, n_groups).

    Where the sensitive features are protected the weight of each label is public and kept.
    """
    n_labels, n_groups = len(space.classes), len(space.groups)
    weight = data.weight[:, None]
    if releases.plan.unit == "sensitive_features":
        cells = data.y, data.group, n_labels, n_groups
        return _noisy_sums(COUNTS, weight, *cells, data.workers, releases, rng)[0][..., 0]
    sums = sum_by(weight, data.y * n_groups + data.group, space.n_cells)
    return releases.noisy(COUNTS, sums, 1.0, rng).reshape(n_labels, n_groups)


def _noisy_sums(
    name: str,
    rows: Tensor,
    condition: Tensor,
    group: Tensor,
    n_conditions: int,
    n_groups: int,
    workers: Workers,
    releases: Releases,
    rng: Generator,
) -> tuple[Tensor, float]:
    """Release sums of public rows (n, m) over secret groups, (n_conditions, n_groups, m).

    Their total over the groups is public, and not summed over groups: not even its rounding may
    depend on them. Also return the standard deviation of the noise.
    """
    sums = sum_by(rows, condition * n_groups + group, n_conditions * n_groups)
    mean = sum_by(rows, condition, n_conditions)[:, None] / n_groups
    of_all = workers.sum(mean)
    if n_groups == 1:
        return of_all, 0.0
    # We account for antipodal contributions, a distance of 2; groups are sqrt(2) apart,
    # and of all rows, without sampling, nothing but the distance matters.
    largest, half = workers.largest(rows.norm(dim=1).max()), 0.5**0.5
    sums = sums.reshape(n_conditions, n_groups, -1) - mean
    noisy = releases.noisy(name, sums, largest * half, rng)
    deviation = releases.plan.noise(name) * largest * half
    # The total is public: noise on it is undone.
    return noisy - noisy.mean(dim=1, keepdim=True) + of_all, deviation


class SecretGroups:
    r"""Loss plus ERMI by noisy sums over the groups: features and labels are public.

    For public vectors :math:`q_i` a release gives, for each condition on the label and each group,

    .. math:: \sum_{i \in c} \omega_i q_i \otimes (e_{s_i} - \tfrac1k \mathbf 1) + \text{noise},

    to which the public sums are added. Another group for a row moves them by
    :math:`\sqrt 2\, \omega_i \lVert q_i \rVert`, however many groups there are.

    Parameters
    ----------
    model, risk, alpha
        As in :class:`fairconstrained.problems.FairERM`.
    data : Rows
        The attribute `data` has these rows without their groups.
    constraint : MomentConstraint
        The measured constraint; its parts are the groups within labels.
    counts : Tensor of shape (n_parts,)
        Released or public.
    information : MutualInformation
    weight : float
        :math:`\lambda`.
    releases : Releases
        The noisy sums that may be asked for.
    """

    offers = frozenset({"noisy_moments"})
    n_constraints = 0

    def __init__(
        self,
        *,
        model: Model,
        data: Rows,
        risk: Objective,
        alpha: float,
        constraint: MomentConstraint,
        counts: Tensor,
        information: MutualInformation,
        weight: float,
        releases: Releases,
    ):
        self.model = model
        self.data = replace(data, group=torch.zeros_like(data.group))
        self.constraint = constraint
        self.releases = releases
        self.plan = releases.plan
        self._information = information
        self._group = data.group
        self._penalised = FermiERM(
            model, self.data, risk, constraint, alpha, information=information, weight=weight
        )
        self._n_groups = constraint.part_of_cell.shape[1]
        # Condition 0 has the rows whose label is in no part.
        of_part = ((information.condition + 1) * information.used)[:, None].to(data.weight)
        part_of_label = constraint.part_of_cell.max(dim=1).values  # -1 without parts
        self._condition = with_zero_row(of_part)[part_of_label][data.y, 0].long()
        self._prior = self._prior_by(counts)
        self._released: list[tuple[Tensor, Tensor, Tensor]] = []  # queries, sums, variances

    def start(self) -> Tensor:
        """Point at which a fit begins; it does not depend on the secret."""
        return self.model.init()

    def deviations_of_estimates(self) -> Tensor:
        """Return nothing: there are no constraints."""
        return torch.zeros(0)

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers, which is public."""
        return self.data.n_rows

    def release(self, name: str, queries: Tensor, rng: Generator) -> None:
        """Release sums of the public queries (n, m) over conditions and groups, and keep them.

        Raises
        ------
        RuntimeError
            If the plan has no such release left.
        """
        rows = queries * ((self._condition > 0) * self.data.weight)[:, None]
        cells = self._condition, self._group, len(self._prior), self._n_groups
        workers = self.data.workers
        sums, deviation = _noisy_sums(name, rows, *cells, workers, self.releases, rng)
        variances = queries.new_full((queries.shape[1],), deviation**2)
        self._released.append((queries, sums, variances))

    def estimated(self) -> FermiERM:
        """Return the problem of the groups as estimated from all releases so far."""
        return replace(self._penalised, data=replace(self.data, group=self.fractions()))

    def fractions(self) -> Tensor:
        """Estimated fractions of the groups in each row, (n, n_groups); rows add up to 1."""
        fractions = self._prior[self._condition]
        if not self._released:
            return fractions
        columns = zip(*self._released, strict=True)
        queries, sums, variances = (torch.cat(column, dim=-1) for column in columns)
        workers = self.data.workers
        for c in range(1, len(self._prior)):
            rows = self._condition == c
            own, weight, prior = queries[rows], self.data.weight[rows], self._prior[c]
            excess = (sums[c] - prior[:, None] * workers.sum(weight @ own)).T
            gram = workers.sum(own.T @ (own * weight[:, None]))
            fractions[rows] = prior + own @ _ridge(gram, excess, variances)
        return fractions

    def mean(self, values: Tensor) -> Tensor:
        """Weighted means (m,) of public values (n, m), over the rows of all workers."""
        weight, workers = self.data.weight, self.data.workers
        return workers.sum(weight @ values) / workers.sum(weight.sum())

    def quantile(self, values: Tensor, level: float) -> float:
        """A quantile of a public value (n,) of all workers; of many, of some evenly spaced."""
        some = values[self.data.spaced()]
        return float(torch.cat(self.data.workers.gather(some)).quantile(level))

    def predictions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class probabilities and one-hot predicted labels of the rows, which are public."""
        scores = torch.cat([self.model.scores(x, rows.X) for rows in self.data.pieces()])
        statistic = self.constraint.statistic
        return statistic.soft(scores, self.data.y), statistic.hard(scores, self.data.y)

    def _prior_by(self, counts: Tensor) -> Tensor:
        """Fractions of the groups in each condition, (n_conditions + 1, n_groups)."""
        information = self._information
        prior = counts.new_zeros((information.n_conditions + 1, self._n_groups))
        for part, cells in enumerate(self.constraint.part_cells()):
            if information.used[part]:
                condition = int(information.condition[part]) + 1
                prior[condition, torch.as_tensor(cells.any(axis=0))] = counts[part]
        prior[prior.sum(dim=1) == 0] = 1.0  # nothing is compared there
        return prior / prior.sum(dim=1, keepdim=True)


def _ridge(gram: Tensor, excess: Tensor, variances: Tensor) -> Tensor:
    """Coefficients (m, n_groups) of the ridge regression of largest likelihood for all groups.

    It is solved in coordinates in which the noise has covariance 1 and the Gram matrix is diagonal.
    """
    noise = (variances + _EXACT * gram.diagonal().mean()).sqrt()
    values, vectors = torch.linalg.eigh(gram / noise[:, None] / noise)
    values = values.clamp_min(0.0)
    seen = vectors.T @ (excess / noise[:, None])
    strengths = torch.logspace(*_STRENGTHS, dtype=gram.dtype, device=gram.device)
    total = 1.0 + strengths[:, None] * values
    # The excesses of the groups add up to zero: all but one of them are independent.
    likelihood = -(seen.shape[1] - 1) * total.log().sum(dim=1) - (1.0 / total) @ (seen**2).sum(1)
    strength = strengths[likelihood.argmax()]
    shrunk = strength / (1.0 + strength * values)
    coefficients: Tensor = (vectors @ (shrunk[:, None] * seen)) / noise[:, None]
    return coefficients


def principal_components(data: Rows, n_components: int) -> Tensor:
    """A constant and the leading components of the standardised columns, each of mean square 1.

    Of several workers each gets those of its own rows, (n, n_components + 1).

    They depend on features only. With more columns than components a random sketch (with a seed of
    its own) and one power iteration find them. Columns without variance are left out.
    """
    weight, workers = data.weight, data.workers
    centre = data.X.mean(weight)
    scale = data.X.variance(weight, centre).sqrt()
    scale = torch.where(scale > 1e-6 * centre.abs().clamp_min(1e-6), 1.0 / scale, 0.0 * scale)
    n_columns = data.X.shape[1]
    basis = torch.eye(n_columns).to(scale)
    if n_columns > n_components:
        sketch = torch.randn(
            (n_columns, n_components + 8), generator=torch.Generator().manual_seed(0)
        )
        basis = sketch.to(scale)

        def there_and_back(batch: Rows) -> Tensor:
            found = _standardised(batch.X, centre, scale, basis) * batch.weight[:, None]
            back: Tensor = batch.X.t_matmul(found) - torch.outer(centre, found.sum(dim=0))
            return scale[:, None] * back

        for _ in range(2):
            basis = torch.linalg.qr(data.total(there_and_back)).Q
    rows = torch.cat([_standardised(batch.X, centre, scale, basis) for batch in data.pieces()])
    covariance = workers.sum(rows.T @ (rows * weight[:, None])) / workers.sum(weight.sum())
    values, vectors = torch.linalg.eigh(covariance)
    keep = (values > 1e-6 * values.max()).nonzero()[:, 0].flip(0)[:n_components]
    components = rows @ vectors[:, keep] / values[keep].sqrt()
    return torch.cat((components.new_ones((len(components), 1)), components), dim=1)


def _standardised(X: Features, centre: Tensor, scale: Tensor, basis: Tensor) -> Tensor:
    """Standardised rows in a basis, (n, r), without a dense copy of X."""
    scaled = scale[:, None] * basis
    return X.matmul(scaled) - centre @ scaled

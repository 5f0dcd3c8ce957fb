r"""Estimates of each row's group from noisy sums over the groups.

With prior fractions :math:`\pi` and noisy sums of public vectors :math:`q_i`,
:math:`Y_g = \sum_i \omega_i q_i S_{ig} + \text{noise}`, the estimate is the ridge regression

.. math::

    \hat S_{ig} = \pi_g + \gamma q_i' (\gamma G + \mathrm{diag}(v))^{-1}
        \Big( Y_g - \pi_g \sum_j \omega_j q_j \Big), \qquad G = \sum_j \omega_j q_j q_j' ,

with the variances v of the noise. Its sums are the released ones, shrunk in proportion to their
noise. It is the posterior mean if :math:`S = \pi + q'\beta` with :math:`\beta` normal of covariance
:math:`\gamma G^{-1}`. The strength :math:`\gamma` of the dependence of the groups on the vectors
maximises the likelihood of the releases.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fairconstrained.models.features import Features
from fairconstrained.problems.base import Batch
from fairconstrained.problems.parted_rows import PartedRows

_STRENGTHS = -6, 6, 73  # exponents of ten, number of values tried
_EXACT = 1e-9  # added to the variances, because sums without noise may be redundant


class GroupPosterior:
    """Estimates of the rows' groups from all releases so far.

    Parameters
    ----------
    data : Batch or PartedRows
        Rows without their groups. Of several workers, each estimates the groups of its own rows.
    condition : LongTensor of shape (n,)
        Rows of different conditions are estimated separately; condition 0 is for rows in no part.
    prior : Tensor of shape (n_conditions + 1, n_groups)
        Fractions of the groups.
    """

    def __init__(self, data: Batch | PartedRows, condition: Tensor, prior: Tensor):
        self.condition = condition
        self._weight, self._workers = data.weight, data.workers
        self.prior = prior / prior.sum(dim=1, keepdim=True)
        self._queries: list[Tensor] = []
        self._sums: list[Tensor] = []
        self._variances: list[Tensor] = []

    def add(self, queries: Tensor, sums: Tensor, deviation: float) -> None:
        """Add a release: queries (n, m), their sums (n_conditions + 1, n_groups, m)."""
        self._queries.append(queries)
        self._sums.append(sums)
        self._variances.append(queries.new_full((queries.shape[1],), deviation**2))

    def fractions(self) -> Tensor:
        """Estimated fractions of the groups in each row, (n, n_groups); rows add up to 1."""
        if not self._queries:
            return self.prior[self.condition]
        queries, variances = torch.cat(self._queries, dim=1), torch.cat(self._variances)
        sums = torch.cat(self._sums, dim=2)
        fractions = self.prior[self.condition]
        for c in range(1, len(self.prior)):
            rows = self.condition == c
            own, weight, prior = queries[rows], self._weight[rows], self.prior[c]
            excess = (sums[c] - prior[:, None] * self._workers.sum(weight @ own)).T
            gram = self._workers.sum(own.T @ (own * weight[:, None]))
            fractions[rows] = prior + own @ _ridge(gram, excess, variances)
        return fractions


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


def principal_components(data: Batch | PartedRows, n_components: int) -> Tensor:
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

        def there_and_back(batch: Batch) -> Tensor:
            found = _standardised(batch.X, centre, scale, basis) * batch.weight[:, None]
            back = batch.X.t_matmul(found) - torch.outer(centre, found.sum(dim=0))
            return scale[:, None] * back

        for _ in range(2):
            basis = torch.linalg.qr(data.total(there_and_back)).Q
    rows = torch.cat([_standardised(batch.X, centre, scale, basis) for batch in data.batches()])
    covariance = workers.sum(rows.T @ (rows * weight[:, None])) / workers.sum(weight.sum())
    values, vectors = torch.linalg.eigh(covariance)
    keep = (values > 1e-6 * values.max()).nonzero()[:, 0].flip(0)[:n_components]
    components = rows @ vectors[:, keep] / values[keep].sqrt()
    return torch.cat((components.new_ones((len(components), 1)), components), dim=1)


def _standardised(X: Features, centre: Tensor, scale: Tensor, basis: Tensor) -> Tensor:
    """Standardised rows in a basis, (n, r), without a dense copy of X."""
    scaled = scale[:, None] * basis
    return X.matmul(scaled) - centre @ scaled

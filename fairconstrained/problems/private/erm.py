r"""Empirical risk minimisation as private solvers see it: noisy tables and noisy gradients.

Each step draws one Poisson batch and makes one joint release of it, a noisy table of moments and a
noisy sum of clipped gradients. Private problems give nothing exact away: they have neither
``linearize`` nor ``evaluate``, and are no :class:`~fairconstrained.problems.Problem`.

:class:`PrivateERM` is for constraints. Of the two problems with a penalty on mutual information,
:class:`RecordFermi` protects the record and clips the whole gradient of each row, and
:class:`AttributeFermi` protects the sensitive features: features and labels are public, and noise
is added to the terms that depend on a row's group.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from fairconstrained.constraints.moments import MomentConstraint
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.tables import sum_by
from fairconstrained.exceptions import IncompatibleSolverError
from fairconstrained.losses import linearized, log_loss
from fairconstrained.models.features import Model
from fairconstrained.privacy.mechanisms import PoissonBatches, Releases
from fairconstrained.problems.rows import Rows

# The releases before the steps, of a step, and of a point that may be the result.
COUNTS, TABLE, GRADIENT, FINAL = "group counts", "histogram", "gradient", "final table"

# In place of infinite scores, by which one row could make a whole table nan.
_FINITE = {"nan": 0.0, "posinf": 1e6, "neginf": -1e6}
_LEAST = 1e-6  # weight of a penalty beside a loss; less counts as none
SURE = 0.05  # largest error of a fraction of rows by which a model predicts one label
_RATES = tuple((i + 0.5) / 20 for i in range(20))  # at which slopes of values are taken


class PrivateERM:
    r"""Minimise the mean log loss under a moment constraint, by noisy releases.

    With the released counts :math:`\tilde N`, a Poisson batch B of rate q, and the projection
    :math:`P = I - \frac1k 1 1^T` that subtracts the mean of k columns that add up to one, the
    released table on predicted labels is
    :math:`\tilde M = \frac1k \tilde N 1^T + \frac1q (\sum_{i \in B} s(z_i) P + \text{noise}) P`.
    A row adds at most :math:`\lVert s P \rVert = (1 - 1/k)^{1/2}` to it. The gradient is

    .. math::

        \frac{1}{qn} \Big( \sum_{i \in B} \mathrm{clip}_C \frac{1}{1 + \kappa} \big(
        \nabla \ell_i
        + n \, \partial_M (\lambda \cdot g)(\tilde M, \tilde N) \cdot \nabla s(z_i) \big)
        + \text{noise} \Big).

    :math:`\kappa` is the mean spread of the weights on the statistics: without this division
    clipping reduces the constraint more than the loss if multipliers are large. Weights of the rows
    are not used. The counts are released, and the number n of rows of all workers is public.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"noisy_rates"})

    def __init__(
        self,
        model: Model,
        data: Rows,
        constraint: MomentConstraint,
        counts: Tensor,
        releases: Releases,
        alpha: float,
        n_rows: int,
    ):
        if constraint.n_aux:
            raise IncompatibleSolverError(
                "Private training moves the parameters of the model only, and this constraint has "
                "variables of its own (partial statistical parity). Use a constraint of rates, or "
                "epsilon=None."
            )
        self.model = model
        self._in_steps, X = model.prepared(data.X)
        part = constraint.partition.place(data.y, data.group, data.weight).part
        # The groups of these rows are parts, and n_parts for rows in no part.
        self.data, self.n_rows = replace(data, blocks=(X,), group=part), n_rows
        self.constraint, self.alpha, self.counts = constraint, alpha, counts
        self.releases, self.plan = releases, releases.plan
        # The counts never change, and a step is mostly the overhead of small operations.
        self._affine = constraint.affine(counts)
        columns = constraint.statistic.n_columns
        self._uniform = counts[:, None].expand(-1, columns) / max(columns, 1)
        width = torch.tensor(constraint.statistic.widths).to(counts)
        block = torch.repeat_interleave(width.long())
        same = (block[:, None] == block) & (width[block] > 1)
        self._means = same / width[block]  # the product with it has the means of blocks
        self._measured: list[tuple[Tensor, Tensor]] = []  # points, and tables released there
        self._batches = PoissonBatches(len(data.y), self.plan.sampling_rate)
        # Largest norm of a row's statistics less their means: k columns that add up to one have a
        # squared l2 norm of at most 1 - 1/k, and an l1 norm of at most twice that. A column by
        # itself adds at most one to both.
        squares = l1 = 0.0
        for k in constraint.statistic.widths:
            squares += 1.0 - 1.0 / k if k > 1 else 1.0
            l1 += 2.0 * (1.0 - 1.0 / k) if k > 1 else 1.0
        order = self.plan.releases[TABLE][0].order
        self._norms = {FINAL: math.sqrt(squares), TABLE: math.sqrt(squares) if order == 2 else l1}

    @property
    def n_constraints(self) -> int:
        """Number m of constraint values."""
        return len(self.values(self._uniform))

    def start(self) -> Tensor:
        """Return the point at which a fit begins; it does not depend on the secret."""
        return self.model.init()

    def release(
        self,
        x: Tensor,
        choose_dual: Callable[[Tensor], Tensor],
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> tuple[Tensor, Tensor]:
        """Make one step: release a table and, at the multipliers chosen for it, a gradient.

        The table, (n_parts, n_columns), estimates the table of labels or probabilities of all rows.
        The gradient of the Lagrangian and the penalty is divided by one plus the mean spread of the
        weights; gradients of rows are clipped to `max_norm`.
        """
        batch = self.data.take(self._batches.draw(rng))
        scores, clipped = self._in_steps.linearize_rows(x, batch.X)
        rows_of_batch = scores.nan_to_num(**_FINITE), batch.y, batch.group
        released = self._noisy_table(TABLE, *rows_of_batch, table, rng)
        weights, scale = self.n_rows * self.weights(released, choose_dual(released)), 1.0
        if weights.numel():
            spread = weights.amax(dim=1) - weights.amin(dim=1)
            scale = 1.0 / (1.0 + float(spread @ self.counts) / self.n_rows)
        cotangent = log_loss.gradient(*rows_of_batch[:2]) + self._on_scores(*rows_of_batch, weights)
        cotangent = (scale * cotangent).nan_to_num(0.0, 0.0, 0.0)
        total = self.releases.noisy(GRADIENT, clipped(cotangent, max_norm), max_norm, rng)
        gradient = total / (self.plan.sampling_rate * self.n_rows)
        return released, gradient + scale * (self.alpha * self.model.penalty(x).gradient)

    def release_table(self, x: Tensor, rng: Generator) -> Tensor:
        """Release the table of all rows at `x`, a point that may be the result."""
        scores = self._in_steps.scores(x, self.data.X).nan_to_num(**_FINITE)
        table = self._noisy_table(FINAL, scores, self.data.y, self.data.group, "labels", rng)
        self._measured.append((x, table))
        return table

    def one_label(self, x: Tensor) -> tuple[int, str] | None:
        """Return the only label of compared rows by the table released at `x`, and a description.

        Return None if there are other labels, or if the noise leaves that open.
        """
        table = next((table for point, table in self._measured if torch.equal(point, x)), None)
        if table is None:
            return None
        labels = self.constraint.statistic.predicted(table, self.counts)
        if not labels.numel():
            return None
        columns = max(table.shape[1] / labels.shape[1], 1.0)  # that tell of a label
        noise = self.plan.noise(FINAL) * self._norms[FINAL] * math.sqrt(len(table) * columns)
        total = self.counts.sum()
        share, label = (labels.sum(dim=0) / total).max(dim=0)
        error = 2.0 * noise / float(total)
        # Two standard deviations of the noise must leave no doubt that all rows get this label.
        if not (error < SURE and share > 1.0 - error):
            return None
        return int(label), f"all rows that are compared, by the released table (error {error:.2g})"

    def values(self, table: Tensor) -> Tensor:
        """Return constraint values from a released table, (m,)."""
        if self._affine is None:
            return self.constraint.evaluate_hard(table, self.counts, self.counts[:0])
        return self._affine.values(table)

    def weights(self, table: Tensor, dual: Tensor) -> Tensor:
        """Return the derivative of dual . g by the table, (n_parts, n_columns)."""
        if self._affine is not None:
            return self._affine.on_table(dual)
        none = self.counts[:0]
        _, pullback = linearized(lambda t: self.constraint.evaluate(t, self.counts, none), table)
        return pullback(dual)[0]

    def deviations_of_estimates(self) -> Tensor:
        """Approximate standard deviations of the noise on the values of the final table, (m,).

        For values that are not linear it is the largest over tables of equal rates, as some are
        flat in places. A solver that is stopped before that table leaves them unknown: infinite.
        """
        if not self._measured:
            return self._uniform.new_full((self.n_constraints,), math.inf)
        noise = self.plan.noise(FINAL) * self._norms[FINAL]
        return self._slopes.square().sum(dim=(1, 2)).sqrt() * noise

    def gains(self) -> Tensor:
        r"""Return the change of each value by a unit of its multiplier, through all rows, (m,).

        With slopes :math:`A_{jq}` of value j in part q, of :math:`N_q` rows, it is

        .. math:: n \sum_q N_q \lvert A_{jq} \rvert \cdot \sum_i \lvert A_{iq} \rvert ,

        which for pairs of k groups with fractions p of the rows, and two classes, is
        :math:`(k - 1) (1/p_a + 1/p_b)`.
        """
        together = self._slopes.sum(dim=0) * self.counts[:, None]
        return self.n_rows * (self._slopes * together).sum(dim=(1, 2))

    @cached_property
    def _slopes(self) -> Tensor:
        """Size of the slope of each value in each entry of the table, (m, n_parts, n_columns)."""
        unit = torch.eye(self.n_constraints).to(self._uniform)
        sizes = unit.new_zeros((len(unit), *self._uniform.shape))
        for rate in _RATES if self._affine is None else (1.0,):
            for size, row in zip(sizes, unit, strict=True):
                slope = self._less_means(self.weights(rate * self._uniform, row)).abs()
                torch.maximum(size, slope, out=size)
        return sizes

    def _noisy_table(
        self, name: str, scores: Tensor, y: Tensor, part: Tensor, table: str, rng: Generator
    ) -> Tensor:
        """Release sums of statistics less their means, as a table that adds up to the counts."""
        statistic, n_parts = self.constraint.statistic, self.constraint.n_parts
        counted = statistic.hard if table == "labels" else statistic.soft
        rows = counted(scores, y).nan_to_num(0.0)  # one row must not make its part nan
        sums = self._less_means(sum_by(rows, part, n_parts + 1)[:n_parts])
        noisy = self.releases.noisy(name, sums, self._norms[name], rng)
        if name == TABLE:
            noisy = noisy / self.plan.sampling_rate
        return self._less_means(noisy) + self.counts[:, None] * self._means.diagonal()

    def _on_scores(self, scores: Tensor, y: Tensor, part: Tensor, weights: Tensor) -> Tensor:
        """Return gradients of weighted sums of statistics with respect to the scores."""
        pullback = self.constraint.statistic.linearize(scores, y)[1]
        # zeros for rows in no part
        return pullback(pad(weights, (0, 0, 0, 1)).index_select(0, part))

    def _less_means(self, table: Tensor) -> Tensor:
        """Subtract from the entries the means of columns that add up to one for each row."""
        return table - table @ self._means


class RecordFermi(PrivateERM):
    """Loss plus `weight` times ERMI: every row's whole gradient is clipped.

    The multipliers are W of the saddle form, which answers to tables of predicted labels or class
    probabilities. Nothing is constrained.
    """

    offers = frozenset({"noisy_saddle"})
    n_constraints = 0
    step_size = 4.0  # suits columns of a public range

    def __init__(self, *problem: Any, weight: float):
        super().__init__(*problem)
        self.information = MutualInformation.within(self.constraint, self.counts)
        self.weight = weight

    def weights(self, table: Tensor, dual: Tensor) -> Tensor:
        """Return the derivative of the penalty at W by the table, (n_parts, n_columns)."""
        return self.weight * self.information.weights(dual)


class AttributeFermi(RecordFermi):
    r"""Loss plus ERMI with the sensitive features protected: features and labels are public.

    Private, of a Poisson batch: the table, and the clipped gradients of the rows'
    :math:`2 \sum_j W_{r_i j} F_j / \sqrt{p_{r_i}}`. Public: the loss and
    :math:`\sum_q W_{qj}^2 F_j`, which the paper takes from the same batch; here: from rows that are
    drawn independently, the same by all workers. Exact gradients of a batch reveal which rows are
    in it, and sampling then amplifies nothing.
    """

    step_size = 0.5  # suits public columns, which are whitened

    def __init__(self, model: Model, data: Rows, *problem: Any, weight: float):
        # The grid of the noise on a penalty of less is so fine that it cuts the public gradients,
        # and so little moves no label.
        super().__init__(model, data.block, *problem, weight=weight if weight >= _LEAST else 0.0)
        self._n_before = data.starts[data.workers.rank]
        self._n_public = max(1, round(self.plan.sampling_rate * self.n_rows))
        # The term that all groups share is linear in W^2 and the same for all rows of a label.
        part_of_label = self.constraint.partition.part_of_cell.max(dim=1).values  # -1 without parts
        shared = pad(self.information.shared, (0, 0, 0, 1))[part_of_label]
        self._shared = self.weight * self.n_rows * shared

    def release(
        self,
        x: Tensor,
        choose_dual: Callable[[Tensor], Tensor],
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> tuple[Tensor, Tensor]:
        """Make one step, in one pass over the private rows, clipped, and the public rows."""
        sampled, drawn = self._batches.draw(rng), self._public_rows(rng)
        n = len(sampled)
        rows = self.data.take(torch.cat((sampled, drawn)))
        scores, clipped = self._in_steps.linearize_rows(x, rows.X)
        scores, y = scores.nan_to_num(**_FINITE), rows.y
        rows_of_batch = scores[:n], y[:n], rows.group[:n]
        released = self._noisy_table(TABLE, *rows_of_batch, table, rng)
        dual = choose_dual(released)
        # Turns a sum over the batch into an estimate of the mean over all rows.
        scale = self.weight / (self.plan.sampling_rate * self.n_rows)
        weights = scale * self.n_rows * self.information.group_weights(dual)
        private = self._on_scores(*rows_of_batch, weights)
        public = self._of_public(dual, scores[n:], y[n:]) / self._n_public
        max_norms = scores.new_full((len(scores),), torch.inf)
        max_norms[:n].fill_(scale * max_norm)
        gradient = clipped(torch.cat((private, public)), max_norms)
        if self.weight:  # else groups are in no gradient
            gradient = self.releases.noisy(GRADIENT, gradient, scale * max_norm, rng)
        return released, gradient + self.alpha * self.model.penalty(x).gradient

    def _public_rows(self, rng: Generator) -> Tensor:
        """Draw public rows, as many as expected in a batch, independently of the batch."""
        n_own = len(self.data.y)
        if self.plan.sampling_rate >= 1:
            return torch.arange(n_own)
        drawn = torch.randint(self.n_rows, (self._n_public,), generator=rng) - self._n_before
        return drawn[(drawn >= 0) & (drawn < n_own)]

    def _of_public(self, dual: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """Return the derivative by scores of the loss and of the term of psi that groups share."""
        pullback = self.constraint.statistic.linearize(scores, y)[1]
        shared = (self._shared @ (dual * dual)).index_select(0, y)
        return log_loss.gradient(scores, y) - pullback(shared)

r"""The penalised problem as private solvers see it: noisy, priced releases and nothing exact.

There are two units of privacy. Where the whole *record* is protected, :class:`RecordFermi` releases
noisy tables and clipped gradients of Poisson batches. Where the *sensitive features* are protected,
features and labels are public, and only terms that depend on a row's group are noisy:
:class:`AttributeFermi` releases them batch by batch, and :class:`SecretGroups` releases sums of
public vectors over the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from fairconstrained.constraints import MomentConstraint, Space
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.stack import Stack
from fairconstrained.constraints.statistics import sum_by
from fairconstrained.models import Model
from fairconstrained.privacy import ReleasePlan, Unit
from fairconstrained.privacy.mechanisms import with_gaussian_noise
from fairconstrained.problems.base import Batch
from fairconstrained.problems.fermi import FermiERM, PenalisedTables, counted_by
from fairconstrained.problems.membership import Members
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.parted_rows import PartedRows
from fairconstrained.problems.private.base import PrivateProblem
from fairconstrained.problems.private.erm import NoisySteps, Release, finite, with_zero_row
from fairconstrained.problems.representatives import every_so_many
from fairconstrained.workers import Workers

ChooseDual = Callable[[Tensor], Tensor]


def released_counts(
    data: Batch | PartedRows, space: Space, noise: float, unit: Unit, rng: Generator
) -> Tensor:
    """Noisy weight of the rows of each label and group, (n_classes, n_groups).

    Where the sensitive features are protected the weight of each label is public and kept.
    """
    n_labels, n_groups = len(space.classes), len(space.groups)
    column = data.weight[:, None]
    cells = sum_by(column, data.y * n_groups + data.group, space.n_cells)
    cells = cells.reshape(n_labels, n_groups, 1)
    if unit != "sensitive_features":
        return with_gaussian_noise(cells, noise, rng)[..., 0]
    public = sum_by(column, data.y, n_labels)
    noise = noise * data.workers.largest(data.weight.max())
    return _with_noise_between_groups(cells, public, noise, rng, data.workers)[0][..., 0]


def _with_noise_between_groups(
    sums: Tensor, public: Tensor, noise: float, rng: Generator, workers: Workers
) -> tuple[Tensor, float]:
    """Noise on sums (n_conditions, n_groups, m) whose total over the groups is public.

    Both are sums over the rows of this worker, and the result is of all workers. `public` must not
    be summed over groups: not even its rounding may depend on them.
    """
    k = sums.shape[1]
    mean = public[:, None] / k
    of_all = workers.sum(mean)
    if k == 1:
        return of_all, 0.0
    # The accountant is told of antipodal contributions, a distance of 2; groups are sqrt(2) apart,
    # and of all rows, without sampling, nothing but the distance matters.
    deviation = noise * 0.5**0.5
    noisy = with_gaussian_noise(sums - mean, deviation, rng)
    # The total is public: noise on it is undone.
    return noisy - noisy.mean(dim=1, keepdim=True) + of_all, deviation


class RecordFermi(NoisySteps):
    r"""Loss plus ERMI with the whole record protected: every row's whole gradient is clipped.

    Weights on class probabilities are those of the saddle form. The tables that W answers to hold
    predicted labels or class probabilities, and one row adds at most one either way.

    Parameters
    ----------
    information : MutualInformation
    weight : float
        :math:`\lambda`.
    **problem
        The parameters of :class:`~fairconstrained.problems.private.erm.NoisySteps`.
    """

    offers = frozenset({"noisy_saddle"})
    step_size = 4.0  # suits columns of a public range

    def __init__(self, *, information: MutualInformation, weight: float, **problem: Any):
        super().__init__(**problem)
        self.information = information
        self.weight = weight

    def release_saddle(
        self,
        x: Tensor,
        choose_dual: ChooseDual,
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> Release:
        """One step: a table, and a gradient of the saddle form at the W chosen for this table.

        The table is of "labels" or of "probabilities".
        """

        def weigh(released: Tensor) -> Tensor:
            return self.weight * self.information.weights(choose_dual(released))

        return self._joint_release(x, weigh, max_norm, rng, self._counted(table))

    def _counted(self, table: str) -> Callable[[Tensor, Tensor], Tensor]:
        return counted_by(self.constraint.statistic, table)


class AttributeFermi(RecordFermi):
    r"""Loss plus ERMI with the sensitive features protected: features and labels are public.

    Private, of a Poisson batch: the table, and the clipped gradients of the rows'
    :math:`2 \sum_j W_{r_i j} F_j / \sqrt{p_{r_i}}`. Public: the loss and
    :math:`\sum_q W_{qj}^2 F_j`, from rows that are drawn independently.

    Paper: the public terms come from the same batch and carry no noise; here: from rows of their
    own, because exact gradients of a batch reveal which rows are in it, and sampling then
    amplifies nothing.

    Parameters
    ----------
    data : Batch or PartedRows
        Workers draw the same public rows of all, and each takes those that it has.
    **problem
        The other parameters of :class:`RecordFermi`.
    """

    step_size = 0.5  # suits public columns, which are whitened

    def __init__(self, *, data: Batch | PartedRows, **problem: Any):
        super().__init__(data=data.in_memory, **problem)
        self._n_before = data.n_before
        self._n_public = max(1, round(self._rate * self.n_rows))
        # The term that all groups share is linear in W^2 and the same for all rows of a label.
        of_label = _of_label(self.information.shared, _part_of_label(self.constraint))
        self._shared = self.weight * self.n_rows * of_label

    def release_saddle(
        self,
        x: Tensor,
        choose_dual: ChooseDual,
        max_norm: float,
        rng: Generator,
        table: str = "labels",
    ) -> Release:
        """One step, as above: one pass over the rows of both kinds, each clipped or not."""
        sampled, drawn = self._next_rows(rng), self._public_rows(rng)
        n = len(sampled)
        rows = self.data.rows(torch.cat((sampled, drawn)))
        scores, clipped = self.model.linearize_rows(x, rows.X)
        scores = finite(scores)
        _, on_scores = self.constraint.statistic.linearize(scores[:n], rows.y[:n])
        part = rows.part[:n]
        released = self._noisy_table(self._counted(table)(scores[:n], rows.y[:n]), part, rng)
        dual = choose_dual(released)
        # Turns a sum over the batch into an estimate of the mean over all rows.
        scale = self.weight / (self._rate * self.n_rows)
        weights = scale * self.n_rows * self.information.group_weights(dual)
        of_batch = on_scores(with_zero_row(weights).index_select(0, part))
        of_public = self._of_public(dual, scores[n:], rows.y[n:]) / self._n_public
        max_norms = scores.new_full((len(scores),), torch.inf)
        max_norms[:n].fill_(scale * max_norm)
        gradient = clipped(torch.cat((of_batch, of_public)), max_norms)
        noise = self.plan.gradient_noise * scale * max_norm
        return Release(released, with_gaussian_noise(gradient, noise, rng), 1.0)

    def _public_rows(self, rng: Generator) -> Tensor:
        """As many rows as a batch is expected to have, drawn independently of it."""
        n_own = len(self.data.y)
        if self._rate >= 1:
            rows = torch.arange(n_own)
        else:
            drawn = torch.randint(self.n_rows, (self._n_public,), generator=rng) - self._n_before
            rows = drawn[(drawn >= 0) & (drawn < n_own)]
        return rows.to(self.data.y.device)

    def _of_public(self, dual: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """Derivative by scores of the loss and of the term of psi that all groups share."""
        _, pullback = self.constraint.statistic.linearize(scores, y)
        of_label = self._shared @ (dual * dual)
        return self.loss.gradient(scores, y) - pullback(of_label.index_select(0, y))


def _part_of_label(constraint: MomentConstraint) -> Tensor:
    """A part of each label's condition, (n_classes,); -1 for labels without parts."""
    part: Tensor = constraint.part_of_cell.max(dim=1).values
    return part


def _of_label(of_part: Tensor, part: Tensor) -> Tensor:
    """Rows of labels, (n_classes, n_columns), from equal rows of their parts; zeros without."""
    return with_zero_row(of_part)[part]


class SecretGroups(PrivateProblem):
    r"""Public features and labels, secret groups: only noisy sums over the groups are released.

    For public vectors :math:`q_i` a release gives, for each condition on the label and each group,

    .. math:: \sum_{i \in c} \omega_i q_i \otimes (e_{s_i} - \tfrac1k \mathbf 1) + \text{noise},

    to which the public sums are added. Another group for a row moves them by
    :math:`\sqrt 2\, \omega_i \lVert q_i \rVert`, however many groups there are.

    Parameters
    ----------
    model, risk, alpha
        As in :class:`fairconstrained.problems.FairERM`.
    data : Batch or PartedRows
        The attribute `data` has these rows without their groups.
    constraint : Stack
        The measured constraint; its parts are the groups within labels.
    counts : Tensor of shape (n_parts,)
        Released or public.
    information : MutualInformation
    weight : float
        :math:`\lambda`.
    plan : ReleasePlan
        One noise for each release that may be asked for, by name.
    kind : type, default=FermiERM
        The problem of estimated groups, for such rows.
    """

    offers = frozenset({"noisy_moments"})
    plan: ReleasePlan

    def __init__(
        self,
        *,
        model: Model,
        data: Batch | PartedRows,
        risk: Objective,
        alpha: float,
        constraint: Stack,
        counts: Tensor,
        information: MutualInformation,
        weight: float,
        plan: ReleasePlan,
        kind: type[PenalisedTables] = FermiERM,
    ):
        super().__init__(model, plan, dict.fromkeys(plan.noise, 1))
        self.data = data.in_one_group()
        self.constraint = constraint
        self.counts = counts
        self.information = information
        self.weight = weight
        self._group = data.group
        self._risk, self._alpha, self._kind = risk, alpha, kind
        conditions = ((information.condition + 1) * information.used)[:, None].to(data.weight)
        # Condition 0 has the rows whose label is in no part.
        of_label = _of_label(conditions, _part_of_label(constraint))
        self.condition = of_label[data.y, 0].long()

    @property
    def n_rows(self) -> int:
        """Number of rows of all workers, which is public."""
        return self.data.n_rows

    @property
    def n_groups(self) -> int:
        """Number of groups, which is public."""
        return self.constraint.part_of_cell.shape[1]

    def prior(self) -> Tensor:
        """Fractions of the groups in each condition by counts, (n_conditions + 1, n_groups)."""
        fractions = self.counts.new_zeros((self.information.n_conditions + 1, self.n_groups))
        for part, cells in enumerate(self.constraint.part_cells()):
            if not self.information.used[part]:
                continue
            condition = int(self.information.condition[part]) + 1
            fractions[condition, torch.as_tensor(cells.any(axis=0))] = self.counts[part]
        fractions[fractions.sum(dim=1) == 0] = 1.0  # nothing is compared there
        return fractions

    def release(self, name: str, queries: Tensor, rng: Generator) -> tuple[Tensor, float]:
        """Noisy sums of the public queries (n, m) over conditions and groups, once for each name.

        Returns
        -------
        sums : Tensor of shape (n_conditions + 1, n_groups, m)
            The first condition is that of the rows that take no part: zeros.
        deviation : float
            Standard deviation of the noise on an entry.

        Raises
        ------
        RuntimeError
            If the plan has no such release left.
        """
        self._spend(name)
        noise = self.plan.noise[name]
        used = self.condition > 0
        queries = queries * (used * self.data.weight)[:, None]
        largest = self.data.workers.largest(queries.norm(dim=1).max())  # public
        k, n_conditions = self.n_groups, self.information.n_conditions + 1
        sums = sum_by(queries, self.condition * k + self._group, n_conditions * k)
        public = sum_by(queries, self.condition, n_conditions)
        sums = sums.reshape(n_conditions, k, -1)
        return _with_noise_between_groups(sums, public, noise * largest, rng, self.data.workers)

    def surrogate(self, fractions: Tensor) -> PenalisedTables:
        """The problem if each row belonged to the groups by these fractions, (n, n_groups)."""
        return self._kind(
            self.model,
            Members.estimated(self.data, self.constraint, fractions),
            self._risk,
            self.constraint,
            self._alpha,
            self.information,
            self.weight,
        )

    def mean(self, values: Tensor) -> Tensor:
        """Weighted means (m,) of public values (n, m), over the rows of all workers."""
        weight, workers = self.data.weight, self.data.workers
        return workers.sum(weight @ values) / workers.sum(weight.sum())

    def quantile(self, values: Tensor, level: float) -> float:
        """A quantile of a public value (n,) of all workers; of many, of some evenly spaced."""
        some = every_so_many(self.data)
        return float(torch.cat(self.data.workers.gather(values[some])).quantile(level))

    def predictions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class probabilities and one-hot predicted labels of the rows, which are public."""
        scores = torch.cat([self.model.scores(x, rows.X) for rows in self.data.batches()])
        statistic = self.constraint.statistic
        return statistic.soft(scores, self.data.y), statistic.hard(scores, self.data.y)

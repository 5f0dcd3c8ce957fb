r"""The penalised problem as private solvers see it: noisy, priced releases and nothing exact.

There are two units of privacy. Where the whole *record* is protected, :class:`RecordFermi` releases
noisy tables and clipped gradients of Poisson batches. Where the *sensitive features* are protected,
features and labels are public, and only terms that depend on a row's group are noisy:
:class:`AttributeFermi` releases them batch by batch, and :class:`SecretGroups` releases sums of
public vectors over the groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from fairconstrained.constraints import MomentConstraint, Space
from fairconstrained.constraints.mutual_information import MutualInformation
from fairconstrained.constraints.stack import Stack
from fairconstrained.constraints.statistics import sum_by
from fairconstrained.models import Model
from fairconstrained.models.features import Features
from fairconstrained.privacy import ReleasePlan, Unit
from fairconstrained.privacy.mechanisms import with_gaussian_noise
from fairconstrained.problems.base import Batch
from fairconstrained.problems.fermi import FermiERM, Membership, counted_by
from fairconstrained.problems.objectives import Objective
from fairconstrained.problems.private.base import PrivateProblem
from fairconstrained.problems.private.erm import NoisySteps, Release, finite, with_zero_row

__all__ = ["AttributeFermi", "RecordFermi", "SecretGroups", "released_counts"]

ChooseDual = Callable[[Tensor], Tensor]


def released_counts(data: Batch, space: Space, noise: float, unit: Unit, rng: Generator) -> Tensor:
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
    noise = noise * float(data.weight.max())
    return _with_noise_between_groups(cells, public, noise, rng)[0][..., 0]


def _with_noise_between_groups(
    sums: Tensor, public: Tensor, noise: float, rng: Generator
) -> tuple[Tensor, float]:
    """Noise on sums (n_conditions, n_groups, m) whose total over the groups is public.

    `public` must not be summed over groups: not even its rounding may depend on them.
    """
    k = sums.shape[1]
    mean = public[:, None] / k
    if k == 1:
        return mean, 0.0
    # The accountant is told of antipodal contributions, a distance of 2; groups are sqrt(2) apart,
    # and of all rows, without sampling, nothing but the distance matters.
    deviation = noise * 0.5**0.5
    noisy = with_gaussian_noise(sums - mean, deviation, rng)
    # The total is public: noise on it is undone.
    return noisy - noisy.mean(dim=1, keepdim=True) + mean, deviation


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
    """

    step_size = 0.5  # suits public columns, which are whitened

    def __init__(self, **problem: Any):
        super().__init__(**problem)
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
        of_public = self._of_public(dual, scores[n:], rows.y[n:]) / len(drawn)
        max_norms = scores.new_full((len(scores),), torch.inf)
        max_norms[:n].fill_(scale * max_norm)
        gradient = clipped(torch.cat((of_batch, of_public)), max_norms)
        noise = self.plan.gradient_noise * scale * max_norm
        return Release(released, with_gaussian_noise(gradient, noise, rng), 1.0)

    def _public_rows(self, rng: Generator) -> Tensor:
        """As many rows as a batch is expected to have, drawn independently of it."""
        if self._rate >= 1:
            rows = torch.arange(self.n_rows)
        else:
            size = max(1, round(self._rate * self.n_rows))
            rows = torch.randint(self.n_rows, (size,), generator=rng)
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


class PublicRows(NamedTuple):
    """Rows without their groups."""

    X: Features
    y: Tensor  # (n,) class indices
    weight: Tensor  # (n,) positive


class SecretGroups(PrivateProblem):
    r"""Public features and labels, secret groups: only noisy sums over the groups are released.

    For public vectors :math:`q_i` a release gives, for each condition on the label and each group,

    .. math:: \sum_{i \in c} \omega_i q_i \otimes (e_{s_i} - \tfrac1k \mathbf 1) + \text{noise},

    to which the public sums are added. Another group for a row moves them by
    :math:`\sqrt 2\, \omega_i \lVert q_i \rVert`, however many groups there are.

    Parameters
    ----------
    model, data, risk, alpha
        As in :class:`fairconstrained.problems.FairERM`.
    constraint : Stack
        The measured constraint; its parts are the groups within labels.
    counts : Tensor of shape (n_parts,)
        Released or public.
    information : MutualInformation
    weight : float
        :math:`\lambda`.
    plan : ReleasePlan
        One noise for each release that may be asked for, by name.
    """

    plan: ReleasePlan

    def __init__(
        self,
        *,
        model: Model,
        data: Batch,
        risk: Objective,
        alpha: float,
        constraint: Stack,
        counts: Tensor,
        information: MutualInformation,
        weight: float,
        plan: ReleasePlan,
    ):
        super().__init__(model, plan, dict.fromkeys(plan.noise, 1))
        self.data = PublicRows(data.X, data.y, data.weight)
        self.constraint = constraint
        self.counts = counts
        self.information = information
        self.weight = weight
        self._group = data.group
        self._risk, self._alpha = risk, alpha
        conditions = ((information.condition + 1) * information.used)[:, None].to(data.weight)
        # Condition 0 has the rows whose label is in no part.
        of_label = _of_label(conditions, _part_of_label(constraint))
        self.condition = of_label[data.y, 0].long()

    @property
    def n_rows(self) -> int:
        """Number of rows, which is public."""
        return len(self.data.y)

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
        largest = float(queries.norm(dim=1).max())  # public
        k, n_conditions = self.n_groups, self.information.n_conditions + 1
        sums = sum_by(queries, self.condition * k + self._group, n_conditions * k)
        public = sum_by(queries, self.condition, n_conditions)
        sums = sums.reshape(n_conditions, k, -1)
        return _with_noise_between_groups(sums, public, noise * largest, rng)

    def surrogate(self, fractions: Tensor) -> FermiERM:
        """The problem if each row belonged to the groups by these fractions, (n, n_groups)."""
        part = self.constraint.part_of_cell.to(fractions.device)[self.data.y] + 1
        of_parts = fractions.new_zeros((self.n_rows, self.constraint.n_parts + 1))
        of_parts = of_parts.scatter_add(1, part, fractions)[:, 1:]
        return FermiERM(
            self.model,
            Membership(self.data.X, self.data.y, of_parts, self.data.weight),
            self._risk,
            self.constraint,
            self._alpha,
            self.information,
            self.weight,
        )

    def predictions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Class probabilities and one-hot predicted labels of the rows, which are public."""
        scores = self.model.scores(x, self.data.X)
        statistic = self.constraint.statistic
        return statistic.soft(scores, self.data.y), statistic.hard(scores, self.data.y)

"""Private stochastic FERMI: noisy descent-ascent, or noisy descent with W in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from fairconstrained.privacy.accounting import Budget, PrivacyGuarantee
from fairconstrained.privacy.plans import plan_releases
from fairconstrained.problems.private.coordinates import SCALING
from fairconstrained.problems.private.erm import COUNTS, FINAL, GRADIENT, TABLE, RecordFermi
from fairconstrained.solvers.base import Iterate, choice, count, nonnegative, positive
from fairconstrained.solvers.fermi import followed, last_step, output_after
from fairconstrained.solvers.private.dpsgda import NoisySteps, sampling_rate, unreleased
from fairconstrained.solvers.stochastic import evaluated_steps

# Shares of the budget beside the steps: counts are sums of ones, and the last release reads all
# rows without sampling, so both are accurate at little cost.
_FRACTIONS = {COUNTS: 0.005, FINAL: 0.02}
_OF_COLUMNS = dict.fromkeys(SCALING, 0.015 / len(SCALING))


@dataclass(eq=False, repr=False, kw_only=True)
class _NoisySaddle(NoisySteps):
    """Noisy descent in the parameters; a subclass chooses W from noisy tables."""

    requires = ("noisy_saddle",)
    scope = "a loss plus mutual information, privately: DPFermiClassifier with epsilon"

    n_steps: int = count(400)
    batch_size: int | None = count(None)
    output: str = choice("average", "last", "random")
    table: str = choice("labels", "probabilities")

    def plan(self, n_rows: int, budget: Budget) -> PrivacyGuarantee:
        self.check(None)
        # Features are public where groups are the secret: nothing is released to scale them.
        for_columns = _OF_COLUMNS if budget.unit != "sensitive_features" else {}
        fractions, rate = _FRACTIONS | for_columns, sampling_rate(n_rows, self.batch_size)
        step = {TABLE: self.histogram_fraction, GRADIENT: 1 - self.histogram_fraction}
        return plan_releases(fractions, budget, step=step, sampling_rate=rate, n_steps=self.n_steps)

    def iterate(
        self, problem: RecordFermi, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield after every thirtieth of the steps; the result is measured by its own release."""
        n_steps = problem.plan.n_steps
        step_size = problem.step_size if self.step_size is None else self.step_size
        last, ends = last_step(self.output, n_steps, rng), evaluated_steps(n_steps, self.length)
        choose_dual, output, recent = self._choice_of_dual(problem), x, []
        for step in range(1, n_steps + 1):
            kind = followed(self.table, step, n_steps)
            table, gradient = problem.release(x, choose_dual, self.clip, rng, kind)
            x = x.add(gradient, alpha=-step_size)
            if step <= last:
                output = output_after(self.output, output, x, step, n_steps)
            recent.append(table)
            if step in ends and step < n_steps:
                soft = problem.values(torch.stack(recent).mean(dim=0))
                yield unreleased(x, soft, torch.full_like(soft, torch.nan), dual)
                recent = []
        values = problem.values(problem.release_table(output, rng))
        yield unreleased(output, values, values, dual)

    def _choice_of_dual(self, problem: RecordFermi) -> Callable[[Tensor], Tensor]:
        """Return a function that chooses W for the gradient of a step from the step's table."""
        raise NotImplementedError


@dataclass(eq=False, repr=False, kw_only=True)
class DPFERMI(_NoisySaddle):
    r"""Noisy descent in the parameters and ascent in W, one joint release a step.

    .. math::

        x &\leftarrow x - \eta\, \big( \tilde\nabla_x (f + \lambda \psi(\cdot, W)) \big), \\
        W &\leftarrow \Pi \big( W + \eta_w \tilde\nabla_W \psi(x, W) \big),

    both at the same point and from one Poisson batch: the gradient in W is a linear function of the
    noisy table (of predicted labels, see `table`), in x it is a noisy sum of clipped gradients. The
    noise is calibrated to the budget for both, the group counts, the final table and (for records)
    the centre and scale of the rows, jointly.

    Parameters
    ----------
    step_size : float, optional
        :math:`\eta`; default: 4 for records (features of a public range), 0.5 for sensitive
        features (where public features are whitened).
    dual_step_size : float, default=0.2
        :math:`\eta_w`.
    clip : float, default=1.0
        Largest norm of a row's (private) gradient.
    n_steps : int, default=400
    batch_size : int, optional
        Rows expected in a Poisson batch; default: a twentieth of the rows, but at least 256 and at
        most 8192.
    histogram_fraction : float, default=0.2
        Fraction of a step's budget for its table.
    output, table
        As in :class:`FERMI`; tables add up labels or probabilities, of which a row adds at most 1.

    Notes
    -----
    The default solvers do better: :class:`NoisyTables` for records, :class:`ReleasedMoments` for
    sensitive features.

    References
    ----------
    Lowy, Gupta and Razaviyayn, "Stochastic Differentially Private and Fair Learning", Algorithm 1.
    Paper: group proportions are exact; here: released with the budget, or public. Paper: the whole
    epsilon for each of both gradients; here: joint accounting. Paper: noise on
    :math:`W F` and on :math:`e_s F'`; here: on the table alone, of which both are functions. Paper:
    a random point is returned in theory, the last in experiments; here the average by default. The
    table and the ascent differ from the paper as in :class:`FERMI`.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import DPFERMI
    >>> data = make_biased_classification(5000, random_state=0)
    >>> clf = DPFermiClassifier(epsilon=1.0, solver=DPFERMI(n_steps=50), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.epsilon <= 1.0
    True
    """

    dual_step_size: float = positive(0.2)

    def _choice_of_dual(self, problem: RecordFermi) -> Callable[[Tensor], Tensor]:
        """Return a function that ascends from W = 0, and returns W before the step's ascent."""
        information = problem.information
        matrix = problem.counts.new_zeros((information.n_parts, information.n_classes))

        def choose(table: Tensor) -> Tensor:
            nonlocal matrix
            chosen = matrix
            ascent = information.ascent(matrix, table)
            matrix = information.project(matrix + self.dual_step_size * ascent)
            return chosen

        return choose


@dataclass(eq=False, repr=False, kw_only=True)
class NoisyTables(_NoisySaddle):
    r"""Noisy descent as in :class:`DPFERMI`, with W in closed form from an average of tables.

    The best W is a function of the table,
    :math:`W^*_{rj} = \tilde P_{rj} / (\sqrt{p_r} \sum_q \tilde P_{qj})`, and averages of released
    tables cost nothing: no second player has to follow the first.

    Parameters
    ----------
    step_size, clip, n_steps, batch_size, histogram_fraction, output, table
        As in :class:`DPFERMI`.
    memory : float, default=0.8
        Weight of the past in the average of tables, in [0, 1).

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import NoisyTables
    >>> data = make_biased_classification(5000, random_state=0)
    >>> clf = DPFermiClassifier(epsilon=1.0, solver=NoisyTables(n_steps=50), random_state=0)
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.n_steps
    50
    """

    memory: float = nonnegative(0.8, below=1)

    def _choice_of_dual(self, problem: RecordFermi) -> Callable[[Tensor], Tensor]:
        """Return a function that chooses the best W for an average of the tables so far."""
        information = problem.information
        past, weight = torch.zeros_like(problem.counts)[:, None], 0.0

        def choose(table: Tensor) -> Tensor:
            nonlocal past, weight
            past = self.memory * past + (1.0 - self.memory) * table
            weight = self.memory * weight + (1.0 - self.memory)
            return information.project(information.optimal_dual((past / weight).clamp_min(0.0)))

        return choose

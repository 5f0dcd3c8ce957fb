"""Minimisation of a penalised problem whose penalty answers to predicted labels."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral

import torch
from torch import Generator, Tensor

from fairconstrained.problems.fermi import FermiERM
from fairconstrained.solvers.base import Iterate, check_numbers
from fairconstrained.solvers.deterministic.lbfgs import LBFGS

__all__ = ["LabelRounds"]

_STEP = 0.5  # of the shift towards its present value; with 1 rounds alternate at large penalties
_PATIENCE = 6  # rounds without a better one
_INDEPENDENT = 1e-12  # mutual information of labels that is left to rounding


class LabelRounds(LBFGS):
    r"""Minimise loss plus mutual information in rounds that bring its table to predicted labels.

    Class probabilities can be independent of the groups where labels are not. With tables M of
    probabilities and H of predicted labels, round k minimises, from where the last round ended,

    .. math:: \min_x \; f(x) + \lambda\, \mathrm{ERMI}(M(x) + S_k, N) , \qquad
        S_0 = 0, \quad S_1 = H(x_0) - M(x_0), \quad
        S_{k+1} = S_k + \tfrac12 \big( H(x_k) - M(x_k) - S_k \big) .

    Where the rounds settle, the penalty is that of the labels, with the slopes of probabilities.
    The result is the round of least :math:`f(x_k) + \lambda\, \mathrm{ERMI}(H(x_k), N)`. The first
    round is the paper's problem.

    Parameters
    ----------
    rounds : int, default=20
        Most rounds after the first. They end where six bring nothing better, or labels are
        independent of the groups.
    inner_max_iter, memory
        As in :class:`LBFGS`, by which each round is minimised.

    Notes
    -----
    The residual is that of the chosen round's minimisation, and infinite before the end. An
    iteration is one of :class:`LBFGS`.

    References
    ----------
    Paper (Lowy, Gupta and Razaviyayn, Section 3): mean class probabilities; here: moved to labels,
    because fairness is measured on these. ``LBFGS()`` minimises the paper's objective.

    Examples
    --------
    >>> from fairconstrained import DPFermiClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.solvers import LBFGS, LabelRounds
    >>> data = make_biased_classification(500, random_state=0)
    >>> def gap(solver):
    ...     clf = DPFermiClassifier(penalty=1e3, epsilon=None, solver=solver)
    ...     clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    ...     return clf.violation_
    >>> gap(LabelRounds()) < gap(LBFGS())
    True
    """

    scope = "a loss plus mutual information, without privacy: DPFermiClassifier(epsilon=None)"

    def __init__(self, *, rounds: int = 20, inner_max_iter: int = 60, memory: int = 20):
        super().__init__(inner_max_iter=inner_max_iter, memory=memory)
        self.rounds = rounds

    def check(self, problem: FermiERM) -> None:  # type: ignore[override]
        """Raise ValueError for a bad parameter."""
        super().check(problem)
        check_numbers(self, positive=["rounds"], kind=Integral)

    # Narrower than the base class: tables of labels need the problem's own.
    def iterate(  # type: ignore[override]
        self, problem: FermiERM, x: Tensor, dual: Tensor, tol: float, rng: Generator
    ) -> Iterator[Iterate]:
        """Yield the iterates of all rounds, and the last one of the best; no randomness."""
        best, least, since = None, torch.inf, 0
        for _ in range(1 + self.rounds):
            for iterate in super().iterate(problem, x, dual, tol, rng):
                yield iterate._replace(residual=torch.inf)
                if iterate.residual <= tol:
                    break
            x = iterate.x
            reached, information = problem.of_labels(x)
            since += 1
            if best is None or reached < least:
                best, least, since = iterate, reached, 0
            moved = problem.moved_to_labels(x, _STEP)
            if moved is problem or since == _PATIENCE or information <= _INDEPENDENT:
                break
            problem = moved
        assert best is not None
        yield best

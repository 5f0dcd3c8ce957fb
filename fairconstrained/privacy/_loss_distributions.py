"""Epsilon of composed releases, by the privacy-loss distributions of the library dp-accounting.

Several Gaussian releases of one batch are one Gaussian release, and all those of all rows are one,
whose epsilon has a closed form; the library has both, for every unit of privacy. It has no joint
release of Laplace and Gaussian noise from one Poisson batch, as the RaCO paper makes it: composing
the sampled mechanisms one by one would understate epsilon. Its distribution is computed here, from
the library's for all rows.

Every result is an upper bound: distributions are discretised by "connect the dots" [1]_, which only
moves hockey-stick divergences up, tails that are cut off go to an infinite loss (above) or up to
the smallest loss kept (below), and the rounding errors of fast Fourier transforms are taken off
delta.

References
----------
.. [1] Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), "Connect the Dots: Tighter Discrete
   Approximations of Privacy Loss Distributions", arXiv:2207.04380.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

# Rounding errors of the convolutions stay orders of magnitude below this much delta
# (tests/privacy/test_accounting.py compares 10,000 steps with the closed form).
ROUNDING = 1e-12
# Fraction of delta for the tails that are cut off before composition.
CUT = 1e-4
# Step of the grid in standard deviations of a loss. Connecting the dots adds at most a quarter of
# its square to the variance: 0.25 %, and half of that to epsilon.
STEP = 0.1
MOST_STEP, MOST_POINTS = 0.1, 1 << 17
# Beyond these (epsilon in the hundreds) nothing is protected: charged as infinite, in no time and
# without overflow.
MAX_LOSS, MAX_VARIANCE = 600.0, 1e6


class Batch(NamedTuple):
    """Releases from the same rows, drawn `n_steps` times: one Gaussian and one Laplace at most.

    `gaussian` is the inverse of the noise multiplier and `laplace` the inverse of the scale, both
    zero for no release: they are the distances by which one row can shift the unit noise.
    """

    rate: float
    n_steps: int
    gaussian: float
    laplace: float

    def variance(self, *, replace: bool) -> float:
        """Roughly the variance of the privacy loss of one step: for choices of no consequence."""
        square = self.gaussian**2 + self.laplace**2
        bounded = min(square, 700.0)
        divergence = 4 * math.sinh(bounded) if replace else math.expm1(bounded)
        return min(self.rate**2 * divergence, square * (4 if replace else 1))

    def largest_loss(self, log_tail: float) -> float:
        """The privacy loss that is exceeded with a probability below e^log_tail."""
        deviations = math.sqrt(-2.0 * log_tail)
        reach = self.laplace + self.gaussian * (self.gaussian / 2 + deviations)
        return _sampled(self.rate, reach)


def variance_of(batches: Iterable[Batch], *, replace: bool) -> float:
    """Roughly the variance of the privacy loss of all steps."""
    return sum(b.n_steps * b.variance(replace=replace) for b in batches)


def library(module: str) -> Any:
    """Import a module of dp-accounting, which is an extra, where its numbers are needed."""
    try:
        return importlib.import_module(f"dp_accounting.{module}".removesuffix("."))
    except ImportError as error:
        raise ImportError(
            "Privacy accounting needs dp-accounting: "
            "python -m pip install 'fairconstrained[privacy]'."
        ) from error


@functools.lru_cache(maxsize=1024)
def epsilon_of(batches: tuple[Batch, ...], delta: float, *, replace: bool) -> float:
    """Smallest epsilon that the composed batches keep at `delta`, from above."""
    gaussian_only = library("").get_epsilon_gaussian  # a missing library is an error in any case
    batches = _joined(batches)
    variance = variance_of(batches, replace=replace)
    if variance == 0:
        return 0.0
    if variance > MAX_VARIANCE:
        return math.inf
    if len(batches) == 1 and batches[0].rate == 1 and not batches[0].laplace:
        shift = batches[0].gaussian * (2 if replace else 1)
        return float(gaussian_only(1 / shift, delta - ROUNDING))
    steps = sum(b.n_steps for b in batches)
    log_tail = math.log(CUT * delta / steps)
    largest = max(b.largest_loss(log_tail) for b in batches)
    if largest > MAX_LOSS:
        return math.inf
    interval = min(STEP * math.sqrt(variance / steps), MOST_STEP)
    interval = _aligned(batches, max(interval, 2 * largest / MOST_POINTS))
    composed = library("pld.privacy_loss_distribution").identity(interval)
    for batch in batches:
        one = _distribution(batch, interval, log_tail, replace=replace)
        composed = composed.compose(one.self_compose(batch.n_steps))
    with np.errstate(over="ignore"):  # e^epsilon beyond double precision
        epsilon = float(composed.get_epsilon_for_delta(delta - ROUNDING))
    return epsilon if epsilon <= MAX_LOSS else math.inf


def _joined(batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
    """Batches with all Gaussian releases of all rows as one, which has the sum of their squares."""
    square, rest = 0.0, []
    for batch in batches:
        if batch.rate == 1 and not batch.laplace:
            square += batch.n_steps * batch.gaussian**2
        elif batch.gaussian or batch.laplace:
            rest.append(batch)
    return (Batch(1.0, 1, math.sqrt(square), 0.0), *rest) if square else tuple(rest)


def _aligned(batches: tuple[Batch, ...], interval: float) -> float:
    """A grid with a point at the largest Laplace loss, where much of its mass is.

    Between two points this mass would be rounded up, by a fraction of epsilon that falls with the
    step, and not with its square.
    """
    batch = max(batches, key=lambda b: b.n_steps * b.laplace)
    loss = _sampled(batch.rate, batch.laplace)
    if loss <= interval:  # no Laplace release, or one that hardly matters
        return interval
    return loss / math.ceil(2 * loss / interval) * (1 + 1e-12)  # the loss is just below the point


def _distribution(batch: Batch, interval: float, log_tail: float, *, replace: bool) -> Any:
    """The privacy-loss distribution of one step, of both directions."""
    distributions = library("pld.privacy_loss_distribution")
    if not batch.laplace:
        relation = library("").NeighboringRelation
        return distributions.from_gaussian_mechanism(
            1 / batch.gaussian,
            value_discretization_interval=interval,
            log_mass_truncation_bound=log_tail,
            sampling_prob=batch.rate,
            neighboring_relation=relation.REPLACE_ONE if replace else relation.ADD_OR_REMOVE_ONE,
        )
    return _joint(batch, interval, log_tail, moves=2 if replace else 1)


def _joint(batch: Batch, interval: float, log_tail: float, *, moves: int) -> Any:
    """The distribution of a joint release of Laplace and Gaussian noise.

    With the joint laws P and Q of both releases with a row and without it, a Poisson batch has the
    law (1 - q) Q + q P. Its divergence from Q at e^epsilon is q times that of P from Q at
    1 + (e^epsilon - 1) / q ("remove"). In the other direction ("add"),
    Q - e^epsilon ((1 - q) Q + q P) = c Q - e^epsilon q P with c = 1 - e^epsilon (1 - q), and the
    divergence of Q from P is that of P from Q, because both noises are symmetric.
    """
    distributions = library("pld.privacy_loss_distribution")
    q = batch.rate
    fine = interval if q == 1 else STEP / 10 * math.hypot(batch.laplace, batch.gaussian)
    whole = distributions.from_laplace_mechanism(
        1 / batch.laplace, sensitivity=moves, value_discretization_interval=fine
    )
    if batch.gaussian:
        gaussian = distributions.from_gaussian_mechanism(
            1 / batch.gaussian, moves, True, fine, log_mass_truncation_bound=log_tail
        )
        whole = whole.compose(gaussian)
    if q == 1:
        return whole
    largest = math.ceil(batch.largest_loss(log_tail) / interval)
    reach = batch._replace(rate=1.0).largest_loss(log_tail)
    smallest = math.floor(_sampled(q, -reach) / interval)
    epsilon = np.arange(smallest, largest + 1) * interval
    ratio = np.expm1(epsilon) / q
    above = ratio > -1  # below, the mixture exceeds e^epsilon Q everywhere
    inner = np.where(above, np.log1p(np.where(above, ratio, 0.0)), -np.inf)
    remove = np.where(above, q * np.array(whole.get_delta_for_epsilon(inner)), -np.expm1(epsilon))
    epsilon = -epsilon[::-1]
    rest = -np.expm1(epsilon + math.log1p(-q))
    below = rest > 0  # above, the mixture's part of Q alone outweighs Q
    inner = np.where(below, epsilon + math.log(q) - np.log(np.where(below, rest, 1.0)), np.inf)
    add = np.where(below, rest * np.array(whole.get_delta_for_epsilon(inner)), 0.0)
    connect = library("pld.pld_pmf").create_pmf_pessimistic_connect_dots_fixed_gap
    return distributions.PrivacyLossDistribution(
        connect(interval, smallest, largest, np.minimum.accumulate(remove.clip(0.0, 1.0))),
        connect(interval, -largest, -smallest, np.minimum.accumulate(add.clip(0.0, 1.0))),
    )


def _sampled(rate: float, loss: float) -> float:
    """log(1 - q + q e^loss): the loss of a sampled batch, from the loss with the row in it."""
    log_rest = math.log1p(-rate) if rate < 1 else -math.inf
    return float(np.logaddexp(log_rest, math.log(rate) + loss))

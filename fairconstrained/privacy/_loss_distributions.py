"""Privacy-loss distributions of releases from one batch, composed by the library dp-accounting.

A pair of laws (what is released with a row, and without it) is given by its hockey-stick
divergence, in closed form for every kind of batch; dp-accounting discretises, composes and inverts.
Its own constructors give the same for a single release (a test compares them) but know no joint
releases, and take one Python call per grid point: half a second for fine grids, instead of
milliseconds.

Everything here is pessimistic: distributions are discretised by "connect the dots" [1]_, which only
moves hockey-stick divergences up, tails that are cut off go to an infinite loss (above) or up to
the smallest loss kept (below), and the rounding errors of fast Fourier transforms are taken off
delta. An epsilon from this file is never below the true one.

References
----------
.. [1] Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), "Connect the Dots: Tighter Discrete
   Approximations of Privacy Loss Distributions", arXiv:2207.04380.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from fairconstrained.arrays import Floats

# Rounding errors of the convolutions stay orders of magnitude below this much delta
# (tests/privacy/test_accounting.py compares 10,000 steps with the closed form).
ROUNDING = 1e-12
# Fraction of delta for the tails that are cut off before composition.
CUT = 1e-4
TOLERANCE = 4e-3
MAX_POINTS = 1 << 18
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


class Pair(NamedTuple):
    """Two laws of what is released: divergence at e^epsilon, and the range of the privacy loss."""

    divergence: Callable[[Floats], Floats]
    low: float
    high: float


def library(module: str) -> Any:
    """A module of dp-accounting, which is imported only where numbers are needed."""
    try:
        return importlib.import_module(f"dp_accounting.{module}".removesuffix("."))
    except ImportError as error:
        raise ImportError(
            "Privacy accounting needs dp-accounting: "
            "python -m pip install 'fairconstrained[privacy]'."
        ) from error


@functools.lru_cache(maxsize=64)
def epsilon_of(
    batches: tuple[Batch, ...], delta: float, *, replace: bool, tolerance: float = TOLERANCE
) -> float:
    """Smallest epsilon that the composed batches keep at `delta`, from above.

    The grid is refined until epsilon moves by less than `tolerance`. The error falls with the
    square of the step, so about a third of that is left.
    """
    library("")  # its absence is an error in any case
    batches = tuple(_joined(b) for b in batches if b.gaussian or b.laplace)
    if not batches:
        return 0.0
    variance = sum(b.n_steps * variance_of(b, replace=replace) for b in batches)
    # Connecting the dots adds at most a quarter of the squared grid step to the variance of every
    # loss: start with a few percent in sum.
    steps = sum(b.n_steps for b in batches)
    pairs = [(b.n_steps, directions(b, CUT * delta / steps, replace=replace)) for b in batches]
    if variance > MAX_VARIANCE or any(pair.high > MAX_LOSS for _, both in pairs for pair in both):
        return math.inf
    finest = max(pair.high - pair.low for _, both in pairs for pair in both) / MAX_POINTS
    interval = _aligned(batches, max(min(0.5 * math.sqrt(variance / steps), 0.1), finest))
    epsilon = _epsilon_on_grid(pairs, delta, interval)
    while 0 < epsilon < math.inf and interval / 2 > finest:
        interval /= 2
        coarser, epsilon = epsilon, _epsilon_on_grid(pairs, delta, interval)
        if coarser - epsilon <= tolerance * epsilon:
            break
    return epsilon


def _joined(batch: Batch) -> Batch:
    """Gaussian releases of all rows, n times, are one release with sqrt(n) times the shift."""
    if batch.rate < 1 or batch.laplace:
        return batch
    return batch._replace(n_steps=1, gaussian=batch.gaussian * math.sqrt(batch.n_steps))


def _aligned(batches: tuple[Batch, ...], interval: float) -> float:
    """A grid with a point at the largest Laplace loss, where much of its mass is.

    Between two points it would be rounded up, by a fraction of epsilon that falls with the step,
    but not at every halving.
    """
    batch = max(batches, key=lambda b: b.n_steps * b.laplace)
    loss = _sampled(batch.rate, batch.laplace)
    if loss <= interval:  # no Laplace release, or one that hardly matters
        return interval
    return loss / math.ceil(loss / interval) * (1 + 1e-12)  # the loss is just below the point


def variance_of(batch: Batch, *, replace: bool) -> float:
    """Roughly the variance of the privacy loss of one step, for starting points only."""
    square = (batch.gaussian**2 + batch.laplace**2) * (4 if replace else 1)
    return min(batch.rate**2 * math.expm1(min(square, 700.0)), square)


def _epsilon_on_grid(pairs: list[tuple[int, list[Pair]]], delta: float, interval: float) -> float:
    pld = library("pld.privacy_loss_distribution")
    composed = pld.identity(value_discretization_interval=interval)
    for n_steps, both in pairs:
        one = pld.PrivacyLossDistribution(*(_connect_the_dots(pair, interval) for pair in both))
        composed = composed.compose(one.self_compose(n_steps))
    with np.errstate(over="ignore"):  # e^epsilon beyond double precision
        epsilon = float(composed.get_epsilon_for_delta(delta - ROUNDING))
    return epsilon if epsilon <= MAX_LOSS else math.inf


def _connect_the_dots(pair: Pair, interval: float) -> Any:
    """The discretised loss that has the pair's divergences at the grid points.

    Between the points its divergences are larger (linear in e^epsilon, where the true ones are
    convex); below the range all mass is at the lowest point; the divergence at the highest point
    goes to an infinite loss: all pessimistic.
    """
    first, last = math.floor(pair.low / interval), math.ceil(pair.high / interval)
    grid = np.arange(first, last + 1, dtype=np.float64) * interval
    values = np.clip(pair.divergence(grid), 0.0, 1.0)
    values = np.minimum.accumulate(values)  # of rounding errors only: divergences decrease
    return library("pld.pld_pmf").create_pmf_pessimistic_connect_dots_fixed_gap(
        interval, first, last, values
    )


def directions(batch: Batch, tail: float, *, replace: bool) -> list[Pair]:
    """The dominating pairs of one step: "remove" and "add", or one where they are the same.

    Less than `tail` of the mass of a loss lies outside the range that is given.
    """
    if replace and batch.laplace == 0:
        return [_replacing(batch, tail)]
    if replace:  # of all rows, as accounting.py has checked: the shift is twice as long
        batch = batch._replace(gaussian=2 * batch.gaussian, laplace=2 * batch.laplace)
    reach = batch.laplace + batch.gaussian**2 / 2 - float(ndtri(tail)) * batch.gaussian
    low, high = _sampled(batch.rate, -reach), _sampled(batch.rate, reach)
    remove = Pair(functools.partial(_remove, batch), low, high)
    if batch.rate == 1:
        return [remove]
    return [remove, Pair(functools.partial(_add, batch), -high, -low)]


def _sampled(rate: float, loss: float) -> float:
    """log(1 - q + q e^loss): the loss of a sampled batch, from the loss with the row in it."""
    return float(np.logaddexp(_log_rest(rate), math.log(rate) + loss))


def _log_rest(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def _remove(batch: Batch, epsilon: Floats) -> Floats:
    """Divergence of the mixture (1 - q) Q + q P from Q, at e^epsilon.

    P and Q are the joint laws of all releases with and without the row. The density ratio of the
    mixture is 1 - q + q P/Q, hence the divergence is q times the one of P from Q at
    1 + (e^epsilon - 1) / q: the map l -> log(1 - q + q e^l) of losses, read backwards.
    """
    ratio = np.expm1(epsilon) / batch.rate
    above = ratio > -1  # below, the mixture exceeds e^epsilon Q everywhere
    inner = np.log1p(np.where(above, ratio, 0.0))
    return np.where(above, batch.rate * unsampled(batch, inner), -np.expm1(epsilon))


def _add(batch: Batch, epsilon: Floats) -> Floats:
    """Divergence of Q from the mixture (1 - q) Q + q P, at e^epsilon.

    Q - e^epsilon ((1 - q) Q + q P) = c Q - e^epsilon q P with c = 1 - e^epsilon (1 - q), and the
    divergence of Q from P is that of P from Q, because both noises are symmetric.
    """
    rest = -np.expm1(epsilon + _log_rest(batch.rate))
    below = rest > 0  # above, the mixture's part of Q alone outweighs Q
    inner = epsilon + math.log(batch.rate) - np.log(np.where(below, rest, 1.0))
    return np.where(below, rest * unsampled(batch, inner), 0.0)


def _replacing(batch: Batch, tail: float) -> Pair:
    """(1 - q) N(0) + q N(-m) against (1 - q) N(0) + q N(m): the loss decreases in the outcome x."""
    m, log_in, log_out = batch.gaussian, math.log(batch.rate), _log_rest(batch.rate)

    def divergence(epsilon: Floats) -> Floats:
        half = np.abs(epsilon) / 2
        with np.errstate(divide="ignore"):  # log(0) at epsilon = 0
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        # The loss is epsilon at the x with w = e^(m x + epsilon/2) a root of
        # w^2 + 2 c sinh(epsilon/2) w - 1, where c = e^(m^2/2) (1 - q) / q.
        large = m**2 / 2 + log_out - log_in + log_sinh
        root = np.where(large > 20, large + math.log(2), np.arcsinh(np.exp(np.minimum(large, 20))))
        x = -(np.sign(epsilon) * root + epsilon / 2) / m
        upper = np.logaddexp(log_out + log_ndtr(x), log_in + log_ndtr(x + m))
        lower = np.logaddexp(log_out + log_ndtr(x), log_in + log_ndtr(x - m))
        return np.asarray(np.exp(upper) - np.exp(epsilon + lower))

    exponent = m * (m - float(ndtri(tail)))  # at the outcome x = -m + ndtri(tail)
    high = float(
        np.logaddexp(log_out, log_in + exponent - m**2 / 2)
        - np.logaddexp(log_out, log_in - exponent - m**2 / 2)
    )
    return Pair(divergence, -high, high)


def unsampled(batch: Batch, epsilon: Floats) -> Floats:
    """Divergence of P from Q at e^epsilon: a Laplace and a Gaussian release of the same rows.

    The mean of the Gaussian's divergence at epsilon - l over the Laplace loss l, which is `a` with
    probability 1/2, `-a` with probability e^-a / 2 and has density e^((l - a)/2) / 4 between. The
    integral over the density is by parts.
    """
    a, m = batch.laplace, batch.gaussian
    if m == 0:
        inside = -np.expm1((np.maximum(epsilon, -a) - a) / 2)
        return np.where(epsilon < -a, -np.expm1(epsilon), np.maximum(inside, 0.0))
    if a == 0:
        return gaussian_divergence(epsilon, m)

    def primitive(loss: float) -> Floats:
        u = (loss - epsilon) / m
        return np.asarray(
            np.exp(loss / 2 - a / 2 + log_ndtr(u + m / 2))
            + np.exp(epsilon - loss / 2 - a / 2 + log_ndtr(u - m / 2))
            - 2 * np.exp(epsilon / 2 - m**2 / 8 - a / 2 + log_ndtr(u))
        )

    atoms = gaussian_divergence(epsilon - a, m) + math.exp(-a) * gaussian_divergence(epsilon + a, m)
    return (atoms + primitive(a) - primitive(-a)) / 2


def gaussian_divergence(epsilon: Floats, shift: float) -> Floats:
    """Hockey-stick divergence of N(shift, 1) from N(0, 1) at e^epsilon (Balle and Wang, 2018)."""
    upper = ndtr(shift / 2 - epsilon / shift)
    return np.asarray(upper - np.exp(epsilon + log_ndtr(-shift / 2 - epsilon / shift)))

"""Descriptions of private trainings: budgets, noisy releases, and guarantees.

A training is a list of phases. A phase draws a Poisson batch `n_steps` times and releases noisy
sums over each batch, which are accounted for *jointly*: composing "subsampled Laplace" and
"subsampled Gaussian" as if each had drawn its own batch understates epsilon.

Noise is given in units of the *sensitivity* of a sum, the largest norm of one row's contribution
to it. Replacing a row by a null row, which adds nothing, then moves the sum by at most 1, replacing
it by another row by at most 2. Sums are rounded before noise is added; the sensitivity that
this adds, :data:`GRID_SHIFT` in units of the noise, is charged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fairconstrained.arrays import check_number

Unit = Literal["record", "record_replacement", "sensitive_features"]
UNITS = {
    "record": "replace one record by a null record, which adds nothing, or back",
    "record_replacement": "replace one record by any other",
    "sensitive_features": "replace the sensitive features of one row",
}
# Two data sets that differ in one row may each have a contribution there: sums move by up to 2.
REPLACING = frozenset({"record_replacement", "sensitive_features"})
PUBLIC = {
    "record": "The number of rows is public. Replacing a record by another costs about twice.",
    "record_replacement": "The number of rows is public.",
    "sensitive_features": "The other features and the labels are public.",
}
ASSUMPTIONS = (
    "labels, names of groups (or their declared domains) and parameters are public",
    "nothing else was learnt from the same rows: scales, encoders, choices by exact scores",
    "no one knows the seed (random_state=None)",
)
_OF_RECORDS = "feature_range (where it is given) is public, and all rows are finite"
OF_UNIT = {
    "record": _OF_RECORDS,
    "record_replacement": _OF_RECORDS,
    "sensitive_features": "the features do not hold the groups",
}
# Most that rounding to the grid of the noise (privacy/mechanisms.py) adds to the norm of a row's
# contribution, in units of the noise: 2^-24 for each of the up to 16 tensors of one release.
GRID_SHIFT = 2.0**-22
# Below this the arithmetic (sums of some 10^5 rounded numbers) is no proof of anything.
MIN_DELTA = 1e-10


class Budget(NamedTuple):
    """The budget of a private training, and its unit of privacy as in :func:`privacy_spent`.

    Private estimators take it as ``epsilon``: the long form of their `epsilon`, `delta` and
    `protect`.

    Examples
    --------
    >>> from fairconstrained import AUCFairClassifier
    >>> from fairconstrained.datasets import make_biased_classification
    >>> from fairconstrained.privacy import Budget
    >>> data = make_biased_classification(20_000, random_state=0)
    >>> budget = Budget(3.0, 1e-5, "record_replacement")
    >>> clf = AUCFairClassifier(slack=0.1, epsilon=budget, feature_range=(-5, 5))
    >>> clf = clf.fit(data.data, data.target, sensitive_features=data.sensitive_features)
    >>> clf.privacy_.unit
    'record_replacement'
    """

    epsilon: float
    delta: float
    unit: Unit


class _Noise:
    """Noise added to a sum over rows."""

    of: str
    words: ClassVar[str]
    order: ClassVar[int]  # of the norm in which a row is bounded
    noise: float  # in units of the sensitivity

    def __str__(self) -> str:
        return f"{self.of} with {self.words} {self.noise:.4g}"

    @property
    def shift(self) -> float:
        """How far one row shifts unit noise, after rounding; 0 for infinite noise."""
        largest = 1e150  # whose square is a number
        return 0.0 if self.noise == math.inf else min(1 / self.noise, largest) + GRID_SHIFT


@dataclass(frozen=True)
class Gaussian(_Noise):
    """Gaussian noise added to a sum over rows.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation, divided by the largest l2 norm of a row's contribution.
    of : str, default="sum"
        Name of the release, for the report.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian
    >>> print(Gaussian(2.0, of="counts"))
    counts with Gaussian noise, multiplier 2
    """

    noise_multiplier: float
    of: str = field(default="sum", compare=False)
    words, order = "Gaussian noise, multiplier", 2

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "noise", self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(_Noise):
    """Laplace noise added to every entry of a sum over rows.

    Parameters
    ----------
    scale : float
        Scale of the Laplace distribution (standard deviation over sqrt(2)), divided by the largest
        l1 norm of a row's contribution. The RaCO paper writes Lap(1/b) with a precision b: the
        scale is 1/b.
    of : str, default="sum"
        As in :class:`Gaussian`.

    Examples
    --------
    >>> from fairconstrained.privacy import Laplace
    >>> print(Laplace(0.5, of="histogram"))
    histogram with Laplace noise, scale 0.5
    """

    scale: float
    of: str = field(default="sum", compare=False)
    words, order = "Laplace noise, scale", 1

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        object.__setattr__(self, "noise", self.scale)


@dataclass(frozen=True)
class Phase:
    """Noisy sums over successive Poisson batches.

    Parameters
    ----------
    releases : sequence of Gaussian and Laplace
        Releases of each batch. A release may depend on earlier ones of the same batch.
    sampling_rate : float, default=1.0
        Probability of each row to be in a batch, independently; 1 for all rows. Batches drawn in
        any other way (shuffled, of fixed size, balanced) are *not* covered.
    n_steps : int, default=1
        Number of batches.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Phase
    >>> print(Phase([Gaussian(1.5, of="gradient")], sampling_rate=0.01, n_steps=100))
    gradient with Gaussian noise, multiplier 1.5, from one Poisson batch a step
    (sampling rate 0.01), 100 times
    """

    releases: Sequence[Gaussian | Laplace]
    sampling_rate: float = 1.0
    n_steps: int = 1

    def __post_init__(self) -> None:
        releases = listing("releases", self.releases, Gaussian, Laplace)
        check_number("sampling_rate", self.sampling_rate, "in (0, 1]", lambda q: 0 < q <= 1)
        whole = "a positive integer", lambda n: n >= 1 and n % 1 == 0
        object.__setattr__(self, "releases", releases)
        object.__setattr__(self, "n_steps", int(check_number("n_steps", self.n_steps, *whole)))

    def __str__(self) -> str:
        what = " and ".join(map(str, self.releases)) or "nothing"
        rows = "all rows"
        if self.sampling_rate < 1:
            rows = f"one Poisson batch a step (sampling rate {self.sampling_rate:.4g})"
        times = "once" if self.n_steps == 1 else f"{self.n_steps} times"
        return f"{what}, from {rows}, {times}"


class Batch(NamedTuple):
    """Releases from the same rows, drawn `n_steps` times: one Gaussian and one Laplace at most."""

    rate: float
    n_steps: int
    gaussian: float  # how far one row shifts the unit noise; zero for no release
    laplace: float

    @property
    def is_gaussian(self) -> bool:
        """Whether the releases are Gaussian and of all rows, which has a closed form."""
        return self.rate == 1 and not self.laplace

    def loss(self, of_row: float) -> float:
        """Return log(1 - q + q e^loss), the loss of a sampled batch, from a loss with the row."""
        log_rest = math.log1p(-self.rate) if self.rate < 1 else -math.inf
        return float(np.logaddexp(log_rest, math.log(self.rate) + of_row))

    def reach(self, log_tail: float) -> float:
        """Return a loss, with the row in the batch, exceeded with probability < e^log_tail."""
        deviations = math.sqrt(-2.0 * log_tail)
        return self.laplace + self.gaussian * (self.gaussian / 2 + deviations)


def as_batch(phase: Phase) -> Batch:
    """Combine the releases of a phase into one Gaussian and one Laplace release."""
    gaussian = laplace = 0.0
    for release in phase.releases:
        if release.order == 2:
            gaussian = math.hypot(gaussian, release.shift)
        else:
            laplace += release.shift
    return Batch(phase.sampling_rate, phase.n_steps, gaussian, laplace)


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The plan of a private fit, and its guarantee: ``privacy_`` of private estimators.

    Attributes
    ----------
    epsilon, delta : float
        Differential privacy of everything that the fit released.
    unit : {"record", "record_replacement", "sensitive_features"}
        The difference between neighbouring data sets of the same number of rows: a record in place
        of a null record, a record in place of another, or one row's sensitive features (its other
        features and its label being public).
    mechanisms : tuple of str
        The releases in words, one text per phase.
    sampling_rate : float
        Sampling rate of the Poisson batches (the largest one, if phases differ); 1.0 for all rows.
    n_steps : int
        Number of batches, one-off releases not counted.
    accountant : str
        The method that computed epsilon.
    phases : tuple of Phase

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Phase, privacy_guarantee
    >>> steps = Phase([Gaussian(9.0, of="histogram"), Gaussian(3.0, of="gradient")], 0.05, 400)
    >>> print(privacy_guarantee([steps], delta=1e-5))
    Differential privacy with epsilon = 1.45 and delta = 1e-05.
    Protected: the record (replace one record by a null record, which adds nothing, or back).
    The number of rows is public. Replacing a record by another costs about twice.
    Released: histogram with Gaussian noise, multiplier 9 and gradient with Gaussian noise,
    multiplier 3, from one Poisson batch a step (sampling rate 0.05), 400 times.
    Assumed: labels, names of groups (or their declared domains) and parameters are public; nothing
    else was learnt from the same rows: scales, encoders, choices by exact scores; no one knows the
    seed (random_state=None); feature_range (where it is given) is public, and all rows are
    finite.
    Accountant: privacy-loss distributions (dp-accounting ...), rounded up.
    >>> privacy_guarantee([steps], delta=1e-5).to_dict()["protected"]
    'record'
    """

    epsilon: float
    delta: float
    unit: Unit
    mechanisms: tuple[str, ...]
    sampling_rate: float
    n_steps: int
    accountant: str
    phases: tuple[Phase, ...] = field(repr=False)

    @property
    def releases(self) -> dict[str, tuple[Gaussian | Laplace, int]]:
        """The releases by their names, each with the number of times that it may be made."""
        return {one.of: (one, phase.n_steps) for phase in self.phases for one in phase.releases}

    @property
    def assumptions(self) -> list[str]:
        """Assumptions without which the promise does not hold."""
        return [*ASSUMPTIONS, OF_UNIT[self.unit]]

    def noise(self, release: str) -> float:
        """Return the noise of a release in units of its sensitivity; ``inf`` if not planned."""
        return self.releases[release][0].noise if release in self.releases else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return the promise as plain values, for a model card or a JSON file."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "protected": self.unit,
            "neighbouring": UNITS[self.unit],
            "public": PUBLIC[self.unit],
            "assumptions": self.assumptions,
            "releases": list(self.mechanisms),
            "sampling_rate": self.sampling_rate,
            "n_steps": self.n_steps,
            "accountant": self.accountant,
        }

    def __str__(self) -> str:
        released = "\n".join(f"Released: {words}." for words in self.mechanisms)
        return (
            f"Differential privacy with epsilon = {rounded_up(self.epsilon)} "
            f"and delta = {self.delta:.4g}.\n"
            f"Protected: the {self.unit.replace('_', ' ')} ({UNITS[self.unit]}).\n"
            f"{PUBLIC[self.unit]}\n{released}\nAssumed: {'; '.join(self.assumptions)}.\n"
            f"Accountant: {self.accountant}."
        )


def rounded_up(epsilon: float) -> str:
    """Format three digits, rounded up: never less than was spent."""
    if epsilon in (0, math.inf):
        return f"{epsilon:g}"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    # A budget met exactly (epsilon = 1) stays what the user asked for.
    return f"{math.ceil(epsilon / unit - 1e-9) * unit:.3g}"


def check_positive(name: str, value: float) -> None:
    check_number(name, value, "positive", lambda number: number > 0)


def listing(name: str, values: Any, *kinds: type) -> tuple[Any, ...]:
    """Return a tuple of objects of the given kinds; raise ValueError for anything else."""
    listed = tuple(values) if isinstance(values, Iterable) else (None,)
    if not all(isinstance(one, kinds) for one in listed):
        allowed = " and ".join(kind.__name__ for kind in kinds)
        raise ValueError(f"{name} must list objects of {allowed}; got {values!r}.")
    return listed


def check_budget(*, delta: float, unit: str) -> None:
    allowed = f"at least {MIN_DELTA:g} and below 1"
    check_number("delta", delta, allowed, lambda number: MIN_DELTA <= number < 1)
    if unit not in list(UNITS):  # which anything may be compared with
        raise ValueError(f"unit must be one of {list(UNITS)}; got {unit!r}.")

"""The cost of a private training: an epsilon for everything that it released.

A training is a list of phases. A phase draws a Poisson batch `n_steps` times and releases noisy
sums over each batch; a sampling rate of 1 means all rows. The releases of one batch are accounted
for *jointly*: composing "subsampled Laplace" and "subsampled Gaussian" as if each had drawn its own
batch understates epsilon.

Noise is given in units of the *sensitivity* of a sum, the largest norm of what one row contributes
to it. Replacing a row by a null row, which adds nothing, then moves the sum by at most 1, replacing
it by another row by at most 2. Sums are rounded before noise is added; what this adds to the
sensitivity, :data:`GRID_SHIFT` in units of the noise, is charged.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from fairconstrained.privacy._loss_distributions import Batch, epsilon_of

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
# Most that rounding to the grid of the noise (privacy/mechanisms.py) adds to the norm of what a row
# adds, in units of the noise: 2^-24 for each of the up to 16 tensors of one release.
GRID_SHIFT = 2.0**-22
# Below this the arithmetic (sums of some 10^5 rounded numbers) is no proof of anything.
MIN_DELTA = 1e-10


class Budget(NamedTuple):
    """The budget of a private training, and its unit of privacy.

    Private estimators take it as ``epsilon``: the long form of their `epsilon`, `delta` and
    `protect`.

    Parameters
    ----------
    epsilon, delta : float
    unit : {"record", "record_replacement", "sensitive_features"}
        As in :func:`privacy_spent`.

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
    """Noise added to a sum over rows: its name, and what it is priced by."""

    of: str
    order: ClassVar[int]  # of the norm in which a row is bounded

    @property
    def noise(self) -> float:
        """Size of the noise in units of the sensitivity."""
        raise NotImplementedError

    @property
    def shift(self) -> float:
        """How far one row shifts unit noise, after rounding; 0 for infinite noise."""
        return 0.0 if self.noise == math.inf else 1 / self.noise + GRID_SHIFT


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
    order = 2

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)

    @property
    def noise(self) -> float:
        """The noise multiplier."""
        return self.noise_multiplier

    def __str__(self) -> str:
        return f"{self.of} with Gaussian noise, multiplier {self.noise_multiplier:.4g}"


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
        Name of the release, for the report.

    Examples
    --------
    >>> from fairconstrained.privacy import Laplace
    >>> print(Laplace(0.5, of="histogram"))
    histogram with Laplace noise, scale 0.5
    """

    scale: float
    of: str = field(default="sum", compare=False)
    order = 1

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    @property
    def noise(self) -> float:
        """The scale."""
        return self.scale

    def __str__(self) -> str:
        return f"{self.of} with Laplace noise, scale {self.scale:.4g}"


@dataclass(frozen=True)
class Phase:
    """Noisy sums over one Poisson batch after the other.

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
        object.__setattr__(self, "releases", tuple(self.releases))
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must be in (0, 1]; got {self.sampling_rate!r}.")
        if self.n_steps != int(self.n_steps) or self.n_steps < 1:
            raise ValueError(f"n_steps must be a positive integer; got {self.n_steps!r}.")

    def __str__(self) -> str:
        what = " and ".join(map(str, self.releases)) or "nothing"
        if self.sampling_rate == 1:
            rows = "all rows"
        else:
            rows = f"one Poisson batch a step (sampling rate {self.sampling_rate:.4g})"
        times = "once" if self.n_steps == 1 else f"{self.n_steps} times"
        return f"{what}, from {rows}, {times}"


def privacy_spent(phases: Iterable[Phase], *, delta: float, unit: Unit = "record") -> float:
    """Epsilon of everything that the phases release, at a given delta.

    Parameters
    ----------
    phases : iterable of Phase
        They may depend on each other's releases, in any order.
    delta : float
        Between 1e-10 and 1; below 1/n to mean anything.
    unit : {"record", "record_replacement", "sensitive_features"}, default="record"
        The unit of privacy; see Notes.

    Returns
    -------
    float
        An upper bound, some 0.2 % above the smallest epsilon or less; ``inf`` where noise is so
        small that it would be in the thousands.

    Raises
    ------
    ValueError
        For Laplace noise on sampled batches where a row is replaced by another: no pair of data
        sets is known to be the worst case there, hence no number would be a guarantee. Use
        Gaussian noise.

    Notes
    -----
    *Joint releases.* Let P and Q be the joint laws of all releases of a batch, given that the row
    is in the batch, or not. The batch's law is ``(1 - q) Q + q P`` against Q, with products P and
    Q, and both directions ("remove" and "add") are composed over all steps before the larger
    epsilon is taken [1]_ [2]_. Several Gaussian releases are exactly one, with multiplier
    ``(sum 1/s_i**2)**-0.5``. Several Laplace releases are charged as one with scale
    ``1 / sum(1/b_i)``, the worst case that one row puts all its weight on one entry.

    *Record*: one row is replaced by a null row, which adds nothing to any sum, or a null row by
    one. The number of rows n is public, because sampling rates depend on it: that a row is there at
    all is not hidden. Replacing a record by another one is two such steps: at the same delta
    epsilon 0.1, 1 and 9 become 0.21, 2.1 and 19 to 22.

    *Record replacement*: one row is replaced by any other, n being public.

    *Sensitive features*: one row's sensitive features are replaced, all else being public.

    For both replacements the worst case is the pair of antipodal contributions of norm 1,
    ``(1 - q) N(0) + q N(+1)`` against ``(1 - q) N(0) + q N(-1)``, as in dp-accounting. It dominates
    all other pairs: by advanced joint convexity [3]_ the divergence is that of ``N(v)`` from a
    mixture of ``N(0)`` and ``N(v')``, and such mixtures are dominated by the scalar one with the
    same distances, which are at most 1 and 2 [4]_. Contributions that are merely orthogonal cost
    less than what is charged.

    References
    ----------
    .. [1] Zhu, Dong and Wang (2022), "Optimal Accounting of Differential Privacy via Characteristic
       Function", Theorem 11.
    .. [2] Lebeda, Regehr, Kamath and Steinke (2024), "Avoiding Pitfalls for Privacy Accounting of
       Subsampled Mechanisms under Composition", arXiv:2405.20769.
    .. [3] Balle, Barthe and Gaboardi (2018), "Privacy Amplification by Subsampling: Tight Analyses
       via Couplings and Divergences", Theorem 2.
    .. [4] Choquette-Choo, Ganesh, Steinke and Thakurta (2024), "Privacy Amplification for Matrix
       Mechanisms", Section 4.

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Laplace, Phase, privacy_spent
    >>> counts = Phase([Gaussian(40.0, of="group counts")])
    >>> steps = Phase([Laplace(4.0, of="histogram"), Gaussian(3.0, of="gradient")],
    ...               sampling_rate=0.014, n_steps=200)
    >>> print(f"{privacy_spent([steps], delta=1e-5):.3f}")
    0.299
    >>> print(f"{privacy_spent([counts, steps], delta=1e-5):.3f}")
    0.311
    """
    check_budget(delta=delta, unit=unit)
    replace = unit in REPLACING
    batches = tuple(map(as_batch, phases))
    if replace and any(batch.laplace and batch.rate < 1 for batch in batches):
        raise ValueError(
            f'Laplace noise on sampled batches has no known worst case for unit="{unit}", so that '
            "no epsilon could be promised: use Gaussian noise."
        )
    return epsilon_of(batches, delta, replace=replace)


def as_batch(phase: Phase) -> Batch:
    """Price several releases of a batch as one Gaussian and one Laplace release."""
    gaussian = laplace = 0.0
    for release in phase.releases:
        if release.order == 2:
            gaussian = math.hypot(gaussian, release.shift)
        else:
            laplace += release.shift
    return Batch(phase.sampling_rate, phase.n_steps, gaussian, laplace)


@dataclass(frozen=True)
class PrivacyGuarantee:
    """The plan of a private fit, and what it guarantees: ``privacy_`` of private estimators.

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
        The releases, for computations.

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
    seed (random_state=None).
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

    def noise(self, release: str) -> float:
        """Noise of a release, in units of its sensitivity; ``inf`` for one that is not planned."""
        return self.releases[release][0].noise if release in self.releases else math.inf

    def to_dict(self) -> dict[str, Any]:
        """The promise as plain values, for a model card or a JSON file."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "protected": self.unit,
            "neighbouring": UNITS[self.unit],
            "public": PUBLIC[self.unit],
            "assumptions": list(ASSUMPTIONS),
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
            f"{PUBLIC[self.unit]}\n{released}\nAssumed: {'; '.join(ASSUMPTIONS)}.\n"
            f"Accountant: {self.accountant}."
        )


def privacy_guarantee(
    phases: Iterable[Phase], *, delta: float, unit: Unit = "record"
) -> PrivacyGuarantee:
    """The guarantee of a training, for the attribute ``privacy_``.

    Parameters
    ----------
    phases, delta, unit
        As in :func:`privacy_spent`, which computes epsilon.

    Returns
    -------
    PrivacyGuarantee

    Examples
    --------
    >>> from fairconstrained.privacy import Gaussian, Phase, privacy_guarantee
    >>> guarantee = privacy_guarantee([Phase([Gaussian(10.0)])], delta=1e-5)
    >>> print(f"{guarantee.epsilon:.2f}")
    0.34
    """
    phases = tuple(phases)
    steps = [p for p in phases if p.sampling_rate < 1 or p.n_steps > 1]
    version = importlib.metadata.version("dp-accounting")
    return PrivacyGuarantee(
        epsilon=privacy_spent(phases, delta=delta, unit=unit),
        delta=delta,
        unit=unit,
        mechanisms=tuple(map(str, phases)),
        sampling_rate=max((p.sampling_rate for p in steps), default=1.0),
        n_steps=sum(p.n_steps for p in steps),
        accountant=f"privacy-loss distributions (dp-accounting {version}), rounded up",
        phases=phases,
    )


def rounded_up(epsilon: float) -> str:
    """Three digits, never fewer than were spent."""
    if epsilon in (0, math.inf):
        return f"{epsilon:g}"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 2)
    # A budget met exactly (epsilon = 1) stays what the user asked for.
    return f"{math.ceil(epsilon / unit - 1e-9) * unit:.3g}"


def check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive; got {value!r}.")


def check_budget(*, delta: float, unit: str) -> None:
    if not MIN_DELTA <= delta < 1:
        raise ValueError(f"delta must be at least {MIN_DELTA:g} and below 1; got {delta!r}.")
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {list(UNITS)}; got {unit!r}.")

"""A generator of classification data whose bias is a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import Interval, validate_params

from fairconstrained.arrays import Ints

NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]
FRACTION = [Interval(Real, 0, 1, closed="left")]


def at_least(least: int) -> list[Interval]:
    return [Interval(Integral, least, None, closed="left")]


@validate_params(  # type: ignore[untyped-decorator]
    {
        "n_samples": at_least(1),
        "n_features": at_least(1),
        "n_groups": at_least(2),
        "n_classes": at_least(2),
        "bias": NOT_NEGATIVE,
        "imbalance": FRACTION,
        "n_informative": at_least(1),
        "n_proxies": at_least(0),
        "class_sep": NOT_NEGATIVE,
        "proxy_strength": NOT_NEGATIVE,
        "label_noise": [Interval(Real, 0, 1, closed="both")],
        "density": [Interval(Real, 0, 1, closed="right")],
    },
    prefer_skip_nested_validation=True,
)
def make_biased_classification(
    n_samples: int = 1000,
    n_features: int = 10,
    n_groups: int = 2,
    n_classes: int = 2,
    *,
    bias: float = 0.5,
    imbalance: float = 0.0,
    n_informative: int = 4,
    n_proxies: int = 2,
    class_sep: float = 2.0,
    proxy_strength: float = 2.0,
    weights: Sequence[float] | None = None,
    label_noise: float = 0.0,
    density: float = 1.0,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    r"""Generate classification data whose labels favour some groups by a known amount.

    Group :math:`g \in \{0, \dots, G - 1\}` has the fraction :math:`p_g` of the samples and the
    advantage :math:`a_g`,

    .. math::
        p_g \propto (1 - \text{imbalance})^g, \qquad a_g = 1 - \frac{2g}{G - 1} \in [-1, 1].

    Group 0 is the largest and the most favoured. Sizes differ from :math:`n p_g` by less than one.
    With independent standard normal :math:`z_{ij}`, sample `i` of group :math:`g_i` has the
    features

    .. math::
        x_{ij} = \begin{cases}
        z_{ij} & j \text{ informative} \\
        z_{ij} + \text{proxy\_strength} \cdot a_{g_i} & j \text{ a proxy of the group} \\
        z_{ij} k_{ij}, \; k_{ij} \in \{0, 1\}, \; P(k_{ij} = 1) = \text{density}
        & j \text{ noise.}
        \end{cases}

    Classes are ordered, and class `c` is better than class `c - 1`. The label is the number of
    thresholds :math:`\theta_1 \le \dots \le \theta_{K-1}` below the latent variable

    .. math::
        t_i = \text{class\_sep} \, \langle w, x_{i, \text{informative}} \rangle
        + 2 \, \text{bias} \, a_{g_i} + \varepsilon_i,

    with a random unit vector `w` and standard logistic noise :math:`\varepsilon_i`. The thresholds
    are the quantiles of `t` that give the classes the frequencies in `weights`. With two classes
    this is a logistic model: the log odds of two samples with equal informative features differ by
    :math:`2\,\text{bias}\,(a_g - a_h)`, which is 4 `bias` between the extreme groups.

    The label is independent of the group if and only if `bias` is 0. Otherwise a classifier gains
    accuracy by inferring the group from the proxies, and its rates differ between groups. The gaps
    grow with `bias`, and to remove them costs accuracy on these labels.

    Parameters
    ----------
    n_samples, n_features : int, default=1000 and 10
    n_groups, n_classes : int, default=2
        Numbers of groups `G` and of classes `K`, at least 2.
    bias : float, default=0.5
        Dependence of the label on the group, at least 0.
    imbalance : float, default=0.0
        In [0, 1). Each group is smaller than the one before it by this fraction.
    n_informative, n_proxies : int, default=4 and 2
        Numbers of informative features (at least 1) and of proxies, which come first in this order.
        The other features are noise.
    class_sep : float, default=2.0
        Standard deviation of the contribution of the informative features to the latent variable,
        at least 0.
    proxy_strength : float, default=2.0
        Half the distance between the means of a proxy in the two extreme groups, in standard
        deviations; at least 0.
    weights : sequence of n_classes floats, default=None
        Frequencies of the classes: positive numbers with sum 1. By default all are equal.
    label_noise : float, default=0.0
        Probability in [0, 1] that a label is replaced by one of the others, drawn uniformly.
    density : float, default=1.0
        Fraction of nonzero entries in the noise features, in (0, 1]. Below 1 the data are sparse.
    random_state : int, RandomState or None, default=None
        Pass an int for reproducible data.

    Returns
    -------
    Bunch
        ``data`` : ndarray, or csr_matrix if `density` < 1, of shape (n_samples, n_features).
        ``target`` : int64 ndarray of shape (n_samples,), 0 to K - 1.
        ``sensitive_features`` : int64 ndarray of shape (n_samples,), 0 to G - 1.
        ``feature_names`` : list of str, such as ``informative_0``, ``proxy_0``, ``noise_0``.

    Raises
    ------
    ValueError
        If a parameter is outside the range stated above, or if a group would be empty.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fairconstrained.datasets import make_biased_classification
    >>> def gap(bias):
    ...     data = make_biased_classification(20_000, bias=bias, random_state=0)
    ...     accepted = LogisticRegression().fit(data.data, data.target).predict(data.data)
    ...     first = data.sensitive_features == 0
    ...     return abs(accepted[first].mean() - accepted[~first].mean())
    >>> [f"{gap(bias):.1f}" for bias in (0.0, 0.25, 1.0)]
    ['0.0', '0.2', '0.6']
    """
    if n_informative + n_proxies > n_features:
        raise ValueError(
            f"n_features is {n_features}, but should be at least n_informative + n_proxies = "
            f"{n_informative} + {n_proxies}."
        )
    frequencies = np.full(n_classes, 1 / n_classes) if weights is None else np.asarray(weights)
    positive = frequencies.shape == (n_classes,) and (frequencies > 0).all()
    if not positive or not math.isclose(frequencies.sum(), 1):
        raise ValueError(
            f"weights is {weights!r}, but should be n_classes={n_classes} positive numbers with "
            "sum 1."
        )
    rng = check_random_state(random_state)
    group = _groups(n_samples, n_groups, imbalance, rng)
    standing = 1 - 2 * group / (n_groups - 1)
    n_noise = n_features - n_informative - n_proxies
    signal = rng.standard_normal((n_samples, n_informative + n_proxies))
    signal[:, n_informative:] += proxy_strength * standing[:, None]
    direction = rng.standard_normal(n_informative)
    merit = signal[:, :n_informative] @ (direction / np.linalg.norm(direction))
    latent = class_sep * merit + 2 * bias * standing + rng.logistic(size=n_samples)
    thresholds = np.quantile(latent, np.cumsum(frequencies)[:-1])
    target = np.searchsorted(thresholds, latent, side="left")
    wrong = rng.uniform(size=n_samples) < label_noise
    shift = rng.randint(1, n_classes, size=n_samples)
    if density == 1:
        X = np.hstack([signal, rng.standard_normal((n_samples, n_noise))])
    else:
        noise = sparse.random(
            n_samples, n_noise, density, random_state=rng, data_rvs=rng.standard_normal
        )
        X = sparse.hstack([sparse.csr_matrix(signal), noise], format="csr")
    counts = {"informative": n_informative, "proxy": n_proxies, "noise": n_noise}
    return Bunch(
        data=X,
        target=np.where(wrong, (target + shift) % n_classes, target).astype(np.int64),
        sensitive_features=group,
        feature_names=[f"{kind}_{j}" for kind, count in counts.items() for j in range(count)],
    )


def _groups(n_samples: int, n_groups: int, imbalance: float, rng: np.random.RandomState) -> Ints:
    """Draw groups with the fractions :math:`p_g`, exact to within one sample, in random order."""
    sizes = (1 - imbalance) ** np.arange(n_groups)
    place = (np.arange(n_samples) + 0.5) / n_samples
    upper = np.cumsum(sizes / sizes.sum())[:-1]
    group = np.searchsorted(upper, place, side="right").astype(np.int64)
    empty = np.flatnonzero(np.bincount(group, minlength=n_groups) == 0)
    if len(empty):
        raise ValueError(
            f"n_samples={n_samples} with n_groups={n_groups} and imbalance={imbalance} leaves "
            f"group {empty[0]} without rows; take more samples or a smaller imbalance."
        )
    rng.shuffle(group)
    return group

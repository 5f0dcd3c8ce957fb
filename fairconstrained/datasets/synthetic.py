"""Generators of classification data whose bias is a parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import Interval, validate_params

from fairconstrained.arrays import Floats, Ints

_NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]
_FRACTION = [Interval(Real, 0, 1, closed="left")]


# Occupations with their mean yearly income in thousands, how often women and men have them, and
# how steady the income is.
_OCCUPATIONS = pd.DataFrame(
    {
        "income": [62, 46, 38, 34, 30, 26],
        "women": [0.08, 0.05, 0.22, 0.31, 0.27, 0.07],
        "men": [0.23, 0.30, 0.11, 0.09, 0.07, 0.20],
        "steadiness": [0.8, 0.5, 0.6, 0.4, -0.8, -0.8],
    },
    index=["engineering", "trades", "teaching", "health care", "retail", "transport"],
)


def _at_least(least: int) -> list[Interval]:
    return [Interval(Integral, least, None, closed="left")]


@validate_params(  # type: ignore[untyped-decorator]
    {
        "n_samples": _at_least(1),
        "n_features": _at_least(1),
        "n_groups": _at_least(2),
        "n_classes": _at_least(2),
        "bias": _NOT_NEGATIVE,
        "imbalance": _FRACTION,
        "n_informative": _at_least(1),
        "n_proxies": _at_least(0),
        "class_sep": _NOT_NEGATIVE,
        "proxy_strength": _NOT_NEGATIVE,
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
    grow with `bias`, and removing them costs accuracy on these labels.

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


@validate_params(  # type: ignore[untyped-decorator]
    {"n_samples": _at_least(1), "bias": _NOT_NEGATIVE, "missing": _FRACTION},
    prefer_skip_nested_validation=True,
)
def make_loan_applications(
    n_samples: int = 8000,
    *,
    bias: float = 0.8,
    missing: float = 0.1,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    r"""Generate applications for loans: a table of categories, numbers and missing values.

    It stands in for your own table. The label says whether the loan was granted. For an application
    with features x by a person of sex s it is drawn with

    .. math:: \log \frac{P(\text{granted})}{P(\text{refused})} = f(x) + \text{bias} \cdot a_s ,
        \qquad a_\text{man} = 1, \quad a_\text{woman} = -1 .

    The merit f is not linear, so boosted trees are better than a linear model. The ratio of
    instalment to income counts beyond a threshold, which is lower for less steady occupations.
    Occupation and income depend on the sex, so a model without the sex infers it from these.

    Parameters
    ----------
    n_samples : int, default=8000
        Number of applications, at least 1.
    bias : float, default=0.8
        At least 0: the odds of a man are :math:`\exp(2 \, \text{bias})` times those of a woman with
        the same features.
    missing : float, default=0.1
        Fraction in [0, 1) of ``savings`` and of ``housing`` that is missing, at random.
    random_state : int, RandomState or None, default=None
        Pass an int for reproducible data.

    Returns
    -------
    Bunch
        ``data`` : DataFrame of shape (n_samples, 8), the features.
        ``target`` : ndarray of shape (n_samples,), "granted" or "refused".
        ``sensitive_features`` : DataFrame of shape (n_samples, 2), with the columns ``sex`` and
        ``age_group``.
        ``frame`` : DataFrame of shape (n_samples, 11), all of these; the label is the column
        ``decision``.
        ``feature_names`` : list of str.

    Examples
    --------
    >>> from fairconstrained.datasets import make_loan_applications
    >>> loans = make_loan_applications(1000, random_state=0)
    >>> loans.feature_names
    ['income', 'occupation', 'years_employed', 'housing', 'savings', 'debts', 'amount', 'months']
    >>> granted = loans.frame["decision"] == "granted"
    >>> granted.groupby(loans.frame["sex"]).mean().round(2).to_dict()
    {'man': 0.62, 'woman': 0.32}
    """
    rng = check_random_state(random_state)
    age = np.round(20 + 50 * rng.beta(1.6, 2.2, size=n_samples))
    sex = np.where(rng.uniform(size=n_samples) < 0.45, "woman", "man")
    band = np.select([age < 30, age < 55], ["under 30", "30 to 54"], "55 and older")
    people = pd.DataFrame({"age": age, "sex": sex, "age_group": band})
    features = _features(people, rng)
    standing = np.where(sex == "man", 1.0, -1.0)
    log_odds = _merit(features) + bias * standing
    granted = rng.logistic(size=n_samples) < log_odds
    for column in ("savings", "housing"):
        features.loc[rng.uniform(size=n_samples) < missing, column] = np.nan
    target = np.where(granted, "granted", "refused")
    sensitive = people[["sex", "age_group"]]
    return Bunch(
        data=features,
        target=target,
        sensitive_features=sensitive,
        frame=pd.concat([features, sensitive], axis=1).assign(decision=target),
        feature_names=list(features.columns),
    )


def _features(people: pd.DataFrame, rng: np.random.RandomState) -> pd.DataFrame:
    n = len(people)
    drawn = [
        rng.choice(_OCCUPATIONS.index, size=n, p=_OCCUPATIONS[column])
        for column in ("women", "men")
    ]
    occupation = np.where(people["sex"] == "woman", *drawn)
    usual = _OCCUPATIONS["income"].loc[occupation].to_numpy(dtype=float)
    paid = np.where(people["sex"] == "woman", 0.85, 1.0)
    income = usual * paid * np.exp(0.3 * rng.standard_normal(n))
    years = np.floor((people["age"] - 18) * rng.beta(1.2, 1.5, size=n)).to_numpy()
    savings = np.where(rng.uniform(size=n) < 0.25, 0.0, rng.exponential(0.4 * income))
    debts = np.where(rng.uniform(size=n) < 0.5, 0.0, rng.exponential(0.3 * income))
    amount = 2 + rng.exponential(18, size=n)
    settled = np.clip(0.015 * (people["age"] - 20).to_numpy(), 0, 0.6)
    place = rng.uniform(size=n)
    housing = np.where(place < settled, "owner", np.where(place < 0.85, "tenant", "with family"))
    return pd.DataFrame(
        {
            "income": income.round(1),
            "occupation": occupation,
            "years_employed": years,
            "housing": pd.Series(housing, dtype=object),
            "savings": savings.round(1),
            "debts": debts.round(1),
            "amount": amount.round(1),
            "months": rng.choice([12, 24, 36], size=n),
        }
    )


def _merit(features: pd.DataFrame) -> Floats:
    """Return the log odds that an application is granted, without the bias."""
    steadiness = _OCCUPATIONS["steadiness"].loc[features["occupation"]].to_numpy(dtype=float)
    monthly = features["income"] / 12
    burden = (features["amount"] / features["months"] + 0.02 * features["debts"]) / monthly
    bearable = 0.20 + 0.10 * steadiness
    excess = np.tanh((burden - bearable) / 0.05)
    too_small = features["amount"] < 6
    new = features["years_employed"] < 3
    exposed = (steadiness < 0) & (features["savings"] < 4)
    owner = features["housing"] == "owner"
    merit = 2 - 3 * excess - 4 * too_small - 2.5 * new - 4 * exposed + owner
    return np.asarray(merit, dtype=np.float64)

"""A generated table with categories, numbers, missing values and a bias of known size."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import validate_params

from fairconstrained.arrays import Floats
from fairconstrained.datasets.synthetic import FRACTION, NOT_NEGATIVE, at_least

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


@validate_params(  # type: ignore[untyped-decorator]
    {"n_samples": at_least(1), "bias": NOT_NEGATIVE, "missing": FRACTION},
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

    It is a stand-in for a table of one's own. The label says whether the loan was granted. For an
    application with features x by a person of sex s it is drawn with

    .. math:: \log \frac{P(\text{granted})}{P(\text{refused})} = f(x) + \text{bias} \cdot a_s ,
        \qquad a_\text{man} = 1, \quad a_\text{woman} = -1 .

    The merit f is not linear, so boosted trees are better than a linear model. The ratio of
    instalment to income counts beyond a threshold, which is lower for less steady occupations.
    Occupation and income depend on the sex, so a model without the sex among its features infers
    it from these.

    Parameters
    ----------
    n_samples : int, default=8000
        Number of applications, at least 1.
    bias : float, default=0.8
        At least 0: the odds of a man are :math:`\exp(2 \, \text{bias})` times those of a woman with
        the same features.
    missing : float, default=0.1
        Fraction in [0, 1) of the values of ``savings`` and of ``housing`` that are missing, at
        random.
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

    Raises
    ------
    ValueError
        If a parameter is outside the range stated above.

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

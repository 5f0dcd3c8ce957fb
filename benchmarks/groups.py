"""Groups that are hidden or guessed: is a constraint kept for the true groups, do intervals cover?

    python -m benchmarks.groups --seeds 0 1 2 3 4
    python -m benchmarks.groups --cases intervals --trials 1000

Case "fits": linear models of all rows of real tables, whose groups (no features) are hidden for a
fraction of the rows; demographic parity, slack 0.05. Rows are hidden at random, by the label (the
odds of a positive to be hidden are 7.4 times those of a negative), or by the group (likewise), for
which nothing here is made. The fit is given the groups that are left ("known"), probabilities of a
logistic regression on features and label ("probabilities"), these corrected by the known groups
("estimated"), or the most likely groups ("guesses"). "few columns" are posteriors of a logistic
regression in place of the features; margins are the normal quantile of 0.9.
"name" are probabilities by label from a name that has an AUC of 0.8 and nothing else, which the
predictions know more than. "recorded" groups err with known probabilities; "as recorded" takes them
for true. "all" sees the groups of all rows. Gaps are those of the true groups of all training rows.

Case "intervals": samples of 2,000 rows of a population in which groups follow from z by a logistic
model with an AUC of 0.8, and predictions depend on z and on noise. "truth" is the gap in rates.
Half of the groups (or nine tenths) are missing at random or by the label, also where
``estimate_group_probabilities`` estimates them, from z and the predictions or from noise; or the
probabilities of the population are given; or groups were recorded with errors. Intervals are made
of 1,000 draws instead of 10,000. "certified" counts upper bounds of ``certify`` at the same
confidence that are below the truth.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.command import Job, command, complete
from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import load_dataset
from fairconstrained.groups import GroupProbabilities, RecordedGroups
from fairconstrained.metrics import (
    certify,
    confidence_interval,
    demographic_parity_difference,
    intervals,
)
from fairconstrained.models import estimate_group_probabilities

SLACK = 0.05
TABLES = {  # the sensitive feature, and the columns that name it
    "adult": ("sex", "sex"),
    "compas": (None, "race"),
    "acs_income_ok": ("SEX", "SEX"),
    "law_school": (None, "race"),
    "bank": (None, "age"),
}
HIDDEN = {"at random": (0.5, 0.9), "by label": (0.5, 0.9), "by group": (0.5,)}
CONFUSION = np.array([[0.9, 0.1], [0.2, 0.8]])  # of recorded groups
GROUP_MODEL = LogisticRegression(max_iter=300)
FEW = {"model": GROUP_MODEL, "random_state": 0}  # columns
MARGIN = 1.28  # standard errors, by which chance moves a gap one time of ten
KEY = ("case", "data", "hidden", "how", "given", "seed")
MEASURED = ("auc", "said", "gap", "error", "truth", "covered", "below", "above", "certified")
Way = tuple[str, Callable[[], dict[str, Any]]]  # what a fit is given, and the fit
N_ROWS, N_DRAWS, SHIFT = 2_000, 1_000, 2.0


def _hidden(
    fraction: float, of: NDArray[Any] | None, rng: np.random.Generator, n_rows: int
) -> NDArray[np.bool_]:
    """Which rows are hidden: with more chance where `of` is one."""
    centred = np.zeros(n_rows) if of is None else of - of.mean()
    return np.asarray(rng.random(n_rows) < expit(logit(fraction) + SHIFT * centred))


# --- fits -----------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Features without the sensitive one, labels, and one of two groups."""

    X: Any
    y: NDArray[Any]
    group: NDArray[Any]

    @classmethod
    def of(cls, name: str) -> Table:
        """Load a table."""
        sensitive, columns = TABLES[name]
        data = load_dataset(name, sensitive=sensitive, drop=columns, preprocess="one_hot")
        group = np.unique(np.ravel(data.sensitive_features).astype(str), return_inverse=True)[1]
        return cls(data.data, np.asarray(data.target), group)

    def fitted(self, groups: Any, auc: Any = "", **options: Any) -> dict[str, Any]:
        """Fit, and measure by the true groups; `auc` is that of the group model."""
        clf = RateConstrainedClassifier(slack=SLACK, **options)
        clf.fit(self.X, self.y, sensitive_features=groups)
        predicted = clf.predict(self.X)
        gap = demographic_parity_difference(self.y, predicted, sensitive_features=self.group)
        error = float((predicted != self.y).mean())
        return {"auc": auc, "said": clf.violation_, "gap": gap, "error": error}

    def hidden(self, fraction: float, how: str, seed: int) -> Iterator[Way]:
        """The fits where a fraction of the groups is hidden."""
        rng, of = np.random.default_rng(seed), {"by label": self.y, "by group": self.group}
        hidden = _hidden(fraction, of.get(how), rng, len(self.y))
        partly = np.where(hidden, np.nan, self.group)
        found = estimate_group_probabilities(
            GROUP_MODEL, self.X, partly, y=self.y, random_state=seed
        )
        p = found.probabilities
        fitted = partial(self.fitted, auc=roc_auc_score(self.group[hidden], p.rows[hidden, 1]))
        yield "known", partial(fitted, partly)
        yield "probabilities", partial(fitted, p)
        yield "guesses", partial(fitted, p.encoded().likeliest())
        yield "estimated, few columns, margin", partial(fitted, found, **FEW, margin=MARGIN)
        if how == "at random":
            name = rng.normal(np.sqrt(2.0) * norm.ppf(0.8) * self.group)[:, None]
            named = estimate_group_probabilities(LogisticRegression(), name, partly, y=self.y)
            yield "name", partial(fitted, named.probabilities)
            yield "name, few columns, margin", partial(fitted, named, **FEW, margin=MARGIN)
        if fraction > 0.5:
            yield "known, margin", partial(fitted, partly, margin=MARGIN)
            yield "estimated", partial(fitted, found)
            yield "estimated, margin", partial(fitted, found, margin=MARGIN)
            yield "estimated, few columns", partial(fitted, found, **FEW)
            yield "known, few columns, margin", partial(fitted, partly, **FEW, margin=MARGIN)

    def recorded(self, seed: int) -> Iterator[Way]:
        """The fits where groups were recorded with errors."""
        recorded = _recorded(self.group, np.random.default_rng(seed))
        groups = RecordedGroups(recorded, CONFUSION)
        yield "as recorded", partial(self.fitted, recorded)
        yield "recorded", partial(self.fitted, groups)
        yield "recorded, margin", partial(self.fitted, groups, margin=MARGIN)


def _recorded(group: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    return (rng.random(len(group)) < CONFUSION[group, 1]).astype(int)


def fits(data: str, seed: int) -> Iterator[Job]:
    """Fits of one table, each given what is left of the groups."""
    table = Table.of(data)
    yield ("fits", data, 0, "", "all", seed), partial(table.fitted, table.group)
    for way, fitted in table.recorded(seed):
        yield ("fits", data, 0, "recorded", way, seed), fitted
    for how, fractions in HIDDEN.items():
        for fraction in fractions:
            for way, fitted in table.hidden(fraction, how, seed):
                yield ("fits", data, fraction, how, way, seed), fitted


# --- intervals ------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Rows of a population whose predictions follow z by `strength`."""

    z: NDArray[Any]
    p: NDArray[Any]
    group: NDArray[Any]
    y: NDArray[Any]
    predicted: NDArray[Any]

    @classmethod
    def drawn(cls, strength: float, n_rows: int, rng: np.random.Generator) -> Sample:
        """Predictions, labels and groups are independent given z and the label's noise."""
        z, x = rng.normal(size=(2, n_rows))
        p = expit(1.5 * z)
        y = (rng.random(n_rows) < expit(x)).astype(int)
        predicted = (x + rng.normal(size=n_rows) + strength * z > 0.5).astype(int)
        return cls(z, p, (rng.random(n_rows) < p).astype(int), y, predicted)

    def known_as(self, given: str, rng: np.random.Generator) -> Any:
        """The sensitive features as they are given."""
        if given == "recorded":
            return RecordedGroups(_recorded(self.group, rng), CONFUSION)
        if given == "probabilities":
            return GroupProbabilities(np.column_stack((1.0 - self.p, self.p)))
        of = self.y if given.endswith("by label") else None
        hidden = _hidden(0.9 if given.endswith("nine tenths") else 0.5, of, rng, len(self.z))
        partly = np.where(hidden, np.nan, self.group)
        if given.startswith("known"):
            return partly
        columns = np.column_stack((self.z, self.predicted))
        if given.endswith("noise"):
            columns = rng.normal(size=columns.shape)
        return estimate_group_probabilities(LogisticRegression(), columns, partly, y=self.y)


GIVEN = (
    *("known, at random", "known, by label", "probabilities", "recorded"),
    *("estimated, at random", "estimated, by label", "estimated, nine tenths", "estimated, noise"),
)


def gap(strength: float) -> float:
    """The gap of the population: rates given z, weighted by the chance of each group."""
    z, step = np.linspace(-8.0, 8.0, 4_001, retstep=True)
    density, p = norm.pdf(z) * step, expit(1.5 * z)
    rate = norm.cdf((strength * z - 0.5) / np.sqrt(2.0))
    one, other = ((rate * w).sum() / w.sum() for w in (density * p, density * (1.0 - p)))
    return float(abs(one - other))


def coverage(given: str, strength: float, trials: int, seed: int) -> dict[str, Any]:
    """Count the intervals that contain the gap of the population."""
    rng, metric, truth = np.random.default_rng(seed), demographic_parity_difference, gap(strength)
    found, wrong = np.empty((trials, 2)), []
    for t in range(trials):
        rows = Sample.drawn(strength, N_ROWS, rng)
        groups = rows.known_as(given, rng)
        labels, options = (rows.y, rows.predicted), {"sensitive_features": groups}
        found[t] = confidence_interval(metric, *labels, random_state=t, **options)
        if given == "known, at random":
            certificate = certify(
                y_true=rows.y,
                y_pred=rows.predicted,
                constraint="demographic_parity",
                slack=SLACK,
                **options,
            )
            wrong.append(certificate.upper < truth)
    low, high = found.T
    return {
        "truth": truth,
        "covered": float(((low <= truth) & (truth <= high)).mean()),
        "below": float((high < truth).mean()),
        "above": float((low > truth).mean()),
        "certified": float(np.mean(wrong)) if wrong else "",
    }


def of_populations(trials: int) -> Iterator[Job]:
    """Intervals of each population, given what is left of the groups."""
    for given, (strength, name) in product(GIVEN, ((0.0, "no gap"), (0.3, "a gap"))):
        values = ("intervals", name, "", "", given, trials)
        yield values, partial(coverage, given, strength, trials, 1)


def main() -> None:
    """Run what is missing."""
    parser = command(__doc__, "results/groups.csv")
    add = parser.add_argument
    add("--cases", nargs="+", choices=["fits", "intervals"], default=["fits", "intervals"])
    add("--data", nargs="+", choices=list(TABLES), default=list(TABLES))
    add("--given", nargs="+", help="what fits and intervals are given; default: everything")
    add("--seeds", nargs="+", type=int, default=list(range(20)))
    add("--trials", type=int, default=1_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    intervals.N_DRAWS = N_DRAWS
    parts = [fits(data, seed) for seed, data in product(options.seeds, options.data)]
    parts = parts if "fits" in options.cases else []
    parts += [of_populations(options.trials)] if "intervals" in options.cases else []
    for jobs in parts:
        asked = (job for job in jobs if options.given is None or job[0][4] in options.given)
        complete(options.output, KEY, MEASURED, asked)


if __name__ == "__main__":
    main()

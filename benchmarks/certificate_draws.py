"""How often are certificates wrong? Draws of rows from a population on which all rates are known.

    python -m benchmarks.certificate_draws --draws 3000
    python -m benchmarks.certificate_draws --cases "weights, gap" --first 1000 --draws 1000

For each criterion, and each kind of declared population, samples are drawn and certified. A
certificate is wrong if its upper bound is below the violation in the population that it is about; a
fraction of 1 - confidence may be. With two groups one comparison decides, so that nothing is given
away. Draws that are in the file are not run again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from benchmarks.command import command, complete
from fairconstrained.constraints import DemographicParity, EqualOpportunity
from fairconstrained.metrics import Proportions, Weights, certify

Array = NDArray[Any]
CONFIDENCE = 0.95
KEY = ("case", "rows", "first", "draws")
# Fractions of the cells (sex, job, label), and of favourable decisions in them.
ROWS = np.array([[[0.14, 0.16], [0.10, 0.10]], [[0.10, 0.20], [0.12, 0.08]]])
RATES = np.array([[[0.10, 0.80], [0.15, 0.60]], [[0.05, 0.50], [0.10, 0.55]]])
RARE = 0.002  # of rows with a third label: none of 400 in 45 % of the samples
LATER = np.array([[[0.08, 0.12], [0.10, 0.10]], [[0.18, 0.22], [0.12, 0.08]]])  # of the cells


class Case(NamedTuple):
    """What is certified, and how large the violation is."""

    constraint: Any
    truth: float
    given: Callable[[Mapping[str, Array]], dict[str, Any]] = lambda rows: {}


def _rates(cells: Array, axes: tuple[int, ...], label: Any = slice(None)) -> Array:
    """Return rates of favourable decisions among rows with these labels, summed over `axes`."""
    cells, rates = cells[..., label], RATES[..., label]
    axes = axes if label == slice(None) else axes[:-1]
    return np.asarray((cells * rates).sum(axis=axes) / cells.sum(axis=axes))


def _gap(rates: Array) -> float:
    return float(np.ptp(rates, axis=0).max())


def _declared(cells: Array, width: float = 0.0) -> dict[str, Any]:
    """Fractions of the groups and of positive labels in each."""
    shares, positives = cells.sum(axis=(1, 2)), cells.sum(axis=1)
    positives = positives[:, 1] / positives.sum(axis=1)
    ends = {0: (positives[0] - width, positives[0]), 1: (positives[1], positives[1] + width)}
    return {"groups": dict(enumerate(shares)), "positives": ends if width else positives}


def _with_a_third_label(rows: Mapping[str, Array]) -> dict[str, Any]:
    """Give one row in 500 a third label, which the model finds in the first group only."""
    rare = np.random.default_rng(rows["decision"]).random(len(rows["label"])) < RARE
    label = np.where(rare, 2, rows["label"])
    decision = np.where(rare, np.where(rows["sex"] == 0, 2, 0), rows["decision"])
    return {"y_true": pd.Categorical(label, [0, 1, 2]), "y_pred": decision}


def cases() -> dict[str, Case]:
    """Return each kind of certificate by name."""
    by_sex, by_job = _rates(ROWS, (1, 2)), _rates(ROWS, (0, 2))
    in_jobs = _rates(ROWS, (2,))
    granted, refused = ((ROWS * rates).sum(axis=1) for rates in (RATES, 1 - RATES))  # (sex, label)
    # Jobs have the same fractions everywhere in a declared population: P(job | sex, label) stays.
    within = ROWS / ROWS.sum(axis=1, keepdims=True)
    fractions = LATER.sum(axis=1)
    declared = within * fractions[:, None]
    later = _rates(declared, (1, 2))
    shares, positives = fractions.sum(axis=1), fractions[:, 1] / fractions.sum(axis=1)
    wrong = (declared[..., 1] * (1 - RATES[..., 1])).sum() / declared[..., 1].sum()
    population = Proportions(groups=dict(enumerate(shares)), positives=dict(enumerate(positives)))
    # The gap grows with the positive labels of the first sex, and falls with those of the other.
    ends = np.array([positives[0] + 0.1, positives[1] - 0.1])
    intervals = Proportions(positives={0: (positives[0], ends[0]), 1: (ends[1], positives[1])})
    widest = within * (shares[:, None] * np.stack((1 - ends, ends), axis=1))[:, None]
    weights = LATER / ROWS
    return {
        "demographic parity": Case("demographic_parity", _gap(by_sex)),
        "equal opportunity": Case("equal_opportunity", _gap(_rates(ROWS, (1, 2), 1))),
        "equal opportunity, a label that is rare or absent": Case(
            "equal_opportunity", 1.0, _with_a_third_label
        ),
        "predictive parity": Case("predictive_parity", _gap(granted[:, 1] / granted.sum(axis=1))),
        "false omission rate parity": Case(
            "false_omission_rate_parity", _gap(refused[:, 1] / refused.sum(axis=1))
        ),
        "ratio of selection rates": Case(
            DemographicParity(ratio=0.8), 1 - by_sex.min() / by_sex.max()
        ),
        "ratio, equal opportunity": Case(
            EqualOpportunity(ratio=0.8), 1 - np.divide(*np.sort(_rates(ROWS, (1, 2), 1)))
        ),
        "within strata": Case(
            "demographic_parity", _gap(in_jobs), lambda rows: {"control_features": rows["job"]}
        ),
        "attributes in parallel": Case(
            DemographicParity(attributes="parallel"),
            max(_gap(by_sex), _gap(by_job)),
            lambda rows: {"sensitive_features": {"sex": rows["sex"], "job": rows["job"]}},
        ),
        "declared fractions, gap": Case(
            "demographic_parity", _gap(later), lambda rows: {"population": population}
        ),
        "declared fractions, cap": Case(
            "false_negative_rate", float(wrong), lambda rows: {"population": population}
        ),
        "declared intervals, gap": Case(
            "demographic_parity",
            _gap(_rates(widest, (1, 2))),
            lambda rows: {"population": intervals},
        ),
        "weights, gap": Case(
            "demographic_parity",
            _gap(_rates(LATER, (1, 2))),
            lambda rows: {
                "population": Weights(
                    weights[rows["sex"], rows["job"], rows["label"]], most=float(weights.max())
                )
            },
        ),
    }


def drawn(n_rows: int, rng: np.random.Generator) -> dict[str, Array]:
    """Draw a sample of the population."""
    cell = rng.choice(ROWS.size, size=n_rows, p=ROWS.ravel())
    sex, job, label = np.unravel_index(cell, ROWS.shape)
    decision = (rng.random(n_rows) < RATES[sex, job, label]).astype(int)
    return {"sex": sex, "job": job, "label": label, "decision": decision}


def wrong(case: Case, n_rows: int, first: int, n_draws: int) -> dict[str, int]:
    """Count the certificates whose bound is below the truth."""
    rng, found = np.random.default_rng(0), 0
    for draw in tqdm(range(first + n_draws), unit="draw", leave=False):
        rows = drawn(n_rows, rng)
        if draw < first:
            continue
        given = {
            "y_true": rows["label"],
            "y_pred": rows["decision"],
            "sensitive_features": rows["sex"],
            **case.given(rows),
        }
        certificate = certify(constraint=case.constraint, slack=0.5, confidence=CONFIDENCE, **given)
        found += certificate.upper < case.truth
    return {"wrong": found}


def main() -> None:
    """Run the draws that are missing."""
    parser, known = command(__doc__, "results/certificate_draws.csv"), cases()
    add = parser.add_argument
    add("--cases", nargs="+", choices=list(known), default=list(known), metavar="CASE")
    add("--rows", type=int, default=400)
    add("--first", type=int, default=0, help="number of the first draw")
    add("--draws", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    given = (options.rows, options.first, options.draws)
    jobs = [((name, *given), partial(wrong, known[name], *given)) for name in options.cases]
    complete(options.output, KEY, ["wrong"], jobs)


if __name__ == "__main__":
    main()

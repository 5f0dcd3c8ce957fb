"""What a slack on the training rows is worth on new ones, certified or not.

    python -m benchmarks.promises

Fifteen generated samples for each number of rows, demographic parity within .05, gaps on 200,000
new rows: of RateConstrainedClassifier, without a margin and with margins of 1 and 1.645, and of
CertifiedClassifier around it. Writes a row for each fit, which `docs/guide/new_data.md` draws, and
prints the fraction above the slack.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from benchmarks import results
from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.model_selection import CertifiedClassifier

SLACK = 0.05
ROWS = (1_500, 5_000, 15_000, 50_000)
NEW_ROWS = 200_000
PLAIN, CERTIFIED = "margin=0", "CertifiedClassifier"
MODELS = {
    PLAIN: RateConstrainedClassifier(slack=SLACK),
    "margin=1": RateConstrainedClassifier(slack=SLACK, margin=1.0),
    "margin=1.645": RateConstrainedClassifier(slack=SLACK, margin=1.645),
    CERTIFIED: CertifiedClassifier(RateConstrainedClassifier(slack=SLACK)),
}


def fits(samples: int) -> Iterator[dict[str, Any]]:
    """Give the gap on new rows of each fit, and whether it was certified."""
    data = make_biased_classification(1_000_000, n_features=6, bias=0.4, random_state=0)
    columns = data.data, data.target, data.sensitive_features
    X_new, y_new, group_new = (column[-NEW_ROWS:] for column in columns)
    for n_rows in ROWS:
        for seed in tqdm(range(samples), desc=f"{n_rows} rows"):
            drawn = np.random.default_rng(seed).integers(len(data.target) - NEW_ROWS, size=n_rows)
            X, y, group = (column[drawn] for column in columns)
            for name, model in MODELS.items():
                model.set_params(random_state=seed)
                predicted = model.fit(X, y, sensitive_features=group).predict(X_new)
                gap = demographic_parity_difference(y_new, predicted, sensitive_features=group_new)
                certified = bool(getattr(model, "certified_", False))
                key = {"rows": n_rows, "seed": seed, "model": name}
                yield {**key, "gap": gap, "certified": certified}


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Fractions of the models above the slack; of the certified ones, of those with one."""
    claimed = found[(found["model"] != CERTIFIED) | found["certified"]]
    above = claimed.assign(above=claimed["gap"] > SLACK)
    return above.pivot_table(index="rows", columns="model", values="above", sort=False)


def main() -> None:
    """Train, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("results"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = results.save(options.output / "promises.csv", fits(options.samples))
    print(summary(found).to_string())


if __name__ == "__main__":
    main()

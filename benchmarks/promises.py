"""What a slack on the training rows is worth on new ones, certified or not.

    python -m benchmarks.promises
    python -m benchmarks.promises --draw docs/images

Fifteen generated samples for each number of rows, demographic parity within .05, gaps on 200,000
new rows: of RateConstrainedClassifier, without a margin and with margins of 1 and 1.645, and of
CertifiedClassifier around it. Writes a row for each fit and prints the fraction above the slack.
With ``--draw`` the written fits are drawn into the folder, for a light and a dark page; a model
without a certificate is hollow.
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
DRAWN = {PLAIN: "slack kept on the training rows", CERTIFIED: "certified on rows split off"}
COLORS = ("#D55E00", "#3D9BD9")
INKS = {"": "0.15", "-dark": "0.85"}  # of axes and text, by the end of the picture's name


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


def draw(found: pd.DataFrame, path: Path, ink: str) -> None:
    """Save a dot for each model, on a transparent ground."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colors = dict.fromkeys(["text.color", "axes.edgecolor", "axes.labelcolor"], ink)
    with mpl.rc_context({**colors, "xtick.color": ink, "ytick.color": ink}):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        for ax, (model, title), color in zip(axes, DRAWN.items(), COLORS, strict=True):
            of = found[found["model"] == model]
            place = of["rows"].map(ROWS.index) + 0.5 * (of["seed"] / of["seed"].max() - 0.5)
            filled = of["certified"] | (model != CERTIFIED)
            ax.scatter(place[filled], of["gap"][filled], s=18, color=color)
            ax.scatter(place[~filled], of["gap"][~filled], s=18, facecolors="none", edgecolors=ink)
            ax.axhline(SLACK, color=ink, linestyle="--", linewidth=1)
            ax.set_xticks(range(len(ROWS)), [f"{n:,}" for n in ROWS])
            ax.set(title=title, xlabel="rows", facecolor="none")
        axes[0].set_ylabel("gap on new rows")
        figure.savefig(path, dpi=130, transparent=True)


def main() -> None:
    """Train, write and print; or draw what is written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--draw", type=Path, help="train nothing, draw into this folder")
    options = parser.parse_args()
    path = options.output / "promises.csv"
    if options.draw is not None:
        for end, ink in INKS.items():
            draw(pd.read_csv(path), options.draw / f"new_data{end}.png", ink)
        return
    warnings.simplefilter("ignore")
    print(summary(results.save(path, fits(options.samples))).to_string())


if __name__ == "__main__":
    main()
